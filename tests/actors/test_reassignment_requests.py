"""Reassignment requests: validation, the result of each partition, and the request stored by older tools."""

import pytest

from kactl.decide.messages.events import ZkPartitionReassignment
from kactl.model import Assignment, PartitionState, ReplicaState
from kactl.model.errors import ControllerMoved, ErrorCode, NotController, StoreUnavailable
from tests.support.clocks import settle
from tests.support.cluster_seeds import tp
from tests.support.controller_harness import World, open_standby, world
from tests.support.scripted_store import after, fails

from .reassignment_helpers import (
    ongoing,
    reassign,
    reassignment_results,
    replicas,
    requested_reassignment,
    script_once,
    stored_assignment,
    write_reassignment,
)

pytestmark = pytest.mark.anyio

INVALID = ErrorCode.INVALID_REPLICA_ASSIGNMENT
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOTHING_RUNS = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
FAILED = ErrorCode.UNKNOWN_SERVER_ERROR


# -- results -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(219)
async def test_cancel_without_a_reassignment_is_an_error() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])

        assert await reassign(w, {"t-0": None, "unknown-0": None}) == [NOTHING_RUNS, NOTHING_RUNS]


@pytest.mark.scenario(220)
@pytest.mark.parametrize(
    ("target", "why"),
    [
        ([], "a partition needs at least one replica"),
        ([1, 1], "[1, 1] names a broker twice"),
        ([1, -2], "[1, -2] names a negative broker id"),
        ([1, 9], "new replicas need live brokers, and [9] are not; live are [1, 2, 3]"),
        ([1, 8], "new replicas need live brokers, and [8] are not; live are [1, 2, 3]"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
async def test_invalid_targets_are_rejected(target: list[int], why: str, dry_run: bool) -> None:
    async with world(1, 2, 3, 8) as w:
        await w.create("t", [[1, 2]])
        w.controller.cluster.mark_shutting_down(8)
        w.brokers.forget()

        (refused,) = await reassignment_results(w, {"t-0": target}, dry_run=dry_run)

        assert (refused.error, refused.message, refused.assignment) == (INVALID, why, None)
        assert await stored_assignment(w, "t-0") == Assignment((1, 2))
        assert w.brokers.sent == []


@pytest.mark.scenario(221)
async def test_dead_replica_may_stay_in_the_target() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2]])
        await w.stop(2)

        assert await reassign(w, {"t-0": [2, 3]}) == [0]

        assert await ongoing(w) == {"t-0": Assignment((2, 3, 1), adding=(3,), removing=(1,))}


@pytest.mark.scenario(222)
async def test_unknown_partitions_are_rejected() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])

        assert await reassign(w, {"unknown-0": [1], "t-1": [1], "unknown-1": [9]}) == [UNKNOWN, UNKNOWN, INVALID]
        assert await reassign(w, {"unknown-0": [1]}, dry_run=True) == [UNKNOWN]


@pytest.mark.scenario(223)
async def test_topic_queued_for_deletion_is_not_reassigned() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await w.stop(1)
        await w.store.mark_deletion("t")
        await settle()
        assert "t" in w.controller.cluster.topics_to_delete

        (refused,) = await reassignment_results(w, {"t-0": [2]})

        assert (refused.error, refused.message) == (UNKNOWN, "the partition does not exist: it is being deleted")
        assert await stored_assignment(w, "t-0") == Assignment((1,))


@pytest.mark.scenario(224)
async def test_inactive_controller_rejects_reassignments() -> None:
    async with world(1) as w:
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            with pytest.raises(NotController):
                await second.reassign({tp("t-0"): [1]})
            with pytest.raises(NotController):
                await second.reassignments()


@pytest.mark.scenario(225, 226)
async def test_partition_without_a_first_leader_is_reassigned() -> None:
    async with world(1) as w:
        await w.create("t", [[2, 3]])
        assert w.known("t-0").state is PartitionState.NEW

        (failed,) = await reassignment_results(w, {"t-0": [3, 2, 1]})

        assert (failed.error, failed.message) == (FAILED, "no leadership information is stored for it")
        expected = tp("t-0"), Assignment((2, 3)).reassign_to((3, 2, 1))
        assert await stored_assignment(w, "t-0") == w.known("t-0").assignment == expected[1]
        # Once one of its brokers starts it gets a leader, and the reassignment continues.
        await w.start(2)
        await w.start(3)
        assert w.known("t-0").leader in (1, 2)
        await w.write_isr("t-0", 1, 2, 3)
        assert tp("t-0") not in w.controller.cluster.reassigning
        assert await stored_assignment(w, "t-0") == Assignment((3, 2, 1))
        await w.check()


@pytest.mark.parametrize(("target", "stored"), [(None, (2, 3)), ([3, 2], (3, 2))])
async def test_reassignment_back_to_the_origin_ends_without_a_leader(
    target: list[int] | None, stored: tuple[int, ...]
) -> None:
    async with world(1) as w:
        await w.create("t", [[2, 3]])
        assert await reassign(w, {"t-0": [1]}) == [FAILED]

        assert await reassign(w, {"t-0": target}) == [0]

        assert w.known("t-0").state is PartitionState.NEW
        assert await stored_assignment(w, "t-0") == w.known("t-0").assignment == Assignment(stored)
        assert w.controller.cluster.reassigning == set()
        await w.start(3)
        assert (w.known("t-0").leader, w.known("t-0").isr) == (3, (3,))
        await w.check()


@pytest.mark.scenario(240)
async def test_running_reassignments_are_listed() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1], [1]])
        await w.create("u", [[1]])
        await reassign(w, {"t-0": [2], "t-1": [2, 1]})
        moving = {tp("t-0"): Assignment((2, 1), adding=(2,), removing=(1,))}
        growing = {tp("t-1"): Assignment((2, 1), adding=(2,))}

        assert await w.controller.reassignments() == moving | growing
        assert await w.controller.reassignments([tp("u-0"), tp("x-0"), tp("t-0")]) == moving


async def test_dry_run_of_a_reassignment_changes_nothing() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await write_reassignment(w, {"u-0": [1]})
        w.brokers.forget()

        (would_be,) = await reassignment_results(w, {"t-0": [2]}, dry_run=True)

        assert would_be.error == 0
        assert would_be.assignment == Assignment((2, 1), adding=(2,), removing=(1,))
        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert (await ongoing(w), w.brokers.sent) == ({}, [])


async def test_deposed_controller_returns_not_controller() -> None:
    """In Kafka the caller never receives a response."""
    async with world(1, 2) as w:
        await w.create("t", [[1]])

        async def another() -> None:
            await w.store.contest(200, take_over=True)

        script_once(w, "write_assignment", after(another))

        with pytest.raises(NotController) as refused:
            await reassign(w, {"t-0": [2]})

        assert isinstance(refused.value.__cause__, ControllerMoved)
        await settle()
        assert not w.controller.is_active


async def test_vanished_topic_is_not_recreated_by_a_reassignment() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])

        async def vanish() -> None:
            w.store.state.topics.pop("t")

        script_once(w, "write_assignment", after(vanish))

        (failed,) = await reassignment_results(w, {"t-0": [2]})

        assert (failed.error, failed.message) == (FAILED, "there is no topic t")
        assert replicas(w.known("t-0")) == ((1,), (), ())


# -- the request in the store ------------------------------------------------------------------------------------------


@pytest.mark.scenario(227)
async def test_direct_request_replaces_the_stored_one() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1]])
        await w.create("u", [[1]])
        await w.stop(2, 3)
        await write_reassignment(w, {"t-0": [2], "u-0": [3]})
        await w.start(3)
        seen = []

        async def note(*_: object) -> None:
            seen.append((await requested_reassignment(w), await stored_assignment(w, "t-0")))

        script_once(w, "write_assignment", after(note))
        assert await reassign(w, {"t-0": [3]}) == [0]

        # It was removed before any other step.
        assert seen == [({"u-0": (3,)}, Assignment((2, 1), adding=(2,), removing=(1,)))]
        assert await requested_reassignment(w) == {"u-0": (3,)}


@pytest.mark.scenario(228)
async def test_last_completed_partition_deletes_the_stored_request() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1]])
        await w.create("u", [[1]])
        await write_reassignment(w, {"t-0": [2]})
        put = []
        real = w.controller.loop.inbox.put_once

        def put_once(event: object) -> None:
            put.append(event)
            real(event)  # type: ignore[arg-type]

        w.controller.loop.inbox.put_once = put_once  # type: ignore[method-assign,assignment]

        assert await reassign(w, {"t-0": [3]}) == [0]

        assert await requested_reassignment(w) is None
        assert ZkPartitionReassignment() in put
        # The next stored request is noticed.
        await write_reassignment(w, {"u-0": [2]})
        assert (await ongoing(w)).keys() == {"t-0", "u-0"}


@pytest.mark.scenario(229)
async def test_invalid_partitions_are_removed_from_the_stored_request(caplog: pytest.LogCaptureFixture) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])

        await write_reassignment(w, {"x-0": [2], "t-0": [2]})

        assert await requested_reassignment(w) == {"t-0": (2,)}
        assert "x-0 is not reassigned as requested in the store: the partition does not exist" in caplog.text
        await w.write_isr("t-0", 1, 2)
        assert await requested_reassignment(w) is None


@pytest.mark.scenario(230)
async def test_partition_with_another_result_stays_in_the_stored_request_and_follows_it() -> None:
    async with world(1, 4, 5) as w:
        await w.create("t", [[1], [1]])
        await write_reassignment(w, {"t-0": [4, 5], "t-1": [4, 5]})
        # A caller requests another order; the earlier target is no longer in the request, and is written there again.
        await reassign(w, {"t-0": [5, 4]})
        w.store.state.reassignment_request = {tp("t-0"): (4, 5), tp("t-1"): (4, 5)}

        await w.write_isr("t-0", 1, 4, 5)
        await w.write_isr("t-1", 1, 4, 5)

        assert await stored_assignment(w, "t-0") == Assignment((4, 5))
        assert await stored_assignment(w, "t-1") == Assignment((4, 5))
        assert await requested_reassignment(w) is None


@pytest.mark.scenario(231)
async def test_unreadable_stored_request_is_kept() -> None:
    """The store logs the cause and returns no request."""
    async with world(1, 2) as w:
        await w.create("t", [[1]])

        w.store.state.reassignment_request = {}
        w.controller.loop.inbox.put_once(ZkPartitionReassignment())
        await settle()
        # The completion of another reassignment does not delete it either.
        await reassign(w, {"t-0": [2]})
        await w.write_isr("t-0", 1, 2)

        assert await stored_assignment(w, "t-0") == Assignment((2,))
        assert await requested_reassignment(w) == {}


@pytest.mark.scenario(232)
@pytest.mark.parametrize("target", [(), (2, 2), (2, -1)])
async def test_invalid_stored_target_is_removed(target: tuple[int, ...], caplog: pytest.LogCaptureFixture) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        # Kafka does not validate this target: without replicas, none of them is missing.
        astray = Assignment((1,)).reassign_to(())
        assert (astray.target, set(astray.target) <= {1}) == ((), True)

        await write_reassignment(w, {"t-0": target})

        assert await requested_reassignment(w) is None
        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert w.known("t-0").replica_states == {1: ReplicaState.ONLINE}
        assert await w.stored("t-0") == (1, 0, (1,))
        assert "t-0 is not reassigned as requested in the store: " in caplog.text


async def in_store(w: World) -> None:
    """t-0 is reassigned by a stored request, t-1 by a direct one."""
    await w.create("t", [[1], [1]])
    await write_reassignment(w, {"t-0": [2]})
    await reassign(w, {"t-1": [2]})


@pytest.mark.scenario(235)
async def test_next_controller_resumes_each_reassignment_once() -> None:
    async with world(1, 2) as w:
        await in_store(w)
        assert (await w.stored("t-0"), await w.stored("t-1")) == ((1, 1, (1,)), (1, 1, (1,)))

        await w.controller.resign()
        await settle()

        assert w.controller.snapshot().epoch == 2
        assert (await w.stored("t-0"), await w.stored("t-1")) == ((1, 2, (1,)), (1, 2, (1,)))
        await w.write_isr("t-0", 1, 2)
        assert await requested_reassignment(w) is None
        assert await stored_assignment(w, "t-0") == Assignment((2,))


async def test_stored_request_read_again_has_no_effect() -> None:
    async with world(1, 2) as w:
        await in_store(w)
        before = await w.stored("t-0")

        w.controller.loop.inbox.put_once(ZkPartitionReassignment())
        await settle()

        assert await w.stored("t-0") == before


async def test_stored_request_is_read_after_a_store_failure() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        script_once(w, "reassignment_request", *[fails(StoreUnavailable("gone"))] * 4)

        await write_reassignment(w, {"t-0": [2]})
        assert await stored_assignment(w, "t-0") == Assignment((1,))
        await w.wait(15_000)

        assert await ongoing(w) == {"t-0": Assignment((2, 1), adding=(2,), removing=(1,))}
