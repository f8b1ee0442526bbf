"""Requests for reassignments that an unexpected error abandons: what has begun goes on, and nothing else is stored."""

from collections.abc import Mapping

import pytest

from kactl.actors.controller import RETRY_LATER_MS
from kactl.actors.handlers.reassignment_steps import ReassignmentSteps
from kactl.decide.messages.control import LeaderAndIsr
from kactl.model import Assignment, ReplicaState, TopicPartition
from tests.support.controller_harness import partitions_of, world

from .failing_steps import fail_once
from .reassignment_helpers import ongoing, reassign, replica_states, stored_assignment

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("step", "after"), [("_stop", False), ("_stop", True), ("advance", False), ("_copy", False)])
async def test_reassignment_goes_on_after_an_abandoned_step(
    step: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        fail_once(monkeypatch, ReassignmentSteps, step, after=after)
        with pytest.raises(ZeroDivisionError):
            await reassign(w, {"t-0": [2]})
        assert await ongoing(w) == {"t-0": Assignment((2, 1), adding=(2,), removing=(1,))}
        assert not w.brokers.of(2, LeaderAndIsr)

        await w.wait(RETRY_LATER_MS)

        request = w.brokers.of(2, LeaderAndIsr)[-1]
        assert isinstance(request, LeaderAndIsr)
        assert partitions_of(request) == ["t-0"]
        await w.write_isr("t-0", 1, 2)
        assert await stored_assignment(w, "t-0") == Assignment((2,))
        assert await ongoing(w) == {}
        await w.check()


async def test_other_topics_of_an_abandoned_request_are_not_reassigned(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(1, 2) as w:
        await w.create("a", [[1]])
        await w.create("b", [[1]])
        fail_once(monkeypatch, ReassignmentSteps, "_stop")
        with pytest.raises(ZeroDivisionError):
            await reassign(w, {"a-0": [2], "b-0": [2]})

        await w.wait(RETRY_LATER_MS)

        assert await ongoing(w) == {"a-0": Assignment((2, 1), adding=(2,), removing=(1,))}
        assert await stored_assignment(w, "b-0") == Assignment((1,))
        await w.check()


async def test_assignment_stored_before_an_unexpected_error_is_reverted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not have it, and a leader elected in the table could be none of the stored replicas."""
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        fail_once(monkeypatch, ReassignmentSteps, "_store", after=True)
        with pytest.raises(ZeroDivisionError):
            await reassign(w, {"t-0": [2]})
        assert (await stored_assignment(w, "t-0")).is_being_reassigned

        await w.wait(RETRY_LATER_MS)

        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert await ongoing(w) == {}
        await w.check()


async def test_completion_that_an_error_abandons_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ReassignmentSteps._store
    stored: list[Mapping[TopicPartition, Assignment]] = []

    async def second_fails(steps: ReassignmentSteps, topic: str, changed: Mapping[TopicPartition, Assignment]) -> None:
        stored.append(changed)
        if len(stored) == 2:
            raise ZeroDivisionError("a bug")
        await real(steps, topic, changed)

    monkeypatch.setattr(ReassignmentSteps, "_store", second_fails)
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        # It removes a replica only, so the request itself completes it.
        with pytest.raises(ZeroDivisionError):
            await reassign(w, {"t-0": [1]})
        assert (await stored_assignment(w, "t-0")).is_being_reassigned

        await w.wait(RETRY_LATER_MS)

        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert await ongoing(w) == {}
        await w.check()


async def test_replicas_stay_assigned_until_they_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write of the topic meanwhile would store the assignment without them, and no later controller know of them."""
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2]})
        fail_once(monkeypatch, ReassignmentSteps, "_stop")
        await w.write_isr("t-0", 1, 2)
        assert w.known("t-0").removing == (1,)

        await reassign(w, {"t-0": [2]})

        assert await stored_assignment(w, "t-0") == Assignment((2,))
        assert replica_states(w.known("t-0")) == {2: ReplicaState.ONLINE}
        await w.check()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", ["advance", "_complete", "_lead_from_target", "_stop", "_store", "_end"])
async def test_reassignment_in_sync_ends_later(step: str, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2]})
        fail_once(monkeypatch, ReassignmentSteps, step, after=after)
        await w.write_isr("t-0", 1, 2)

        await w.wait(RETRY_LATER_MS)

        assert await stored_assignment(w, "t-0") == Assignment((2,))
        assert replica_states(w.known("t-0")) == {2: ReplicaState.ONLINE}
        assert await ongoing(w) == {}
        await w.check()


async def test_abandoned_cancellation_stops_the_added_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2]})
        fail_once(monkeypatch, ReassignmentSteps, "_stop")
        with pytest.raises(ZeroDivisionError):
            await reassign(w, {"t-0": None})

        await w.wait(RETRY_LATER_MS)

        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert replica_states(w.known("t-0")) == {1: ReplicaState.ONLINE}
        await w.check()


@pytest.mark.parametrize("step", ["_stop", "advance"])
async def test_replica_elected_before_the_next_step_has_a_state(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No replica was online. The retry elects a first leader before it resumes the reassignment."""
    async with world(1) as w:
        await w.create("t", [[2]])
        fail_once(monkeypatch, ReassignmentSteps, step)
        with pytest.raises(ZeroDivisionError):
            await reassign(w, {"t-0": [1]})

        await w.wait(RETRY_LATER_MS)

        assert w.known("t-0").leader == 1
        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert replica_states(w.known("t-0")) == {1: ReplicaState.ONLINE}
        await w.check()


async def test_replica_elected_before_the_next_step_has_a_state_during_the_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(1, 3) as w:
        await w.create("t", [[2]])
        fail_once(monkeypatch, ReassignmentSteps, "advance")
        with pytest.raises(ZeroDivisionError):
            await reassign(w, {"t-0": [1, 3]})

        await w.stop(3)
        await w.wait(RETRY_LATER_MS)

        assert w.known("t-0").leader == 1
        assert (await stored_assignment(w, "t-0")).is_being_reassigned
        assert replica_states(w.known("t-0"))[1] is ReplicaState.NEW
        await w.check()
