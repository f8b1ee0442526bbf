"""Kafka's own tools and kactl's compatible ones, side by side over one cluster: equal stdout and equal exit codes.

kactl controls three real brokers. Read-only commands run against the same topics for both tools. Commands that change
something use separate topics, `kafkas-..` and `kactls-..`, whose names are unified before the outputs are compared. All
of stdout is compared, byte for byte, with these exceptions:

* Topics described together, and partitions named together, are in hash-table order and are compared as a set of lines.
  A single topic is compared as printed, except for the order of three or more overrides.
* After the line that begins with "Error: " Kafka's tool for reassignments prints a stack trace.
* kactl does not set throttles, so messages about throttles are omitted by --preserve-throttles.
* The proposal of --generate depends on the planner; its form is compared.
* An existing topic name is rejected with Kafka's message, whatever the controller's message is.

For an invalid command line the first line on stderr is compared too.
"""

import re
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Producer

from .side_by_side import MARGIN_S, SIDES, Bench, any_overrides, current, form, lines, refused, until_error
from .tools import LEADERS, REASSIGN, TOPICS

# A throttled follower still receives a piece of up to a megabyte at times; these replicas then need minutes.
RECORDS: Final = 60
RECORD_SIZE: Final = 100_000


@pytest.fixture(scope="module")
def bench(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("compat"))
    try:
        with bench.zookeeper, bench.tools:
            bench.kactl.start()
            with bench.cluster:
                bench.kactl.until(lambda: bench.kactl.get("/v1/cluster")["brokers"] == 3, "all brokers", MARGIN_S)
                yield bench
    finally:
        bench.kactl.kill()


# -- kafka-topics ----------------------------------------------------------------------------------------------------


def test_list_without_topics_is_an_empty_line(bench: Bench) -> None:
    assert bench.same(TOPICS, "--list").out == "\n"
    assert bench.same(TOPICS, "--describe").out == ""


def test_topics_are_created(bench: Bench) -> None:
    counted = bench.same(TOPICS, "--create", "--topic", "%-counted", "--partitions", "2", "--replication-factor", "3")
    placed = bench.same(
        TOPICS, "--create", "--topic", "%-placed", "--replica-assignment", "1:2,2:3,3:1",
        "--config", "retention.ms=5000", "--config", "cleanup.policy=compact",
    )  # fmt: skip
    warned = bench.same(TOPICS, "--create", "--topic", "%_dotted.", "--partitions", "1", "--replication-factor", "1")
    again = bench.same(TOPICS, "--create", "--topic", "%-placed", "--partitions", "1", "--if-not-exists")

    assert counted.out == "Created topic %-counted.\n"
    assert placed.out == "Created topic %-placed.\n"
    assert warned.out.startswith("WARNING: Due to limitations in metric names")
    assert (again.code, again.out) == (0, "")


def test_existing_topic_is_rejected_with_kafkas_message(bench: Bench) -> None:
    theirs = bench.kafkas(TOPICS, "--create", "--topic", "kafkas-placed")
    ours = bench.kactls(TOPICS, "--create", "--topic", "kafkas-placed")

    assert theirs.code == ours.code == 1
    assert theirs.out.startswith("Error while executing topic command : ")
    assert ours.out == "Error while executing topic command : Topic 'kafkas-placed' already exists.\n"


@pytest.mark.parametrize(
    "options",
    [
        ("--replication-factor", "9"),
        ("--replication-factor", "0"),
        ("--partitions", "0"),
        ("--partitions", "-1", "--replication-factor", "40000"),
        ("--replica-assignment", "1:9"),
        ("--replica-assignment", "1:1"),
        ("--replica-assignment", "1:2,3"),
        ("--replica-assignment", "1:x"),
        ("--replica-assignment", "1,,2"),
        ("--config", "retention.ms"),
    ],
    ids=" ".join,
)
def test_invalid_topics_are_rejected_alike(bench: Bench, options: tuple[str, ...]) -> None:
    output = bench.same(TOPICS, "--create", "--topic", "%-impossible", *options)

    assert output.code == 1
    assert output.out.startswith("Error while executing topic command : ")


def test_topics_are_listed_and_described(bench: Bench) -> None:
    bench.tools.topics("--create", "--topic", "__consumer_offsets", "--replica-assignment", "1").well()
    bench.rest()

    everything = bench.same(TOPICS, "--list")
    ours_only = bench.same(TOPICS, "--list", "--exclude-internal")
    two = bench.same(TOPICS, "--list", "--topic", "kactls-.*ed, kafkas-counted")
    described = bench.same(TOPICS, "--describe", "--topic", "kafkas-placed")
    bench.same(TOPICS, "--describe", "--topic", "kactls-counted")
    bench.same(TOPICS, "--describe", seen=lines)
    bench.same(TOPICS, "--describe", "--exclude-internal", seen=lines)
    bench.same(TOPICS, "--describe", "--exclude-internal", "--topic", "__.*")
    overridden = bench.same(TOPICS, "--describe", "--topics-with-overrides", seen=lines)
    at_min = bench.same(TOPICS, "--describe", "--at-min-isr-partitions", seen=lines)
    missing = bench.same(TOPICS, "--describe", "--under-replicated-partitions")

    assert set(everything.lines) - set(ours_only.lines) == {"__consumer_offsets"}
    assert two.lines == ["kactls-counted", "kactls-placed", "kafkas-counted"]
    assert described.lines[0].endswith("Configs: cleanup.policy=compact,retention.ms=5000")
    assert len(described.lines) == 4
    assert len(overridden.lines) == 2
    assert len(at_min.lines) == 3
    assert missing.out == ""


def test_topics_are_described_by_id(bench: Bench) -> None:
    (topic_id,) = [topic["id"] for topic in bench.kactl.get("/v1/topics")["items"] if topic["name"] == "kactls-counted"]

    output = bench.same(TOPICS, "--describe", "--topic-id", topic_id)
    by_both = bench.same(TOPICS, "--describe", "--topic-id", topic_id, "--topic", "kafkas-counted")
    warned = bench.same(TOPICS, "--describe", "--topic-id", topic_id, "--topic", "kafkas-counted", "--if-exists")
    unknown = bench.same(TOPICS, "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAABQ")
    tolerated = bench.same(TOPICS, "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAABQ", "--if-exists")
    for none in ("zzz", topic_id + topic_id, "AAAAAAAAAAAAAAAAAAAA!!"):
        assert bench.same(TOPICS, "--describe", "--topic-id", none).code == 1

    assert f"\tTopicId: {topic_id}\t" in output.lines[0]
    assert by_both.out == output.out
    assert warned.out.startswith("Only topic id will be used")
    assert unknown.code == 1
    assert (tolerated.code, tolerated.out) == (0, "")


def test_partitions_are_added(bench: Bench) -> None:
    grown = bench.same(TOPICS, "--alter", "--topic", "%-counted", "--partitions", "4")
    fewer = bench.same(TOPICS, "--alter", "--topic", "%-counted", "--partitions", "3")
    placed = ("--alter", "--topic", "%-placed", "--partitions")
    bench.same(TOPICS, *placed, "5", "--replica-assignment", "1:2,2:3,3:1,2:1,1:3")
    for impossible in ("1:2,2:3", "1:2,2:3,3:1,2:1,1:3,1:9", "1:2,2:3,3:1,2:1,1:3,1", "x,2:3,3:1,2:1,1:3,1"):
        assert bench.same(TOPICS, *placed, "6", "--replica-assignment", impossible).code == 1
    bench.rest()
    shown = bench.same(TOPICS, "--describe", "--topic", "kactls-placed")

    assert (grown.code, grown.out) == (0, "")
    assert fewer.code == 1
    assert shown.lines[5].startswith("\tTopic: kactls-placed\tPartition: 4\tLeader: 1\tReplicas: 1,3\t")


@pytest.mark.parametrize("action", [("--describe",), ("--delete",), ("--alter", "--partitions", "9")], ids=" ".join)
def test_unknown_topics_are_reported_alike(bench: Bench, action: tuple[str, ...]) -> None:
    refused = bench.same(TOPICS, *action, "--topic", "nowhere")
    tolerated = bench.same(TOPICS, *action, "--topic", "nowhere", "--if-exists")
    strange = bench.same(TOPICS, *action, "--topic", "[")

    assert refused.out == "Error while executing topic command : Topic 'Optional[nowhere]' does not exist as expected\n"
    assert (refused.code, tolerated.code, tolerated.out, strange.code) == (1, 0, "", 1)


def test_topics_are_deleted(bench: Bench) -> None:
    deleted = bench.same(TOPICS, "--delete", "--topic", "%.(dotted.|nothing)")
    left = bench.same(TOPICS, "--list", "--topic", ".*dotted.*")

    assert (deleted.code, deleted.out, left.out) == (0, "", "\n")


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "--list --create",
        "--create",
        "--delete",
        "--alter --partitions 3",
        "--alter --topic a",
        "--describe --if-exists",
        "--list --if-exists",
        "--list --partitions 3",
        "--create --topic a --exclude-internal",
        "--create --topic a --replica-assignment 1:2 --partitions 1",
        "--create --topic a --replica-assignment 1:2 --replication-factor 2",
        "--delete --topic a --unavailable-partitions",
        "--delete --topic a --if-not-exists",
        "--describe --topics-with-overrides --at-min-isr-partitions",
    ],
)
def test_invalid_topic_command_lines_are_rejected_alike(bench: Bench, arguments: str) -> None:
    assert refused(bench, TOPICS, *arguments.split())


# -- kafka-leader-election -------------------------------------------------------------------------------------------


def test_leaders_are_elected(bench: Bench) -> None:
    bench.create("%-led", "1:2:3,2:3:1,3:1:2")
    order = bench.moves("led", p0=[2, 1, 3], p1=[3, 2, 1], p2=[1, 3, 2])
    for name in SIDES:
        bench.tools.reassign("--execute", "--reassignment-json-file", order.replace("%", name)).well()
    bench.rest()
    one = ("--election-type", "preferred", "--topic", "%-led", "--partition")
    named = [{"topic": "%-led", "partition": number} for number in (0, 1, 7)]
    several = bench.file("several", {"partitions": named})

    elected = bench.same(LEADERS, *one, "0")
    again = bench.same(LEADERS, *one, "0")
    unknown = bench.same(LEADERS, *one, "9")
    unclean = bench.same(LEADERS, "--election-type", "UNCLEAN", "--topic", "%-led", "--partition", "0")
    from_file = bench.same(LEADERS, "--election-type", "preferred", "--path-to-json-file", several)
    bench.same(LEADERS, "--election-type", "preferred", "--topic", "nowhere", "--partition", "0")
    none = bench.same(LEADERS, "--election-type", "unclean", "--all-topic-partitions")
    bench.kactls(LEADERS, "--election-type", "preferred", "--all-topic-partitions")
    nothing = bench.same(LEADERS, "--election-type", "preferred", "--all-topic-partitions")

    assert elected.out == "Successfully completed leader election (PREFERRED) for partitions %-led-0\n"
    assert again.out == unclean.out == "Valid replica already elected for partitions %-led-0\n"
    assert (unknown.code, from_file.code) == (1, 1)
    assert [line.partition(" for partition")[0] for line in from_file.out.splitlines()] == [
        "Successfully completed leader election (PREFERRED)",
        "Valid replica already elected",
        "Error completing leader election (PREFERRED)",
    ]
    assert "2 replica(s)" not in from_file.text
    assert "1 replica(s) could not be elected" in from_file.text
    assert (none.code, none.out, nothing.out) == (0, "", "")


@pytest.mark.parametrize(
    "arguments",
    [
        "--all-topic-partitions",
        "--election-type preferred",
        "--election-type preferred --topic a",
        "--election-type preferred --partition 0",
        "--election-type preferred --topic a --partition 0 --all-topic-partitions",
        "--election-type unclean --all-topic-partitions --path-to-json-file x",
        "--election-type unclean --path-to-json-file /nowhere/at/all",
    ],
)
def test_invalid_election_command_lines_are_rejected_alike(bench: Bench, arguments: str) -> None:
    assert refused(bench, LEADERS, *arguments.split())


def test_invalid_election_files_are_rejected_alike(bench: Bench) -> None:
    twice = [{"topic": "a", "partition": 0}] * 2

    for content in ({"x": 1}, {"partitions": twice}):
        path = bench.file("wrong", content).replace("%", SIDES[0])
        assert refused(bench, LEADERS, "--election-type", "preferred", "--path-to-json-file", path)
    nothing = bench.same(
        LEADERS, "--election-type", "preferred", "--path-to-json-file", bench.file("nothing", {"partitions": []})
    )

    assert (nothing.code, nothing.out) == (0, "")


# -- kafka-reassign-partitions ---------------------------------------------------------------------------------------

FILE: Final = "--reassignment-json-file"
KEEP: Final = "--preserve-throttles"


def test_replicas_are_moved(bench: Bench) -> None:
    bench.create("%-moved", "1:2,2:3,3:1")
    both = bench.moves("moved", p1=[2, 3], p0=[3, 2])
    other = bench.moves("moved", p2=[1, 2], p9=[1, 2])

    nothing = bench.same(REASSIGN, "--list")
    before = bench.same(REASSIGN, "--verify", KEEP, FILE, both)
    idle = bench.same(REASSIGN, "--cancel", KEEP, FILE, both)
    bench.same(REASSIGN, "--verify", KEEP, FILE, other)
    for name, ask in zip(SIDES, (bench.kafkas, bench.kactls), strict=True):
        started = ask(REASSIGN, "--execute", FILE, both.replace("%", name))
        assert started.out.replace(name, "%") == STARTED
        bench.rest()  # otherwise the second tool would find the first one's move
    after = bench.same(REASSIGN, "--verify", KEEP, FILE, both)

    assert nothing.out == "No partition reassignments found.\n"
    assert (
        "There is no active reassignment of partition %-moved-0, but replica set is 1,2 rather than 3,2." in before.out
    )
    assert idle.out.endswith("None of the specified partition moves are active.")
    assert after.out.splitlines()[1:] == [
        "Reassignment of partition %-moved-0 is completed.",
        "Reassignment of partition %-moved-1 is completed.",
        "",
    ]


STARTED: Final = """\
Current partition replica assignment

{"version":1,"partitions":[\
{"topic":"%-moved","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},\
{"topic":"%-moved","partition":1,"replicas":[2,3],"log_dirs":["any","any"]}]}

Save this to use as the --reassignment-json-file option during rollback
Successfully started partition reassignments for %-moved-0,%-moved-1
"""


def test_plans_have_the_same_form(bench: Bench) -> None:
    topics = bench.file("topics", {"version": 1, "topics": [{"topic": "%-moved"}]})
    nowhere = bench.file("nowhere", {"version": 1, "topics": [{"topic": "nowhere"}]})
    generate = ("--generate", "--topics-to-move-json-file")

    for brokers in ("1,2", "1,2,3", "3,2,9"):
        bench.same(REASSIGN, *generate, topics, "--broker-list", brokers, seen=form)
    for brokers in ("1", "1,9", "1,1", "x"):
        output = bench.same(REASSIGN, *generate, topics, "--broker-list", brokers, seen=until_error)
        assert output.code == 1
    assert bench.same(REASSIGN, *generate, nowhere, "--broker-list", "1,2", seen=until_error).code == 1


@pytest.mark.parametrize(
    ("partitions", "version"),
    [
        ([{"topic": "%-moved", "partition": 0, "replicas": [1, 9]}], 1),
        ([{"topic": "%-moved", "partition": 0, "replicas": [1, -2]}], 1),
        ([{"topic": "%-moved", "partition": 9, "replicas": [1, 2]}], 1),
        ([{"topic": "nowhere", "partition": 0, "replicas": [1, 2]}], 1),
        ([{"topic": "%-moved", "partition": 0, "replicas": []}], 1),
        ([{"topic": "%-moved", "partition": 0, "replicas": [1, 1]}], 1),
        ([{"topic": "%-moved", "partition": 0, "replicas": [1, 2]}] * 2, 1),
        ([{"topic": "%-moved", "partition": 0, "replicas": [1, 2], "log_dirs": ["any"]}], 1),
        ([], 1),
        ([], 2),
    ],
    ids=str,
)
def test_invalid_moves_are_rejected_alike(bench: Bench, partitions: list[object], version: int) -> None:
    path = bench.file("impossible", {"version": version, "partitions": partitions})

    output = bench.same(REASSIGN, "--execute", FILE, path, seen=until_error)

    assert output.code == 1
    assert "\nError: " in f"\n{output.out}"


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "--list --verify",
        "--execute",
        "--verify",
        "--cancel",
        "--generate",
        "--generate --topics-to-move-json-file x",
        "--generate --topics-to-move-json-file x --broker-list 1 --additional",
        "--list --reassignment-json-file x",
        "--verify --reassignment-json-file x --timeout 5",
        "--verify --reassignment-json-file x --additional",
        "--execute --reassignment-json-file x --preserve-throttles",
        "--cancel --reassignment-json-file x --throttle 5",
    ],
)
def test_invalid_reassignment_command_lines_are_rejected_alike(bench: Bench, arguments: str) -> None:
    assert refused(bench, REASSIGN, *arguments.split())


def test_missing_file_is_reported_alike(bench: Bench) -> None:
    assert bench.same(REASSIGN, "--execute", FILE, "/nowhere/at/all", seen=until_error).code == 1


def test_slow_move_is_verified_and_cancelled_alike(bench: Bench) -> None:
    bench.create("%-slow", "1:2,2:1", "--config", "min.insync.replicas=2")
    limits = {
        "topics": ([f"{name}-slow" for name in SIDES], "replication.throttled.replicas=*"),
        "brokers": (["1", "2", "3"], "replication.throttled.rate=1000"),
    }
    for kind, (names, limit) in limits.items():
        for name in names:
            bench.tools.configs(
                "--alter", "--entity-type", kind, "--entity-name", name,
                "--add-config", f"leader.{limit},follower.{limit}",
            ).well()  # fmt: skip
    producer = Producer({"bootstrap.servers": bench.cluster.bootstrap, "acks": "1", "linger.ms": 5})
    for _ in range(RECORDS):
        for name in SIDES:
            producer.produce(f"{name}-slow", b"x" * RECORD_SIZE, partition=0)
            producer.produce(f"{name}-slow", b"x" * RECORD_SIZE, partition=1)
    assert producer.flush(MARGIN_S) == 0
    first, second, everything = (
        bench.moves("slow", p0=[3, 2]),
        bench.moves("slow", p1=[2, 3]),
        bench.moves("slow", p0=[2, 3], p1=[3, 2]),
    )
    topics = bench.file("slow-topics", {"version": 1, "topics": [{"topic": "%-slow"}]})

    started = bench.kafkas(REASSIGN, "--execute", FILE, first.replace("%", SIDES[0])).well()
    refusal = bench.same(REASSIGN, "--execute", FILE, second)
    also = bench.kactls(REASSIGN, "--execute", "--additional", FILE, first.replace("%", SIDES[1])).well()
    bench.same(REASSIGN, "--execute", "--additional", FILE, second)
    bench.heard()
    listed = bench.same(REASSIGN, "--list")
    verified = bench.same(REASSIGN, "--verify", KEEP, FILE, first)
    bench.same(REASSIGN, "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2,3", seen=current)
    shown = bench.same(TOPICS, "--describe", "--topic", "kafkas-slow", seen=any_overrides)
    missing = bench.same(TOPICS, "--describe", "--topic", ".*-slow", "--under-replicated-partitions")
    at_min = bench.same(TOPICS, "--describe", "--topic", ".*-slow", "--at-min-isr-partitions", seen=lines)
    again = bench.same(REASSIGN, "--execute", "--additional", FILE, everything)
    bench.heard()
    bench.same(REASSIGN, "--list")
    bench.same(REASSIGN, "--verify", KEEP, FILE, first)
    bench.same(TOPICS, "--describe", "--topic", "kactls-slow", seen=any_overrides)
    cancelled = bench.same(REASSIGN, "--cancel", KEEP, FILE, everything)
    idle = bench.same(REASSIGN, "--cancel", KEEP, FILE, everything)
    bench.rest()
    bench.same(TOPICS, "--describe", "--topic", "kactls-slow", seen=any_overrides)

    assert started.out.replace("kafkas", "%") == also.out.replace("kactls", "%")
    assert refusal.out.startswith("Cannot execute because there is an existing partition assignment.")
    assert listed.lines[0] == "Current partition reassignments:"
    assert "kactls-slow-0: replicas: 3,2,1. adding: 3. removing: 1." in listed.lines
    assert "Reassignment of partition %-slow-0 is still in progress." in verified.lines
    assert re.search(r"\tReplicas: 3,2,1\tIsr: \S+\tAdding Replicas: 3\tRemoving Replicas: 1\t", shown.lines[1])
    assert (missing.out, len(at_min.lines)) == ("", 4)
    assert again.lines[-1] == "Successfully started partition reassignments for %-slow-0,%-slow-1"
    assert cancelled.out.startswith("Successfully cancelled partition reassignments for: %-slow-0,%-slow-1\n")
    assert idle.out.startswith("None of the specified partition reassignments are active.\n")


# -- with a dead broker ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="class")
def torn(bench: Bench) -> None:
    """Broker 3 is dead. Partition 0 of one topic has no leader; that of the other has lost its preferred leader."""
    bench.create("%-alone", "3,1")
    bench.create("%-lost", "3:1:2", "--config", "min.insync.replicas=3")
    bench.cluster[3].kill()
    bench.kactl.until(lambda: bench.kactl.partitions()["kafkas-alone-0"]["leader"] < 0, "its death", MARGIN_S)
    bench.heard()


@pytest.mark.usefixtures("torn")
class TestTorn:
    """Outputs while broker 3 is dead."""

    def test_unavailable_partitions_are_described_alike(self, bench: Bench) -> None:
        alone = bench.same(TOPICS, "--describe", "--topic", "kafkas-alone")
        report = ("--describe", "--topic", ".*-(alone|lost)")
        missing = bench.same(TOPICS, *report, "--under-replicated-partitions", seen=lines)
        unavailable = bench.same(TOPICS, *report, "--unavailable-partitions", seen=lines)
        under_min = bench.same(TOPICS, *report, "--under-min-isr-partitions", seen=lines)
        bench.same(TOPICS, *report, "--at-min-isr-partitions", seen=lines)
        bench.same(TOPICS, *report, "--under-replicated-partitions", "--unavailable-partitions", seen=lines)

        assert "\tPartition: 0\tLeader: none\tReplicas: 3\tIsr: 3\t" in alone.lines[1]
        assert [len(output.lines) for output in (missing, unavailable, under_min)] == [2, 2, 4]

    def test_elections_fail_alike(self, bench: Bench) -> None:
        for kind, topic in (("preferred", "%-alone"), ("unclean", "%-alone"), ("preferred", "%-lost")):
            failed = bench.same(LEADERS, "--election-type", kind, "--topic", topic, "--partition", "0")
            assert failed.code == 1
        # partitions with an eligible leader have it
        bench.kactls(LEADERS, "--election-type", "preferred", "--all-topic-partitions")
        for kind in ("preferred", "unclean"):
            assert bench.same(LEADERS, "--election-type", kind, "--all-topic-partitions", seen=lines).code == 1

    def test_move_to_a_dead_broker_is_rejected_alike(self, bench: Bench) -> None:
        path = bench.moves("lost", p0=[3, 1])
        topics = bench.file("lost-topics", {"version": 1, "topics": [{"topic": "%-lost"}]})

        refused = bench.same(REASSIGN, "--execute", FILE, path, seen=until_error)
        too_few = bench.same(
            REASSIGN, "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2,3", seen=until_error
        )
        created = bench.same(TOPICS, "--create", "--topic", "%-there", "--replica-assignment", "1:3")

        assert until_error(refused.out) == "Error: Unknown broker id 3\n"
        assert until_error(too_few.out) == "Error: Replication factor: 3 larger than available brokers: 2.\n"
        assert created.code == 1
