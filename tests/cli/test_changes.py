"""Commands that change topics, replicas, brokers and the controller."""

import json
import re
from pathlib import Path

import pytest

from kactl.admin.schema import (
    BrokerDrained,
    BrokerInfo,
    PartitionExplanation,
    PlanAnswer,
    QueueInfo,
    ReassignmentAnswer,
    TermList,
    TopicChanged,
    TopicDeleted,
    TopicExplanation,
)

from .server import Up


def test_topic_is_expanded_changed_and_deleted(up: Up) -> None:
    up("topic", "create", "bread", "--assignment", "0:1,2")

    expanded = up("topic", "add-partitions", "bread", "--partitions", "3", "--replicas", "2,3", "--replicas", "3,1")
    changed = up("topic", "set", "bread", "retention.ms=5", "a.b=c", "-o", "json")
    removed = up("topic", "set", "bread", "retention.ms-", "-o", "jsonl")
    shown = up("topic", "describe", "bread", "-o", "kafka").out.splitlines()
    unconfirmed = up("topic", "delete", "bread")
    preview = up("topic", "delete", "bread", "--dry-run")
    deleted = up("topic", "delete", "bread", "--yes")

    assert (expanded.code, expanded.out, expanded.err) == (0, "", "Topic bread now has 3 partitions.\n")
    assert changed.json(TopicChanged).config == {"retention.ms": "5", "a.b": "c"}
    assert [change.config for change in removed.jsonl(TopicChanged)] == [{"a.b": "c"}]
    assert [line.partition("Replicas: ")[2].partition("\t")[0] for line in shown[1:]] == ["1,2", "2,3", "3,1"]
    assert (unconfirmed.code, "no terminal to confirm on" in unconfirmed.err) == (6, True)
    assert (preview.code, preview.err) == (0, "Topic bread could be deleted. Nothing was changed.\n")
    assert (deleted.code, deleted.err) == (0, "Deleted topic bread.\n")
    assert up("topic", "describe", "bread").code == 1


def test_creation_waits_for_leaders_that_serve(up: Up) -> None:
    created = up("topic", "create", "serving", "--assignment", "0:1,2", "--wait", "ready")
    grown = up("topic", "add-partitions", "serving", "--partitions", "2", "--wait", "ready")

    assert (created.code, created.err) == (0, "Created topic serving.\n")
    assert grown.code == 0


def test_plan_is_saved_applied_and_verified(up: Up, tmp_path: Path) -> None:
    up("topic", "create", "plans", "--assignment", "0:1,2", "--assignment", "1:2,3")
    file = tmp_path / "plan.json"

    planned = up("reassign", "plan", "--topic", "plans", "--without", "1", "--out", str(file))
    before = up("reassign", "verify", "-f", str(file))
    preview = up("reassign", "apply", "-f", str(file), "--dry-run", "-o", "json")
    applied = up("reassign", "apply", "-f", str(file), "--yes")
    up.until(lambda: up("reassign", "verify", "-f", str(file)).code == 0, "the replicas to have moved")
    after = up("reassign", "verify", "-f", str(file))
    up.until(lambda: bool(up("reassign", "list").err), "no partition to be moved")

    assert planned.code == 0
    assert re.search(r"^plans-0 +1,2 +3,2 +1$", planned.out, re.MULTILINE)
    assert planned.err.splitlines()[0].split() == ["BROKER", "REPLICAS", "PREFERRED", "LEADERS"]
    assert planned.err.endswith(
        "\n1 partition would change, 1 replica would be copied, 1 partition would stay. Nothing was changed.\n"
    )
    assert json.loads(file.read_text())["partitions"] == [
        {"topic": "plans", "partition": 0, "replicas": [3, 2], "log_dirs": []}
    ]
    assert (before.code, before.err) == (1, "0 of 1 partition complete.\n")
    assert preview.json(ReassignmentAnswer).results[0].adding == (3,)
    assert applied.code == 0
    assert applied.err == "1 begun, 0 failed.\n"
    assert re.search(r"^plans-0 +3,2 +3,2 +complete$", after.out, re.MULTILINE)
    assert up("reassign", "plan", "--topic", "plans", "--without", "1", "-o", "json").json(PlanAnswer).items == ()
    assert re.fullmatch(
        r"No partition is being moved; \d+ moves? complete, the last at [0-9T:.+ -]+: plans-0(, [\w, -]+)?\.\n",
        up("reassign", "list").err,
    )


def test_plan_of_balanced_topic_is_empty_and_can_be_applied(own_up: Up, tmp_path: Path) -> None:
    """The example of the README: every broker has a replica of every partition, so no move is possible."""
    own_up("topic", "create", "orders", "--partitions", "6", "--replication-factor", "3")
    file = tmp_path / "plan.json"

    planned = own_up("reassign", "plan", "--topic", "orders", "--balance", "--out", str(file))
    applied = own_up("reassign", "apply", "-f", str(file))
    listed = own_up("reassign", "list")

    assert (planned.code, applied.code, listed.code) == (0, 0, 0)
    assert [line.split() for line in planned.err.splitlines()[1:4]] == [[str(broker), "6", "2"] for broker in (1, 2, 3)]
    assert "No move is needed: 6 partitions looked at, no move would spread" in planned.err
    assert applied.err == "The plan is empty. Nothing was changed.\n"
    assert listed.err == "No partition is being moved.\n"


def test_rejected_moves_and_cancellations_are_listed_by_partition(up: Up) -> None:
    up("topic", "create", "stays", "--assignment", "0:1")

    moved = up("reassign", "apply", "-p", "stays-0:9", "-p", "nowhere-0:1", "--yes")
    cancelled = up("reassign", "cancel", "-p", "stays-0", "--yes")

    assert moved.code == cancelled.code == 1
    assert re.search(r"^stays-0 .* failed: .*INVALID_REPLICA_ASSIGNMENT", moved.out, re.MULTILINE)
    assert re.search(r"^nowhere-0 .* failed: .*UNKNOWN_TOPIC_OR_PARTITION", moved.out, re.MULTILINE)
    assert re.search(r"^stays-0 .* failed: .*NO_REASSIGNMENT_IN_PROGRESS", cancelled.out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["reassign", "apply"], 2, "exactly one of -p"),
        (["reassign", "apply", "-p", "orders"], 2, "write orders-0:1,2,3"),
        (["reassign", "apply", "-p", "orders-0:1,x", "--yes"], 2, "write 1,2,3"),
        (["reassign", "apply", "-f", "/nowhere.json"], 2, "cannot be read"),
        (
            ["reassign", "apply", "-p", "a-0:1", "-p", "b-7:1", "-p", "b-7:2", "--yes"],
            1,
            "partitions: b-7 is named twice; name each partition once",
        ),
        (["reassign", "cancel"], 2, "exactly one of --all"),
        (["reassign", "plan", "--without", "1,2,3"], 1, "no broker is left to hold replicas"),
        (["topic", "add-partitions", "nowhere", "--partitions", "4"], 1, "there is no topic nowhere"),
        (["topic", "delete", "nowhere", "--yes"], 1, "there is no topic nowhere"),
        (["topic", "set", "nowhere", "a=b"], 1, "there is no topic nowhere"),
        (["topic", "set", "nowhere", "ab"], 2, "write key=value"),
        (["explain", "nowhere-0"], 1, "there is no topic nowhere"),
        (["explain", "3"], 1, "kactl describe broker 3"),
        (["broker", "drain", "9"], 1, "broker 9 is not registered"),
        (["controller", "resign", "--epoch", "99", "--yes"], 6, "99 is not the present controller epoch"),
        (["elect", "preferred", "-f", "/nowhere.json"], 2, "cannot be read"),
    ],
)
def test_invalid_change_is_rejected_with_a_message(up: Up, arguments: list[str], code: int, message: str) -> None:
    done = up(*arguments)

    assert done.code == code
    assert message in done.err
    assert not done.out


def test_invalid_plan_file_is_rejected_with_its_name(up: Up, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"partitions": [{"topic": "a"}]}')

    done = up("reassign", "apply", "-f", str(file))

    assert done.code == 2
    assert f"{file}: Object missing required field `partition`" in done.err


def test_partition_and_topic_are_explained(up: Up) -> None:
    up("topic", "create", "why", "--assignment", "0:2,1")

    text = up("explain", "why-0")
    partition = up("explain", "why-0", "-o", "json").json(PartitionExplanation)
    topic = up("explain", "why", "-o", "json").json(TopicExplanation)

    assert text.out.splitlines()[0] == (
        "why-0: broker 2 leads, elected under leader epoch 0; it is the preferred replica."
    )
    assert re.search(r"^ +1 +live +yes +could lead$", text.out, re.MULTILINE)
    assert (partition.leader, partition.remedies) == (2, ())
    assert (topic.deletion, topic.waits_for) == ("none", ())


def test_broker_drain_undo_and_controller_resignation(own_up: Up) -> None:
    own_up("topic", "create", "bread", "--assignment", "0:1,2")
    own_up("topic", "create", "toast", "--assignment", "0:1")

    preview = own_up("broker", "drain", "1", "--dry-run", "-o", "json").json(BrokerDrained)
    drained = own_up("broker", "drain", "1")
    undone = own_up("broker", "drain", "1", "--undo")
    resigned = own_up("controller", "resign", "--yes")
    own_up.until(lambda: own_up("get", "topics").code == 0, "the next election of the controller")
    terms = own_up("controller", "history", "-o", "json").json(TermList).items
    queue = own_up("controller", "queue", "-o", "json").json(QueueInfo)

    assert preview.remaining == ()
    assert preview.effect is not None
    assert preview.effect.alone.count == 1
    assert (drained.code, drained.err.splitlines()) == (
        0,
        [
            "Broker 1 still leads 1 partition; 1 partition moved to other leaders; of 1 partition it holds the only"
            " replica: toast-0.",
            "It left the ISR of 1 partition.",
            "WARNING: 1 partition has one replica in sync, and no spare for the next failure: bread-0",
            "To take it back: kactl broker drain --undo 1",
        ],
    )
    assert undone.err == "Broker 1 may lead and follow again.\n"
    assert (resigned.code, resigned.err) == (0, f"Controller 0 has resigned from epoch {terms[0].epoch}.\n")
    assert [term.cause for term in terms] == ["asked to resign", ""]
    assert {"ControlledShutdown", "UndrainBroker"} <= {kind.label for kind in queue.kinds}
    assert re.search(r"^current ", own_up("controller", "queue").out)
    assert re.search(r"asked to resign", own_up("controller", "history").out)


def test_drain_below_min_isr_requires_confirmation(own_up: Up) -> None:
    own_up("topic", "create", "bread", "--assignment", "0:1,2", "--config", "min.insync.replicas=2")

    preview = own_up("broker", "drain", "1", "--dry-run")
    refused = own_up("broker", "drain", "1")
    (before,) = own_up.partitions("--topic", "bread")
    drained = own_up("broker", "drain", "1", "--yes")
    (after,) = own_up.partitions("--under-min-isr")
    deleted = own_up("topic", "delete", "bread", "--yes", "-o", "json").json(TopicDeleted)

    assert preview.code == 0
    assert "1 partition would be under min.insync.replicas, so acks=all is rejected: bread-0" in preview.err
    assert preview.err.endswith("Nothing was changed.\n")
    assert refused.code == 6
    assert "acks=all is rejected: bread-0" in refused.err
    assert before.isr == (1, 2)
    assert drained.code == 0
    assert "WARNING: 1 partition is under min.insync.replicas" in drained.err
    assert (after.leader, after.isr) == (2, (2,))
    # A topic with replicas on a drained broker is deleted at once.
    assert deleted.gone


def listed_brokers(up: Up) -> list[BrokerInfo]:
    return up("get", "brokers", "-o", "jsonl").jsonl(BrokerInfo)


def test_brokers_show_queue_and_last_error(patient_up: Up) -> None:
    """A killed broker stays registered until its session expires; requests to it are queued meanwhile."""
    patient_up("broker", "kill", "3")
    patient_up("topic", "create", "bread", "--assignment", "0:1,3")

    patient_up.until(
        lambda: [broker.queue_size > 0 for broker in listed_brokers(patient_up)] == [False, False, True],
        "the requests to live brokers to be answered",
    )

    text = patient_up("get", "brokers")
    brokers = listed_brokers(patient_up)

    third = brokers[2]
    assert (third.state, third.queue_size > 0) == ("live", True)
    assert third.last_error
    header, *rows = text.out.splitlines()
    assert header.split()[-3:] == ["QUEUE", "LAST", "ERROR"]
    assert re.search(r" +0 +-$", rows[0])
    assert re.search(rf" {third.queue_size} \([0-9.]+m?s\) +{re.escape(third.last_error)}$", rows[2])


def test_halted_deletion_is_reported_and_explained(own_up: Up) -> None:
    own_up("topic", "create", "bread", "--replication-factor", "3")
    own_up("broker", "kill", "3")
    own_up.until(lambda: "dead" in own_up("get", "brokers").out.lower(), "the death of broker 3")

    deleted = own_up("topic", "delete", "bread", "--yes", "--timeout", "2", "-o", "json").json(TopicDeleted)
    explained = own_up("explain", "bread")
    own_up("broker", "restart", "3")
    own_up.until(lambda: own_up("explain", "bread").code == 1, "the end of the deletion")

    assert not deleted.gone
    assert "its deletion is halted" in explained.out
    assert "on broker 3 are offline: start broker 3" in explained.out


def test_missing_partition_of_a_topic_is_named(up: Up) -> None:
    up("topic", "create", "pay", "--partitions", "2", "--replication-factor", "1")

    done = up("explain", "pay-99")

    assert done.code == 1
    assert "topic pay has no partition 99: it has 2, numbered from 0" in done.err
