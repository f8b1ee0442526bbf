"""Topic deletion in a cluster: broker and controller failures in between, and complete removal at the end."""

import asyncio
from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from kactl.actors.system import Controller
from kactl.decide.messages.admin import DeleteTopic
from kactl.decide.messages.control import PartitionErrors, StopReplica, StopReplicaResponse
from kactl.decide.messages.events import BrokerModifications, TopicDeletionStopReplicaResponseReceived
from kactl.decide.messages.log import TopicEvent
from kactl.decide.state.deletion_blockers import BlockerReason
from kactl.decide.state.rows import Ints
from kactl.model import Assignment, Endpoint, Fence, PartitionState, TopicRef
from kactl.model.errors import BeingDeleted, ErrorCode, NotController, NotFound, StoreError, TopicDeletionDisabled
from tests.support.clocks import settle
from tests.support.controller_harness import World, open_standby, partitions_of, world

from .reassignment_helpers import reassign

pytestmark = pytest.mark.anyio

HOUR_MS = 3_600_000


async def is_gone(w: World, topic: str) -> bool:
    """Assert that nothing of a topic is stored: no assignment, leadership, overrides or mark."""
    return (
        topic not in await w.store.topics()
        and await w.store.partitions_begun(topic) == []
        and await w.store.topic_configs([topic]) == {topic: {}}
        and topic not in await w.store.deletions()
    )


async def waits(w: World, topic: str) -> bool:
    """Assert that a topic exists and is marked."""
    return topic in await w.store.topics() and topic in await w.store.deletions()


def deletions(w: World, broker: int) -> list[str]:
    """Returns the partitions that a broker was told to delete, in order."""
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
    """Advance the clock and keep the brokers' sessions alive."""
    for session in w.sessions.values():
        await session.keep_alive()
    await w.clock.advance(delay_ms)


async def step_down(w: World) -> None:
    """The controller resigns and does not contest again."""
    w.controller.loop.controllership.stopping = True
    await w.controller.resign()
    await settle()


# -- complete deletion -------------------------------------------------------------------------------------------------


@pytest.mark.scenario(173)
async def test_deleted_topic_leaves_no_state() -> None:
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
async def test_recreated_topic_is_another_topic() -> None:
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


async def test_topic_recreated_before_the_next_read_is_another_topic() -> None:
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


async def test_many_topics_are_deleted_with_one_request_per_broker() -> None:
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
        # The first mark may be handled alone; the marks set meanwhile are handled together.
        assert len([each for each in w.brokers.of(1, StopReplica) if isinstance(each, StopReplica)]) < len(names)
        assert sorted(deletions(w, 1)) == sorted(f"{name}-{at}" for name in names for at in (0, 2))


async def test_large_topic_is_deleted_with_three_requests_per_broker() -> None:
    async with world(1, 2, 3, chunk_partitions=10_000) as w:
        await w.create("big", [[1, 2, 3]] * 10_000)
        w.brokers.forget()

        await w.delete("big")

        assert await is_gone(w, "big")
        for broker in (1, 2, 3):
            kinds = [type(request).__name__ for request in w.brokers.of(broker)]
            assert kinds == ["UpdateMetadata", "StopReplica", "StopReplica"]
            assert len(deletions(w, broker)) == 10_000


# -- absent brokers ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario(174)
async def test_deletion_waits_for_an_offline_broker() -> None:
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


async def test_offline_count_excludes_a_partition_once_its_deletion_begins() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2], [2, 3]])
        assert await reassign(w, {"t-1": (2, 1)}) == [ErrorCode.NONE]
        await w.stop(1, 2)
        assert w.controller.snapshot().offline_partitions == 1

        await w.delete("t")
        # The reassignment blocks it: its partitions are unchanged.
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
async def test_deletion_is_sent_again_to_a_restarted_broker(broker: int) -> None:
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


async def test_deletion_is_sent_again_to_a_bounced_broker() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.silent.add(2)
        await w.delete("t")
        session = w.sessions.pop(2)

        # The registration ends and another begins in one step.
        await session.close()
        w.brokers.silent.discard(2)
        await w.start(2)

        assert await is_gone(w, "t")


@pytest.mark.scenario(189)
async def test_broker_that_cannot_delete_blocks_the_topic_until_restart() -> None:
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
        # Replicas that broker 1 has deleted are not deleted again.
        assert deletions(w, 1) == []


async def test_deletions_dropped_by_a_channel_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kactl.actors.channel.QUEUE_LIMIT", 8)
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.silent.add(2)
        await w.delete("t")
        for number in range(8):  # until the queue of broker 2 is full and is dropped
            await w.create(f"u{number}", [[1]])
        assert await waits(w, "t")

        w.brokers.silent.discard(2)
        await w.clock.advance(1_000)

        assert deletions(w, 2)[-1:] == ["t-0"]
        assert await is_gone(w, "t")


async def test_deletions_are_sent_again_to_a_new_address() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.silent.add(2)
        await w.delete("t")
        w.brokers.silent.discard(2)
        registered, session = w.store.state.brokers[2]
        moved = msgspec.structs.replace(registered, endpoints=(Endpoint("I", "elsewhere", 9092),))
        w.store.state.brokers[2] = (moved, session)
        w.controller.loop.ref.tell(BrokerModifications(2))
        await settle()

        assert await is_gone(w, "t")


# -- controller failover -----------------------------------------------------------------------------------------------


@pytest.mark.scenario(175)
async def test_next_controller_continues_and_waits_for_absent_brokers() -> None:
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
            # It has no record of the progress and repeats everything.
            for broker in (1, 2, 3):
                assert any(request.delete.all() for request in told.of(broker, StopReplica))  # type: ignore[union-attr]


@pytest.mark.scenario(196)
async def test_takeover_with_an_absent_broker_does_not_start_deleting() -> None:
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


async def test_next_controller_finishes_a_partial_deletion_in_the_store() -> None:
    async with world(1) as w:
        await w.create("t", [[1]], {"retention.ms": "1"})
        await step_down(w)
        await w.delete("t")
        w.store.state.delete_topic("t")  # the assignment and the overrides are deleted, the mark is not
        await w.store.set_topic_config("t", {"retention.ms": "1"})
        assert await w.store.topics() == []
        second, _ = open_standby(w, 200)
        async with second:
            await settle()

            assert second.is_active
            assert await is_gone(w, "t")


async def test_deposed_controller_deletes_nothing_more() -> None:
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
async def test_response_without_an_active_controller_is_ignored() -> None:
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
            second.loop.ref.tell(TopicDeletionStopReplicaResponseReceived(1, epoch, StopReplicaResponse(0, said)))
            await settle()

            assert not second.is_active
            assert told.sent == []
            assert second.cluster.topics_to_delete == set()
            assert second.history.seq == second.history.oldest - 1
        assert await waits(w, "t")
        assert w.known("t-0").replica_states[1].name == "DELETION_STARTED"


# -- reassignments -----------------------------------------------------------------------------------------------------


@pytest.mark.scenario(176)
async def test_topic_in_deletion_is_not_reassigned() -> None:
    async with world(1, 2, 3, 4) as w:
        await w.create("test", [[1, 2, 3]])
        await w.stop(3)
        await w.delete("test")

        assert await reassign(w, {"test-0": (1, 2, 4)}) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

        await w.start(3)
        assert await is_gone(w, "test")


@pytest.mark.scenario(194)
async def test_deletion_begins_after_the_reassignment() -> None:
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


async def test_endless_reassignment_does_not_block_the_deletion() -> None:
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
            # No leader is elected for a topic in deletion, so that no replica can get in sync.
            assert (await w.stored("t-0"))[::2] == (-1, (1,))
            assert BlockerReason.OFFLINE_REPLICAS in halts(second, "t")

            await w.start(1)
            await settle()

            assert await is_gone(w, "t")


async def test_takeover_ignores_a_reassignment_without_a_leader() -> None:
    """At takeover all brokers are live, so that no broker startup would remove the blocker."""
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
async def test_next_controller_reassigns_before_it_deletes() -> None:
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


# -- partition expansion -----------------------------------------------------------------------------------------------


@pytest.mark.scenario(177)
async def test_partitions_added_to_a_blocked_deletion_are_not_created() -> None:
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
async def test_partitions_added_before_the_deletion_are_deleted_too() -> None:
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
async def test_partitions_added_during_the_deletion_are_removed() -> None:
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
async def test_second_deletion_request_is_rejected() -> None:
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


async def test_marked_topic_counts_as_in_deletion() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])
        # Both requests are queued before the first is handled, so before the mark is read.
        first = asyncio.ensure_future(w.controller.ask(DeleteTopic("t")))
        second = asyncio.ensure_future(w.controller.ask(DeleteTopic("t")))

        assert (await first).name == "t"
        with pytest.raises(BeingDeleted, match="'t' is being deleted"):
            await second
        await settle()
        assert await is_gone(w, "t")


async def test_dry_run_returns_results_and_marks_nothing() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])

        assert (await w.controller.delete_topic("t", dry_run=True)).name == "t"
        with pytest.raises(NotFound):
            await w.controller.delete_topic("u", dry_run=True)

        await settle()
        assert await w.store.deletions() == []
        assert w.known("t-0").leader == 1


async def test_disabled_deletion_deletes_nothing() -> None:
    async with world(1, delete_topics=False) as w:
        await w.create("t", [[1]])

        with pytest.raises(TopicDeletionDisabled):
            await w.controller.delete_topic("t")
        await w.delete("t")

        assert await w.store.deletions() == []
        assert w.known("t-0").leader == 1


async def test_takeover_with_disabled_deletion_removes_marks() -> None:
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


async def test_inactive_controller_rejects_deletions() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            with pytest.raises(NotController):
                await second.delete_topic("t")
