"""INV-57 and INV-61 over hand-written histories."""

from typing import Any

import pytest

from tests.sim.engine.checkers import Handlers

from .stories import NO_ID, T1, T2, Story

ONE, TWO = "broker 1", "broker 2"
MARGIN_MS = 600.0


def call(one: Story, phase: str, number: int, epoch: int = -1, *, node: str = ONE, partition: int = 0) -> None:
    one.record(
        "phase.begin", node, broker=int(node[-1]), number=number, topic="t1", partition=partition, phase=phase,
        leader_epoch=epoch, topic_id=T1,
    )  # fmt: skip


def end(one: Story, phase: str, number: int, *, node: str = ONE) -> None:
    one.record(
        "phase.end", node, broker=int(node[-1]), number=number, topic="t1", partition=0, phase=phase
    )  # fmt: skip


def begin(one: Story, node: str, epoch: int, *, life: int = 7, topic_id: str = T1) -> None:
    one.record(
        "lease.begin", node, broker=int(node[-1]), life=life, topic="t1", topic_id=topic_id, partition=0,
        controller_epoch=1, leader_epoch=epoch, present_epoch=epoch, valid=[], margin_ms=MARGIN_MS,
    )  # fmt: skip


def ended(one: Story, kind: str, *, late_ms: float = 0.0) -> None:
    of = {"topic": "t1", "partition": 0} if kind == "lease.end" else {}
    one.record(kind, ONE, broker=1, life=7, late_ms=late_ms, **of)


def story() -> Story:
    """Broker 1 leads under epoch 4."""
    one = Story(Handlers())
    one.commit({"brokers/1": {"epoch": 7}})
    call(one, "prepare", 1, 4)
    end(one, "prepare", 1)
    call(one, "lead", 2, 4)
    begin(one, ONE, 4)
    return one


def test_calls_one_after_the_other_are_legal() -> None:
    one = story()
    end(one, "lead", 2)
    call(one, "follow", 3, 5)
    end(one, "follow", 3)
    call(one, "stop", 4)
    end(one, "stop", 4)
    call(one, "prepare", 5, 0)

    assert one.found == []


def test_calls_of_other_partitions_and_processes_are_legal() -> None:
    one = story()
    call(one, "lead", 3, 4, partition=1)
    call(one, "follow", 3, 4, node=TWO)
    one.record("node.crash", ONE, incarnation=1, clean=False)
    call(one, "prepare", 1, 0)

    assert one.found == []


@pytest.mark.parametrize("phase", ["prepare", "lead", "follow", "stop"])
def test_call_during_another_one_breaks_inv_61(phase: str) -> None:
    one = story()
    call(one, phase, 3, 5)

    assert one.found == ["INV-61"]


def test_end_of_another_call_breaks_inv_61() -> None:
    one = story()
    end(one, "lead", 1)
    call(one, "follow", 3, 5)

    assert one.found == ["INV-61"]


def test_earlier_leader_epoch_breaks_inv_61() -> None:
    one = story()
    end(one, "lead", 2)
    call(one, "follow", 3, 3)

    assert one.found == ["INV-61"]


@pytest.mark.parametrize("kind", ["lease.end", "lease.lapse"])
@pytest.mark.parametrize(("wait_ms", "found"), [(0.9 * MARGIN_MS, []), (0.8 * MARGIN_MS, ["INV-57"])])
def test_leader_beside_a_running_call_breaks_inv_57(kind: str, wait_ms: float, found: list[str]) -> None:
    one = story()
    ended(one, kind)
    one.now_ms += wait_ms
    begin(one, TWO, 5, life=8)

    assert one.found == found


@pytest.mark.parametrize("kind", ["lease.end", "lease.lapse"])
@pytest.mark.parametrize(("late_ms", "found"), [(0.5 * MARGIN_MS, []), (0.3 * MARGIN_MS, ["INV-57"])])
def test_margin_counts_from_the_end_of_the_lease(kind: str, late_ms: float, found: list[str]) -> None:
    """A process that was paused notices it late, or handles an order first."""
    one = story()
    ended(one, kind, late_ms=late_ms)
    one.now_ms += 0.5 * MARGIN_MS
    begin(one, TWO, 5, life=8)

    assert one.found == found


def test_leader_after_the_end_of_the_call_is_legal() -> None:
    one = story()
    ended(one, "lease.end")
    end(one, "lead", 2)
    begin(one, TWO, 5, life=8)

    assert one.found == []


def test_leader_of_another_topic_of_the_name_is_legal() -> None:
    one = story()
    ended(one, "lease.end")
    begin(one, TWO, 0, life=8, topic_id=T2)

    assert one.found == []


@pytest.mark.parametrize(("removed", "found"), [(["t1"], []), (["t2"], ["INV-57"]), ([], ["INV-57"])])
def test_leader_of_the_next_topic_of_the_name_is_legal_without_ids(removed: list[str], found: list[str]) -> None:
    one = story()
    begin(one, ONE, 4, topic_id=NO_ID)
    ended(one, "lease.end")
    one.commit({f"topics/{topic}": None for topic in removed})
    begin(one, TWO, 0, life=8, topic_id=NO_ID)

    assert one.found == found


def test_leader_of_the_same_topic_as_a_later_call_breaks_inv_57_without_ids() -> None:
    one = story()
    one.commit({"topics/t1": None})
    begin(one, ONE, 4, topic_id=NO_ID)
    ended(one, "lease.end")
    begin(one, TWO, 5, life=8, topic_id=NO_ID)

    assert one.found == ["INV-57"]


def test_call_in_a_session_that_the_store_ended_early_protects_nothing() -> None:
    one = story()
    one.record("fault.begin", fault="expire", target=ONE)
    one.commit({"brokers/1": None}, client="", operation="expire")
    one.record("action", number=1)
    ended(one, "lease.lapse")
    begin(one, TWO, 5, life=8)

    assert one.found == []


def test_lease_that_goes_on_too_long_breaks_inv_57() -> None:
    one = story()
    late: dict[str, Any] = {"broker": 1, "life": 7, "what": "check of t1-0"}
    one.record("lease.late", ONE, **late)

    assert one.found == ["INV-57"]
