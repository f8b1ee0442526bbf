"""INV-71 over hand-written histories."""

import pytest

from tests.sim.engine.checkers import Interruptions

from .stories import A, Story
from .test_owners import OWN, begin, own

ONE = "broker 1"
JOBS_0 = {"broker": 1, "topic": "jobs", "partition": 0}


def story() -> Story:
    """Participants 1 and 2 own the shards 0 and 1, and act."""
    one = Story(Interruptions())
    one.elected(1)
    for broker in (1, 2):
        one.commit({f"brokers/{broker}": {"epoch": 7}})
    one.topic({0: [], 1: []}, name="jobs", topic_id=OWN)
    own(one, 1, 2)
    begin(one, 1, 0)
    begin(one, 2, 1)
    return one


def end(one: Story, *, late_ms: float = 0.0) -> None:
    one.record("lease.end", ONE, **JOBS_0, life=7, late_ms=late_ms)


def order(one: Story, *, epoch: int, is_answered: bool = True) -> None:
    one.record(
        "req.enqueue", A, channel=1, broker=1, broker_epoch=7, request=1, what="LeaderAndIsr", controller_epoch=1,
        partitions=["jobs-0"], leader_epochs=[epoch], topic_ids=[OWN],
    )  # fmt: skip
    if is_answered:
        one.record("req.attempt", A, channel=1, request=1, outcome="answered")


def evict(one: Story) -> None:
    one.record("fsm.broker", A, controller_epoch=1, broker=1, what="evicted")


def test_interruption_without_a_reason_breaks_inv_71() -> None:
    one = story()
    end(one)
    begin(one, 1, 0)

    assert one.found == ["INV-71"]


def test_end_without_a_reason_is_found_at_the_end_of_a_run() -> None:
    one = story()
    end(one)

    violation = one.checker.at_end()

    assert violation is not None
    assert violation.invariant == "INV-71"


def test_move_of_another_shard_is_no_reason() -> None:
    one = story()
    own(one, 1, 1, epoch=1)
    end(one)
    begin(one, 1, 0)

    assert one.found == ["INV-71"]


@pytest.mark.parametrize(
    "reason", ["moved", "moved and back", "deleted", "created again", "failed", "returned", "late", "gone", "restarted"]
)
def test_ends_for_the_own_shard_participant_or_lease_are_allowed(reason: str) -> None:
    one = story()
    match reason:
        case "moved":
            own(one, 2, epoch=1)
        case "moved and back":
            own(one, 2, epoch=1)
            own(one, 1, epoch=2)
        case "deleted":
            one.commit({"deletions/jobs": {}})
        case "created again":
            one.topic({0: []}, name="jobs", topic_id=OWN[:-1] + "2")
        case "failed":
            one.record("handler.report", ONE, **JOBS_0, status="ERROR")
        case "returned":
            one.record("phase.end", ONE, **JOBS_0, number=1, phase="lead")
        case "gone":
            one.commit({"brokers/1": None})
        case "restarted":
            one.commit({"brokers/1": {"epoch": 8}})
    end(one, late_ms=5.0 if reason == "late" else 0.0)
    begin(one, 1, 0)

    assert one.found == []


@pytest.mark.parametrize("what", ["failure", "lapse", "crash"])
def test_what_follows_an_end_at_once_explains_it(what: str) -> None:
    one = story()
    end(one)
    match what:
        case "failure":
            one.record("handler.report", ONE, **JOBS_0, status="ERROR")
        case "lapse":
            one.record("lease.lapse", ONE, broker=1, life=7, late_ms=0.0)
        case "crash":
            one.record("node.crash", ONE, incarnation=1, clean=False)
    begin(one, 1, 0)

    assert one.found == []


def test_leadership_that_goes_on_begins_to_count_anew() -> None:
    """It had gone to another owner and back, which the participant has never heard of."""
    one = story()
    own(one, 2, epoch=1)
    own(one, 1, epoch=2)
    one.record(
        "lease.keep", ONE, **JOBS_0, life=7, topic_id=OWN, leader_epoch=0, present_epoch=2,
    )  # fmt: skip
    end(one)
    begin(one, 1, 0)

    assert one.found == ["INV-71"]


@pytest.mark.parametrize(("epoch", "expected"), [(0, ["INV-71"]), (1, [])])
def test_eviction_needs_an_order_that_ends_a_leadership(epoch: int, expected: list[str]) -> None:
    one = story()
    own(one, 2, epoch=1)
    order(one, epoch=epoch)
    evict(one)

    assert one.found == expected


def test_participant_that_does_not_answer_may_be_evicted() -> None:
    one = story()
    own(one, 2, epoch=1)
    order(one, epoch=0, is_answered=False)
    evict(one)

    assert one.found == []


def test_eviction_of_a_participant_that_owns_all_that_it_leads_is_allowed() -> None:
    """It has not reported its leaderships to another controller."""
    one = story()
    evict(one)

    assert one.found == []
