"""INV-60 over hand-written histories."""

from collections.abc import Callable

import pytest

from tests.sim.engine.checkers import Releases, Rules

from .stories import T1, T2, A, Story

ONE = "broker 1"
T_MS = 6_000


def begin(one: Story, broker: int, life: int, epoch: int, *, topic_id: str = T1) -> None:
    one.record(
        "lease.begin", f"broker {broker}", broker=broker, life=life, topic="t1", topic_id=topic_id, partition=0,
        controller_epoch=1, leader_epoch=epoch, present_epoch=epoch, valid=[],
    )  # fmt: skip


def release(one: Story, broker: int, epoch: int, *, what: str = "LeaseRelease", topic_id: str = T1) -> None:
    one.record(
        "req.enqueue", A, channel=1, broker=broker, broker_epoch=9, request=1, what=what, controller_epoch=1,
        partitions=["t1-0"], leader_epochs=[epoch], topic_ids=[topic_id],
    )  # fmt: skip


def story() -> Story:
    """Broker 1 leads under epoch 4."""
    one = Story(Releases(Rules(session_timeout_ms=T_MS)))
    one.commit({"brokers/1": {"epoch": 7}})
    begin(one, 1, 7, 4)
    return one


def test_release_after_the_end_of_the_leadership_is_legal() -> None:
    one = story()
    one.record("lease.end", ONE, broker=1, life=7, topic="t1", partition=0)
    release(one, 2, 5)

    assert one.found == []


def test_release_after_the_end_of_the_registration_is_legal() -> None:
    one = story()
    one.commit({"brokers/1": None})
    release(one, 2, 5)

    assert one.found == []


def test_release_after_another_registration_is_legal() -> None:
    one = story()
    one.commit({"brokers/1": {"epoch": 8}})
    release(one, 2, 5)

    assert one.found == []


@pytest.mark.parametrize(("wait_ms", "found"), [(0.9 * T_MS, []), (0.89 * T_MS, ["INV-60"])])
def test_release_needs_the_timeout_after_an_eviction(wait_ms: float, found: list[str]) -> None:
    one = story()
    one.commit({"brokers/1": {"epoch": 7, "evicted": True}}, operation="evict")
    one.now_ms += wait_ms
    release(one, 2, 5)

    assert one.found == found


def test_release_beside_an_earlier_leadership_breaks_inv_60() -> None:
    one = story()
    release(one, 2, 5)

    assert one.found == ["INV-60"]


def test_lapse_is_no_end_and_breaks_inv_60() -> None:
    one = story()
    one.record("lease.lapse", ONE, broker=1, life=7)
    release(one, 2, 5)

    assert one.found == ["INV-60"]


def applied(one: Story, *, epoch: int, outcome: str = "applied") -> None:
    one.record(
        "role.apply", ONE, message=1, broker=1, broker_epoch=7, topic="t1", topic_id=T1, partition=0, role="follower",
        leader=2, leader_epoch=epoch, partition_epoch=1, isr=[2], outcome=outcome,
    )  # fmt: skip


def stopped(one: Story, outcome: str) -> None:
    one.record(
        "role.stop", ONE, message=1, broker=1, broker_epoch=7, topic="t1", topic_id=T1, partition=0, leader_epoch=4,
        delete=False, outcome=outcome,
    )  # fmt: skip


def reported(one: Story, status: str, *, partition: int = 0) -> None:
    one.record("handler.report", ONE, broker=1, topic="t1", partition=partition, status=status)


ENDS: list[Callable[[Story], None]] = [
    lambda one: applied(one, epoch=5),
    lambda one: applied(one, epoch=5, outcome="storage"),
    lambda one: stopped(one, "applied"),
    lambda one: reported(one, "STUCK"),
    lambda one: reported(one, "NOT_READY"),
]
NO_ENDS: list[Callable[[Story], None]] = [
    lambda one: applied(one, epoch=4, outcome="same"),
    lambda one: applied(one, epoch=5, outcome="leader epoch"),
    lambda one: stopped(one, "leader epoch"),
    lambda one: reported(one, "BUSY"),
    lambda one: reported(one, "ERROR", partition=1),
]


@pytest.mark.parametrize(("event", "found"), [*((e, []) for e in ENDS), *((e, ["INV-60"]) for e in NO_ENDS)])
def test_lapsed_leadership_ends_when_it_cannot_be_resumed(event: Callable[[Story], None], found: list[str]) -> None:
    one = story()
    one.record("lease.lapse", ONE, broker=1, life=7)
    event(one)
    release(one, 2, 5)

    assert one.found == found


@pytest.mark.parametrize("event", ENDS)
def test_leadership_that_acts_or_was_resumed_ends_by_its_end_only(event: Callable[[Story], None]) -> None:
    for is_resumed in (False, True):
        one = story()
        if is_resumed:
            one.record("lease.lapse", ONE, broker=1, life=7)
            begin(one, 1, 7, 4)
        event(one)
        release(one, 2, 5)

        assert one.found == ["INV-60"], is_resumed


def test_other_requests_and_releases_are_not_judged() -> None:
    one = story()
    release(one, 2, 5, what="LeaderAndIsr")
    release(one, 1, 5)
    release(one, 2, 4)
    release(one, 2, 5, topic_id=T2)

    assert one.found == []
