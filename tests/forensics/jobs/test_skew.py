"""Clock offsets from lines: a controller with a correct clock, and a broker for each scenario."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs.skew import JOB, skew

from . import dumps, said
from .tables import events, line, moment, rows, timed_table

CONTROLLER, TRACED, AT_INFO, OLD, WRITER, TWICE = 1, 2, 3, 4, 5, 6
SET_BACK, ALONE, RESENT, RECONNECTED, FOLLOWER = 7, 8, 9, 10, 11
# Seconds by which each broker's clock is ahead. The controller's clock is correct.
AHEAD = {TRACED: 2.0, AT_INFO: -60.0, OLD: 0.5, WRITER: 30.0, TWICE: 0.0, RESENT: 1.0, RECONNECTED: -5.0, FOLLOWER: 3.0}

controller: list[str] = []
log: list[str] = []
brokers: dict[int, list[str]] = {number: [] for number in range(2, 12)}


def at(broker: int, seconds: float) -> float:
    """Returns the time on the broker's clock."""
    return seconds + AHEAD[broker]


# At TRACE, both directions: received 12 ms after the decision, and answered 4 ms after completion.
for second in (10, 20):
    tp, held = f"traced-{second}", said.state(TRACED, 3, (2, 3), 8)
    controller.append(said.online(second, tp, TRACED, 3, (2, 3), 8))
    controller.append(said.sent(second + 0.005, tp, held, TRACED))
    brokers[TRACED].append(said.received(at(TRACED, second + 0.012), TRACED, tp, held, second))
    brokers[TRACED].append(said.leads(at(TRACED, second + 0.020), TRACED, tp, 3, (2, 3)))
    brokers[TRACED].append(said.completed(at(TRACED, second + 0.021), TRACED, tp, second))
    controller.append(said.answered(second + 0.025, TRACED, second))

# At INFO: only the decision and the begin of leading or following are logged; the shortest delay is 8 ms.
for number, way in enumerate((0.040, 0.008, 0.100)):
    controller.append(said.online(30 + number, f"info-{number}", AT_INFO, 1, (3, 4), 2))
    brokers[AT_INFO].append(said.leads(at(AT_INFO, 30 + number + way), AT_INFO, f"info-{number}", 1, (3, 4)))
    # The same epoch again after a restart: this hour is no evidence about clocks.
    brokers[AT_INFO].append(said.leads(at(AT_INFO, 3600 + number), AT_INFO, f"info-{number}", 1, (3, 4)))

# 1.0: the controller's decision has no epoch, but its request does.
controller.append(said.online_unnumbered(40, "old-0", OLD))
controller.append(said.sent(40.001, "old-0", said.state(OLD, 6, (4,), 9), OLD))
brokers[OLD].append(said.received(at(OLD, 40.004), OLD, "old-0", said.state(OLD, 6, (4,), 9), 77))

# 2.7 and later: a leader requests an ISR change, which is written 3 ms later, and confirmed 2 ms after that.
brokers[WRITER].append(said.shrinking(at(WRITER, 50), WRITER, "isr-0", (5, 6), (5,)))
log.append(said.written(50.003, "isr-0", WRITER, 4, (5,), 21))
brokers[WRITER].append(said.isr_updated(at(WRITER, 50.005), WRITER, "isr-0", (5,), 21))

# A topic name that was used twice: the broker's line in epoch 0 may be of either topic.
for second in (100, 900):
    controller.append(said.online(second, "again-0", TWICE, 0, (6,), 0, before=said.NEW))
brokers[TWICE].append(said.leads(at(TWICE, 100.010), TWICE, "again-0", 0, (6,)))
# So may the ISR change with version 1.
for second in (110, 910):
    log.append(said.written(second, "again-0", TWICE, 0, (6,), 1))
brokers[TWICE] += [
    said.shrinking(at(TWICE, 109.990), TWICE, "again-0", (6, 5), (6,)),
    said.isr_updated(at(TWICE, 110.010), TWICE, "again-0", (6,), 1),
]

# A broker whose clock was set back by four minutes between two leaderships.
controller.append(said.online(200, "back-0", SET_BACK, 1, (7,), 1))
controller.append(said.online(300, "back-1", SET_BACK, 1, (7,), 1))
brokers[SET_BACK] += [
    said.leads(200.004, SET_BACK, "back-0", 1, (7,)),
    said.leads(300.004 - 240, SET_BACK, "back-1", 1, (7,)),
    said.leads(301 - 240, SET_BACK, "back-2", 1, (7,)),
]

brokers[ALONE].append(said.leads(5, ALONE, "alone-0", 2, (8,)))

# The same state was sent twice, and the controller's log begins between the two.
held = said.state(RESENT, 5, (9,), 3)
controller.append(said.sent(700, "sent-0", held, RESENT))
brokers[RESENT] += [
    said.received(at(RESENT, 70), RESENT, "sent-0", held, 1),
    said.received(at(RESENT, 700.003), RESENT, "sent-0", held, 2),
]

# A correlation id that one controller used twice, because the broker restarted in between.
controller += [said.answered(400, RECONNECTED, 3), said.answered(800, RECONNECTED, 3)]
brokers[RECONNECTED].append(said.completed(at(RECONNECTED, 399), RECONNECTED, "re-0", 3))
brokers[RECONNECTED].append(said.completed(at(RECONNECTED, 799), RECONNECTED, "re-0", 3))

# A follower's lines count as well. Two lines of twelve appear to be an hour early.
for number in range(12):
    early = 3600 if number in (3, 8) else 0
    controller.append(said.online(500 + number, f"follow-{number}", CONTROLLER, 2, (1, 11), 4))
    brokers[FOLLOWER].append(
        said.follows(at(FOLLOWER, 500.010 + number - early + number / 1000), FOLLOWER, f"follow-{number}", 2)
    )


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[int, dict[str, Any]]:
    logs = {(CONTROLLER, Kind.STATE_CHANGE): controller, (CONTROLLER, Kind.CONTROLLER): log}
    logs |= {(number, Kind.STATE_CHANGE): sorted(said) for number, said in brokers.items() if number != SET_BACK}
    logs[SET_BACK, Kind.STATE_CHANGE] = brokers[SET_BACK]  # in the order of writing
    # A copy of the same file.
    logs[CONTROLLER, Kind.SERVER] = controller
    return {row["broker"]: row for row in rows(skew(events(spark, logs)))}


def bounds(row: dict[str, Any]) -> tuple[str, int | None, int | None, int]:
    return row["how"], row["low_us"], row["high_us"], row["offset_us"]


def test_controller_is_the_reference(found: dict[int, dict[str, Any]]) -> None:
    assert {row["reference"] for row in found.values()} == {CONTROLLER}
    assert bounds(found[CONTROLLER]) == ("reference", 0, 0, 0)


def test_every_broker_has_a_row(found: dict[int, dict[str, Any]]) -> None:
    assert sorted(found) == list(range(1, 12))
    assert [set(row) for row in found.values()] == [{each.name for each in JOB.columns}] * 11


def test_at_trace_both_sides_are_bounded(found: dict[int, dict[str, Any]]) -> None:
    # Ahead by 2 s; 7 ms from sending to receiving, 4 ms from completion to response.
    assert bounds(found[TRACED]) == ("bounds", 1_996_000, 2_007_000, 2_001_500)


def test_shortest_delay_at_info_is_taken_for_zero(found: dict[int, dict[str, Any]]) -> None:
    assert bounds(found[AT_INFO]) == ("one-sided", None, -59_992_000, -59_992_000)


def test_sent_and_received_are_joined_up_to_1_0(found: dict[int, dict[str, Any]]) -> None:
    assert bounds(found[OLD]) == ("one-sided", None, 503_000, 503_000)


def test_isr_changes_bound_both_sides_at_info(found: dict[int, dict[str, Any]]) -> None:
    assert bounds(found[WRITER]) == ("bounds", 29_997_000, 30_002_000, 29_999_500)


@pytest.mark.parametrize("broker", [TWICE, ALONE, RESENT, RECONNECTED])
def test_ambiguous_lines_give_no_link(found: dict[int, dict[str, Any]], broker: int) -> None:
    assert bounds(found[broker]) == ("unknown", None, None, 0)


def test_single_early_line_does_not_move_a_bound(
    found: dict[int, dict[str, Any]],
) -> None:
    assert bounds(found[FOLLOWER]) == ("one-sided", None, 3_010_000, 3_010_000)


def test_clock_that_was_set_back_is_contradictory(found: dict[int, dict[str, Any]]) -> None:
    assert found[SET_BACK]["how"] == "contradictory"


def test_logs_without_writer_have_their_own_clock(spark: SparkSession) -> None:
    heard = [said.leads(2.5, 2, "a-0", 0, (2,)), said.leads(12.2, 2, "b-0", 1, (2,)), line(13, "?")]
    named = events(spark, {(2, Kind.STATE_CHANGE): heard})
    decided = events(spark, {(1, Kind.STATE_CHANGE): [said.online(1, "a-0", 2, 0, (2,), 0, before=said.NEW)]})
    nameless = decided.selectExpr("* except (speaker, kind)", "cast(null as int) speaker", "'kactl' kind")
    record = {"kind": "dump", "topic": "b", "partition": 0, "file_id": 9, "offset": 0}
    dumped = timed_table(
        spark,
        [
            record
            | {"type": "partition-created", "ts": moment(1), "leader": 1, "leader_epoch": 0, "partition_epoch": 0},
            record | {"type": "leadership", "ts": moment(11), "leader": 2},
        ],
    ).drop("at", "at_error_us", "life")

    found = rows(skew(named.unionByName(nameless).unionByName(dumped)), "broker")

    # 1.5 s after kactl's line, 1.2 s after the record that raised the epoch to 1.
    assert [bounds(row) for row in found] == [("reference", 0, 0, 0), ("one-sided", None, 1_200_000, 1_200_000)]
    assert [row["links"] for row in found] == [2, 2]


def test_metadata_log_is_linked_to_requesting_brokers(spark: SparkSession) -> None:
    dumped = dumps.events(
        spark,
        [
            dumps.topic(0),
            dumps.partition(0, 0, [2, 3]),
            dumps.change(50.003, 0, isr=[2]),
            dumps.broker(60, 3, fenced=-1),
            # Fenced and unfenced twice; the controller's log begins between the two.
            dumps.broker(70, 4, fenced=-1),
            dumps.broker(170, 4, fenced=-1),
        ],
    )
    leader = [
        said.shrinking(80, 2, "kraft-0", (2, 3), (2,)),
        said.isr_updated(80.005, 2, "kraft-0", (2,), 1),
    ]
    granted = "unfence has been granted because it has caught up with the offset of its register broker record 9."
    controller = [
        line(
            seconds, f"[QuorumController id=5] The request from broker {broker} to {granted}", logger="kafka.controller"
        )
        for seconds, broker in ((59.996, 3), (169, 4))
    ]
    logs = events(spark, {(2, Kind.SERVER): leader, (5, Kind.CONTROLLER): controller})

    found = rows(skew(logs.unionByName(dumped)), "broker")

    # The leader is ahead by 30 s: 3 ms from request to write, 2 ms to the response. The controller logged 4 ms before.
    assert [(row["broker"], bounds(row)) for row in found] == [
        (None, ("reference", 0, 0, 0)),
        (2, ("bounds", 29_997_000, 30_002_000, 29_999_500)),
        (5, ("one-sided", -4_000, None, -4_000)),
    ]
