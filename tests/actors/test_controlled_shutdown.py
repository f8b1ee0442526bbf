"""Controlled shutdown and drain: new leaders, requests to the broker, and partitions that stay."""

import anyio
import pytest

from kactl.decide.messages.broker import AlterPartitionReceived, ControlledShutdown, IsrProposal
from kactl.decide.messages.control import LeaderAndIsr, Request, StopReplica
from kactl.model import NO_EPOCH, NO_LEADER, PartitionState, ReplicaState, TopicPartition
from kactl.model.errors import BrokerNotAvailable, ErrorCode, NotController, StaleBrokerEpoch, StoreError
from tests.support.clocks import settle
from tests.support.controller_harness import World, broker_event_names, kinds, open_standby, partitions_of, world
from tests.support.scripted_store import after

pytestmark = pytest.mark.anyio

ONLINE, OFFLINE = ReplicaState.ONLINE, ReplicaState.OFFLINE


def stops(requests: list[Request]) -> list[tuple[str, bool]]:
    """Returns partition and delete flag of each entry of the StopReplica requests, in order."""
    return [
        (name, bool(delete))
        for each in requests
        if isinstance(each, StopReplica)
        for name, delete in zip(partitions_of(each), each.delete.tolist(), strict=True)
    ]


# -- sequence ----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(269, 270, 271)
async def test_brokers_shut_down_until_the_last_one_has_no_successor() -> None:
    async with world(0, 1, 2) as w:
        await w.create("test", [[0, 1, 2]])

        assert await w.shut_down(2) == []
        assert await w.stored("test-0") == (0, 1, (0, 1))
        assert w.brokers.told(0) == {"test-0": (0, 1, (0, 1), False)}

        assert await w.shut_down(1) == []
        assert await w.stored("test-0") == (0, 2, (0,))

        assert await w.shut_down(0) == [TopicPartition("test", 0)]
        assert await w.stored("test-0") == (0, 2, (0,))
        assert w.brokers.told(0) == {"test-0": (0, 2, (0,), False)}
        assert w.known("test-0").leader == 0
        assert w.controller.cluster.shutting_down == {0, 1, 2}
        await w.check()


@pytest.mark.scenario(279)
async def test_next_in_sync_replica_leads_and_the_broker_stays_a_replica() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        w.brokers.forget()

        assert await w.shut_down(2) == []

        assert await w.stored("t-0") == (1, 1, (1,))
        assert w.brokers.told(1) == w.brokers.told(2) == {"t-0": (1, 1, (1,), False)}
        assert w.known("t-0").replica_states == {1: ONLINE, 2: ONLINE}
        assert stops(w.brokers.of(2)) == []
        await w.check()


@pytest.mark.scenario(280)
async def test_follower_is_stopped_before_and_after_the_isr_change() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.forget()
        seen: list[list[tuple[str, bool]]] = []

        async def look() -> None:
            await settle()  # requests sent before the write have arrived
            seen.append(stops(w.brokers.of(2)))

        left = w.script("commit", after(look))
        assert await w.shut_down(2) == []

        assert left == []
        # As in Kafka: the controller's StopReplica is sent before the ISR is written, the replica machine's after it.
        assert seen == [[("t-0", False)]]
        assert kinds(w.brokers.of(2)) == ["StopReplica", "UpdateMetadata", "StopReplica"]
        assert stops(w.brokers.of(2)) == [("t-0", False)] * 2
        assert await w.stored("t-0") == (1, 1, (1,))
        assert w.brokers.told(1) == {"t-0": (1, 1, (1,), False)}
        assert w.brokers.told(2) == {}
        assert w.known("t-0").replica_states == {1: ONLINE, 2: OFFLINE}
        await w.check()


@pytest.mark.scenario(281)
async def test_lagging_follower_is_stopped_without_a_write() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.write_isr("t-0", 1)
        version = w.known("t-0").partition_epoch
        w.brokers.forget()

        assert await w.shut_down(2) == []

        assert await w.stored("t-0") == (1, 0, (1,))
        assert w.known("t-0").partition_epoch == version
        assert stops(w.brokers.of(2)) == [("t-0", False)] * 2
        assert w.brokers.told(1) == {"t-0": (1, 0, (1,), False)}
        assert w.brokers.of(2, LeaderAndIsr) == []
        assert w.known("t-0").replica_states[2] == OFFLINE


async def test_led_and_followed_partitions_are_separated_before_any_move() -> None:
    """Otherwise the led partitions would be stopped too, because the broker follows them by then."""
    async with world(1, 2) as w:
        await w.create("t", [[2, 1], [1, 2]])
        w.brokers.forget()

        await w.shut_down(2)

        assert stops(w.brokers.of(2)) == [("t-1", False)] * 2
        assert w.known("t-0").replica_states[2] == ONLINE


async def test_brokers_in_shutdown_leave_the_isr_and_are_not_elected() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2, 3]])
        w.controller.cluster.mark_shutting_down(2)

        assert await w.shut_down(1) == []

        assert await w.stored("t-0") == (3, 1, (3,))


# -- partitions that stay ----------------------------------------------------------------------------------------------


@pytest.mark.scenario(278)
async def test_partition_without_another_replica_stays_until_the_broker_stops() -> None:
    async with world(1, 2) as w:
        await w.create("s", [[2]])
        w.brokers.forget()

        assert await w.shut_down(2) == []

        assert await w.stored("s-0") == (2, 0, (2,))
        assert w.brokers.sent == []

        await w.stop(2)

        assert (await w.stored("s-0"))[0] == NO_LEADER


@pytest.mark.scenario(282)
async def test_topics_in_deletion_stay() -> None:
    async with world(1, 2) as w:
        await w.create("q", [[2, 1], [1, 2]])
        w.controller.cluster.queue_deletion(["q"])
        w.brokers.forget()

        assert await w.shut_down(2) == []

        assert await w.stored("q-0") == (2, 0, (1, 2))
        assert await w.stored("q-1") == (1, 0, (1, 2))
        assert w.brokers.sent == []


@pytest.mark.scenario(283)
async def test_partitions_without_leadership_stay() -> None:
    async with world(1) as w:
        await w.create("t", [[2, 3]])
        # Brokers 2 and 3 start, and the store rejects the new leadership of the partition.
        await lose_commits(w, 2, 3)
        assert w.known("t-0").state is PartitionState.NEW
        w.brokers.forget()

        assert await w.shut_down(2) == []

        assert w.brokers.sent == []
        assert w.known("t-0").leadership is None
        assert w.known("t-0").replica_states[2] == ONLINE


async def lose_commits(w: World, *brokers: int) -> None:
    async def lost(*arguments: object) -> None:
        raise StoreError("the store is away")

    real = w.controller.store.commit
    w.controller.store.commit = lost  # type: ignore[method-assign,assignment]
    await w.start(*brokers)
    w.controller.store.commit = real  # type: ignore[method-assign]


# -- accepted senders --------------------------------------------------------------------------------------------------


@pytest.mark.scenario(272)
async def test_stale_broker_epoch_is_rejected_without_effect() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        w.brokers.forget()

        with pytest.raises(StaleBrokerEpoch) as refused:
            await w.shut_down(2, w.epoch(2) - 1)

        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert w.controller.cluster.shutting_down == frozenset()
        assert await w.stored("t-0") == (2, 0, (1, 2))
        assert w.brokers.sent == []


@pytest.mark.scenario(277)
async def test_newer_broker_epoch_is_accepted() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])

        assert await w.shut_down(2, w.epoch(2) + 7) == []

        assert w.controller.cluster.shutting_down == {2}
        assert await w.stored("t-0") == (1, 1, (1,))


@pytest.mark.scenario(275, 276)
@pytest.mark.parametrize("broker_epoch", [NO_EPOCH, 7])
async def test_unregistered_broker_is_rejected(broker_epoch: int) -> None:
    async with world(1) as w:
        # If the request has an epoch, Kafka reads the known registration before it checks that one exists, and fails.
        with pytest.raises(KeyError):
            w.controller.cluster.brokers[9]

        with pytest.raises(BrokerNotAvailable) as refused:
            await w.shut_down(9, broker_epoch)

        assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
        assert w.controller.cluster.shutting_down == frozenset()


@pytest.mark.scenario(274)
async def test_inactive_controller_returns_not_controller() -> None:
    async with world(1, 2) as w:
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            with pytest.raises(NotController) as refused:
                await second.ask(ControlledShutdown(2, 1))

        assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
        assert refused.value.active_id == 100


@pytest.mark.scenario(273)
async def test_queued_request_fails_with_controller_moved_at_session_end() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        refused: list[ErrorCode] = []

        async def ask() -> None:
            with pytest.raises(NotController) as moved:
                await w.controller.ask(ControlledShutdown(2, w.epoch(2)))
            refused.append(moved.value.code)

        gate = anyio.Event()
        w.script("assignments", after(gate.wait))
        async with anyio.create_task_group() as tasks:
            await w.create("u", [[1]])  # which takes until the gate is opened
            tasks.start_soon(ask)
            await settle()
            w.controller.store.expire()  # type: ignore[attr-defined]
            gate.set()
            await settle()

        assert refused == [ErrorCode.STALE_CONTROLLER_EPOCH]
        assert await w.stored("t-0") == (2, 0, (1, 2))


async def test_fenced_controller_reports_it_and_resigns() -> None:
    """In Kafka the broker receives the error and the controller stays active."""
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        left = w.script("commit", after(lambda: w.store.contest(200, take_over=True)))
        # No event reports the other controller: the rejected write is the only sign.
        w.controller.store.subscribe(lambda change: None)

        with pytest.raises(NotController) as refused:
            await w.shut_down(2)

        assert left == []
        assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
        assert not w.controller.is_active
        assert w.controller.cluster.fence.epoch == 0


# -- repeated requests and cancelled shutdowns -------------------------------------------------------------------------


@pytest.mark.scenario(284)
async def test_repeated_request_is_answered_without_repeated_changes() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1], [1, 2]])
        await w.create("last", [[2, 1]])
        await w.write_isr("last-0", 2)
        assert await w.shut_down(2) == [TopicPartition("last", 0)]
        before = [await w.stored(name) for name in ("t-0", "t-1", "last-0")]
        w.brokers.forget()

        assert await w.shut_down(2) == [TopicPartition("last", 0)]

        assert [await w.stored(name) for name in ("t-0", "t-1", "last-0")] == before
        # It follows by now the partitions that it led, and is told to stop them too.
        assert set(stops(w.brokers.of(2))) == {("t-0", False), ("t-1", False)}
        assert broker_event_names(w).count(("shutting-down", 2)) == 1

        # The partition no longer blocks it: the other replica is in sync again.
        await w.write_isr("last-0", 1, 2)
        assert await w.shut_down(2) == []
        assert await w.stored("last-0") == (1, 1, (1,))
        await w.check()


@pytest.mark.scenario(285)
async def test_shutdown_mark_ends_when_the_broker_stops() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await w.shut_down(2)

        await w.stop(2)

        assert w.controller.cluster.shutting_down == frozenset()
        assert await w.stored("t-0") == (1, 1, (1,))


@pytest.mark.scenario(286)
async def test_shutdown_mark_ends_when_the_broker_registers_again() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await w.shut_down(2)
        before = w.epoch(2)

        await w.sessions[2].close()
        w.sessions.pop(2)
        await w.start(2)

        assert w.epoch(2) > before
        assert w.controller.cluster.shutting_down == frozenset()
        assert 2 in w.controller.cluster.live_brokers.live
        assert w.brokers.told(2)["t-0"] == (1, 1, (1,), False)
        assert w.known("t-0").replica_states[2] == ONLINE


@pytest.mark.scenario(287)
async def test_isr_proposal_with_a_broker_in_shutdown_is_rejected() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.shut_down(2)
        (topic,) = (each for each in w.controller.topics() if each.name == "t")
        known = w.known("t-0")
        assert (known.leader, known.isr) == (1, (1,))

        proposal = IsrProposal(topic, 0, known.leader_epoch, (1, 2), known.partition_epoch)
        results = await w.controller.ask(AlterPartitionReceived(1, w.epoch(1), (proposal,), version=3))

        assert [each.error for each in results] == [ErrorCode.INELIGIBLE_REPLICA]
        assert await w.stored("t-0") == (1, 1, (1,))


async def test_broker_in_shutdown_is_not_elected_from_the_start() -> None:
    async with world(1, 2) as w:
        await w.shut_down(2)

        await w.create("t", [[2, 1]])

        assert await w.stored("t-0") == (1, 0, (1,))
        assert w.brokers.told(2) == {}


async def test_dry_run_returns_remaining_partitions_without_changes() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1], [2, 1], [1, 2]])
        await w.create("s", [[2]])
        await w.write_isr("t-1", 2)
        w.brokers.forget()

        for asked in (NO_EPOCH, w.epoch(2)):
            assert await w.shut_down(2, asked, dry_run=True) == [TopicPartition("t", 1)]

        assert w.controller.cluster.shutting_down == frozenset()
        assert w.brokers.sent == []
        assert await w.stored("t-0") == (2, 0, (1, 2))
        assert await w.controller.drain(2) == [TopicPartition("t", 1)]
