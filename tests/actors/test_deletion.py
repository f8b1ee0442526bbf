"""Topic deletion step by step: start, blockers, and resumption."""

import logging
from collections.abc import AsyncIterator

import pytest

from kactl.actors.machines.machine import Move, MoveReplicas
from kactl.decide.messages.events import TopicDeletion
from kactl.decide.state.deletion_blockers import BlockerReason, DeletionBlocker
from kactl.model import PartitionState, ReplicaState, TopicPartition
from kactl.model.errors import ErrorCode, StoreUnavailable
from kactl.stores.base import Names
from tests.actors.deletion_bench import BROKERS, DeletionBench, open_deletion_bench
from tests.support.cluster_seeds import led
from tests.support.machine_harness import SentStop
from tests.support.scripted_store import after, fails

pytestmark = pytest.mark.anyio

STARTED, SUCCESSFUL, INELIGIBLE = {"DELETION_STARTED"}, {"DELETION_SUCCESSFUL"}, {"DELETION_INELIGIBLE"}
OFFLINE, ONLINE = {"OFFLINE"}, {"ONLINE"}


# -- queue and start ---------------------------------------------------------------------------------------------------


@pytest.mark.scenario(162)
async def test_startup_queues_marked_topics_and_blocks_only_those() -> None:
    async with open_deletion_bench("foo", "bar", "baz") as b:
        b.cluster.reassigning |= {TopicPartition("bar", 0), TopicPartition("baz", 1)}

        await b.deletion.init(["bar", "foo"])

        assert b.queued == {"foo", "bar"}
        assert b.halted == {"bar": ["REASSIGNMENT"]}
        assert b.asked == []


@pytest.mark.scenario(163)
async def test_queued_topics_start_together() -> None:
    async with open_deletion_bench("foo", "bar") as b:
        await b.delete("foo", "bar")

        assert b.partitions("foo", "bar") == {"ABSENT"}
        assert b.replicas("foo") == b.replicas("bar") == dict.fromkeys(BROKERS, STARTED)
        told = [flush for flush in b.outbox.flushes if flush.metadata]
        assert len(told) == 1
        assert told[0].metadata.keys() == set(BROKERS)
        assert told[0].metadata[1].keys() == {"bar-0", "bar-1", "foo-0", "foo-1"}
        assert b.queued == b.started == {"foo", "bar"}
        assert b.halted == {}


@pytest.mark.scenario(164)
@pytest.mark.scenario(165)
async def test_deleted_replicas_complete_their_topics_with_one_move_each() -> None:
    async with open_deletion_bench("foo", "bar") as b:
        await b.delete("foo", "bar")

        await b.deletion.complete_replica_deletion(b.rows("foo", "bar"), frozenset(BROKERS))

        assert len(b.cluster.table) == 0
        assert b.queued == b.started == set()
        assert b.halted == {}
        assert await b.store.real.topics() == []
        assert b.moves(Move) == ["OFFLINE", "ABSENT"]
        # No replica is offline, so that none becomes ineligible. One move for both topics.
        assert b.moves(MoveReplicas) == ["OFFLINE", "DELETION_STARTED", "DELETION_SUCCESSFUL", "ABSENT"]
        assert b.moves(MoveReplicas, none_too=True)[0] == "DELETION_INELIGIBLE"
        assert b.stories == [
            ("bar", "deletion started"), ("foo", "deletion started"), ("bar", "deleted"), ("foo", "deleted"),
        ]  # fmt: skip


@pytest.mark.scenario(193)
async def test_partitions_stop_before_metadata_and_replicas_are_removed() -> None:
    async with open_deletion_bench("foo") as b:
        await b.delete("foo")

        stop, metadata, halt, delete = b.asked[:2], *[flush for flush in b.outbox.flushes if flush.requests]
        assert [each.target for each in stop] == [PartitionState.OFFLINE, PartitionState.ABSENT]
        for broker in BROKERS:
            told = metadata.metadata[broker]
            assert {(said.leader, said.leader_epoch, said.version) for said in told.values()} == {(-2, 0, 0)}
            assert told["foo-1"].isr == (2, 3, 1)
        assert metadata.kinds == ["UpdateMetadata"]
        for flush, deleted in ((halt, False), (delete, True)):
            assert flush.kinds == ["StopReplica"]
            expected = dict.fromkeys(("foo-0", "foo-1"), SentStop(leader_epoch=-2, delete=deleted))
            assert flush.stop == dict.fromkeys(BROKERS, expected)
        # In Kafka all replicas that can leave the ISR do so with one write each, and the last one stays: -1, epoch 3,
        # [3].
        assert "commit" not in [call.kind for call in b.store.calls]
        stored = await b.store.real.leaderships(Names.of([TopicPartition("foo", 0), TopicPartition("foo", 1)]))
        assert [stored.one(0), stored.one(1)] == [led(1, 0, [1, 2, 3], 0), led(2, 0, [2, 3, 1], 0)]


# -- blockers ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def one_dead() -> AsyncIterator[DeletionBench]:
    """Broker 2 failed before foo was marked for deletion."""
    async with open_deletion_bench("foo") as b:
        await b.fail(2)
        assert b.replicas("foo") == {1: ONLINE, 2: OFFLINE, 3: ONLINE}
        await b.delete("foo")
        yield b


@pytest.mark.scenario(166)
async def test_dead_replica_blocks_the_topic_after_the_live_ones_started(one_dead: DeletionBench) -> None:
    assert one_dead.partitions("foo") == {"ABSENT"}
    assert one_dead.replicas("foo") == {1: STARTED, 2: INELIGIBLE, 3: STARTED}
    assert one_dead.queued == one_dead.started == {"foo"}
    assert one_dead.cluster.deletion_ineligible == {
        "foo": (DeletionBlocker(BlockerReason.OFFLINE_REPLICAS, (2,), (0, 1)),)
    }
    assert one_dead.stories == [("foo", "deletion started"), ("foo", "deletion halted")]


@pytest.mark.scenario(167)
async def test_ineligible_replicas_are_reset_while_the_topic_is_blocked(one_dead: DeletionBench) -> None:
    await one_dead.deleted("foo", 1, 3)

    assert one_dead.replicas("foo") == {1: SUCCESSFUL, 2: OFFLINE, 3: SUCCESSFUL}
    assert one_dead.queued == one_dead.started == {"foo"}
    assert one_dead.halted == {"foo": ["OFFLINE_REPLICAS"]}


@pytest.mark.scenario(168)
@pytest.mark.scenario(169)
async def test_returned_broker_unblocks_the_topic(one_dead: DeletionBench) -> None:
    await one_dead.deleted("foo", 1, 3)
    one_dead.live(2, epoch=2)

    await one_dead.deletion.resume_for({"foo"})

    assert one_dead.replicas("foo") == {1: SUCCESSFUL, 2: STARTED, 3: SUCCESSFUL}
    assert one_dead.halted == {}

    await one_dead.deleted("foo", 2)

    assert len(one_dead.cluster.table) == 0
    assert one_dead.queued == one_dead.started == set()
    assert one_dead.halted == {}
    assert await one_dead.store.real.deletions() == []


@pytest.fixture
async def dies_meanwhile() -> AsyncIterator[DeletionBench]:
    """Broker 2 fails after the deletion of foo has started."""
    async with open_deletion_bench("foo") as b:
        await b.delete("foo")
        b.cluster.remove_brokers([2])
        await b.undeleted("foo", 2)
        yield b


@pytest.mark.scenario(170)
async def test_failed_replica_blocks_the_topic_and_waits_for_the_others(dies_meanwhile: DeletionBench) -> None:
    assert dies_meanwhile.replicas("foo") == {1: STARTED, 2: INELIGIBLE, 3: STARTED}
    assert dies_meanwhile.queued == dies_meanwhile.started == {"foo"}
    assert dies_meanwhile.cluster.deletion_ineligible == {
        "foo": (DeletionBlocker(BlockerReason.REPLICA_FAILED, (2,), (0, 1)),)
    }


@pytest.mark.scenario(171)
@pytest.mark.scenario(172)
async def test_replica_is_retried_once_no_deletion_is_in_flight(dies_meanwhile: DeletionBench) -> None:
    dies_meanwhile.live(2, epoch=2)

    await dies_meanwhile.deletion.resume_for({"foo"})

    assert dies_meanwhile.halted == {}
    assert dies_meanwhile.replicas("foo") == {1: STARTED, 2: INELIGIBLE, 3: STARTED}

    await dies_meanwhile.deleted("foo", 1, 3)

    assert dies_meanwhile.replicas("foo") == {1: SUCCESSFUL, 2: STARTED, 3: SUCCESSFUL}


async def test_started_broker_unblocks_only_its_own_topics() -> None:
    async with open_deletion_bench("foo") as b:
        await b.put("far-0", [8, 9])
        await b.delete("foo", "far")
        await b.fail(2)
        b.live(2, epoch=2)
        assert b.halted.keys() == {"foo", "far"}

        await b.deletion.resume_on(frozenset({2}))

        assert b.halted == {"far": ["OFFLINE_REPLICAS"]}


async def test_topic_is_blocked_until_all_reasons_are_removed() -> None:
    async with open_deletion_bench("foo") as b:
        b.cluster.reassigning.add(TopicPartition("foo", 1))
        await b.delete("foo")
        await b.fail(3)

        halts = b.cluster.deletion_ineligible["foo"]
        assert halts == (
            DeletionBlocker(BlockerReason.REASSIGNMENT, (), (1,)),
            DeletionBlocker(BlockerReason.REPLICA_FAILED, (3,), (0, 1)),
        )
        assert [halt.text for halt in halts] == [
            "partition 1 is being reassigned",
            "broker 3 failed during the deletion of replicas of partitions 0, 1",
        ]

        await b.deletion.resume_for(["foo"])

        # A removed reason that still applies is found again by the start that follows.
        assert b.halted == {"foo": ["OFFLINE_REPLICAS"]}
        assert b.replicas("foo") == {1: STARTED, 2: STARTED, 3: ONLINE}


# -- responses of brokers ----------------------------------------------------------------------------------------------


@pytest.mark.scenario(186)
async def test_top_level_error_deletes_no_replica() -> None:
    async with open_deletion_bench("foo") as b:
        await b.delete("foo")
        b.forget()

        await b.answers(2, {"foo-0": 0, "foo-1": 0}, error=ErrorCode.UNKNOWN_SERVER_ERROR)

        assert b.replicas("foo") == {1: STARTED, 2: INELIGIBLE, 3: STARTED}
        assert b.cluster.deletion_ineligible == {
            "foo": (DeletionBlocker(BlockerReason.REPLICA_FAILED, (2,), (0, 1), -1),)
        }
        assert b.moves(MoveReplicas) == ["DELETION_INELIGIBLE"]


@pytest.mark.scenario(187)
async def test_response_is_evaluated_per_partition() -> None:
    async with open_deletion_bench("foo") as b:
        await b.delete("foo")

        await b.answers(2, {"foo-0": 0, "foo-1": ErrorCode.KAFKA_STORAGE_ERROR})

        states = [b.cluster.table.view(row).replica_states[2] for row in b.rows("foo").tolist()]
        assert states == [ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE]
        assert b.cluster.deletion_ineligible == {
            "foo": (DeletionBlocker(BlockerReason.REPLICA_FAILED, (2,), (1,), 56),)
        }
        assert b.cluster.deletion_ineligible["foo"][0].text == (
            "broker 2 failed to delete replicas of partition 1: KAFKA_STORAGE_ERROR (56)"
        )


async def test_response_of_an_ended_registration_is_ignored() -> None:
    async with open_deletion_bench("foo") as b:
        await b.delete("foo")

        await b.answers(3, {"foo-0": 0, "foo-1": 0}, epoch=b.cluster.brokers[3].epoch - 1)
        await b.answers(9, {"foo-0": 0, "foo-1": 0}, epoch=1)

        assert b.replicas("foo") == dict.fromkeys(BROKERS, STARTED)


async def test_response_for_a_deleted_topic_is_ignored() -> None:
    async with open_deletion_bench("foo") as b:
        await b.delete("foo")

        await b.answers(3, {"foo-7": 0, "gone-0": ErrorCode.KAFKA_STORAGE_ERROR})

        assert b.replicas("foo") == dict.fromkeys(BROKERS, STARTED)
        assert b.halted == {}


# -- brokers fail ------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(190)
async def test_broker_failure_keeps_replicas_whose_deletion_has_not_begun(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_deletion_bench("foo") as b:
        b.cluster.reassigning.add(TopicPartition("foo", 0))
        await b.delete("foo")
        assert b.started == set()
        caplog.clear()

        await b.fail(2)

        assert b.replicas("foo") == dict.fromkeys(BROKERS, ONLINE)
        assert b.halted == {"foo": ["REASSIGNMENT", "REPLICA_FAILED"]}
        assert "2 replicas cannot become DELETION_INELIGIBLE: ILLEGAL_MOVE" in caplog.text
        # No other component handles the broker failure here, so the test applies it itself.
        assert b.outbox.flushes[-1].metadata == {1: {}, 3: {}}


@pytest.mark.scenario(191)
async def test_blocked_topic_completes_and_its_blocker_is_removed() -> None:
    async with open_deletion_bench("foo") as b:
        await b.delete("foo")
        await b.deleted("foo", 2)

        await b.fail(2)

        assert b.replicas("foo") == {1: STARTED, 2: SUCCESSFUL, 3: STARTED}
        assert b.halted == {"foo": ["REPLICA_FAILED"]}

        await b.deleted("foo", 1, 3)

        assert b.queued == set()
        # Kafka keeps the topic ineligible: a topic of the same name could never be deleted.
        assert b.halted == {}
        await b.put("foo-0", [1, 3])
        await b.delete("foo")
        assert b.replicas("foo") == {1: STARTED, 3: STARTED}


@pytest.mark.scenario(192)
async def test_dead_deleted_replica_blocks_a_restarted_deletion(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_deletion_bench("foo") as b:
        await b.delete("foo")
        await b.deleted("foo", 1, 2)
        await b.fail(2)
        await b.undeleted("foo", 3)
        assert b.replicas("foo") == {1: SUCCESSFUL, 2: SUCCESSFUL, 3: OFFLINE}
        caplog.clear()

        await b.deletion.resume_on(frozenset({3}))

        assert b.replicas("foo") == {1: SUCCESSFUL, 2: SUCCESSFUL, 3: STARTED}
        assert "2 replicas cannot become DELETION_INELIGIBLE: ILLEGAL_MOVE; the first: foo-1 on broker 2" in caplog.text
        assert b.halted == {"foo": ["OFFLINE_REPLICAS"]}

        await b.deleted("foo", 3)

        assert b.queued == set()


async def test_failed_directory_blocks_the_topic_like_a_broker() -> None:
    async with open_deletion_bench("foo", "bar") as b:
        await b.delete("foo")
        row = b.rows("foo")[:1]
        b.cluster.table.mark_dirs(3, row, True)

        await b.offline.replicas_offline(row, frozenset({3}))

        assert b.cluster.deletion_ineligible == {"foo": (DeletionBlocker(BlockerReason.REPLICA_FAILED, (3,), (0,)),)}
        assert b.replicas("foo") == {1: STARTED, 2: STARTED, 3: INELIGIBLE | STARTED}
        assert b.replicas("bar") == dict.fromkeys(BROKERS, ONLINE)


# -- completion --------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(184)
async def test_topic_without_replicas_completes_immediately() -> None:
    async with open_deletion_bench("bar") as b:
        await b.store.real.set_topic_config("gone", {"retention.ms": "1"})
        await b.store.real.mark_deletion("gone")

        await b.deletion.init(["gone"])
        await b.deletion.resume()

        # One call, which deletes the assignment, then the overrides, then the mark; see the store contract.
        assert [call.kind for call in b.store.calls] == ["delete_topics"]
        assert b.queued == set()
        assert await b.store.real.deletions() == []
        assert await b.store.real.topic_configs(["gone"]) == {"gone": {}}
        assert b.stories == [("gone", "deleted")]


@pytest.mark.scenario(185)
async def test_completion_removes_replicas_then_stored_then_known_state() -> None:
    async with open_deletion_bench("foo") as b:
        await b.delete("foo")
        await b.deleted("foo", 1, 2)
        seen: list[object] = []

        async def look() -> None:
            seen.append((b.replicas("foo"), b.cluster.table.topic("foo") is not None, set(b.queued)))

        b.forget()
        b.store.next("delete_topics", after(look))
        await b.deleted("foo", 3)

        gone = {1: {"ABSENT"}, 2: {"ABSENT"}, 3: {"ABSENT"}}
        assert seen in ([(gone, True, {"foo"})], [({}, True, {"foo"})])
        assert [call.kind for call in b.store.calls] == ["delete_topics"]
        assert b.cluster.table.topic("foo") is None
        assert await b.store.real.topics() == []


# -- deletion marks ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario(183)
async def test_disabled_deletion_removes_marks() -> None:
    async with open_deletion_bench("foo", delete_topics=False) as b:
        await b.store.real.mark_deletion("foo")
        await b.deletion.init(["foo"])
        assert await b.store.real.deletions() == []

        await b.store.real.mark_deletion("foo")
        await b.events.on_topic_deletion(TopicDeletion())

        assert await b.store.real.deletions() == []
        assert b.queued == set()
        assert await b.store.real.topics() == ["foo"]
        assert b.asked == []


async def test_marks_that_cannot_be_removed_are_not_reported_as_removed(caplog: pytest.LogCaptureFixture) -> None:
    async with open_deletion_bench("foo", delete_topics=False) as b:
        await b.store.real.mark_deletion("foo")
        b.store.next("unmark_deletions", fails(StoreUnavailable("the disk is full")))

        with caplog.at_level(logging.INFO), pytest.raises(StoreUnavailable):
            await b.deletion.init(["foo"])

        assert caplog.messages == []


@pytest.mark.scenario(181)
async def test_mark_of_an_unknown_topic_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    async with open_deletion_bench("foo") as b:
        await b.store.real.mark_deletion("other")

        with caplog.at_level(logging.WARNING):
            await b.events.on_topic_deletion(TopicDeletion())

        assert await b.store.real.deletions() == []
        assert b.replicas("foo") == dict.fromkeys(BROKERS, ONLINE)
        assert b.queued == set()
        assert "the topics do not exist: other" in caplog.text


@pytest.mark.scenario(197)
async def test_repeatedly_reported_topic_leaves_the_imbalance_count_once() -> None:
    async with open_deletion_bench("bar") as b:
        for topic in ("x", "y"):
            await b.put(f"{topic}-0", [1, 2])
            await b.bench.seed(f"{topic}-0", led(2, 1, [1, 2], 1))
            row = b.rows(topic)
            names = Names.of([TopicPartition(topic, 0)])
            b.cluster.put_leaderships(row, await b.store.real.leaderships(names))
            b.cluster.reassigning.add(TopicPartition(topic, 0))  # which keeps them queued
            await b.store.real.mark_deletion(topic)
        assert b.cluster.imbalance_count == 2

        for _ in range(3):
            await b.events.on_topic_deletion(TopicDeletion())

            assert b.queued == {"x", "y"}
            assert b.cluster.imbalance_count == 0


# -- differences from Kafka --------------------------------------------------------------------------------------------


@pytest.mark.scenario(194)
async def test_reassignment_blocks_a_topic_because_it_is_queued_first() -> None:
    moving = TopicPartition("foo", 0)
    async with open_deletion_bench("foo") as kafka:
        kafka.cluster.reassigning.add(moving)

        # In Kafka's order the blocker has no effect: no topic is queued that it could block.
        kafka.deletion.mark_ineligible({"foo"}, BlockerReason.REASSIGNMENT)
        kafka.cluster.queue_deletion({"foo"})
        await kafka.deletion.resume()

        assert kafka.halted == {}
        assert kafka.replicas("foo") == dict.fromkeys(BROKERS, STARTED)

    async with open_deletion_bench("foo") as b:
        b.cluster.reassigning.add(moving)
        await b.delete("foo")

        assert b.halted == {"foo": ["REASSIGNMENT"]}
        assert b.replicas("foo") == dict.fromkeys(BROKERS, ONLINE)
        assert b.asked == []

        b.cluster.reassigning.discard(moving)
        await b.deletion.resume_for(["foo"])

        assert b.replicas("foo") == dict.fromkeys(BROKERS, STARTED)
