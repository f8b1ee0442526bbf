"""Logs of modelled brokers as runs of leader epochs."""

import pytest

from tests.sim.engine.brokers.replica_log import NO_EPOCH, ReplicaLog


def log(*runs: tuple[int, int]) -> ReplicaLog:
    made = ReplicaLog()
    made.extend(runs)
    return made


def test_records_of_one_epoch_are_one_run() -> None:
    made = ReplicaLog()

    made.append(1, 3)
    made.append(1, 2)
    made.append(4, 1)
    made.append(5, 0)

    assert made.runs == [(1, 5), (4, 6)]
    assert (made.end, made.last_epoch) == (6, 4)


def test_end_of_an_epoch_without_records_is_that_of_the_one_before() -> None:
    made = log((1, 3), (4, 5))

    assert made.end_of(3) == (1, 3)
    assert made.end_of(4) == (4, 5)
    assert made.end_of(0) == (NO_EPOCH, 0)


@pytest.mark.parametrize(
    ("offset", "left"), [(0, []), (2, [(1, 2)]), (3, [(1, 3)]), (4, [(1, 3), (4, 4)]), (9, [(1, 3), (4, 5)])]
)
def test_truncation_keeps_the_records_below_the_offset(offset: int, left: list[tuple[int, int]]) -> None:
    made = log((1, 3), (4, 5))

    made.truncate(offset)

    assert made.runs == left


def test_follower_truncates_to_the_end_of_its_last_epoch_at_the_leader() -> None:
    leader, follower = log((1, 3), (5, 9)), log((1, 3), (2, 7))

    follower.truncate_to_epoch(*leader.end_of(follower.last_epoch))
    follower.extend(leader.after(follower.end))

    assert follower.runs == leader.runs


def test_fetched_runs_continue_the_log() -> None:
    follower = log((1, 2))

    follower.extend(log((1, 3), (5, 9)).after(follower.end))

    assert follower.runs == [(1, 3), (5, 9)]
