"""Commands speak of owners and shards where a topic is of the kind ownership."""

import time
import urllib.request
from collections.abc import Iterator

import pytest

from kactl.admin.schema import ClusterInfo, PartitionExplanation, PartitionInfo, ShardInfo, TopicInfo, WhatIf
from tests.support.api_access import token_of
from tests.support.processes import POLL_S
from tests.support.served_shards import POISONED, SHARDS, served_shards

from .server import START_S, CommandResult
from .server import kactl as command


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_shards(tmp_path_factory.mktemp("shards")) as address:
        yield address


def run(url: str, *arguments: str) -> CommandResult:
    return command("--server", url, *arguments)


@pytest.fixture(scope="module")
def settled(url: str) -> str:
    """Wait until all shards but the poisoned one are owned."""
    deadline = time.monotonic() + START_S
    while True:
        states = {name: shard.state for name, shard in shards(url, "--topic", "jobs").items()}
        poisoned = states.pop(POISONED)
        if set(states.values()) == {"owned"} and poisoned in ("failing", "unowned"):
            return url
        assert time.monotonic() < deadline, states
        time.sleep(POLL_S)


def shards(url: str, *options: str) -> dict[str, ShardInfo]:
    items = run(url, "get", "shards", "-o", "jsonl", *options).jsonl(PartitionInfo)
    return {f"{item.topic}-{item.partition}": item.shard for item in items if item.shard is not None}


def test_topics_show_their_kind_and_their_standbys(settled: str) -> None:
    topics = {item.name: item for item in run(settled, "topic", "list", "-o", "jsonl").jsonl(TopicInfo)}

    assert (topics["jobs"].kind, topics["jobs"].standby) == ("ownership", 1)
    assert (topics["orders"].kind, topics["orders"].standby) == ("replicated", None)
    assert topics["idle"].offline_partitions == 2
    assert "ownership" in run(settled, "topic", "list").out


@pytest.mark.parametrize("arguments", [("topic", "describe", "jobs"), ("describe", "topic", "jobs")], ids=" ".join)
def test_topic_is_described_in_shards_and_owners(settled: str, arguments: tuple[str, ...]) -> None:
    text = run(settled, *arguments).out

    assert "SHARD   STATE" in text
    assert "OWNER" in text
    assert "standbys" in text
    assert not {"LEADER", "REPLICAS", "ISR", "replication"} & set(text.split())


def test_lists_separate_shards_from_partitions(settled: str) -> None:
    lines = run(settled, "get", "partitions").out.splitlines()

    titles = [line.split()[0] for line in lines if line and line.split()[0].isupper()]
    assert titles == ["PARTITION", "SHARD"]
    assert shards(settled, "--state", "unowned", "--topic", "idle").keys() == {"idle-0", "idle-1"}
    assert run(settled, "get", "shards", "--topic", "orders").out.splitlines()[1:] == []


def test_explanation_names_owner_reason_and_candidates(settled: str) -> None:
    found = run(settled, "explain", "jobs-0", "-o", "json").json(PartitionExplanation)

    owner, standby = found.candidates[0], found.candidates[1]
    assert found.shard is not None
    assert found.since_ms is not None
    assert found.trigger
    assert f"participant {owner.broker} owns it" in found.verdict
    assert "of the 6 shards of jobs" in found.verdict
    assert standby.verdict == "standby: takes over first"
    assert "it offers other topics" in found.candidates[2].verdict
    assert "PARTICIPANT" in run(settled, "explain", "jobs-0").out


def test_explanation_of_a_failing_shard_has_its_reason(settled: str) -> None:
    result = run(settled, "explain", POISONED)

    assert "its database is away" in result.out
    assert "unclean" not in result.out
    assert "its database is away" in run(settled, "describe", "partition", POISONED).out


def test_explanation_of_a_shard_that_no_participant_offers(settled: str) -> None:
    text = run(settled, "explain", "idle-0").out

    assert "no participant that can be used offers it" in text
    assert "it offers other topics" in text
    assert "start a participant that offers idle" in text


def test_status_counts_shards_without_owner_and_names_groups(settled: str) -> None:
    result = run(settled, "status")
    info = run(settled, "status", "-o", "json").json(ClusterInfo)

    checks = {check.name: check for check in info.checks}
    assert info.shards == SHARDS + 2
    assert info.shards_without_owner >= 2
    assert checks["shards-without-owner"].result == "fail"
    assert "no participant offers idle" in checks["shards-without-owner"].detail
    assert checks["offline-partitions"].result == "pass"
    assert "jobs-5 on participant" in result.out
    assert "start a participant that offers idle" in result.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("elect", "preferred", "-p", "jobs-0", "--yes"), "no preferred leader"),
        (("elect", "unclean", "-p", "jobs-0", "--yes"), "loses no records"),
        (("reassign", "plan", "--topic", "jobs"), "whose owners the controller chooses"),
        (("topic", "add-partitions", "jobs", "--partitions", "9", "--replicas", "1", "--dry-run"), "leave it out"),
        (("topic", "create", "a", "--kind", "ownership", "--replication-factor", "2"), "give --standby"),
        (("topic", "create", "a", "--kind", "ownership", "--assignment", "0:1"), "give --standby"),
        (("topic", "create", "a", "--standby", "1"), "--kind ownership"),
        (("topic", "create", "a", "--kind", "owner"), "'replicated', 'ownership'"),
        (("topic", "create", "a", "--kind", "ownership", "--standby", "-1"), "x>=0"),
        (("topic", "create", "a", "--kind", "ownership", "--standby", "x"), "not a valid integer"),
        (("topic", "create", "a", "--kind", "ownership", "--partitions", "0"), "is not between 1 and"),
        (("topic", "create", "a", "--config", "ownership.standby=1"), "only topics of kind='ownership' have standbys"),
        (("topic", "set", "orders", "ownership.standby=1"), "which has no standbys"),
        (("get", "shards", "--state", "lost"), "'unowned'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_commands_that_do_not_apply_to_shards_are_refused(
    settled: str, arguments: tuple[str, ...], reason: str
) -> None:
    result = run(settled, *arguments)

    assert result.code
    assert reason in result.out + result.err
    assert run(settled, "topic", "describe", "a").code


def test_election_of_all_partitions_leaves_shards_out(settled: str) -> None:
    result = run(settled, "elect", "unclean", "--all", "--dry-run")

    assert result.code == 0, result.err
    assert "jobs" not in result.out


def test_ownership_topic_is_created_before_its_participants(settled: str) -> None:
    result = run(settled, "topic", "create", "later", "--kind", "ownership", "--partitions", "3", "--standby", "1")

    assert result.code == 0, result.err
    assert shards(settled, "--topic", "later").keys() == {"later-0", "later-1", "later-2"}
    run(settled, "topic", "delete", "later", "--yes")


def test_what_if_states_that_no_shard_is_lost(settled: str) -> None:
    one = run(settled, "whatif", "--kill", "1", "-o", "json").json(WhatIf)
    both = run(settled, "whatif", "--kill", "1,2").out

    present, outcome = one.shards
    assert "as long as one participant lives that offers its topic" in present.explained
    assert "No participant offers idle." in present.explained
    assert outcome.moved.count > 0
    assert outcome.unowned.count == 0
    assert one.analysis.now.partitions == 1
    assert "of jobs would have no owner until a participant that offers them starts; none is lost" in both


def test_drain_hands_shards_over(settled: str) -> None:
    preview = run(settled, "broker", "drain", "1", "--dry-run")
    before = {name for name, owner in owners(settled).items() if owner == 1}

    drained = run(settled, "broker", "drain", "1", "--yes")

    assert f"{len(before)} shards would be handed over" in preview.err
    assert f"{len(before)} shards are handed over to other participants" in drained.err
    assert drained.code == 0, drained.err
    assert 1 not in owners(settled).values()
    assert run(settled, "broker", "stoppable", "2").code == 1
    # The others may still be led by it, until their next owners are prepared.
    other = min(name for name, owner in owners(settled).items() if name not in before and owner == 2)
    assert "cannot own it: it is drained" in run(settled, "explain", other).out
    run(settled, "broker", "drain", "--undo", "1")


def owners(url: str) -> dict[str, int]:
    items = run(url, "get", "shards", "--topic", "jobs", "-o", "jsonl").jsonl(PartitionInfo)
    return {f"{item.topic}-{item.partition}": item.leader for item in items}


def test_broker_shows_its_shards_and_what_it_offers(settled: str) -> None:
    text = run(settled, "describe", "broker", "2").out

    assert "owns " in text
    assert "jobs" in text
    assert "SHARDS" in run(settled, "get", "brokers").out
    assert "mail" in run(settled, "describe", "broker", "40000").out


def test_metrics_count_shards_by_state_and_owner(settled: str) -> None:
    request = urllib.request.Request(f"{settled}/metrics", headers={"Authorization": f"Bearer {token_of(settled)}"})
    with urllib.request.urlopen(request, timeout=60) as response:
        text = response.read().decode()

    assert 'kafka_partition_offline{kactl_cluster="shards"} 0' in text
    assert 'kactl_shard_state_count{kactl_cluster="shards",kactl_shard_state="unowned"}' in text
    assert "kactl_shard_owner_count{" in text


def test_owner_that_has_not_chosen_its_id_appears_with_its_name(settled: str) -> None:
    options = ("--partitions", "1", "--kind", "ownership", "--wait", "led", "--yes")
    assert run(settled, "topic", "create", "mail", *options).code == 0
    ((number, name),) = shards(settled, "--topic", "mail")["mail-0"].names.items()

    named = f"{number} ({name})"
    assert name == "worker-a"
    assert f"participant {named} owns it" in run(settled, "explain", "mail-0").out
    assert f"{named}: 1" in run(settled, "topic", "describe", "mail").out
    for line in ("get shards", "get brokers", "describe partition mail-0", f"describe broker {number}"):
        assert named in run(settled, *line.split()).out
    assert run(settled, "topic", "delete", "mail", "--yes").code == 0
