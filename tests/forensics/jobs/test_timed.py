"""Events on one clock. Topics with the same name are distinguished."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kactl.forensics.event_types import EventType, Kind
from kactl.forensics.events import COLUMNS as EVENT_COLUMNS
from kactl.forensics.jobs import timed, topic_incarnations
from kactl.forensics.jobs.skew import COLUMNS as SKEW_COLUMNS

from . import dumps, said
from .tables import events, line, moment, rows, table, timed_table

CLOCKS = [
    {"broker": 1, "reference": 1, "offset_us": 0, "low_us": 0, "high_us": 0, "how": "reference"},
    {"broker": 2, "reference": 1, "offset_us": 2_000_000, "low_us": 1_989_999, "high_us": 2_000_007, "how": "bounds"},
    {"broker": 3, "reference": 1, "offset_us": -500_000, "high_us": -500_000, "how": "one-sided"},
    {"broker": 4, "reference": 1, "offset_us": 0, "how": "unknown"},
    {"broker": 5, "reference": 1, "offset_us": 0, "low_us": 0, "high_us": 0, "how": "bounds"},
    {"broker": 6, "reference": 1, "offset_us": 0, "low_us": -30_000_000, "high_us": 30_000_000, "how": "bounds"},
]
B3 = [
    # before-0 is logged long before its creation.
    said.leads(20 - 0.5, 3, "before-0", 4, (3,)),
    # again-0 is created at 100 and at 200. These lines seem to be from just before, given the bounds of 3's clock. The
    # error of an unbounded clock is assumed to be at most one second.
    said.follows(198.999 - 0.5, 3, "again-3", 0),
    said.follows(199 - 0.5, 3, "again-3", 0),
    said.leads(199.3 - 0.5, 3, "again-0", 0, (3,)),
    said.follows(199.3 - 0.5, 3, "again-1", 7),
    # A partition added later, to the second topic.
    said.leads(305 - 0.5, 3, "again-2", 0, (3,)),
    said.leads(400.1 - 0.5, 3, "before-0", 0, (3,)),
]
C1 = [
    said.new(100, "again-0"),
    said.new(100.001, "again-1"),
    said.moved(150, "again-0", said.OFFLINE, said.ABSENT),
    said.new(200, "again-0"),
    said.new(200.002, "again-1"),
    said.new(300, "again-2"),
    said.new(400, "before-0"),
    said.new(500, "once-0"),
    said.online(501, "once-0", 2, 0, (2,), 0, before=said.NEW),
]
B2 = [said.leads(503, 2, "once-0", 0, (2,)), line(504, "what is this?")]
# A second controller. By its clock, lines about a topic precede its creation by ten seconds, or slightly more. It logs
# creations one millisecond apart, and two.
C5 = [
    said.online(589.999, "far-0", 2, 3, (2,), 7, by=5),
    said.online(590, "near-0", 2, 3, (2,), 7, by=5),
    said.new(600, "near-0", by=5),
    said.new(600, "far-0", by=5),
    said.new(700, "told-0", by=5),
    said.new(700, "born-0", by=5),
    said.new(700.001, "told-0", by=5),
    said.new(700.002, "born-0", by=5),
]
# A clock error bounded by half a minute is assumed to be at most ten seconds.
B6 = [said.follows(189.999, 6, "again-0", 0), said.follows(190, 6, "again-0", 0)]
B4 = [said.leads(50, 4, "once-0", 3, (4,))]  # at an unknown time


@pytest.fixture(scope="module")
def clocks(spark: SparkSession) -> DataFrame:
    return table(spark, SKEW_COLUMNS, CLOCKS)


@pytest.fixture(scope="module")
def read(spark: SparkSession) -> DataFrame:
    of = {1: C1, 2: B2, 3: B3, 4: B4, 5: C5, 6: B6}
    logs = {(broker, Kind.STATE_CHANGE): lines for broker, lines in of.items()}
    return events(spark, logs | {(1, Kind.EMPTY): C1}).cache()  # with a copy


@pytest.fixture(scope="module")
def found(read: DataFrame, clocks: DataFrame) -> list[dict[str, Any]]:
    return rows(timed.timed(read, clocks), "speaker", "offset")


def of(found: list[dict[str, Any]], broker: int, *columns: str) -> list[tuple[Any, ...]]:
    once = [row for row in found if row["speaker"] == broker and row["kind"] == "state-change"]
    return [tuple(row[name] for name in columns) for row in once]


def test_fast_clock_is_corrected(found: list[dict[str, Any]]) -> None:
    assert of(found, 2, "ts", "at", "at_error_us") == [
        (moment(503), moment(501), 10_001),
        (moment(504), moment(502), 10_001),
    ]


def test_reference_has_no_error(found: list[dict[str, Any]]) -> None:
    assert {(row[0] == row[1], row[2]) for row in of(found, 1, "ts", "at", "at_error_us")} == {(True, 0)}


def test_unbounded_clock_has_null_error(found: list[dict[str, Any]]) -> None:
    assert {error for (error,) in of(found, 3, "at_error_us")} == {None}
    assert of(found, 4, "at", "at_error_us") == [(moment(50), None)]


def test_metadata_log_has_its_own_clock(spark: SparkSession) -> None:
    nameless = {"reference": 1, "offset_us": 4_000_000, "low_us": 3_999_000, "high_us": 4_002_000, "how": "bounds"}
    known = table(spark, SKEW_COLUMNS, [*CLOCKS, nameless])

    (found,) = rows(timed.timed(dumps.events(spark, [dumps.topic(12)]), known))

    assert (found["ts"], found["at"], found["at_error_us"]) == (moment(12), moment(8), 2_000)


def test_recreated_topic_has_two_lives(found: list[dict[str, Any]]) -> None:
    assert of(found, 1, "topic", "partition", "life") == [
        ("again", 0, 0),
        ("again", 1, 0),
        ("again", 0, 0),
        ("again", 0, 1),
        ("again", 1, 1),
        ("again", 2, 1),
        ("before", 0, 1),
        ("once", 0, 0),
        ("once", 0, 0),
    ]


def test_early_leader_line_belongs_to_the_new_topic(
    found: list[dict[str, Any]],
) -> None:
    assert of(found, 3, "topic", "partition", "life") == [
        ("before", 0, 0),
        ("again", 3, 0),
        ("again", 3, 1),
        ("again", 0, 1),
        ("again", 1, 0),
        ("again", 2, 1),
        ("before", 0, 1),
    ]
    assert of(found, 6, "topic", "life") == [("again", 0), ("again", 1)]


def test_unlinked_clock_shows_no_older_topic(found: list[dict[str, Any]]) -> None:
    assert of(found, 4, "topic", "life") == [("once", 0)]


def test_lines_without_a_topic_have_no_life(found: list[dict[str, Any]]) -> None:
    assert of(found, 2, "type", "life") == [("leads", 0), ("unparsed", None)]


def test_events_are_neither_lost_nor_added(found: list[dict[str, Any]], read: DataFrame) -> None:
    assert len(found) == read.count()
    assert list(found[0]) == [*(each.name for each in EVENT_COLUMNS), "kind", "day", *(c.name for c in timed.COLUMNS)]


def test_only_reused_names_have_lives(read: DataFrame, clocks: DataFrame) -> None:
    found = rows(topic_incarnations.JOB.run(read, clocks), "topic", "life")

    assert [(row["topic"], row["life"], row["born_at"]) for row in found] == [
        ("again", 0, moment(100)),
        ("again", 1, moment(200)),
        ("before", 0, None),
        ("before", 1, moment(400)),
        ("born", 0, moment(700)),
        ("born", 1, moment(700.002)),
        ("far", 0, None),
        ("far", 1, moment(600)),
    ]


def test_each_kraft_topic_id_is_one_life(spark: SparkSession, clocks: DataFrame) -> None:
    def born(seconds: float, topic: str, id: str, partition: int) -> dict[str, Any]:
        where = {"speaker": 1, "kind": "controller", "topic": topic, "topic_id": id, "partition": partition}
        return where | {"type": str(EventType.PARTITION_CREATED), "ts": moment(seconds)}

    told = [born(seconds, "a", id, at) for seconds, id in ((10, "x"), (90, "x"), (50, "y"), (91, "y")) for at in (0, 1)]
    made = timed_table(spark, [*told, born(10, "b", "z", 0)]).drop(*(each.name for each in timed.COLUMNS))

    found = rows(topic_incarnations.JOB.run(made, clocks), "life")

    assert [(row["topic"], row["life"], row["born_at"]) for row in found] == [
        ("a", 0, moment(10)),
        ("a", 1, moment(50)),
    ]


def test_topic_id_is_resolved_to_its_name(spark: SparkSession, clocks: DataFrame) -> None:
    controller = "org.apache.kafka.controller.ReplicationControlManager"
    told = [
        line(10, "Setting new leader for topicId RTk8EawhTeS-92_xgpdeLQ, partition 1 to 2 using an unclean election"),
        line(20, "Setting new leader for topicId cGRxQup3QL2f9cdDdD0fNw, partition 0 to 2 using an unclean election"),
    ]
    named = line(
        5,
        "[QuorumController id=1] Replayed TopicRecord for topic u1 with topic ID RTk8EawhTeS-92_xgpdeLQ.",
        logger=controller,
    )
    logs = {(1, Kind.CONTROLLER): told, (2, Kind.CONTROLLER): [named]}

    found = rows(timed.timed(events(spark, logs), clocks), "ts")

    assert [(row["format"], row["topic"], row["life"]) for row in found] == [
        ("K18a", "u1", 0),
        ("K7", "u1", 0),
        ("K7", None, None),  # no line contains its name
    ]
