"""Reassignments under store failures and topics that are expanded, deleted or recreated meanwhile: no state remains.

Each of these histories was found by random ones and reduced; docs/evidence/track-record.md lists them as storms.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import pytest

from kactl.actors.machines.machine import MoveReplicas
from kactl.actors.machines.replicas import Replicas
from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.messages.admin import UndrainBroker
from kactl.decide.messages.broker import AlterPartitionReceived, ControlledShutdown, IsrProposal
from kactl.decide.messages.control import StopReplica
from kactl.model import NO_EPOCH, NO_LEADER, Assignment, Fence, PartitionState, ReplicaState, TopicRef
from kactl.model.errors import ErrorCode, SessionExpired, StoreUnavailable
from tests.support.clocks import settle
from tests.support.cluster_seeds import tp
from tests.support.controller_harness import World, open_standby, script, world
from tests.support.scripted_store import after, fails, fails_after, really

from .reassignment_helpers import (
    ongoing,
    reassign,
    replica_states,
    requested_reassignment,
    script_once,
    stored_assignment,
    write_reassignment,
)

pytestmark = pytest.mark.anyio

GONE = StoreUnavailable("gone")
S = ReplicaState


async def vanish(w: World, topic: str) -> None:
    """Remove a topic from the store by hand."""
    w.store.state.delete_topic(topic)
    await settle()


@pytest.mark.parametrize("how", ["deleted", "vanished"])
async def test_stored_request_of_a_deleted_topic_is_removed(how: str) -> None:
    """Otherwise no request could be written again. Kafka leaves it until the controller moves."""
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        w.brokers.silent = {2}
        await write_reassignment(w, {"t-0": [2]})
        assert await requested_reassignment(w) == {"t-0": (2,)}

        if how == "vanished":
            await vanish(w, "t")
        else:
            await w.delete("t")
            # A broker with a replica starts: the deletion no longer waits for the reassignment.
            w.brokers.silent = set()
            await w.start(1)
            await w.wait(1_000)

        assert w.store.state.topics == {}
        assert await requested_reassignment(w) is None


async def test_started_deletion_does_not_wait_for_a_reassignment() -> None:
    """Topics in deletion are not reassigned, so that no completion would remove the blocker. In Kafka a broker
    startup does."""
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2]})
        await w.delete("t")
        # The epoch is incremented once more, and then the deletion begins; on broker 1 it does not complete.
        script_once(w, "commit", really, fails(GONE))
        w.brokers.silent = {2}
        await w.start(2)
        cluster = w.controller.cluster
        assert cluster.deletion_started == {"t"}
        assert tp("t-0") in cluster.reassigning

        await w.delete("other")  # all marks are read again
        w.brokers.silent = set()
        await w.wait(12_000)

        assert w.store.state.topics == {}
        assert w.store.state.deletions == set()


async def test_new_replicas_exist_after_a_failed_epoch_write() -> None:
    """Otherwise they could never be deleted, and would join the ISR without a replica state."""
    async with world(1, 2, 3) as w:
        await w.create("t", [[1]])
        script_once(w, "commit", fails(GONE))

        assert await reassign(w, {"t-0": [1, 2, 3]}) == [ErrorCode.UNKNOWN_SERVER_ERROR]

        assert replica_states(w.known("t-0")) == {1: S.ONLINE, 2: S.NEW, 3: S.NEW}
        await w.write_isr("t-0", 1, 2, 3)
        assert replica_states(w.known("t-0")) == dict.fromkeys((1, 2, 3), S.ONLINE)
        assert await ongoing(w) == {}


async def abandon_copy(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reassign t-0 from broker 1 to 1, 2 and 3; an error follows the creation of the replica on broker 2."""
    real = Replicas.receive

    async def fail_after(machine: Replicas, message: MoveReplicas) -> int:
        await real(machine, message)
        monkeypatch.undo()
        raise RuntimeError("abandoned")

    monkeypatch.setattr(Replicas, "receive", fail_after)
    with pytest.raises(RuntimeError, match="abandoned"):
        await reassign(w, {"t-0": [1, 2, 3]})
    assert replica_states(w.known("t-0")) == {1: S.ONLINE, 2: S.NEW, 3: S.ABSENT}


async def test_new_replicas_exist_after_a_step_that_was_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their requests are sent: without a state they would join the ISR and miss all later requests."""
    async with world(1, 2, 3) as w:
        await w.create("t", [[1]])
        await abandon_copy(w, monkeypatch)

        await w.write_isr("t-0", 1, 2, 3)

        assert replica_states(w.known("t-0")) == dict.fromkeys((1, 2, 3), S.ONLINE)
        assert await ongoing(w) == {}
        await w.check()


async def test_cancellation_after_an_abandoned_step_stops_all_new_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1]])
        await abandon_copy(w, monkeypatch)

        assert await reassign(w, {"t-0": None}) == [ErrorCode.NONE]

        assert replica_states(w.known("t-0")) == {1: S.ONLINE}
        for broker in (2, 3):
            assert any(isinstance(request, StopReplica) and request.delete.all() for request in w.brokers.of(broker))
        await w.check()


async def test_topic_with_uninformed_new_replicas_is_deleted() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        script_once(w, "commit", fails(GONE))
        await reassign(w, {"t-0": [2]})

        await w.delete("t")
        await w.start(1)

        assert w.store.state.topics == {}


@pytest.mark.parametrize("drained", [False, True])
async def test_first_isr_with_the_target_completes_the_reassignment(drained: bool) -> None:
    """No later ISR change follows; in Kafka such a reassignment waits for the next controller."""
    async with world(1, 2) as w:
        if drained:
            await w.controller.ask(ControlledShutdown(2, NO_EPOCH))
        else:
            await w.stop(2)
        await w.create("t", [[2]])
        assert await reassign(w, {"t-0": [1]}) == [ErrorCode.UNKNOWN_SERVER_ERROR]

        if drained:
            await w.controller.ask(UndrainBroker(2))
        else:
            await w.start(2)
        await settle()

        assert await ongoing(w) == {}
        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert (w.known("t-0").leader, w.known("t-0").isr) == (1, (1,))
        assert replica_states(w.known("t-0")) == {1: S.ONLINE}
        assert any(isinstance(request, StopReplica) and request.delete.all() for request in w.brokers.of(2))
        await w.check()


async def test_unclean_election_of_the_target_completes_the_reassignment() -> None:
    """The target is the whole ISR then, and no later change of the ISR follows if the other replica stays away."""
    async with world(1, 2, unclean=True) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2]})
        assert await ongoing(w) != {}

        await w.stop(1)
        await settle()

        assert (w.known("t-0").leader, w.known("t-0").isr) == (2, (2,))
        assert await ongoing(w) == {}
        assert await stored_assignment(w, "t-0") == Assignment((2,))
        await w.check()


@pytest.mark.parametrize("target", [None, [3]])
async def test_last_in_sync_replica_is_not_stopped_without_a_leader(target: list[int] | None) -> None:
    """The partition could never have a leader again. Kafka stops it."""
    async with world(1, 2, 3) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2, 3]})
        # 2 is being added, and is the only in-sync replica when its broker fails.
        await w.write_isr("t-0", 1, 2)
        await w.stop(1)
        await w.stop(2)
        held = await stored_assignment(w, "t-0")
        assert (w.known("t-0").leader, w.known("t-0").isr) == (NO_LEADER, (2,))

        assert await reassign(w, {"t-0": target}) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]

        assert await stored_assignment(w, "t-0") == held
        await w.start(2)
        assert w.known("t-0").leader == 2


async def test_first_leader_read_by_a_reassignment_is_adopted() -> None:
    """The response to its commit was lost. It is known by the time the commit is retried."""
    async with world(1, 2) as w:
        script_once(w, "commit", fails_after(GONE))
        script_once(w, "leaderships", fails(GONE))
        await w.create("t", [[1]])
        assert w.known("t-0").leadership is None
        assert await reassign(w, {"t-0": [1, 2]}) == [ErrorCode.NONE]
        assert w.known("t-0").leader == 1

        await w.wait(12_000)

        assert w.known("t-0").state is PartitionState.ONLINE
        assert w.brokers.told(1)["t-0"][0] == 1
        await w.check()


async def test_in_sync_replicas_stay_if_the_target_left_the_isr() -> None:
    """The ISR is checked again when a failed completion is retried."""
    async with world(1, 3) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [3]})
        script_once(w, "commit", fails(GONE), fails(GONE))
        await w.write_isr("t-0", 1, 1, 3)
        w.brokers.forget()
        await w.stop(3)
        await w.wait(12_000)

        assert set(await ongoing(w)) == {"t-0"}
        assert not any(isinstance(request, StopReplica) and request.delete.any() for _, request in w.brokers.sent)
        assert (w.known("t-0").leader, w.known("t-0").isr) == (1, (1,))

        await w.start(3)
        await w.write_isr("t-0", 1, 1, 3)
        assert await ongoing(w) == {}
        assert await stored_assignment(w, "t-0") == Assignment((3,))
        assert (w.known("t-0").leader, w.known("t-0").isr) == (3, (3,))
        await w.check()


async def test_drained_leader_receives_its_new_replicas() -> None:
    """It is not electable. In Kafka it continues with the previous replicas."""
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.write_isr("t-0", 1, 1)
        await w.controller.ask(ControlledShutdown(1, NO_EPOCH))
        epoch = w.known("t-0").leader_epoch
        assert w.known("t-0").leader == 1

        assert await reassign(w, {"t-0": [1]}) == [ErrorCode.NONE]

        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert w.brokers.told(1)["t-0"][:3] == (1, epoch + 1, (1,))


@pytest.mark.parametrize("how", ["undrained", "restarted"])
async def test_drained_target_leads_when_it_is_live_again(how: str) -> None:
    """It is not electable when its reassignment completes. In Kafka the partition stays ONLINE, without a leader."""
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await w.write_isr("t-0", 2)
        await w.controller.ask(ControlledShutdown(1, NO_EPOCH))
        assert await reassign(w, {"t-0": [1]}) == [ErrorCode.NONE]
        await w.write_isr("t-0", 1, 2)
        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert (w.known("t-0").leader, w.known("t-0").isr) == (NO_LEADER, (1,))
        assert w.known("t-0").state is PartitionState.OFFLINE

        if how == "undrained":
            await w.controller.ask(UndrainBroker(1))
        else:
            await w.start(1)

        assert (w.known("t-0").leader, w.known("t-0").state) == (1, PartitionState.ONLINE)
        assert w.brokers.told(1)["t-0"][0] == 1
        await w.check()


async def test_topic_created_during_a_reassignment_completes_it() -> None:
    async with world(1, 2) as w:
        ref = TopicRef("t", bytes(15) + b"1")
        await w.store.create_topic(ref, {0: Assignment((1, 2), adding=(1,), removing=(2,))}, {})
        await settle()

        assert await ongoing(w) == {}
        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert replica_states(w.known("t-0")) == {1: S.ONLINE}


async def test_completion_is_stored_after_all_old_replicas_left_the_isr() -> None:
    """Kafka stores it, and the replica that could not leave stays in the ISR and runs forever."""
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        script_once(w, "commit", really, fails(GONE))  # a new epoch for the leader; the other replica leaves

        await reassign(w, {"t-0": [1]})

        assert await w.stored("t-0") == (1, 1, (1, 2))
        assert await stored_assignment(w, "t-0") == Assignment((1, 2), removing=(2,))
        assert tp("t-0") in w.controller.cluster.reassigning

        await w.wait(12_000)

        assert (await w.stored("t-0"))[2] == (1,)
        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert replica_states(w.known("t-0")) == {1: S.ONLINE}
        assert [request.delete.tolist() for request in w.brokers.of(2) if hasattr(request, "delete")][-1] == [True]
        assert tp("t-0") not in w.controller.cluster.reassigning


async def test_partition_added_meanwhile_is_kept() -> None:
    """The assignment is written as a whole. Kafka writes the partitions it knows, which drops the new one."""
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        script_once(w, "assignments", *[fails(GONE)] * 4)  # its notification is delayed
        await w.grow("t", [2])
        await w.wait(2_000)
        assert w.controller.partition("t-1") is None

        await reassign(w, {"t-0": [1, 2]})

        assert await stored_assignment(w, "t-0") == Assignment((1, 2), adding=(2,))
        assert await stored_assignment(w, "t-1") == Assignment((2,))
        await w.wait(12_000)
        assert await w.stored("t-1") == (2, 0, (2,))


async def test_target_stored_with_a_lost_response_is_reverted() -> None:
    """The caller received an error. Kafka leaves the target in the store, and the next controller starts with it."""
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        script_once(w, "write_assignment", fails_after(GONE))

        assert await reassign(w, {"t-0": [2]}) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert await stored_assignment(w, "t-0") == Assignment((2, 1), adding=(2,), removing=(1,))
        await w.wait(12_000)

        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert await ongoing(w) == {}
        await w.check()


async def test_revert_is_retried_until_it_succeeds() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        script_once(w, "write_assignment", fails_after(GONE), fails(GONE), really)
        await reassign(w, {"t-0": [2]})

        await w.wait(12_000)
        assert await stored_assignment(w, "t-0") == Assignment((2, 1), adding=(2,), removing=(1,))
        await w.wait(12_000)

        assert await stored_assignment(w, "t-0") == Assignment((1,))


async def test_recreated_topic_is_not_overwritten() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        new = TopicRef("t", b"n" * 16)

        async def comes_again() -> None:
            w.store.state.delete_topic("t")
            await w.store.create_topic(new, {0: Assignment((2,)), 1: Assignment((2,))}, {})

        script_once(w, "assignments", after(comes_again))

        assert await reassign(w, {"t-0": [1, 2]}) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        await settle()

        assert w.store.state.topics["t"].ref == new
        assert await stored_assignment(w, "t-0") == await stored_assignment(w, "t-1") == Assignment((2,))
        assert await w.stored("t-1") == (2, 0, (2,))


@pytest.mark.parametrize("target", [(1,), None])
async def test_next_controller_stops_replicas_left_by_a_failed_one(
    target: tuple[int, ...] | None,
) -> None:
    """In Kafka it stays in the ISR and on its broker until another event increments the leader epoch."""
    async with world(1, 2, 3) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": (1, 2, 3)})
        await w.write_isr("t-0", 1, 2)

        async def kept_and_killed(real: Callable[..., Awaitable[None]], *given: object) -> None:
            await real(*given)
            w.controller.loop.controllership.stopping = True
            raise SessionExpired("killed here")

        script(w.controller, "write_assignment", kept_and_killed)
        await reassign(w, {"t-0": target})
        await w.controller.resign()
        await settle()
        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert (await w.stored("t-0"))[2] == (1, 2)

        second, brokers = open_standby(w, 200)
        async with second:
            await settle()

            assert (await w.stored("t-0"))[2] == (1,)
            stops = [request for request in brokers.of(2, StopReplica) if isinstance(request, StopReplica)]
            assert [request.delete.tolist() for request in stops] == [[False], [True]]
            assert await second.reassignments() == {}
            assert not second.cluster.reassigning


async def test_replica_that_joins_the_isr_while_stopped_leaves_it() -> None:
    """Below protocol level 2.7 the leader writes the ISR itself; the controller has not read that write when it
    stops 4."""
    async with world(1, 2, 3, 4, level=ProtocolLevel(2, 6)) as w:
        await w.create("t", [[1, 2]])
        await reassign(w, {"t-0": [4]})

        async def joined(real: Callable[..., Awaitable[object]], *arguments: object) -> object:
            await w.write_isr("t-0", 1, 4)
            return await real(*arguments)

        script_once(w, "write_assignment", joined)
        assert await reassign(w, {"t-0": [3]}) == [ErrorCode.NONE]
        assert (await w.stored("t-0"))[2] == (1,)

        await w.stop(1)
        await w.start(1)

        assert (await w.stored("t-0"))[0] == 1
        await w.check()


async def test_unassigned_in_sync_replicas_stay_until_an_assigned_one_is() -> None:
    """An operator edits the stored assignment; the next controller finds an ISR without any of the new replicas."""
    async with world(3, 4, level=ProtocolLevel(2, 6)) as w:
        await w.create("t", [[4]])
        (ref,) = (await w.store.assignments(["t"])).topics
        await w.store.write_assignment(ref, {0: Assignment((3,))}, None)
        await w.controller.resign()
        await settle()

        assert await ongoing(w) == {"t-0": Assignment((3, 4), removing=(4,))}
        assert await w.stored("t-0") == (4, 1, (4,))
        assert w.brokers.told(3)["t-0"][:2] == (4, 1)
        assert not w.brokers.of(4, StopReplica)

        await w.write_isr("t-0", 3, 4)
        await settle()

        assert (await w.stored("t-0"))[::2] == (3, (3,))
        assert await ongoing(w) == {}
        assert await stored_assignment(w, "t-0") == Assignment((3,))
        assert w.brokers.of(4, StopReplica)
        await w.check()


async def test_reassignment_goes_on_if_only_a_replica_that_is_not_assigned_is_in_sync() -> None:
    """Another target replaced one that was in sync already, and the controller ended before it stopped that replica."""
    async with world(1, 2, 3, 4, level=ProtocolLevel(2, 6)) as w:
        await w.create("t", [[4]])
        (ref,) = (await w.store.assignments(["t"])).topics
        await w.store.write_assignment(ref, {0: Assignment((3, 1, 2), adding=(3,), removing=(2,))}, None)
        await w.controller.resign()
        await settle()

        assert await ongoing(w) == {"t-0": Assignment((3, 1, 2, 4), adding=(3,), removing=(2, 4))}
        assert not w.brokers.of(4, StopReplica)

        await w.write_isr("t-0", 4, 1, 2)
        await settle()
        assert not w.brokers.of(4, StopReplica)
        await w.write_isr("t-0", 4, 1, 2, 3)
        await settle()

        assert (await w.stored("t-0"))[::2] == (3, (1, 3))
        assert await ongoing(w) == {}
        assert await stored_assignment(w, "t-0") == Assignment((3, 1))
        assert w.brokers.of(2, StopReplica)
        assert w.brokers.of(4, StopReplica)
        await w.check()


async def test_origin_stays_if_a_target_leaves_the_isr_during_the_completion() -> None:
    """Otherwise only one replica of the target would have the records. Kafka removes the origin."""
    async with world(1, 2, 3) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2, 3]})

        async def shrinks() -> None:
            partition, state = await w._stored("t-0")
            shrunk = msgspec.structs.replace(state, isr=(1, 2))
            assert await w.store.write_isr(partition, shrunk, expected=state.partition_epoch) is not None

        script_once(w, "commit", after(shrinks))
        await w.write_isr("t-0", 1, 2, 3)

        assert await stored_assignment(w, "t-0") == Assignment((2, 3, 1), adding=(2, 3), removing=(1,))
        assert (await w.stored("t-0"))[2] == (1, 2)

        await w.write_isr("t-0", 1, 2, 3)
        assert await stored_assignment(w, "t-0") == Assignment((2, 3))
        assert (await w.stored("t-0"))[2] == (2, 3)


@pytest.mark.parametrize("fails_again", [False, True])
async def test_origin_stays_if_the_only_target_leaves_the_isr_before_its_election(fails_again: bool) -> None:
    """Otherwise all replicas in sync would be deleted. Kafka deletes them."""
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2]])
        await reassign(w, {"t-0": [3]})

        async def shrinks() -> None:
            partition, state = await w._stored("t-0")
            shrunk = msgspec.structs.replace(state, isr=(1, 2))
            assert await w.store.write_isr(partition, shrunk, expected=state.partition_epoch) is not None

        w.brokers.forget()
        script_once(w, "commit", after(shrinks))
        if fails_again:
            # Read after the notification, and by the election that finds no eligible replica.
            w.script("leaderships", really, really, fails(GONE))
        await w.write_isr("t-0", 1, 2, 3)
        await w.wait(12_000)

        assert not any(isinstance(request, StopReplica) for _, request in w.brokers.sent)
        assert await stored_assignment(w, "t-0") == Assignment((3, 1, 2), adding=(3,), removing=(1, 2))
        assert (await w.stored("t-0"))[2] == (1, 2)
        assert w.known("t-0").isr == (1, 2)

        await w.write_isr("t-0", 1, 2, 3)
        assert await stored_assignment(w, "t-0") == Assignment((3,))
        assert (await w.stored("t-0"))[2] == (3,)
        await w.check()


async def test_leader_is_not_stopped_before_another_one_is_stored() -> None:
    """Otherwise the partition would have no leader until the next retry. Kafka stops it."""
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2]})

        script_once(w, "commit", fails(GONE))
        await w.write_isr("t-0", 1, 2)
        assert (await w.stored("t-0"))[0] == 1

        await w.wait(12_000)
        assert (await w.stored("t-0"))[0] == 2
        assert await stored_assignment(w, "t-0") == Assignment((2,))


async def test_assignment_of_unknown_outcome_is_restored_before_the_next_one() -> None:
    """Otherwise the stored assignment loses replicas that no stored reassignment removes."""
    written: list[Assignment] = []

    async def recorded(real: Any, topic: TopicRef, assignment: Mapping[int, Assignment], fence: Fence) -> None:
        written.append(assignment[0])
        await real(topic, assignment, fence)

    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2]})
        script_once(w, "write_assignment", fails_after(GONE))
        assert await reassign(w, {"t-0": None}) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert await stored_assignment(w, "t-0") == Assignment((1,))

        script_once(w, "write_assignment", recorded, recorded)
        await w.write_isr("t-0", 1, 2)
        await settle()

        assert written == [Assignment((2, 1), adding=(2,), removing=(1,)), Assignment((2,))]
        assert await ongoing(w) == {}
        await w.check()


async def cancelled_in_doubt(w: World) -> None:
    """Cancel a reassignment from 1 to 2; the write succeeds, and its response is lost."""
    await w.create("t", [[1]])
    await reassign(w, {"t-0": [2]})
    script_once(w, "write_assignment", fails_after(GONE))
    assert await reassign(w, {"t-0": None}) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert await stored_assignment(w, "t-0") == Assignment((1,))


@pytest.mark.parametrize("fails_again", [False, True])
async def test_assignment_in_doubt_is_restored_before_an_election(fails_again: bool) -> None:
    """Otherwise a broker is elected that is not assigned in the store, as the next controller reads it."""
    async with world(1, 2) as w:
        await cancelled_in_doubt(w)
        await w.store.set_topic_config("t", {"unclean.leader.election.enable": "true"})
        if fails_again:
            script_once(w, "write_assignment", fails(GONE))

        await w.stop(1)

        assert (await w.stored("t-0"))[0] == (NO_LEADER if fails_again else 2)
        await w.wait(12_000)
        assert (await w.stored("t-0"))[0] == 2
        assert 2 in (await stored_assignment(w, "t-0")).replicas


@pytest.mark.parametrize("fails_again", [False, True])
async def test_assignment_in_doubt_is_restored_before_a_replica_joins_the_isr(fails_again: bool) -> None:
    async with world(1, 2) as w:
        await cancelled_in_doubt(w)
        known = w.known("t-0")
        proposal = IsrProposal(TopicRef("t"), 0, known.leader_epoch, (1, 2), known.partition_epoch)
        request = AlterPartitionReceived(1, w.epoch(1), (proposal,), 1)
        if fails_again:
            script_once(w, "write_assignment", fails(GONE))
            results = await w.controller.ask(request)
            assert [result.error for result in results] == [ErrorCode.UNKNOWN_SERVER_ERROR]
            assert (await w.stored("t-0"))[2] == (1,)
        assignments: list[Assignment] = []
        script_once(w, "commit", assignments_at(w, assignments))

        results = await w.controller.ask(request)

        assert [result.error for result in results] == [ErrorCode.NONE]
        assert assignments[0].replicas == (2, 1)
        await w.wait(12_000)
        assert await stored_assignment(w, "t-0") == Assignment((2,))
        await w.check()


def assignments_at(w: World, found: list[Assignment]) -> Any:
    """Add the stored assignment to `found` when a change of leadership is written."""

    async def commit(real: Any, *arguments: Any) -> Any:
        found.append(await stored_assignment(w, "t-0"))
        return await real(*arguments)

    return commit
