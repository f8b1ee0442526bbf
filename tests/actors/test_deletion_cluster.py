"""Deletion as a cluster sees it: brokers come and go meanwhile, controllers follow each other, all goes in the end."""

import asyncio
from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from kactl.actors.system import Controller
from kactl.errors import BeingDeleted, ErrorCode, NotController, NotFound, StoreError, TopicDeletionDisabled
from kactl.messages.admin import TopicDeletionRequested
from kactl.messages.control import PartitionErrors, StopReplica, StopReplicaResponse
from kactl.messages.events import BrokerModified, ReplicasDeleted
from kactl.messages.log import TopicEvent
from kactl.model import Assignment, Endpoint, Fence, PartitionState, TopicRef
from kactl.state.deletion_blockers import BlockerReason
from kactl.state.rows import Ints
from tests.actors.reassigning import reassign
from tests.support.clocks import settle
from tests.support.controller_harness import World, open_standby, partitions_of, world

pytestmark = pytest.mark.anyio

HOUR_MS = 3_600_000


async def is_gone(w: World, topic: str) -> bool:
    """Nothing is stored of a topic any more: no entry, no leadership, no overrides, no mark."""
    return (
        topic not in await w.store.topics()
        and await w.store.partitions_begun(topic) == []
        and await w.store.topic_configs([topic]) == {topic: {}}
        and topic not in await w.store.deletions()
    )


async def waits(w: World, topic: str) -> bool:
    """A topic is there, and marked."""
    return topic in await w.store.topics() and topic in await w.store.deletions()


def deletions(w: World, broker: int) -> list[str]:
    """What a broker was told to delete, in order."""
    asked = [request for request in w.brokers.of(broker, StopReplica) if isinstance(request, StopReplica)]
    return [
        name
        for request in asked
        for name, delete in zip(partitions_of(request), request.delete.tolist(), strict=True)
        if delete
    ]


def halts(controller: Controller, topic: str) -> list[BlockerReason]:
    return [halt.reason for halt in controller.cluster.deletion_ineligible.get(topic, ())]


def told_of_topics(w: World) -> list[tuple[str, str]]:
    return [(event.topic, event.what) for event in w.events("topic") if isinstance(event, TopicEvent)]


async def keep_alive(w: World, delay_ms: float) -> None:
    """Time passes, and brokers live."""
    for session in w.sessions.values():
        await session.keep_alive()
    await w.clock.advance(delay_ms)


async def step_down(w: World) -> None:
    """The controller gives up its office for good."""
    w.controller.loop.controllership.stopping = True
    await w.controller.resign()
    await settle()


# -- all goes ----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(173)
async def test_a_deleted_topic_leaves_nothing_behind() -> None:
    async with world(1, 2, 3) as w:
        await w.create("test", [[1, 2, 3]], {"retention.ms": "1"})
        await w.create("other", [[2, 3, 1]])

        await w.delete("test")

        assert await is_gone(w, "test")
        assert w.controller.partition("test-0") is None
        for broker in (1, 2, 3):
            assert deletions(w, broker) == ["test-0"]
        assert told_of_topics(w)[-2:] == [("test", "deletion started"), ("test", "deleted")]
        assert w.known("other-0").leader == 2
        await w.check()


@pytest.mark.scenario(180)
async def test_a_topic_of_the_same_name_is_another_topic() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.write_isr("t-0", 1)
        first = w.controller.topics()[0]
        await w.delete("t")
        w.brokers.forget()

        await w.create("t", [[2, 1]])

        assert w.controller.topics()[0].id != first.id
        assert w.known("t-0").state is PartitionState.ONLINE
        assert await w.stored("t-0") == (2, 0, (1, 2))
        assert w.brokers.told(1) == w.brokers.told(2) == {"t-0": (2, 0, (1, 2), True)}
        assert [what for _, what in told_of_topics(w)] == ["created", "deletion started", "deleted", "created"]
        await w.check()


async def test_a_topic_made_anew_before_anybody_looks_is_another_topic() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        real = w.controller.store.delete_topics

        async def and_made_anew(topics: Mapping[str, Ints], fence: Fence) -> dict[str, StoreError]:
            failed = await real(topics, fence)
            await w.store.create_topic(TopicRef("t"), {0: Assignment((2,))}, {})
            return failed

        w.controller.store.delete_topics = and_made_anew  # type: ignore[method-assign]
        await w.delete("t")

        assert await w.stored("t-0") == (2, 0, (2,))
        assert w.known("t-0").replicas == (2,)
        await w.check()


async def test_many_topics_go_at_once_and_the_brokers_hear_of_all_in_one_request() -> None:
    async with world(1, 2, 3) as w:
        names = [f"t{number}" for number in range(20)]
        for name in names:
            await w.create(name, [[1, 2], [2, 3], [3, 1]])
        w.brokers.silent.add(3)
        for name in names:
            await w.store.mark_deletion(name)
        await settle()
        w.brokers.silent.discard(3)
        await w.clock.advance(1000)

        assert await w.store.topics() == []
        assert w.controller.snapshot().topics == 0
        # The first mark may be handled alone; those that are set meanwhile are handled together.
        assert len([each for each in w.brokers.of(1, StopReplica) if isinstance(each, StopReplica)]) < len(names)
        assert sorted(deletions(w, 1)) == sorted(f"{name}-{at}" for name in names for at in (0, 2))


async def test_a_large_topic_goes_in_three_requests_for_each_broker() -> None:
    async with world(1, 2, 3, chunk_partitions=10_000) as w:
        await w.create("big", [[1, 2, 3]] * 10_000)
        w.brokers.forget()

        await w.delete("big")

        assert await is_gone(w, "big")
        for broker in (1, 2, 3):
            kinds = [type(request).__name__ for request in w.brokers.of(broker)]
            assert kinds == ["UpdateMetadata", "StopReplica", "StopReplica"]
            assert len(deletions(w, broker)) == 10_000


# -- brokers are missing -----------------------------------------------------------------------------------------------


@pytest.mark.scenario(174)
async def test_a_deletion_waits_for_a_broker_that_is_down() -> None:
    async with world(1, 2, 3) as w:
        await w.create("test", [[1, 2, 3]])
        await w.stop(3)

        await w.delete("test")

        assert deletions(w, 1) == deletions(w, 2) == ["test-0"]
        assert await waits(w, "test")
        assert halts(w.controller, "test") == [BlockerReason.OFFLINE_REPLICAS]
        waiting = w.controller.deletions()
        assert [(each.topic, each.started, each.replicas, each.replicas_left) for each in waiting] == [
            ("test", True, 3, 1)
        ]
        assert waiting[0].halts[0].text == "replicas of partition 0 on broker 3 are offline"
        assert "start broker 3" in waiting[0].halts[0].remedy()

        await w.start(3)

        assert deletions(w, 3) == ["test-0"]
        assert await is_gone(w, "test")
        assert w.controller.deletions() == []


async def test_a_partition_stops_counting_as_offline_when_its_deletion_begins_and_not_before() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2], [2, 3]])
        assert await reassign(w, {"t-1": (2, 1)}) == [ErrorCode.NONE]
        await w.stop(1, 2)
        assert w.controller.snapshot().offline_partitions == 1

        await w.delete("t")
        # The reassignment halts it: its partitions are what they were.
        assert w.controller.snapshot().offline_partitions == 1
        w.brokers.silent.add(3)
        await w.start(1, 2)
        await w.check()
        assert w.controller.deletions()[0].started
        assert w.controller.snapshot().offline_partitions == 0

        w.brokers.silent.discard(3)
        await w.clock.advance(1_000)
        assert await is_gone(w, "t")
        assert w.controller.snapshot().offline_partitions == 0


@pytest.mark.parametrize("broker", [1, 2])
async def test_a_broker_that_dies_before_it_answers_is_told_again_when_it_is_back(broker: int) -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2], [2, 3]])
        w.brokers.silent.add(broker)
        await w.delete("t")
        await w.stop(broker)

        assert await waits(w, "t")
        assert halts(w.controller, "t") == [BlockerReason.REPLICA_FAILED]
        await keep_alive(w, 5_000)
        assert deletions(w, broker) == []

        w.brokers.silent.discard(broker)
        await w.start(broker)

        assert await is_gone(w, "t")
        assert set(deletions(w, broker)) == {
            name for name, held in (("t-0", (1, 2)), ("t-1", (2, 3))) if broker in held
        }
        await w.check()


async def test_a_broker_that_bounces_before_it_answers_is_told_again() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.silent.add(2)
        await w.delete("t")
        session = w.sessions.pop(2)

        # Both at once: the registration ends, and another begins.
        await session.close()
        w.brokers.silent.discard(2)
        await w.start(2)

        assert await is_gone(w, "t")


@pytest.mark.scenario(189)
async def test_a_broker_that_cannot_delete_halts_the_topic_until_it_restarts() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2], [2, 1]])
        w.brokers.undeletable[2] = {"t-1": ErrorCode.KAFKA_STORAGE_ERROR}
        await w.delete("t")
        w.brokers.undeletable.clear()
        w.brokers.forget()

        for _ in range(1_000):
            await keep_alive(w, HOUR_MS / 1_000)

        assert await waits(w, "t")
        assert halts(w.controller, "t") == [BlockerReason.REPLICA_FAILED]
        assert w.brokers.of(1, StopReplica) == w.brokers.of(2, StopReplica) == []

        await w.start(2)

        assert await is_gone(w, "t")
        # What broker 1 has deleted is not deleted a second time.
        assert deletions(w, 1) == []


async def test_orders_that_a_channel_dropped_are_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kactl.actors.channel.QUEUE_LIMIT", 8)
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.silent.add(2)
        await w.delete("t")
        for number in range(8):  # until the queue to broker 2 is full, and dropped
            await w.create(f"u{number}", [[1]])
        assert await waits(w, "t")

        w.brokers.silent.discard(2)
        await w.clock.advance(1_000)

        assert deletions(w, 2)[-1:] == ["t-0"]
        assert await is_gone(w, "t")


async def test_orders_to_an_address_that_is_no_more_are_given_again_at_the_new_one() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.silent.add(2)
        await w.delete("t")
        w.brokers.silent.discard(2)
        registered, session = w.store.state.brokers[2]
        moved = msgspec.structs.replace(registered, endpoints=(Endpoint("I", "elsewhere", 9092),))
        w.store.state.brokers[2] = (moved, session)
        w.controller.loop.ref.tell(BrokerModified(2))
        await settle()

        assert await is_gone(w, "t")


# -- the controller moves ----------------------------------------------------------------------------------------------


@pytest.mark.scenario(175)
async def test_the_next_controller_goes_on_and_waits_for_whoever_is_missing() -> None:
    async with world(1, 2, 3) as w:
        await w.create("test", [[1, 2, 3]])
        await w.stop(3)
        await w.delete("test")
        assert deletions(w, 1) == ["test-0"]
        await step_down(w)
        second, told = open_standby(w, 200)
        async with second:
            await settle()

            assert second.is_active
            assert await waits(w, "test")
            assert halts(second, "test") == [BlockerReason.OFFLINE_REPLICAS]
            assert told.of(1, StopReplica) == told.of(2, StopReplica) == []

            await w.start(3)
            await settle()

            assert await is_gone(w, "test")
            # It knows nothing of what was done, and has all of it done again.
            for broker in (1, 2, 3):
                assert any(request.delete.all() for request in told.of(broker, StopReplica))  # type: ignore[union-attr]


@pytest.mark.scenario(196)
async def test_a_controller_that_finds_a_broker_missing_does_not_begin_to_delete() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await step_down(w)
        await w.stop(2)
        await w.delete("t")
        second, told = open_standby(w, 200)
        async with second:
            await settle()

            assert second.cluster.topics_to_delete == {"t"}
            assert halts(second, "t") == [BlockerReason.OFFLINE_REPLICAS]
            assert second.cluster.deletion_started == set()
            asked = [request for _, request in told.sent if isinstance(request, StopReplica)]
            assert not any(request.delete.any() for request in asked)


async def test_a_controller_finishes_what_the_one_before_left_half_done_in_the_store() -> None:
    async with world(1) as w:
        await w.create("t", [[1]], {"retention.ms": "1"})
        await step_down(w)
        await w.delete("t")
        w.store.state.delete_topic("t")  # the entry and the overrides are gone, the mark is not
        await w.store.set_topic_config("t", {"retention.ms": "1"})
        assert await w.store.topics() == []
        second, _ = open_standby(w, 200)
        async with second:
            await settle()

            assert second.is_active
            assert await is_gone(w, "t")


async def test_a_controller_that_has_been_followed_deletes_nothing_more() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.silent.add(2)
        await w.delete("t")
        fence = await w.store.contest(200, take_over=True)
        w.brokers.silent.discard(2)
        await w.clock.advance(1_000)

        assert fence.epoch > 1
        assert not w.controller.is_active
        assert await waits(w, "t")


@pytest.mark.scenario(188)
async def test_an_answer_that_finds_no_controller_is_passed_over() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])
        w.brokers.silent.add(1)
        await w.delete("t")
        second, told = open_standby(w, 200)
        async with second:
            await settle()
            zero = np.zeros(1, np.int32)
            said = PartitionErrors(("t",), zero, zero, np.zeros(1, np.int16))
            epoch = w.controller.cluster.brokers[1].epoch
            second.loop.ref.tell(ReplicasDeleted(1, epoch, StopReplicaResponse(0, said)))
            await settle()

            assert not second.is_active
            assert told.sent == []
            assert second.cluster.topics_to_delete == set()
            assert second.history.seq == second.history.oldest - 1
        assert await waits(w, "t")
        assert w.known("t-0").replica_states[1].name == "DELETION_STARTED"


# -- reassignments -----------------------------------------------------------------------------------------------------


@pytest.mark.scenario(176)
async def test_a_topic_that_is_being_deleted_is_not_reassigned() -> None:
    async with world(1, 2, 3, 4) as w:
        await w.create("test", [[1, 2, 3]])
        await w.stop(3)
        await w.delete("test")

        assert await reassign(w, {"test-0": (1, 2, 4)}) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

        await w.start(3)
        assert await is_gone(w, "test")


@pytest.mark.scenario(194)
async def test_a_deletion_begins_when_the_reassignment_is_complete() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2], [2, 1]])
        assert await reassign(w, {"t-0": (1, 3)}) == [ErrorCode.NONE]
        w.brokers.forget()

        await w.delete("t")

        assert w.controller.cluster.topics_to_delete == {"t"}
        assert halts(w.controller, "t") == [BlockerReason.REASSIGNMENT]
        assert w.controller.cluster.deletion_ineligible["t"][0].partitions == (0,)
        assert [request for _, request in w.brokers.sent if isinstance(request, StopReplica)] == []

        await w.write_isr("t-0", 1, 2, 3)

        assert await is_gone(w, "t")
        assert deletions(w, 3) == ["t-0"]


async def test_a_reassignment_that_can_never_be_complete_does_not_halt_the_deletion_for_ever() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2]])
        await w.write_isr("t-0", 1)
        assert await reassign(w, {"t-0": (2, 3)}) == [ErrorCode.NONE]
        await w.delete("t")
        await step_down(w)
        await w.stop(1)
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            # Nobody is elected for a topic that is to go, and so nobody will ever come into sync.
            assert (await w.stored("t-0"))[::2] == (-1, (1,))
            assert BlockerReason.OFFLINE_REPLICAS in halts(second, "t")

            await w.start(1)
            await settle()

            assert await is_gone(w, "t")


async def test_a_controller_does_not_wait_for_a_reassignment_that_nobody_leads() -> None:
    """Who takes over finds all brokers alive, and so hears of none that starts: no halt would ever be lifted."""
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2]])
        await w.write_isr("t-0", 1)
        assert await reassign(w, {"t-0": (2, 3)}) == [ErrorCode.NONE]
        await w.delete("t")
        await w.stop(1)
        assert (await w.stored("t-0"))[::2] == (1, (1,))
        await step_down(w)
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            assert (await w.stored("t-0"))[::2] == (-1, (1,))
            second.loop.controllership.stopping = True
            await second.resign()
            await settle()
        await w.start(1)
        assert await waits(w, "t")
        third, _ = open_standby(w, 201)
        async with third:
            await settle()

            assert await is_gone(w, "t")
            assert await third.reassignments() == {}


@pytest.mark.scenario(195)
async def test_the_next_controller_moves_first_and_deletes_then() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2]])
        assert await reassign(w, {"t-0": (1, 3)}) == [ErrorCode.NONE]
        await step_down(w)
        await w.delete("t")
        second, told = open_standby(w, 200)
        async with second:
            await settle()

            assert second.cluster.topics_to_delete == {"t"}
            assert halts(second, "t") == [BlockerReason.REASSIGNMENT]
            assert second.cluster.deletion_started == set()
            assert told.of(3)
            assert [request for _, request in told.sent if isinstance(request, StopReplica)] == []

            await w.write_isr("t-0", 1, 2, 3)
            await settle()

            assert await is_gone(w, "t")


# -- growth ------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(177)
async def test_partitions_added_to_a_topic_whose_deletion_is_halted_never_live() -> None:
    async with world(1, 2, 3) as w:
        await w.create("test", [[1, 2, 3]])
        await w.stop(3)
        await w.delete("test")
        assert {state.name for state in w.known("test-0").replica_states.values()} == {"DELETION_SUCCESSFUL", "OFFLINE"}

        await w.grow("test", (1, 2))

        assert w.controller.partition("test-1") is None
        stored = dict((await w.store.assignments(["test"])).items())
        assert [(name.partition, held.replicas) for name, held in stored.items()] == [(0, (1, 2, 3))]
        await step_down(w)
        second, told = open_standby(w, 200)
        async with second:
            await settle()
            await w.start(3)
            await settle()

            assert await is_gone(w, "test")
            named = {name for _, request in told.sent for name in partitions_of(request)}
            assert named == {"test-0"}


@pytest.mark.scenario(178)
async def test_partitions_added_before_the_deletion_go_with_the_others() -> None:
    async with world(1, 2, 3) as w:
        await w.create("test", [[1, 2, 3]])
        await w.stop(3)
        await w.grow("test", (2, 3))
        assert w.known("test-1").leader == 2

        await w.delete("test")
        await w.start(3)

        assert await is_gone(w, "test")
        assert sorted(deletions(w, 3)) == ["test-0", "test-1"]


@pytest.mark.scenario(179)
async def test_partitions_added_to_a_topic_that_is_being_deleted_are_taken_out_again() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.silent.add(2)
        await w.delete("t")

        await w.grow("t", (2, 1), (1, 2))

        assert w.controller.partition("t-1") is None
        stored = dict((await w.store.assignments(["t"])).items())
        assert [name.partition for name in stored] == [0]
        w.brokers.silent.discard(2)
        await w.clock.advance(1_000)
        assert await is_gone(w, "t")
        assert set(deletions(w, 1) + deletions(w, 2)) == {"t-0"}


# -- on request --------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(182)
async def test_a_topic_is_deleted_once() -> None:
    async with world(1, 2) as w:
        await w.create("test", [[1, 2]])
        w.brokers.silent.add(2)
        ref = await w.controller.delete_topic("test", timeout_ms=0)
        assert ref == w.controller.topics()[0]

        with pytest.raises(BeingDeleted):
            await w.controller.delete_topic("test")
        with pytest.raises(BeingDeleted):
            await w.store.mark_deletion("test")

        w.brokers.silent.discard(2)
        await w.clock.advance(1_000)
        assert await is_gone(w, "test")
        with pytest.raises(NotFound):
            await w.controller.delete_topic("test")


async def test_a_topic_that_is_only_marked_yet_is_being_deleted() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])
        # Both wait before the first is handled, and so before anybody hears of its mark.
        first = asyncio.ensure_future(w.controller.ask(TopicDeletionRequested("t")))
        second = asyncio.ensure_future(w.controller.ask(TopicDeletionRequested("t")))

        assert (await first).name == "t"
        with pytest.raises(BeingDeleted, match="'t' is being deleted"):
            await second
        await settle()
        assert await is_gone(w, "t")


async def test_a_dry_run_says_what_would_be_and_marks_nothing() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])

        assert (await w.controller.delete_topic("t", dry_run=True)).name == "t"
        with pytest.raises(NotFound):
            await w.controller.delete_topic("u", dry_run=True)

        await settle()
        assert await w.store.deletions() == []
        assert w.known("t-0").leader == 1


async def test_a_controller_that_was_told_not_to_delete_does_not() -> None:
    async with world(1, delete_topics=False) as w:
        await w.create("t", [[1]])

        with pytest.raises(TopicDeletionDisabled):
            await w.controller.delete_topic("t")
        await w.delete("t")

        assert await w.store.deletions() == []
        assert w.known("t-0").leader == 1


async def test_a_controller_that_was_told_not_to_delete_takes_over_without_the_marks() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])
        await step_down(w)
        await w.store.mark_deletion("t")
        second, told = open_standby(w, 200, delete_topics=False)
        async with second:
            await settle()

            assert await w.store.deletions() == []
            assert second.deletions() == []
            assert told.of(1, StopReplica) == []


async def test_only_the_controller_is_asked_to_delete() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            with pytest.raises(NotController):
                await second.delete_topic("t")
