"""Replacements for Kafka's tools: output, options, rejections and program names."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from kactl.admin.schema import TopicDetail
from tests.support import tree

from .server import STATE, Up, kactl

TOPICS: Final = ("compat", "topics")
ELECT: Final = ("compat", "leader-election")
REASSIGN: Final = ("compat", "reassign-partitions")
COLLIDES: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both.\n"
)
# No server listens on this address.
NOWHERE: Final = "127.0.0.1:1"


def moves(path: Path, topic: str, **replicas: list[int]) -> Path:
    """Write a file of targets: `p0=[1, 2]` for partition 0."""
    partitions = [
        {"topic": topic, "partition": int(name[1:]), "replicas": wanted, "log_dirs": ["any"] * len(wanted)}
        for name, wanted in replicas.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


# -- kafka-topics ----------------------------------------------------------------------------------------------------


def test_topics_tool_creates_alters_describes_and_deletes(up: Up) -> None:
    created = up(
        *TOPICS, "--create", "--topic", "c.life", "--replica-assignment", "1:2,2:3", "--config", "retention.ms=5"
    )
    again = up(*TOPICS, "--create", "--topic", "c.life", "--partitions", "1")
    tolerated = up(*TOPICS, "--create", "--topic", "c.life", "--if-not-exists")
    grown = up(*TOPICS, "--alter", "--topic", "c.life", "--partitions", "3", "--replica-assignment", "1:2,2:3,3:1")
    listed = up(*TOPICS, "--list", "--topic", "c.l.*")
    described = up(*TOPICS, "--describe", "--topic", "c.life,nothing")
    id_ = up("topic", "describe", "c.life", "-o", "json").json(TopicDetail).topic.id
    by_id = up(*TOPICS, "--describe", "--topic-id", str(id_))
    overridden = up(*TOPICS, "--describe", "--topics-with-overrides", "--topic", "c.life")
    deleted = up(*TOPICS, "--delete", "--topic", "c.life")
    gone = up(*TOPICS, "--list", "--topic", "c.life")

    assert (created.code, created.out) == (0, f"{COLLIDES}Created topic c.life.\n")
    assert (again.code, again.out) == (
        1,
        f"{COLLIDES}Error while executing topic command : Topic 'c.life' already exists.\n",
    )
    assert (tolerated.code, tolerated.out) == (0, COLLIDES)
    assert (grown.code, grown.out, grown.err) == (0, "", "")
    assert listed.out == "c.life\n"
    headline = f"Topic: c.life\tTopicId: {id_}\tPartitionCount: 3\tReplicationFactor: 2\tConfigs: retention.ms=5\n"
    assert (
        described.out
        == by_id.out
        == headline
        + "".join(
            f"\tTopic: c.life\tPartition: {partition}\tLeader: {replicas[0]}\tReplicas: {replicas}\tIsr: {replicas}"
            "\tElr: N/A\tLastKnownElr: N/A\n"
            for partition, replicas in enumerate(("1,2", "2,3", "3,1"))
        )
    )
    assert overridden.out == headline
    assert (deleted.code, deleted.out, gone.out) == (0, "", "\n")


@pytest.mark.parametrize("action", [("--describe",), ("--delete",), ("--alter", "--partitions", "9")], ids=" ".join)
def test_missing_topic_fails_unless_if_exists(up: Up, action: tuple[str, ...]) -> None:
    refused = up(*TOPICS, *action, "--topic", "nowhere")
    tolerated = up(*TOPICS, *action, "--topic", "nowhere", "--if-exists")

    assert refused.out == "Error while executing topic command : Topic 'Optional[nowhere]' does not exist as expected\n"
    assert (refused.code, tolerated.code, tolerated.out) == (1, 0, "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--partitions", "0"), "The partitions must be greater than 0"),
        (("--replication-factor", "0"), "The replication factor must be between 1 and 32767 inclusive"),
        (("--replica-assignment", "1:1"), "Partition replica lists may not contain duplicate entries: 1"),
        (("--replica-assignment", "1:2,3"), "Partition 1 has different replication factor: [3]"),
        (("--replica-assignment", "x"), 'For input string: "x"'),
        (("--replica-assignment", "1:9"), "assignment.0: brokers [9] are not registered; there are [1, 2, 3]"),
        (
            ("--config", "novalue"),
            'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".',
        ),
    ],
    ids=str,
)
def test_invalid_topic_has_the_message_of_kafkas_tool(up: Up, options: tuple[str, ...], message: str) -> None:
    refused = up(*TOPICS, "--create", "--topic", "never", *options)

    assert (refused.code, refused.out) == (1, f"Error while executing topic command : {message}\n")


def test_slow_deletion_fails_with_a_timeout(own_up: Up) -> None:
    own_up("topic", "create", "stuck", "--assignment", "0:3,1")
    assert own_up("broker", "kill", "3").code == 0
    own_up.until(lambda: not own_up.partitions("--leader", "3"), "nothing is led by broker 3")

    late = own_up("--timeout", "0.2", *TOPICS, "--delete", "--topic", "stuck")

    assert late.code == 1
    assert late.out == (
        "Error while executing topic command : deleting topic stuck has taken more than 0.2 s; it continues\n"
    )


# -- kafka-leader-election -------------------------------------------------------------------------------------------


def test_election_reports_each_partition(up: Up, tmp_path: Path) -> None:
    up("topic", "create", "c-led", "--assignment", "0:1,2", "--assignment", "1:2,3")
    up(*REASSIGN, "--execute", "--reassignment-json-file", moves(tmp_path / "m.json", "c-led", p0=[2, 1]))
    up.until(lambda: not up.partitions("--topic", "c-led", "--urp"), "the new order")
    file = tmp_path / "names.json"
    file.write_text(json.dumps({"partitions": [{"topic": "c-led", "partition": number} for number in (0, 1, 7)]}))
    empty = tmp_path / "empty.json"
    empty.write_text('{"partitions": []}')

    one = up(*ELECT, "--election-type", "UNCLEAN", "--topic", "c-led", "--partition", "1")
    several = up(*ELECT, "--election-type", "preferred", "--path-to-json-file", file)
    everything = up(*ELECT, "--election-type", "unclean", "--all-topic-partitions")
    nothing = up(*ELECT, "--election-type", "preferred", "--path-to-json-file", empty)

    assert (one.code, one.out) == (0, "Valid replica already elected for partitions c-led-1\n")
    assert several.out.splitlines() == [
        "Successfully completed leader election (PREFERRED) for partitions c-led-0",
        "Valid replica already elected for partitions c-led-1",
        "Error completing leader election (PREFERRED) for partition: c-led-7: "
        "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: the partition does not exist",
    ]
    assert (several.code, several.err) == (1, "1 replica(s) could not be elected\n")
    assert (everything.code, everything.out) == (nothing.code, nothing.out) == (0, "")


# -- kafka-reassign-partitions ---------------------------------------------------------------------------------------


def test_reassignment_is_generated_executed_and_verified(up: Up, tmp_path: Path) -> None:
    up("topic", "create", "c-moved", "--assignment", "0:1,2", "--assignment", "1:2,3")
    topics = tmp_path / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "c-moved"}]}')
    targets = moves(tmp_path / "there.json", "c-moved", p1=[2, 3], p0=[3, 2])

    plan = up(*REASSIGN, "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2,9")
    before = up(*REASSIGN, "--verify", "--reassignment-json-file", targets)
    started = up(*REASSIGN, "--execute", "--reassignment-json-file", targets)
    up.until(lambda: "No partition" in up(*REASSIGN, "--list").out, "the end of the move")
    after = up(*REASSIGN, "--verify", "--preserve-throttles", "--reassignment-json-file", targets)
    idle = up(*REASSIGN, "--cancel", "--reassignment-json-file", targets)

    now = (
        '{"version":1,"partitions":[{"topic":"c-moved","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},'
        '{"topic":"c-moved","partition":1,"replicas":[2,3],"log_dirs":["any","any"]}]}'
    )
    lines = plan.out.splitlines()
    assert lines[:4] == [
        "Current partition replica assignment",
        now,
        "",
        "Proposed partition reassignment configuration",
    ]
    assert [{*item["replicas"]} for item in json.loads(lines[4])["partitions"]] == [{1, 2}, {1, 2}]
    assert before.out.splitlines()[1:] == [
        "There is no active reassignment of partition c-moved-0, but replica set is 1,2 rather than 3,2.",
        "Reassignment of partition c-moved-1 is completed.",
        "",
    ]
    assert started.out.splitlines() == [
        "Current partition replica assignment",
        "",
        now,
        "",
        "Save this to use as the --reassignment-json-file option during rollback",
        "Successfully started partition reassignments for c-moved-0,c-moved-1",
    ]
    assert "Reassignment of partition c-moved-0 is completed." in after.out
    assert idle.out == (
        "None of the specified partition reassignments are active.\nNone of the specified partition moves are active."
    )
    assert {before.code, started.code, after.code, idle.code} == {0}


def test_reassignment_in_progress_is_listed_and_cancelled(own_up: Up, tmp_path: Path) -> None:
    own_up("topic", "create", "slow", "--assignment", "0:1,2", "--assignment", "1:1,2")
    assert (
        own_up("broker", "kill", "3").code == 0
    )  # still registered until its session expires, so that it is a valid target
    first, second = (
        moves(tmp_path / "first.json", "slow", p0=[3, 2]),
        moves(tmp_path / "second.json", "slow", p1=[2, 3]),
    )

    started = own_up(*REASSIGN, "--execute", "--reassignment-json-file", first)
    refused = own_up(*REASSIGN, "--execute", "--reassignment-json-file", second)
    listed = own_up(*REASSIGN, "--list")
    verified = own_up(*REASSIGN, "--verify", "--reassignment-json-file", first)
    shown = own_up(*TOPICS, "--describe", "--topic", "slow")
    missing = own_up(*TOPICS, "--describe", "--topic", "slow", "--under-replicated-partitions")
    cancelled = own_up(*REASSIGN, "--cancel", "--reassignment-json-file", first)

    assert started.out.endswith("Successfully started partition reassignment for slow-0\n")
    assert refused.code == 1
    assert refused.out.startswith("Cannot execute because there is an existing partition assignment.  Use --additional")
    assert listed.out == "Current partition reassignments:\nslow-0: replicas: 3,2,1. adding: 3. removing: 1.\n"
    assert verified.out == (
        "Status of partition reassignment:\nReassignment of partition slow-0 is still in progress.\n\n"
    )
    assert "\tReplicas: 3,2,1\tIsr: 2,1\tAdding Replicas: 3\tRemoving Replicas: 1\tElr: N/A" in shown.out
    assert "\tPartitionCount: 2\tReplicationFactor: 2\t" in shown.out
    assert missing.out == ""  # a replica that is being added does not count as out of sync
    assert cancelled.out == (
        "Successfully cancelled partition reassignment for: slow-0\nNone of the specified partition moves are active."
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"partitions": []}, "Partition reassignment list cannot be empty"),
        ({"version": 2, "partitions": []}, "Not supported version field value 2"),
        (
            [("nowhere", [1])],
            "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: Topic nowhere not found.",
        ),
        ([("nowhere", [1, 9])], "Unknown broker id 9"),
        ([("nowhere", [])], "Partition replica list cannot be empty"),
        ([("a", [1]), ("a", [2])], "Partition reassignment contains duplicate topic partitions: a-0"),
        (
            [("a", [1, 1])],
            "Partition replica lists may not contain duplicate entries: a-0 contains multiple entries for 1",
        ),
    ],
    ids=str,
)
def test_invalid_reassignment_has_the_message_of_kafkas_tool(
    up: Up, tmp_path: Path, content: object, message: str
) -> None:
    file = tmp_path / "moves.json"
    if isinstance(content, list):
        content = {
            "partitions": [{"topic": topic, "partition": 0, "replicas": replicas} for topic, replicas in content]
        }
    file.write_text(json.dumps(content))

    refused = up(*REASSIGN, "--execute", "--reassignment-json-file", file, "--additional")

    assert (refused.code, refused.out) == (1, f"Error: {message}\n")


def test_unsupported_throttles_and_log_directories_are_rejected(up: Up, tmp_path: Path) -> None:
    file = moves(tmp_path / "moves.json", "a", p0=[1])
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(file.read_text().replace("any", "/data/2"))

    throttled = up(*REASSIGN, "--execute", "--reassignment-json-file", file, "--throttle", "5")
    moved = up(*REASSIGN, "--execute", "--reassignment-json-file", elsewhere)

    assert (throttled.code, throttled.out) == (1, "")
    assert throttled.err.startswith("kactl does not throttle replication")
    assert (moved.code, moved.out) == (
        1, "Error: kactl does not move replicas between log directories: write 'any' for a-0\n"
    )  # fmt: skip


# -- command lines ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        (TOPICS, "", "Command must include exactly one action: --list, --describe, --create, --alter or --delete"),
        (TOPICS, "--list --create", "Command must include exactly one action"),
        (TOPICS, "--create", 'Missing required argument "[topic]"'),
        (TOPICS, "--alter --topic a", 'Missing required argument "[partitions]"'),
        (TOPICS, "--alter --topic a --partitions 3 --config x=y", "overrides are changed with kafka-configs"),
        (TOPICS, "--list --if-exists", "Option \"[if-exists]\" can't be used with option \"[list]\""),
        (TOPICS, "--sideways", "No such option '--sideways'"),
        (TOPICS, "--create --topic a --partitions x", "Invalid value for '--partitions'"),
        (ELECT, "--election-type preferred", "One and only one of the following options is required"),
        (ELECT, "--all-topic-partitions", "Missing required option(s): election-type"),
        (ELECT, "--election-type preferred --topic a", "Missing required option(s): partition"),
        (ELECT, "--election-type unclean --path-to-json-file /no/file", "java.io.IOException: Unable to read file"),
        (REASSIGN, "", "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list"),
        (REASSIGN, "--verify", 'Missing required argument "[reassignment-json-file]"'),
        (REASSIGN, "--list --timeout 5", "Option \"[timeout]\" can't be used with action \"[list]\""),
    ],
)  # fmt: skip
def test_invalid_command_line_exits_with_1(tool: tuple[str, ...], arguments: str, message: str) -> None:
    refused = kactl(*tool, "--bootstrap-server", NOWHERE, *arguments.split())

    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith(message)


@pytest.mark.parametrize(
    ("tool", "prefix"),
    [(TOPICS, "Error while executing topic command : "), (REASSIGN, "Error: ")],
    ids=["topics", "reassign-partitions"],
)
def test_unreachable_server_exits_with_1(tool: tuple[str, ...], prefix: str) -> None:
    alone = kactl(*tool, "--bootstrap-server", NOWHERE, "--list")

    assert alone.code == 1
    assert alone.out.startswith(f"{prefix}http://127.0.0.1:1 cannot be reached")


def test_election_without_server_exits_with_1() -> None:
    alone = kactl(*ELECT, "--bootstrap-server", NOWHERE, "--election-type", "preferred", "--all-topic-partitions")

    assert (alone.code, alone.out) == (1, "")
    assert alone.err.startswith("Failed to elect leaders: http://127.0.0.1:1 cannot be reached")


def test_obsolete_options_are_ignored_with_a_warning(up: Up) -> None:
    old = up(*TOPICS, "--zookeeper", "zk:2181/kafka", "--list")
    secured = up(*ELECT, "--admin.config", "client.properties", "--election-type", "unclean", "--all-topic-partitions")
    also = up(*REASSIGN, "--command-config", "client.properties", "--list")

    assert (old.code, secured.code, also.code) == (0, 0, 0)
    assert old.err == "warning: --zookeeper is ignored: the server of kactl has the address of the store\n"
    assert secured.err == also.err == "warning: --command-config is ignored: kactl uses none of its settings\n"


# -- server and program name --------------------------------------------------------------------------------------


def test_server_option_and_environment_take_precedence(up: Up) -> None:
    listing = (*TOPICS, "--list", "--bootstrap-server")

    by_flag = kactl(*listing, f"{up.url.removeprefix('http://')},{NOWHERE}")
    by_url = kactl(*listing, up.url)
    by_environment = kactl(*listing, NOWHERE, env={"KACTL_SERVER": up.url})
    by_option = kactl("--server", up.url, *listing, NOWHERE, env={"KACTL_SERVER": f"http://{NOWHERE}"})

    assert [run.code for run in (by_flag, by_url, by_environment, by_option)] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("name", "arguments", "code", "output"),
    [
        ("kafka-topics.sh", "--list --topic nowhere", 0, "\n"),
        ("kafka-topics", "--list --topic nowhere", 0, "\n"),
        ("kafka-leader-election.sh", "--election-type unclean --all-topic-partitions", 0, ""),
        ("kafka-reassign-partitions.sh", "--list", 0, "No partition reassignments found.\n"),
        ("kafka-acls.sh", "--list", 2, ""),
    ],
)
def test_symbolic_link_replaces_the_tool_of_its_name(
    up: Up, tmp_path: Path, name: str, arguments: str, code: int, output: str
) -> None:
    program = tmp_path / "kactl"
    program.write_text(f"#!{sys.executable}\nfrom kactl.cli.main import main\nmain()\n")
    program.chmod(0o755)
    link = tmp_path / name
    os.symlink(program, link)

    done = subprocess.run(
        [link, *arguments.split(), *(("--bootstrap-server", up.url) if code == 0 else ())],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tree.ROOT), **STATE},
    )

    assert (done.returncode, done.stdout) == (code, output)
