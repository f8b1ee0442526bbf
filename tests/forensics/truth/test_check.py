"""The comparison with the known history detects every kind of wrong result.

Without this, its success would prove nothing.
"""

import datetime
from typing import Any

import pytest

from tests.support.kafka_logs import check
from tests.support.kafka_logs.truth import Led, Loss, Moves, Outage, Truth, Unclean

BEGIN = 1_714_550_400_000.0
OUTAGE = Outage(
    topic="t", partition=0, life=0, begin=BEGIN + 1000, end=BEGIN + 9000, planned=False, broker=1, new_leader=2,
    leader_epoch=6,
)  # fmt: skip
LOSS = Loss(
    topic="t", partition=0, life=0, replica=1, after_epoch=5, log_end=100, replica_log_end=120, committed=7,
    time_ms=BEGIN + 9100,
)  # fmt: skip
TRUTH = Truth(
    seed=0,
    begin=BEGIN,
    offsets_ms={1: 0, 2: 250, 3: -100},
    drifts_ppm={1: 0.0, 2: 0.0, 3: 0.0},
    outages=[OUTAGE],
    losses=[LOSS],
    unclean=[Unclean(topic="t", partition=0, life=0, leader_epoch=6, leader=2, time_ms=BEGIN + 8990)],
    moves=[Moves(topic="t", partition=0, life=0, elections=1, shrinks=2, expands=2)],
    led=[Led(topic="t", partition=0, life=0, leader_epoch=7, leader=3)],
)
TP = {"topic": "t", "partition": 0, "life": 0}
# Broker 2's clock is the reference.
SKEW = {"broker": 1, "reference": 2, "low_us": -260_000, "high_us": -240_000, "how": "bounds"}


def at(ms: float) -> datetime.datetime:
    """Returns a time on the reference clock, in ms after the begin."""
    return datetime.datetime.fromtimestamp((BEGIN + 250 + ms) / 1000, datetime.UTC)


def outage(**other: Any) -> dict[str, Any]:
    right = {
        "begin": at(900), "begin_low": at(500), "begin_high": at(1200), "begin_kind": "inferred", "end": at(9000),
        "end_low": at(9000), "end_high": at(9000), "end_kind": "observed", "planned": False, "broker": 1,
        "new_leader": 2, "leader_epoch": 6, "duration_min_ms": 7800, "duration_max_ms": 8500, "cause": "broker-failure",
    }  # fmt: skip
    return TP | right | other


def loss(**other: Any) -> dict[str, Any]:
    right = {
        "replica": 1, "log_end": 100, "tail_records": 20, "committed_records": 5, "evidence": "follower",
        "truncated_to": None, "leader_epoch": 6,
    }  # fmt: skip
    return TP | right | other


def test_correct_results_pass() -> None:
    clock = check.Clock(TRUTH, [SKEW])
    assert check.skew(TRUTH, [SKEW]) == []
    assert check.outages(TRUTH, [outage()], clock) == []
    assert check.losses(TRUTH, [loss()]) == []
    assert check.unclean(TRUTH, [TP | {"leader_epoch": 6, "certain": True}]) == []
    assert check.flapping(TRUTH, [TP | {"shrinks": 2, "expands": 2}]) == []


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"begin_low": at(1010)}, "before its lower bound"),
        ({"begin_high": at(990)}, "after its upper bound"),
        ({"end_low": at(9010)}, "end is"),
        ({"end_high": at(8990)}, "end is"),
        ({"duration_min_ms": 8100}, "not at least"),
        ({"duration_max_ms": 7900}, "not at most"),
        ({"planned": True}, "planned is True"),
        ({"planned": None}, "planned is None"),
        ({"broker": 3}, "broker lost was not 3"),
        ({"new_leader": 3}, "new leader was not 3"),
        ({"leader_epoch": 7}, "not found"),
        ({"life": 1}, "not found"),
    ],
)
def test_wrong_outage_is_detected(wrong: dict[str, Any], error: str) -> None:
    errors = check.outages(TRUTH, [outage(**wrong)], check.Clock(TRUTH, [SKEW]))

    assert any(error in line for line in errors), errors


def test_invented_and_repeated_outages_are_detected() -> None:
    clock = check.Clock(TRUTH, [SKEW])
    assert "invented" in check.outages(TRUTH, [outage(), outage(partition=1)], clock)[0]
    assert "found 2 times" in check.outages(TRUTH, [outage(), outage()], clock)[0]
    assert check.outages(TRUTH, [], clock, complete=False) == []


def test_unexplained_leader_change_makes_no_claim() -> None:
    clock = check.Clock(TRUTH, [SKEW])
    change = outage(planned=None, cause="unknown", leader_epoch=7, new_leader=3, duration_min_ms=0)
    assert check.outages(TRUTH, [outage(), change], clock) == []
    for wrong in ({"leader_epoch": 8}, {"new_leader": 2}, {"duration_min_ms": 1}, {"planned": False}):
        assert any("invented" in line for line in check.outages(TRUTH, [outage(), change | wrong], clock)), wrong


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"tail_records": 21}, "invented"),
        ({"log_end": 99}, "invented"),
        ({"replica": 2}, "invented"),
        ({"committed_records": 8}, "not committed"),
        ({"tail_records": None, "log_end": None, "evidence": "truncated", "truncated_to": 101}, "invented"),
        ({"tail_records": 21, "log_end": None, "evidence": "truncated", "truncated_to": 100}, "invented"),
        ({"evidence": "leader", "tail_records": 30}, "invented"),
    ],
)
def test_wrong_loss_is_detected(wrong: dict[str, Any], error: str) -> None:
    assert any(error in line for line in check.losses(TRUTH, [loss(**wrong)]))


def test_missing_result_is_detected() -> None:
    assert "not found" in check.losses(TRUTH, [])[0]
    assert check.losses(TRUTH, [], silent=[1]) == []
    assert "not found" in check.unclean(TRUTH, [])[0]
    assert "invented" in check.unclean(TRUTH, [TP | {"leader_epoch": e, "certain": True} for e in (6, 7)])[0]
    assert "not found" in check.flapping(TRUTH, [])[0]
    assert "1 shrinks" in check.flapping(TRUTH, [TP | {"shrinks": 1, "expands": 2}])[0]
    assert check.skew(TRUTH, [SKEW | {"high_us": -253_000}]) != []
