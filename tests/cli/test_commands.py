"""Commands that read the cluster, create topics and elect leaders: results, rejections and formats."""

import re
from pathlib import Path

import msgspec
import pytest

from kactl.admin.schema import (
    BrokerInfo,
    ControllerInfo,
    ElectionAnswer,
    ElectionEvent,
    PartitionInfo,
    Problem,
    TopicDetail,
    TopicInfo,
)

from .server import Up, kactl, kactl_process


def test_topic_is_created_listed_and_described(up: Up) -> None:
    created = up("topic", "create", "bills", "--partitions", "2", "--replication-factor", "3", "--config", "a.b=c")
    listed = up("topic", "list", "-o", "json")
    described = up("topic", "describe", "bills")

    assert (created.code, created.out, created.err) == (0, "", "Created topic bills.\n")
    topics = listed.json(list[TopicInfo])
    assert [(topic.partitions, topic.replication_factor) for topic in topics if topic.name == "bills"] == [(2, 3)]
    assert described.code == 0
    assert re.search(r"^overrides +a\.b=c$", described.out, re.MULTILINE)
    assert re.search(r"^bills-1 +online +\d +0 +[\d,]{5} +[\d,]{5} +1$", described.out, re.MULTILINE)


def test_elections_are_listed_with_their_stages(up: Up) -> None:
    up("topic", "create", "ballots", "--partitions", "2", "--replication-factor", "1")

    shown = up("get", "elections")
    listed = up("get", "elections", "-o", "json", "--limit", "1")

    assert shown.code == 0
    assert re.search(r"^ +EVENT +TIME +TRIGGER +STRATEGY +MOVED +REJECTED +QUEUE +PLAN", shown.out, re.MULTILINE)
    assert re.search(r"^\d{16} +[\d:.]+ +TopicChange +first +2 +0 ", shown.out, re.MULTILINE)
    (record,) = listed.json(list[ElectionEvent])
    assert record.because.strategy == "first"


# Reading commands run as processes in test_arguments.py.
CHANGES = (
    "config validate kactl.toml",
    "topic create run --assignment 0:1",
    "topic set run a=b",
    "topic add-partitions run --partitions 2 --replicas 1",
    "elect preferred --topic run --yes",
    "reassign cancel --all --yes",
    "broker drain 3",
    "broker drain 3 --undo",
    "broker kill 3",
    "broker restart 3",
    "topic delete run --yes",
    "watch --since 0 --limit 1",
    "controller resign --yes",
)


def test_changing_commands_run_as_processes(own_up: Up, tmp_path: Path) -> None:
    (tmp_path / "kactl.toml").write_text("node-id = 1\n")

    for command in CHANGES:
        done = kactl_process(*command.split(), env={"KACTL_SERVER": own_up.url}, cwd=tmp_path)

        assert done.code == 0, (command, done.err)
        assert done.out + done.err, command


def test_kafka_output_equals_that_of_kafka_topics(up: Up) -> None:
    up("topic", "create", "mail", "--assignment", "0:2,3", "--assignment", "1:3,1", "--config", "x=1")
    topic = up("topic", "describe", "mail", "-o", "json")

    lines = up("topic", "describe", "mail", "-o", "kafka").out.splitlines()

    id_ = topic.json(TopicDetail).topic.id
    assert lines == [
        f"Topic: mail\tTopicId: {id_}\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: x=1",
        "\tTopic: mail\tPartition: 0\tLeader: 2\tReplicas: 2,3\tIsr: 2,3\tElr: N/A\tLastKnownElr: N/A",
        "\tTopic: mail\tPartition: 1\tLeader: 3\tReplicas: 3,1\tIsr: 3,1\tElr: N/A\tLastKnownElr: N/A",
    ]


def test_dry_run_creates_no_topic(up: Up) -> None:
    done = up("topic", "create", "never", "--partitions", "4", "--dry-run")

    assert (done.code, done.err) == (0, "Topic never could be created. Nothing was changed.\n")
    assert up("topic", "describe", "never").code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["describe", "nowhere"], 1, "there is no topic nowhere"),
        (["create", "a b"], 1, "only ASCII letters"),
        (["describe", ""], 2, "an argument is empty: write the name of a topic"),
        (["create", "wide", "--replication-factor", "9"], 1, "9 replicas need 9 brokers, 3 are registered (1, 2, 3)"),
        (["create", "odd", "--assignment", "0:1,7"], 1, "brokers [7] are not registered"),
        (["create", "odd", "--assignment", "0=1"], 2, "write 0:1,2,3"),
        (["create", "odd", "--assignment", "1:1"], 2, "numbered from 0 without a gap"),
        (["create", "odd", "--assignment", "0:1", "--assignment", "0:2"], 2, "given twice"),
        (["create", "odd", "--assignment", "0:1", "--partitions", "1"], 2, "not both"),
        (["create", "odd", "--config", "novalue"], 2, "write key=value"),
        (["create"], 2, "Missing argument"),
        (["list", "-o", "kafka"], 2, "this command does not support the output format 'kafka'"),
    ],
)
def test_invalid_topic_command_is_rejected_without_effect(
    up: Up, arguments: list[str], code: int, message: str
) -> None:
    before = up("topic", "list").out

    refused = up("topic", *arguments)

    assert (refused.code, refused.out) == (code, "")
    assert message in refused.err
    assert up("topic", "list").out == before


def test_json_output_prints_problem_document_of_existing_topic(up: Up) -> None:
    up("topic", "create", "twice")

    refused = up("topic", "create", "twice", "-o", "json")

    problem = msgspec.json.decode(refused.err, type=Problem)
    assert (refused.code, refused.out) == (1, "")
    assert (problem.status, problem.error_name) == (409, "TOPIC_ALREADY_EXISTS")


def test_json_lists_have_the_items_of_the_api(up: Up) -> None:
    up("topic", "create", "lists", "--partitions", "3", "--replication-factor", "2")

    controller = up("get", "controller", "-o", "json")
    brokers = up("get", "brokers", "-o", "jsonl")
    partitions = up("get", "partitions", "--topic", "li?ts", "-o", "jsonl")

    assert controller.json(ControllerInfo).is_active
    assert [broker.id for broker in brokers.jsonl(BrokerInfo)] == [1, 2, 3]
    assert [(item.topic, item.partition) for item in partitions.jsonl(PartitionInfo)] == [
        ("lists", number) for number in range(3)
    ]


def test_partitions_are_filtered_by_leader_and_replica(up: Up) -> None:
    up("topic", "create", "picks", "--assignment", "0:1,2", "--assignment", "1:2,3", "--assignment", "2:3,1")

    def filtered(*options: str) -> list[int]:
        return [item.partition for item in up.partitions("--topic", "picks", *options)]

    assert filtered("--leader", "2") == [1]
    assert filtered("--replica", "1") == [0, 2]
    assert filtered("--leader", "1", "--replica", "3") == []
    assert filtered("--offline") == filtered("--urp") == []
    assert filtered("--limit", "2") == [0, 1]
    assert "2 of 3 are shown" in up("get", "partitions", "--topic", "picks", "--limit", "2").err
    assert up("get", "partitions", "--topic", "picks", "--limit", "2", "-q").err == ""


def test_empty_list_is_remarked_unless_quiet(up: Up) -> None:
    none = up("get", "partitions", "--topic", "no-such-topic")
    quiet = up("-q", "get", "partitions", "--topic", "no-such-topic")

    assert (none.code, none.err) == (0, "No partition matches.\n")
    assert (quiet.code, quiet.err) == (0, "")
    assert none.out == quiet.out


@pytest.mark.parametrize("collection", ["controller", "brokers", "topics", "partitions"])
def test_output_without_terminal_has_no_colour(up: Up, collection: str) -> None:
    shown = up("get", collection)

    assert shown.code == 0
    assert shown.out
    assert "\x1b" not in shown.out + shown.err


def test_elections_are_previewed_run_and_partly_rejected(up: Up) -> None:
    up("topic", "create", "votes", "--partitions", "2", "--replication-factor", "3")

    preview = up("elect", "preferred", "--topic", "votes", "--dry-run")
    elected = up("elect", "preferred", "-p", "votes-0", "--yes", "-o", "json", "--reason", "a test")
    partly = up("elect", "unclean", "-p", "votes-0", "-p", "votes-9", "--yes")

    assert (preview.code, preview.err) == (0, "2 not needed. Nothing was changed.\n")
    answer = elected.json(ElectionAnswer)
    assert (elected.code, [result.outcome for result in answer.results]) == (0, ["not_needed"])
    assert partly.code == 1
    assert "failed: the partition does not exist (UNKNOWN_TOPIC_OR_PARTITION)" in partly.out
    assert partly.err == "1 not needed, 1 failed.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["preferred", "--all"], 6, "not confirmed: there is no terminal to confirm on"),
        (["preferred"], 2, "exactly one of"),
        (["preferred", "--all", "--topic", "a"], 2, "exactly one of"),
        (["unclean", "-p", "nodash"], 2, "'nodash' is not a partition: write it as topic-0"),
        (["sideways", "--all"], 2, "'sideways' is not one of"),
        (["preferred", "--topic", "nowhere", "--yes"], 1, "there is no topic nowhere"),
    ],
)
def test_invalid_election_is_rejected(up: Up, arguments: list[str], code: int, message: str) -> None:
    refused = up("elect", *arguments)

    assert (refused.code, refused.out) == (code, "")
    assert message in refused.err


def test_killing_unknown_broker_fails(up: Up) -> None:
    refused = up("broker", "kill", "9")

    assert refused.code == 1
    assert "there is no broker 9" in refused.err


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", "127.0.0.1:1"])
def test_unreachable_server_exits_with_3(server: str) -> None:
    alone = kactl("--server", server, "get", "topics")
    from_outside = kactl("watch", env={"KACTL_SERVER": "http://127.0.0.1:1"})

    assert (alone.code, from_outside.code) == (3, 3)
    assert "http://127.0.0.1:1 cannot be reached (Connection refused): start a server with `kactl up`" in alone.err


def test_silent_server_exits_with_3_after_the_timeout(up: Up) -> None:
    up.process.pause()
    try:
        silent = up("--timeout", "0.2", "get", "topics")
    finally:
        up.process.resume()

    assert silent.code == 3
    assert "did not respond within 0.2 s" in silent.err


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300", "0", "-1"])
def test_invalid_timeout_is_a_usage_error(seconds: str) -> None:
    refused = kactl("--server", "http://127.0.0.1:1", "--timeout", seconds, "get", "topics")

    assert refused.code == 2
    assert "Invalid value for '--timeout'" in refused.err


def test_huge_timeout_of_kafkas_tool_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "moves.json"
    file.write_text('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}')

    refused = kactl(
        "--server", "http://127.0.0.1:1", "compat", "reassign-partitions", "--execute",
        "--bootstrap-server", "127.0.0.1:1", "--reassignment-json-file", file, "--timeout", str(2**63 - 1),
    )  # fmt: skip

    assert "Connection refused" in refused.out + refused.err
    assert "Traceback" not in refused.err


def test_invalid_server_url_is_a_usage_error() -> None:
    assert kactl("--server", "ftp://x", "get", "topics").code == 2
    assert kactl("--server", "http://x:port", "get", "topics").code == 2
