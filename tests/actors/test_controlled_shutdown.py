"""Brokers that ask to be shut down, or are drained: who leads in their place, what they are told, and who stays."""

import anyio
import pytest

from kactl.errors import BrokerNotAvailable, ErrorCode, NotController, StaleBrokerEpoch, StoreError
from kactl.messages.broker import AlterPartitionRequested, ControlledShutdownRequested, IsrProposal
from kactl.messages.control import LeaderAndIsr, Request, StopReplica
from kactl.model import NO_EPOCH, NO_LEADER, PartitionState, ReplicaState, TopicPartition
from tests.support.clocks import settle
from tests.support.controller_harness import World, broker_event_names, kinds, open_standby, partitions_of, world
from tests.support.scripted_store import after

pytestmark = pytest.mark.anyio

ONLINE, OFFLINE = ReplicaState.ONLINE, ReplicaState.OFFLINE


def stops(requests: list[Request]) -> list[tuple[str, bool]]:
    """What the StopReplicas among some requests say, one request after the other."""
    return [
        (name, bool(delete))
        for each in requests
        if isinstance(each, StopReplica)
        for name, delete in zip(partitions_of(each), each.delete.tolist(), strict=True)
    ]


# -- one after the other -----------------------------------------------------------------------------------------------


@pytest.mark.scenario(269, 270, 271)
async def test_brokers_go_one_after_the_other_until_the_last_one_has_nobody_to_hand_over_to() -> None:
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
async def test_what_it_led_is_led_by_the_next_in_sync_and_it_goes_on_as_a_replica() -> None:
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
async def test_what_it_followed_it_is_told_to_stop_before_it_leaves_the_isr_and_once_more_after() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.forget()
        seen: list[list[tuple[str, bool]]] = []

        async def look() -> None:
            await settle()  # whatever was sent before the write has arrived
            seen.append(stops(w.brokers.of(2)))

        left = w.script("commit", after(look))
        assert await w.shut_down(2) == []

        assert left == []
        # As Kafka does: the controller's own order is sent before the ISR is written, that of the machine behind it.
        assert seen == [[("t-0", False)]]
        assert kinds(w.brokers.of(2)) == ["StopReplica", "UpdateMetadata", "StopReplica"]
        assert stops(w.brokers.of(2)) == [("t-0", False)] * 2
        assert await w.stored("t-0") == (1, 1, (1,))
        assert w.brokers.told(1) == {"t-0": (1, 1, (1,), False)}
        assert w.brokers.told(2) == {}
        assert w.known("t-0").replica_states == {1: ONLINE, 2: OFFLINE}
        await w.check()


@pytest.mark.scenario(281)
async def test_one_that_lagged_is_told_to_stop_and_nothing_is_written() -> None:
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


async def test_what_it_led_and_what_it_followed_are_told_apart_before_anything_is_moved() -> None:
    """Else what it led would be stopped as well, since by then it follows it."""
    async with world(1, 2) as w:
        await w.create("t", [[2, 1], [1, 2]])
        w.brokers.forget()

        await w.shut_down(2)

        assert stops(w.brokers.of(2)) == [("t-1", False)] * 2
        assert w.known("t-0").replica_states[2] == ONLINE


async def test_everybody_who_is_shutting_down_leaves_the_isr_and_none_of_them_is_elected() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2, 3]])
        w.controller.cluster.mark_shutting_down(2)

        assert await w.shut_down(1) == []

        assert await w.stored("t-0") == (3, 1, (3,))


# -- what is left alone ------------------------------------------------------------------------------------------------


@pytest.mark.scenario(278)
async def test_a_partition_that_nobody_else_holds_is_left_alone_until_the_broker_has_gone() -> None:
    async with world(1, 2) as w:
        await w.create("s", [[2]])
        w.brokers.forget()

        assert await w.shut_down(2) == []

        assert await w.stored("s-0") == (2, 0, (2,))
        assert w.brokers.sent == []

        await w.stop(2)

        assert (await w.stored("s-0"))[0] == NO_LEADER


@pytest.mark.scenario(282)
async def test_topics_that_are_being_deleted_are_left_alone() -> None:
    async with world(1, 2) as w:
        await w.create("q", [[2, 1], [1, 2]])
        w.controller.cluster.queue_deletion(["q"])
        w.brokers.forget()

        assert await w.shut_down(2) == []

        assert await w.stored("q-0") == (2, 0, (1, 2))
        assert await w.stored("q-1") == (1, 0, (1, 2))
        assert w.brokers.sent == []


@pytest.mark.scenario(283)
async def test_partitions_without_leadership_are_left_alone() -> None:
    async with world(1) as w:
        await w.create("t", [[2, 3]])
        # Brokers 2 and 3 come, and the store does not keep what was to become of the partition.
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


# -- who may ask -------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(272)
async def test_an_earlier_registration_of_the_broker_is_refused_and_changes_nothing() -> None:
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
async def test_a_later_registration_than_the_known_one_is_believed() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])

        assert await w.shut_down(2, w.epoch(2) + 7) == []

        assert w.controller.cluster.shutting_down == {2}
        assert await w.stored("t-0") == (1, 1, (1,))


@pytest.mark.scenario(275, 276)
@pytest.mark.parametrize("broker_epoch", [NO_EPOCH, 7])
async def test_a_broker_that_is_not_registered_cannot_be_shut_down(broker_epoch: int) -> None:
    async with world(1) as w:
        # With an epoch, Kafka looks for the one that it knows before it looks whether there is one, and fails.
        with pytest.raises(KeyError):
            w.controller.cluster.brokers[9]

        with pytest.raises(BrokerNotAvailable) as refused:
            await w.shut_down(9, broker_epoch)

        assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
        assert w.controller.cluster.shutting_down == frozenset()


@pytest.mark.scenario(274)
async def test_who_is_not_the_controller_says_so_in_words_that_brokers_understand() -> None:
    async with world(1, 2) as w:
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            with pytest.raises(NotController) as refused:
                await second.ask(ControlledShutdownRequested(2, 1))

        assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
        assert refused.value.active_id == 100


@pytest.mark.scenario(273)
async def test_one_that_waits_while_the_session_ends_hears_that_the_controller_moved() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        refused: list[ErrorCode] = []

        async def ask() -> None:
            with pytest.raises(NotController) as moved:
                await w.controller.ask(ControlledShutdownRequested(2, w.epoch(2)))
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


async def test_a_controller_that_is_fenced_meanwhile_says_so_and_resigns() -> None:
    """In Kafka the broker hears it, and the controller goes on as if nothing had been."""
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        left = w.script("commit", after(lambda: w.store.contest(200, take_over=True)))
        # Nobody tells of the other one: what the store refused is all that there is to notice.
        w.controller.store.subscribe(lambda change: None)

        with pytest.raises(NotController) as refused:
            await w.shut_down(2)

        assert left == []
        assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
        assert not w.controller.is_active
        assert w.controller.cluster.fence.epoch == 0


# -- asking again, and staying -----------------------------------------------------------------------------------------


@pytest.mark.scenario(284)
async def test_asking_again_is_answered_anew_and_changes_nothing_that_was_done() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1], [1, 2]])
        await w.create("last", [[2, 1]])
        await w.write_isr("last-0", 2)
        assert await w.shut_down(2) == [TopicPartition("last", 0)]
        before = [await w.stored(name) for name in ("t-0", "t-1", "last-0")]
        w.brokers.forget()

        assert await w.shut_down(2) == [TopicPartition("last", 0)]

        assert [await w.stored(name) for name in ("t-0", "t-1", "last-0")] == before
        # What it led it follows by now, and is told to stop as well.
        assert set(stops(w.brokers.of(2))) == {("t-0", False), ("t-1", False)}
        assert broker_event_names(w).count(("shutting-down", 2)) == 1

        # What kept it is over: the other one is in sync again.
        await w.write_isr("last-0", 1, 2)
        assert await w.shut_down(2) == []
        assert await w.stored("last-0") == (1, 1, (1,))
        await w.check()


@pytest.mark.scenario(285)
async def test_the_mark_ends_when_the_broker_has_gone() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await w.shut_down(2)

        await w.stop(2)

        assert w.controller.cluster.shutting_down == frozenset()
        assert await w.stored("t-0") == (1, 1, (1,))


@pytest.mark.scenario(286)
async def test_the_mark_ends_when_the_broker_registers_anew() -> None:
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
async def test_a_leader_cannot_take_one_that_is_shutting_down_into_its_isr() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.shut_down(2)
        (topic,) = (each for each in w.controller.topics() if each.name == "t")
        known = w.known("t-0")
        assert (known.leader, known.isr) == (1, (1,))

        proposal = IsrProposal(topic, 0, known.leader_epoch, (1, 2), known.partition_epoch)
        results = await w.controller.ask(AlterPartitionRequested(1, w.epoch(1), (proposal,), version=3))

        assert [each.error for each in results] == [ErrorCode.INELIGIBLE_REPLICA]
        assert await w.stored("t-0") == (1, 1, (1,))


async def test_from_the_first_moment_on_it_is_elected_for_nothing() -> None:
    async with world(1, 2) as w:
        await w.shut_down(2)

        await w.create("t", [[2, 1]])

        assert await w.stored("t-0") == (1, 0, (1,))
        assert w.brokers.told(2) == {}


async def test_what_would_remain_is_said_without_changing_anything() -> None:
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
