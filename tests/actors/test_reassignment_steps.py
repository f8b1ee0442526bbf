"""Steps of a reassignment: stored values, cluster state, and the order of requests to brokers."""

import msgspec
import pytest

from kactl.actors.machines.machine import MoveReplicas
from kactl.decide.messages.broker import AlterPartitionReceived, IsrProposal
from kactl.decide.messages.control import LeaderAndIsr
from kactl.model import NO_LEADER, Assignment, ReplicaState
from kactl.model.errors import ErrorCode, StoreUnavailable
from tests.support.clocks import settle
from tests.support.cluster_seeds import led, tp
from tests.support.controller_harness import World, world
from tests.support.machine_harness import Flush, SentStop, open_machines
from tests.support.scripted_store import after, fails, really

from .reassignment_helpers import (
    flushes,
    ongoing,
    reassign,
    reassignment_results,
    replica_states,
    replicas,
    requested_reassignment,
    script_once,
    stored_assignment,
    write_reassignment,
)

pytestmark = pytest.mark.anyio

S = ReplicaState
REFUSED = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def sent_leaders(flush: Flush) -> dict[int, tuple[int, int, tuple[int, ...], bool]]:
    """Returns leader, leader epoch, ISR and "is new" of t-0 from the LeaderAndIsr requests of one flush."""
    return {
        broker: (said["t-0"].leader, said["t-0"].leader_epoch, tuple(sorted(said["t-0"].isr)), said["t-0"].is_new)
        for broker, said in flush.lead.items()
    }


def stopped(flush: Flush) -> dict[int, SentStop]:
    return {broker: said["t-0"] for broker, said in flush.stop.items()}


# -- the way from [1, 2, 3] to [4, 5, 6] -------------------------------------------------------------------------------


@pytest.mark.scenario(209)
async def test_stored_and_known_state_at_each_step() -> None:
    async with world(1, 2, 3, 4, 5, 6) as w:
        await w.create("t", [[1, 2, 3]])
        assert await w.stored("t-0") == (1, 0, (1, 2, 3))
        seen: list[object] = []

        async def note(*_: object) -> None:
            """The stored state just before the next write, and the cluster state at that time."""
            seen.append(
                (replicas_of(await stored_assignment(w, "t-0")), replicas(w.known("t-0")), await w.stored("t-0"))
            )

        moving = ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
        plain, done = ((1, 2, 3), (), ()), ((4, 5, 6), (), ())
        script_once(w, "write_assignment", after(note))
        script_once(w, "commit", after(note))
        await reassign(w, {"t-0": [4, 5, 6]})

        assert seen == [(plain, plain, (1, 0, (1, 2, 3))), (moving, moving, (1, 0, (1, 2, 3)))]
        assert (await w.stored("t-0"), replicas(w.known("t-0"))) == ((1, 1, (1, 2, 3)), moving)
        assert replica_states(w.known("t-0")) == {
            **dict.fromkeys((1, 2, 3), S.ONLINE),
            **dict.fromkeys((4, 5, 6), S.NEW),
        }

        seen.clear()
        script_once(w, "commit", *[after(note)] * 4)
        script_once(w, "write_assignment", after(note))
        await w.write_isr("t-0", 1, 2, 3, 4, 5, 6)

        everybody = (1, 2, 3, 4, 5, 6)
        assert seen == [
            (moving, done, (1, 1, everybody)),
            (moving, done, (4, 2, everybody)),
            (moving, done, (4, 3, (2, 3, 4, 5, 6))),
            (moving, done, (4, 4, (3, 4, 5, 6))),
            (moving, done, (4, 5, (4, 5, 6))),
        ]
        assert await w.stored("t-0") == (4, 5, (4, 5, 6))
        assert replicas_of(await stored_assignment(w, "t-0")) == replicas(w.known("t-0")) == done
        assert replica_states(w.known("t-0")) == dict.fromkeys((4, 5, 6), S.ONLINE)
        assert await ongoing(w) == {}
        await w.check()


def replicas_of(held: Assignment) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return held.replicas, held.adding, held.removing


@pytest.mark.scenario(210, 211)
async def test_requests_of_each_step_in_order() -> None:
    async with world(1, 2, 3, 4, 5, 6) as w:
        await w.create("t", [[1, 2, 3]])
        sent = flushes(w)

        await reassign(w, {"t-0": [4, 5, 6]})

        everybody = {1, 2, 3, 4, 5, 6}
        assert [sent_leaders(flush) for flush in sent] == [
            {broker: (1, 1, (1, 2, 3), broker > 3) for broker in everybody},
            {4: (1, 1, (1, 2, 3), True)},
            {5: (1, 1, (1, 2, 3), True)},
            {6: (1, 1, (1, 2, 3), True)},
        ]
        assert all(flush.metadata.keys() == everybody and not flush.stop for flush in sent)
        for _, request in sent[0].requests:
            if isinstance(request, LeaderAndIsr):
                states = request.states
                assert states.adding is not None
                assert states.removing is not None
                held = [states.replicas, states.adding, states.removing]
                listed = [[each for each in column[:, 0].tolist() if each >= 0] for column in held]
                assert listed == [[4, 5, 6, 1, 2, 3], [4, 5, 6], [1, 2, 3]]

        sent.clear()
        await w.write_isr("t-0", 1, 2, 3, 4, 5, 6)

        heard, elected, stop, delete, everybody_knows = sent
        # The leader's ISR change is forwarded as usual; the new replicas' state needs no request.
        assert heard.kinds == ["UpdateMetadata"]
        assert heard.metadata.keys() == everybody
        assert sent_leaders(elected) == dict.fromkeys((4, 5, 6), (4, 2, (1, 2, 3, 4, 5, 6), False))
        assert stopped(elected) == {}
        assert sent_leaders(stop) == dict.fromkeys((4, 5, 6), (4, 5, (4, 5, 6), False))
        assert stopped(stop) == {1: SentStop(2, False), 2: SentStop(3, False), 3: SentStop(4, False)}
        assert stop.kinds == ["LeaderAndIsr", "UpdateMetadata", "StopReplica"]
        assert (sent_leaders(delete), delete.metadata) == ({}, {})
        assert stopped(delete) == dict.fromkeys((1, 2, 3), SentStop(5, True))
        assert everybody_knows.kinds == ["UpdateMetadata"]
        assert everybody_knows.metadata.keys() == everybody
        assert everybody_knows.metadata[1]["t-0"][:2] == (4, 5)


@pytest.mark.scenario(212)
async def test_out_of_sync_old_replica_costs_no_epoch() -> None:
    async with world(1, 2, 3, 4, 5, 6) as w:
        await w.create("t", [[1, 2, 3]])
        await w.write_isr("t-0", 1)
        await reassign(w, {"t-0": [4, 5, 6]})

        await w.write_isr("t-0", 1, 4, 5, 6)

        assert await w.stored("t-0") == (4, 3, (4, 5, 6))
        assert await stored_assignment(w, "t-0") == Assignment((4, 5, 6))


# -- immediate completion ----------------------------------------------------------------------------------------------


@pytest.mark.scenario(213)
async def test_removing_replicas_completes_immediately() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2, 3]])
        sent = flushes(w)

        assert await reassign(w, {"t-0": [1, 2]}) == [0]

        assert await w.stored("t-0") == (1, 2, (1, 2))
        assert await stored_assignment(w, "t-0") == Assignment((1, 2))
        leads_on, stop, delete, _ = sent
        assert sent_leaders(leads_on) == dict.fromkeys((1, 2), (1, 1, (1, 2, 3), False))
        assert sent_leaders(stop) == dict.fromkeys((1, 2), (1, 2, (1, 2), False))
        assert (stopped(stop), stopped(delete)) == ({3: SentStop(1, False)}, {3: SentStop(2, True)})
        await w.check()


@pytest.mark.scenario(214)
async def test_reordering_replicas_completes_immediately() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2, 3]])

        assert await reassign(w, {"t-0": [3, 1, 2]}) == [0]

        assert await w.stored("t-0") == (1, 1, (1, 2, 3))
        assert await stored_assignment(w, "t-0") == Assignment((3, 1, 2))
        assert w.controller.snapshot().preferred_imbalance == 1
        await w.check()


# -- changed and cancelled targets -------------------------------------------------------------------------------------


@pytest.mark.scenario(215)
async def test_new_target_replaces_the_earlier_one(caplog: pytest.LogCaptureFixture) -> None:
    async with world(1, 2, 3, 4, 5, 6, 7, 8) as w:
        await w.create("t", [[1, 2, 3]])
        await reassign(w, {"t-0": [4, 5, 6]})
        sent = flushes(w)

        assert await reassign(w, {"t-0": [4, 7, 8]}) == [0]

        assert await stored_assignment(w, "t-0") == Assignment((4, 7, 8, 1, 2, 3), adding=(4, 7, 8), removing=(1, 2, 3))
        stop, delete, copy, seven, eight = [flush for flush in sent if flush.lead or flush.stop]
        assert sent_leaders(stop).keys() == {4, 7, 8, 1, 2, 3}
        assert stopped(stop) == dict.fromkeys((5, 6), SentStop(1, False))
        assert stopped(delete) == dict.fromkeys((5, 6), SentStop(1, True))
        assert sent_leaders(copy) == {broker: (1, 2, (1, 2, 3), broker in (4, 7, 8)) for broker in (1, 2, 3, 4, 7, 8)}
        # 4 is NEW already and is not created again.
        assert [list(sent_leaders(seven)), list(sent_leaders(eight))] == [[7], [8]]
        assert "1 replicas cannot become NEW: ILLEGAL_MOVE; the first: t-0 on broker 4" in caplog.text
        assert replica_states(w.known("t-0")) == {
            **dict.fromkeys((1, 2, 3), S.ONLINE),
            **dict.fromkeys((4, 7, 8), S.NEW),
        }
        await w.check()


@pytest.mark.scenario(216)
async def test_reassignment_is_cancelled() -> None:
    async with world(1, 2, 3, 4, 5, 6) as w:
        await w.create("t", [[1, 2, 3]])
        await reassign(w, {"t-0": [4, 5, 6]})
        assert await w.stored("t-0") == (1, 1, (1, 2, 3))
        sent = flushes(w)

        assert await reassign(w, {"t-0": None}) == [0]

        assert await w.stored("t-0") == (1, 2, (1, 2, 3))
        assert await stored_assignment(w, "t-0") == Assignment((1, 2, 3))
        assert stopped(sent[1]) == dict.fromkeys((4, 5, 6), SentStop(1, True))
        assert replica_states(w.known("t-0")) == dict.fromkeys((1, 2, 3), S.ONLINE)
        assert w.controller.cluster.reassigning == set()
        await w.check()


@pytest.mark.scenario(217)
async def test_cancelled_overlap_keeps_the_current_order() -> None:
    async with world(1, 2, 3, 4) as w:
        await w.create("t", [[1, 2, 3]])
        await reassign(w, {"t-0": [3, 4, 2]})

        await reassign(w, {"t-0": None})

        assert await stored_assignment(w, "t-0") == Assignment((3, 2, 1))
        assert replicas(w.known("t-0")) == ((3, 2, 1), (), ())


async def led_by_a_new_replica(w: World, *isr: int) -> None:
    """t-0 is reassigned from [1, 2] to [3, 4], and 3 leads meanwhile."""
    await w.create("t", [[1, 2]])
    await reassign(w, {"t-0": [3, 4]})
    await w.write_isr("t-0", 1, 2, 3)
    await w.stop(1, 2)
    await w.start(1, 2)
    leader, _, _ = await w.stored("t-0")
    assert leader == 3
    await w.write_isr("t-0", *isr)


@pytest.mark.scenario(218)
async def test_leadership_moves_before_the_leader_is_stopped() -> None:
    """Kafka stops 3 first, which leaves no leader until the election that follows; see the next test."""
    async with world(1, 2, 3, 4) as w:
        await led_by_a_new_replica(w, 1, 2, 3)
        _, epoch, _ = await w.stored("t-0")
        sent = flushes(w)

        assert await reassign(w, {"t-0": None}) == [0]

        hand_over, stop, delete, leads_on, _ = sent
        # The old leader becomes a follower before it is stopped; no request contains a missing leader.
        assert sent_leaders(hand_over) == dict.fromkeys((1, 2, 3, 4), (1, epoch + 1, (1, 2, 3), False))
        assert sent_leaders(stop) == dict.fromkeys((1, 2), (1, epoch + 2, (1, 2), False))
        assert stopped(stop) == dict.fromkeys((3, 4), SentStop(epoch + 1, False)) | {4: SentStop(epoch + 2, False)}
        assert stopped(delete) == dict.fromkeys((3, 4), SentStop(epoch + 2, True))
        assert sent_leaders(leads_on) == dict.fromkeys((1, 2), (1, epoch + 3, (1, 2), False))
        led_by = {said["t-0"].leader for flush in sent for said in flush.lead.values()}
        known_led_by = {said["t-0"].leader for flush in sent for said in flush.metadata.values()}
        assert (led_by, known_led_by) == ({1}, {1})
        assert await w.stored("t-0") == (1, epoch + 3, (1, 2))
        assert await stored_assignment(w, "t-0") == Assignment((1, 2))
        await w.check()


@pytest.mark.scenario(218)
async def test_stopping_the_leader_first_would_leave_no_leader() -> None:
    """Kafka's order, with the same machines: stopping the replica removes the leader."""
    async with open_machines() as bench:
        bench.live(1, 2, 3, 4)
        await bench.put("t-0", [1, 2], stored=led(3, 3, [1, 2, 3], 4), replica_state=dict.fromkeys((1, 2, 3), S.ONLINE))

        await bench.replicas.receive(MoveReplicas(bench.rows("t-0"), S.OFFLINE, frozenset({3})))

        stored = await bench.stored("t-0")
        assert stored is not None
        assert (stored.leader, stored.leader_epoch, sorted(stored.isr)) == (NO_LEADER, 4, [1, 2])


async def test_cancel_that_would_leave_no_leader_is_rejected() -> None:
    """Kafka stops 3, the only complete replica, and deletes its log."""
    async with world(1, 2, 3, 4) as w:
        await led_by_a_new_replica(w, 3)
        before = (await stored_assignment(w, "t-0"), await w.stored("t-0"), w.known("t-0"))
        w.brokers.forget()

        (would_be,) = await reassignment_results(w, {"t-0": None}, dry_run=True)
        (refused,) = await reassignment_results(w, {"t-0": None})

        assert (refused.error, refused.assignment) == (REFUSED, None)
        assert "the present leader would be stopped" in refused.message
        assert would_be == refused
        assert (await stored_assignment(w, "t-0"), await w.stored("t-0"), w.known("t-0")) == before
        assert w.brokers.sent == []
        # Another target without the leader is rejected as well; one with it is accepted.
        assert await reassign(w, {"t-0": [1, 4]}) == [REFUSED]
        assert await reassign(w, {"t-0": [4, 3]}) == [0]
        await w.write_isr("t-0", 1, 3)
        assert await reassign(w, {"t-0": None}) == [0]
        leader, _, isr = await w.stored("t-0")
        assert (leader, isr) == (1, (1,))
        await w.check()


async def test_dead_in_sync_replica_cannot_take_the_leadership() -> None:
    async with world(1, 2, 3, 4) as w:
        await led_by_a_new_replica(w, 1, 3)
        w.controller.cluster.mark_shutting_down(1)

        assert await reassign(w, {"t-0": None}) == [REFUSED]

        w.controller.cluster.mark_shutting_down(1, False)
        assert await reassign(w, {"t-0": None}) == [0]


async def test_leader_is_chosen_from_the_new_target() -> None:
    async with world(1, 2, 3, 4, 5) as w:
        await led_by_a_new_replica(w, 1, 2, 3)

        # 1 is the first that stays; 2 is in the target and will not have to hand over again.
        assert await reassign(w, {"t-0": [5, 2]}) == [0]

        leader, _, isr = await w.stored("t-0")
        assert (leader, isr) == (2, (1, 2))
        assert await stored_assignment(w, "t-0") == Assignment((5, 2, 1), adding=(5,), removing=(1,))


async def test_stored_isr_decides() -> None:
    """A leader added 1 to the ISR, and the controller has not read it."""
    async with world(1, 2, 3, 4) as w:
        await led_by_a_new_replica(w, 3)
        name, state = await w._stored("t-0")
        grown = msgspec.structs.replace(state, isr=(3, 1))
        assert await w.store.write_isr(name, grown, expected=state.partition_epoch)

        assert await reassign(w, {"t-0": None}) == [0]

        leader, _, isr = await w.stored("t-0")
        assert (leader, isr) == (1, (1,))


# -- resumed reassignments ---------------------------------------------------------------------------------------------


@pytest.mark.scenario(233)
async def test_broker_outside_the_target_has_no_effect() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2]})
        before = await w.stored("t-0")

        await w.start(3)
        assert await w.stored("t-0") == before
        # A replica that is being removed has no effect either.
        await w.stop(1)
        _, epoch, _ = await w.stored("t-0")
        await w.start(1)
        assert await w.stored("t-0") == (1, epoch + 1, (1,))


@pytest.mark.scenario(234)
async def test_restarted_new_replica_receives_its_request_again(caplog: pytest.LogCaptureFixture) -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2, 3]})
        await w.stop(2)
        await w.start(2)
        _, epoch, _ = await w.stored("t-0")
        assert w.known("t-0").replica_states[2] is S.ONLINE
        caplog.clear()
        w.brokers.forget()

        await w.start(2)

        assert await w.stored("t-0") == (1, epoch + 1, (1,))
        assert w.brokers.told(2)["t-0"] == (1, epoch + 1, (1,), True)
        assert w.known("t-0").replica_states[2] is S.ONLINE
        assert "1 replicas cannot become NEW: ILLEGAL_MOVE; the first: t-0 on broker 2" in caplog.text


async def test_failed_reassignment_does_not_block_others() -> None:
    """In Kafka the first failure ends the event: the others are not resumed, and the broker is not watched."""
    async with world(1, 2) as w:
        await w.create("t", [[1], [1], [1]])
        await w.stop(2)
        await write_reassignment(w, {f"t-{number}": [2] for number in range(3)})
        # A later controller wrote the first one.
        name, state = await w._stored("t-0")
        later = msgspec.structs.replace(state, controller_epoch=99)
        assert await w.store.write_isr(name, later, expected=state.partition_epoch)

        await w.start(2)

        assert [await w.stored(f"t-{number}") for number in range(3)] == [(1, 1, (1,)), (1, 2, (1,)), (1, 2, (1,))]
        assert w.controller.is_active


@pytest.mark.scenario(236)
async def test_leadership_of_a_later_controller_is_not_overwritten() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1], [1]])
        name, state = await w._stored("t-0")
        later = msgspec.structs.replace(state, controller_epoch=99)
        assert await w.store.write_isr(name, later, expected=state.partition_epoch)

        first, second = await reassignment_results(w, {"t-0": [2], "t-1": [2]})

        assert (first.error, first.message) == (
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "another controller with a later epoch wrote its state",
        )
        assert second.error == 0
        assert await w.stored("t-0") == (1, 0, (1,))
        assert await w.stored("t-1") == (1, 1, (1,))


@pytest.mark.scenario(237)
async def test_epoch_is_incremented_from_the_stored_one() -> None:
    """Kafka reads before each write, three times in all. Here only rejected rows are read, twice."""
    async with world(1, 2) as w:
        await w.create("t", [[1]])

        async def leader_writes() -> None:
            name, state = await w._stored("t-0")
            other = msgspec.structs.replace(state, leader_epoch=state.leader_epoch + 10)
            assert await w.store.write_isr(name, other, expected=state.partition_epoch)

        reads = 0

        async def read() -> None:
            nonlocal reads
            reads += 1

        script_once(w, "commit", after(leader_writes), after(leader_writes), really)
        script_once(w, "leaderships", after(read), after(read), after(read))

        assert await reassign(w, {"t-0": [2]}) == [0]

        assert await w.stored("t-0") == (1, 21, (1,))
        assert reads == 2
        assert w.brokers.told(1)["t-0"][:2] == (1, 21)
        await w.check()


async def test_reassignment_completed_meanwhile_is_finished() -> None:
    """Its leader wrote before the new epoch was committed, and the notification arrives later."""
    async with world(1, 2) as w:
        await w.create("t", [[1]])

        async def leader_writes() -> None:
            name, state = await w._stored("t-0")
            grown = msgspec.structs.replace(state, isr=(1, 2))
            assert await w.store.write_isr(name, grown, expected=state.partition_epoch)

        script_once(w, "commit", after(leader_writes))

        assert await reassign(w, {"t-0": [2]}) == [0]

        assert await w.stored("t-0") == (2, 2, (2,))
        assert await stored_assignment(w, "t-0") == Assignment((2,))
        await w.check()


async def test_isr_proposal_completes_it_after_the_response() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]] * 5)
        await reassign(w, {f"t-{number}": [2] for number in range(4)})
        (ref,) = w.controller.topics()
        proposals = [IsrProposal(ref, number, 1, (1, 2), 1) for number in range(3)]
        stored = 0

        async def store() -> None:
            nonlocal stored
            stored += 1

        script_once(w, "write_assignment", *[after(store)] * 5)

        answers = await w.controller.ask(
            AlterPartitionReceived(1, w.controller.cluster.brokers[1].epoch, tuple(proposals))
        )

        assert [(answer.error, sorted(answer.leadership.isr)) for answer in answers] == [(0, [1, 2])] * 3
        await settle()
        for number in range(3):
            assert await w.stored(f"t-{number}") == (2, 3, (2,))
            assert await stored_assignment(w, f"t-{number}") == Assignment((2,))
        # One write for all completed partitions, not one for each.
        assert stored == 1
        assert await ongoing(w) == {"t-3": Assignment((2, 1), adding=(2,), removing=(1,))}
        await w.check()


async def test_topic_is_deleted_after_its_reassignment() -> None:
    """Kafka starts the deletion immediately."""
    async with world(1, 2, 3) as w:
        await w.create("t", [[1], [1]])
        await reassign(w, {"t-0": [2]})
        w.brokers.silent = {1, 2}
        await w.store.mark_deletion("t")
        await settle()
        cluster = w.controller.cluster
        assert (cluster.topics_to_delete, cluster.deletion_started) == ({"t"}, set())

        await w.write_isr("t-0", 1, 2)

        assert await stored_assignment(w, "t-0") == Assignment((2,))
        assert cluster.reassigning == set()
        assert cluster.deletion_started == {"t"}


async def test_topic_in_deletion_gets_no_new_replicas() -> None:
    """A broker startup starts the deletion. At the next startup Kafka creates new replicas nevertheless."""
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2]})
        w.brokers.silent = {1}
        await w.store.mark_deletion("t")
        await settle()
        await w.start(2)
        assert w.controller.cluster.deletion_started == {"t"}
        assert tp("t-0") in w.controller.cluster.reassigning
        w.brokers.silent = {1, 2}
        sent = flushes(w)

        await w.start(2)

        assert [
            flush for flush in sent if any(led.is_new for said in flush.lead.values() for led in said.values())
        ] == []
        assert await ongoing(w) == {"t-0": Assignment((2, 1), adding=(2,), removing=(1,))}


# -- final leader ------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(238)
async def test_offline_leader_of_the_target_is_replaced() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2, 3]])
        # It is shutting down and may not continue to lead.
        w.controller.cluster.mark_shutting_down(1)

        assert await reassign(w, {"t-0": [1, 2]}) == [0]

        assert await w.stored("t-0") == (2, 2, (1, 2))
        assert await stored_assignment(w, "t-0") == Assignment((1, 2))


@pytest.mark.scenario(239)
async def test_reassignment_completes_with_the_target_offline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2, 3]])
        for broker in (1, 2):
            w.controller.cluster.mark_shutting_down(broker)
        sent = flushes(w)

        assert await reassign(w, {"t-0": [1, 2]}) == [0]

        assert "1 partitions cannot become ONLINE; the first: t-0: NO_ELIGIBLE_LEADER" in caplog.text
        # The leader continues under a new epoch without an election; 3 is stopped, and the completion is stored.
        assert await w.stored("t-0") == (1, 2, (1, 2))
        assert [stopped(flush) for flush in sent if flush.stop] == [{3: SentStop(1, False)}, {3: SentStop(2, True)}]
        assert await stored_assignment(w, "t-0") == Assignment((1, 2))
        assert sent[-1].kinds == ["UpdateMetadata"]
        assert await ongoing(w) == {}


# -- the store fails ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["the target", "the epoch", "the end", "the request"])
async def test_rejected_commits_are_retried(step: str) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        if step == "the target":
            script_once(w, "write_assignment", fails(StoreUnavailable("gone")))
            assert await reassign(w, {"t-0": [2]}) == [ErrorCode.UNKNOWN_SERVER_ERROR]
            # No step has begun that would need to be reverted.
            assert (await ongoing(w), await stored_assignment(w, "t-0")) == ({}, Assignment((1,)))
            assert await reassign(w, {"t-0": [2]}) == [0]
        elif step == "the epoch":
            script_once(w, "commit", fails(StoreUnavailable("gone")))
            assert await reassign(w, {"t-0": [2]}) == [ErrorCode.UNKNOWN_SERVER_ERROR]
            assert await w.stored("t-0") == (1, 0, (1,))
            await w.wait(12_000)
            assert await w.stored("t-0") == (1, 1, (1,))
        else:
            await write_reassignment(w, {"t-0": [2]})
            method = "write_assignment" if step == "the end" else "set_reassignment_request"
            script_once(w, method, fails(StoreUnavailable("gone")))
        await w.write_isr("t-0", 1, 2)

        if step in ("the end", "the request"):
            assert tp("t-0") in w.controller.cluster.reassigning
            assert await requested_reassignment(w) == {"t-0": (2,)}
            await w.wait(12_000)
        assert tp("t-0") not in w.controller.cluster.reassigning
        assert await stored_assignment(w, "t-0") == Assignment((2,))
        assert await requested_reassignment(w) is None
        leader, _, isr = await w.stored("t-0")
        assert (leader, isr) == (2, (2,))
        await w.check()


async def test_many_partitions_are_reassigned_with_few_writes() -> None:
    """A topic's assignment is stored once before all of its partitions are reassigned, and once after."""
    async with world(1, 2, 3) as w:
        await w.create("t", [[1]] * 40 + [[1, 2]] * 10)
        written = []
        real = w.controller.store.write_assignment

        async def write(*arguments: object) -> None:
            written.append(arguments)
            await real(*arguments)  # type: ignore[arg-type]

        w.controller.store.write_assignment = write  # type: ignore[method-assign,assignment]

        errors = await reassign(w, {f"t-{number}": [3] if number % 2 else [2, 1] for number in range(50)})

        assert errors == [0] * 50
        # Those to [2, 1] that had both were complete immediately.
        assert len(written) == 2
        for number in range(50):
            held = await stored_assignment(w, f"t-{number}")
            assert held.target == ((3,) if number % 2 else (2, 1)), number
            assert held.is_being_reassigned == (number < 40 or number % 2 == 1), number
        await settle()
        await w.check()
