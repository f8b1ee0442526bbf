"""Brokers marked as shutting down that continue to run: drained and restored, or after a cancelled shutdown."""

import dataclasses

import pytest

from kactl.decide.machines import draining
from kactl.decide.machines.explain import explain_deletion
from kactl.decide.messages.admin import UndrainBroker
from kactl.decide.messages.broker import AlterPartitionReceived, IsrProposal
from kactl.decide.messages.control import StopReplica
from kactl.decide.messages.log import TopicEvent
from kactl.model import NO_EPOCH, NO_LEADER, Drain, Maintenance, ReplicaState, TopicPartition, TopicRef
from kactl.model.errors import BrokerNotAvailable, ErrorCode
from tests.support.clocks import settle
from tests.support.controller_harness import World, broker_event_names, partitions_of, world

pytestmark = pytest.mark.anyio

ONLINE, OFFLINE = ReplicaState.ONLINE, ReplicaState.OFFLINE
LIMIT_MS = 600_000


async def test_drained_broker_can_be_restored() -> None:
    """Kafka does not elect it until it registers again or the controller moves, however long that takes."""
    async with world(1, 2) as w:
        await w.create("t", [[2, 1], [1, 2]])
        await w.create("s", [[2]])
        await w.controller.drain(2)
        await settle()
        await w.create("n", [[2]])
        assert w.known("n-0").leader == NO_LEADER
        await w.wait(LIMIT_MS)
        # Kafka's criteria are unchanged: it is registered, it requested a shutdown, and it is not live.
        assert w.controller.cluster.shutting_down == {2}
        assert 2 in w.controller.cluster.brokers
        assert 2 not in w.controller.cluster.live_brokers.live
        w.brokers.forget()

        assert await w.controller.ask(UndrainBroker(2, dry_run=True)) is True
        assert w.controller.cluster.shutting_down == {2}
        assert await w.controller.ask(UndrainBroker(2)) is True
        await settle()

        assert 2 in w.controller.cluster.live_brokers.live
        # It follows again the partitions it was told to stop and leads where it is the only replica. Partitions led by
        # others stay with them.
        told = w.brokers.told(2)
        assert told["t-1"] == (1, 2, (1,), False)
        assert told["n-0"][0] == 2
        assert w.known("t-0").leader == 1
        assert w.known("t-1").replica_states[2] == ONLINE
        assert await w.stored("n-0") == (2, 0, (2,))
        assert broker_event_names(w)[-3:] == [("drained", 2), ("undrained", 2), ("restored", 2)]
        await w.write_isr("t-1", 1, 2)
        await w.check()
        assert await w.controller.ask(UndrainBroker(2)) is False


async def test_absent_broker_cannot_be_restored() -> None:
    async with world(1) as w:
        with pytest.raises(BrokerNotAvailable):
            await w.controller.ask(UndrainBroker(9))


async def test_failed_directory_stays_failed_after_restore() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2], [1, 2]])
        w.brokers.failed_dirs[2] = {"t-0"}
        await w.store.notify_log_dir(2)
        await settle()
        await w.controller.drain(2)
        await settle()
        w.brokers.forget()

        await w.controller.ask(UndrainBroker(2))
        await settle()

        assert set(w.brokers.told(2)) == {"t-1"}
        assert w.known("t-0").replica_states[2] == OFFLINE


async def test_shutdown_mark_expires_if_the_broker_continues_to_run() -> None:
    """Kafka removes the mark only when the broker registers again or the controller moves, so possibly never."""
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await w.shut_down(2)
        await w.wait(LIMIT_MS - 1_000)
        await w.shut_down(2)  # it is still retrying

        await w.wait(LIMIT_MS - 1_000)
        assert w.controller.cluster.shutting_down == {2}
        await w.wait(1_000)

        assert w.controller.cluster.shutting_down == frozenset()
        assert broker_event_names(w)[-1] == ("restored", 2)
        await w.write_isr("t-0", 1, 2)
        await w.stop(1)
        assert (await w.stored("t-0"))[0] == 2


async def test_expiry_of_the_shutdown_mark_is_configurable() -> None:
    async with world(1, 2, shutdown_limit_ms=3_000) as w:
        await w.shut_down(2)

        await w.wait(2_999)
        assert w.controller.cluster.shutting_down == {2}
        await w.wait(1)

        assert w.controller.cluster.shutting_down == frozenset()


async def test_takeover_starts_without_shutdown_marks() -> None:
    """As in Kafka: a broker that still wants to shut down repeats its request."""
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        await w.shut_down(2)

        await w.controller.resign()
        await settle()

        assert w.controller.is_active
        assert w.controller.cluster.shutting_down == frozenset()


async def test_expiry_of_an_earlier_registration_is_ignored() -> None:
    async with world(1, 2) as w:
        await w.shut_down(2)
        await w.wait(LIMIT_MS - 1_000)
        await w.start(2)
        await w.shut_down(2)

        await w.wait(2_000)

        assert w.controller.cluster.shutting_down == {2}


@pytest.mark.parametrize("operator_first", [True, False])
async def test_drained_broker_stays_drained_after_a_shutdown_request(operator_first: bool) -> None:
    async with world(1, 2) as w:
        first, then = (NO_EPOCH, w.epoch(2)) if operator_first else (w.epoch(2), NO_EPOCH)
        await w.shut_down(2, first)
        await w.shut_down(2, then)

        await w.wait(2 * LIMIT_MS)

        assert w.controller.cluster.shutting_down == {2}


@pytest.mark.parametrize("operator_first", [True, False])
async def test_deletion_goes_on_at_a_drained_broker_that_did_not_stop(operator_first: bool) -> None:
    """It waits for a broker that stops at any moment, and not for ever for one that an operator keeps drained."""
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        first, then = (NO_EPOCH, w.epoch(2)) if operator_first else (w.epoch(2), NO_EPOCH)
        await w.shut_down(2, first)
        await w.shut_down(2, then)
        assert w.controller.cluster.drained == frozenset()
        await w.delete("t")
        assert "t" in w.controller.cluster.topics_to_delete

        await w.wait(LIMIT_MS)

        assert w.controller.cluster.drained == {2}
        assert w.controller.cluster.topics_to_delete == frozenset()
        assert await w.controller.ask(UndrainBroker(2)) is True
        assert w.controller.cluster.shutting_down == frozenset()


# -- the effect on partitions ------------------------------------------------------------------------------------------


def rows_by_effect(w: World, effect: draining.Effect) -> dict[str, list[str]]:
    table = w.controller.cluster.table
    return {
        field.name: sorted(map(str, table.names(getattr(effect, field.name)))) for field in dataclasses.fields(effect)
    }


async def test_preview_matches_the_effects_of_draining() -> None:
    """Partitions that lose their leader, an ISR member, the last spare replica, or enough in-sync replicas."""
    async with world(1, 2, 3) as w:
        await w.create("led", [[2, 1, 3]])
        await w.create("followed", [[1, 2, 3]])
        await w.create("pair", [[1, 2], [2, 1]])
        await w.create("only", [[2]])
        await w.create("stuck", [[2, 3]])
        await w.write_isr("stuck-0", 2)
        await w.create("elsewhere", [[1, 3]])
        await w.create("deleted", [[2, 1]])
        await w.store.set_topic_config("followed", {"min.insync.replicas": "3"})
        await w.controller.topic_settings.refresh(w.controller.cluster)
        w.controller.cluster.queue_deletion(["deleted"])
        cluster = w.controller.cluster
        held = draining.held_by(cluster, 2)
        min_isr = w.controller.topic_settings.min_isr_of_rows(cluster.table, held)

        expected = rows_by_effect(w, draining.preview(cluster, held, 2, min_isr))
        await w.controller.drain(2)
        await settle()
        observed = rows_by_effect(w, draining.observe(cluster, held, 2, min_isr))

        assert (
            expected
            == observed
            == {
                "moved": ["led-0", "pair-1"],
                "remaining": ["stuck-0"],
                "alone": ["only-0"],
                "left": ["followed-0", "led-0", "pair-0", "pair-1"],
                "under_min_isr": ["followed-0"],
                "last_in_sync": ["pair-0", "pair-1"],
                "shards_moved": [],
                "shards_kept": [],
            }
        )


async def test_partitions_deleted_during_a_drain_count_as_unchanged() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        cluster = w.controller.cluster
        held = draining.held_by(cluster, 2)
        min_isr = w.controller.topic_settings.min_isr_of_rows(cluster.table, held)
        await w.delete("t")
        await w.create("other", [[1, 2]])

        effect = draining.observe(cluster, held, 2, min_isr)

        assert not any(rows_by_effect(w, effect)[name] for name in ("moved", "left", "last_in_sync", "under_min_isr"))


# -- deletion ----------------------------------------------------------------------------------------------------------


async def test_topic_on_a_drained_broker_is_deleted_without_a_blocker() -> None:
    """Kafka waits until the broker has stopped and returned; a drained broker may run for weeks."""
    async with world(1, 2) as w:
        await w.create("t", [[1, 2], [2, 1]])
        await w.create("only", [[2]])
        await w.controller.drain(2)
        await settle()

        await w.delete("t", "only")

        assert w.controller.deletions() == []
        assert not await w.store.topics()
        assert deleted_on(w, 2) == {"t-0", "t-1", "only-0"}
        assert "deletion halted" not in {each.what for each in w.events("topic") if isinstance(each, TopicEvent)}
        await w.check()


@pytest.mark.parametrize("drained_before", [False, True])
async def test_deletion_waits_for_a_broker_in_shutdown_until_it_is_restored(
    drained_before: bool,
) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        if drained_before:
            await w.controller.drain(2)
        await w.shut_down(2)

        await w.delete("t")

        state, waits_for = explain_deletion(w.controller.cluster, "t")
        assert state == "halted"
        assert "kactl broker drain --undo 2" in waits_for[0]
        assert "start broker" not in waits_for[0]
        assert deleted_on(w, 2) == set()

        await w.controller.restore(2)
        await settle()

        assert w.controller.deletions() == []
        assert deleted_on(w, 2) == {"t-0"}
        await w.check()


async def test_failed_directory_of_a_drained_broker_blocks_the_deletion() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.failed_dirs[2] = {"t-0"}
        await w.store.notify_log_dir(2)
        await settle()
        await w.controller.drain(2)

        await w.delete("t")

        state, waits_for = explain_deletion(w.controller.cluster, "t")
        assert state == "halted"
        assert "repair it and restart the broker" in waits_for[0]
        assert "--undo" not in waits_for[0]
        assert deleted_on(w, 2) == set()


def deleted_on(w: World, broker: int) -> set[str]:
    """Returns the partitions whose replicas a StopReplica to a broker deletes."""
    return {
        name
        for each in w.brokers.of(broker, StopReplica)
        if isinstance(each, StopReplica)
        for name, delete in zip(partitions_of(each), each.delete.tolist(), strict=True)
        if delete
    }


@pytest.mark.parametrize("proposed", [True, False])
async def test_drain_goes_on_when_another_replica_comes_in_sync(proposed: bool) -> None:
    """Kafka's brokers repeat their request; an operator's drain would stay as it was for ever."""
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.stop(2)
        assert await w.controller.drain(1) == [TopicPartition("t", 0)]
        await w.start(2)
        assert (await w.stored("t-0"))[::2] == (1, (1,))

        if proposed:
            known = w.known("t-0")
            proposal = IsrProposal(TopicRef("t"), 0, known.leader_epoch, (1, 2), known.partition_epoch)
            results = await w.controller.ask(AlterPartitionReceived(1, w.epoch(1), (proposal,), 1))
            assert [result.error for result in results] == [ErrorCode.NONE]
        else:
            await w.write_isr("t-0", 1, 2)
        await settle()

        assert (await w.stored("t-0"))[::2] == (2, (2,))
        await w.check()


@pytest.mark.parametrize("operator_first", [True, False])
async def test_drain_goes_on_after_a_shutdown_request_that_expires(operator_first: bool) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await w.stop(2)
        first, then = (NO_EPOCH, w.epoch(1)) if operator_first else (w.epoch(1), NO_EPOCH)
        await w.shut_down(1, first)
        await w.shut_down(1, then)
        await w.start(2)
        await w.write_isr("t-0", 1, 2)
        assert (await w.stored("t-0"))[::2] == (1, (1, 2))

        await w.wait(LIMIT_MS)

        assert (await w.stored("t-0"))[::2] == (2, (2,))
        await w.check()


async def test_drained_leader_hands_over_to_a_member_that_is_restored() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.controller.cluster.set_maintenance(Maintenance({2: Drain(0)}))  # it could not leave the ISR
        assert await w.controller.drain(1) == [TopicPartition("t", 0)]

        await w.controller.ask(UndrainBroker(2))
        await settle()

        assert (await w.stored("t-0"))[::2] == (2, (2,))
