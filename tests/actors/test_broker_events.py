"""Broker registrations, failures and changes: the requests to all brokers and the new leaders."""

import itertools

import msgspec
import pytest

from kactl.actors.handlers.broker_responses import BrokerAnswers
from kactl.decide.messages.control import LeaderAndIsr, StopReplica, UpdateMetadata
from kactl.decide.messages.events import BrokerChange, BrokerModifications
from kactl.decide.messages.log import BrokerEvent
from kactl.model import Assignment, Endpoint, PartitionState, ReplicaState, TopicPartition
from kactl.model.errors import ErrorCode, StoreUnavailable
from kactl.stores.base import Found
from tests.actors.metadata import MetadataView, alive, block_loop, metadata_at
from tests.support.clocks import settle
from tests.support.controller_harness import World, kinds, partitions_of, world
from tests.support.scripted_store import Step, fails, returns, with_status

from .directory_responses import directory_response
from .failing_steps import fail_once
from .reassignment_helpers import reassign

pytestmark = pytest.mark.anyio


# -- registrations -----------------------------------------------------------------------------------------------------


@pytest.mark.scenario(339, 340)
async def test_offline_replicas_are_sent_to_all_brokers_until_they_return() -> None:
    async with world(1, 2, 3) as w:
        await w.create("topic1", [[1, 3], [1, 2]])

        await w.stop(3)

        for broker in (1, 2):
            assert metadata_at(w.brokers, broker)["topic1-0"] == MetadataView(
                1, isr=(1,), replicas=(1, 3), offline=(3,)
            )
            assert metadata_at(w.brokers, broker)["topic1-1"] == MetadataView(
                1, isr=(1, 2), replicas=(1, 2), offline=()
            )

        await w.start(3)

        for broker in (1, 2, 3):
            assert metadata_at(w.brokers, broker)["topic1-0"].offline == ()
            assert metadata_at(w.brokers, broker)["topic1-0"].replicas == (1, 3)
            assert metadata_at(w.brokers, broker)["topic1-1"] == MetadataView(
                1, isr=(1, 2), replicas=(1, 2), offline=()
            )


@pytest.mark.scenario(373)
async def test_brokers_are_handled_new_then_bounced_then_dead() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2, 3]])
        gate = await block_loop(w)
        before = w.controller.history.seq
        await w.start(3, 2)
        await w.stop(1)
        gate.set()
        await settle()

        told = [event for event in w.events("broker") if event.seq > before and isinstance(event, BrokerEvent)]
        assert [(each.what, each.broker) for each in told] == [
            ("started", 3),
            ("failed", 2),
            ("bounced", 2),
            ("failed", 1),
        ]
        await w.check()


@pytest.mark.scenario(374)
async def test_reading_unchanged_registrations_has_no_effect() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.forget()
        before = w.controller.history.seq

        w.controller.loop.inbox.put_once(BrokerChange())
        await settle()

        assert w.brokers.sent == []
        assert w.controller.history.seq == before


@pytest.mark.scenario(375)
async def test_new_broker_receives_all_topics_not_in_deletion() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2], [2, 4], [4]])
        w.brokers.silent |= {1, 2}
        await w.create("doomed", [[1, 2]])
        await w.delete("doomed")
        w.brokers.silent.clear()
        await w.clock.advance(1000)
        w.brokers.undeletable = {1: {"doomed-0": ErrorCode.KAFKA_STORAGE_ERROR}}
        w.controller.cluster.queue_deletion(["doomed"])
        w.brokers.forget()

        await w.start(4)

        for broker in (1, 2):
            first = w.brokers.of(broker, UpdateMetadata)[0]
            assert isinstance(first, UpdateMetadata)
            assert not len(first.states)
            assert [each.id for each in first.live_brokers] == [1, 2, 4]
        everything, *_ = w.brokers.of(4)
        assert partitions_of(everything) == ["t-0", "t-1"]  # t-2 had no known leader yet
        assert set(w.brokers.told(4)) == {"t-1", "t-2"}
        assert w.brokers.told(4)["t-2"] == (4, 0, (4,), True), "a partition that waited for it is led by it"


@pytest.mark.scenario(376)
async def test_changed_endpoints_are_sent_and_a_changed_rack_is_not() -> None:
    async with world(1, 2) as w:
        w.brokers.forget()

        await change_endpoint(w, 2, host="elsewhere")
        assert w.controller.cluster.brokers[2].endpoints[0].host == "elsewhere2"
        for broker in (1, 2):
            last = w.brokers.of(broker, UpdateMetadata)[-1]
            assert isinstance(last, UpdateMetadata)
            assert [each.endpoints[0].host for each in last.live_brokers] == ["h1", "elsewhere2"]

        w.brokers.forget()
        await change_endpoint(w, 2, host="elsewhere", rack="r9")
        assert w.brokers.sent == []


async def test_replica_added_by_a_reassignment_is_sent_to_the_changed_endpoint() -> None:
    """Its first request was dropped with the channel. Kafka's controller does not send it again."""
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        w.brokers.silent.add(2)
        assert await reassign(w, {"t-0": [2]}) == [ErrorCode.NONE]
        w.brokers.forget()
        w.brokers.silent.discard(2)

        await change_endpoint(w, 2, host="elsewhere")
        await w.wait(10_000)

        leader, epoch, isr = await w.stored("t-0")
        assert w.brokers.told(2)["t-0"] == (leader, epoch, isr, True)
        await w.check()


async def change_endpoint(w: World, broker: int, *, host: str, rack: str | None = None) -> None:
    """Change the data of a registration without its epoch."""
    held, session = w.store.state.brokers[broker]
    changed = msgspec.structs.replace(held, endpoints=(Endpoint("I", f"{host}{broker}", 9092),), rack=rack)
    w.store.state.brokers[broker] = (changed, session)
    w.controller.loop.inbox.put_once(BrokerModifications(broker))
    await settle()


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(377)
async def test_failed_follower_leaves_the_isr() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])

        await w.stop(2)

        assert await w.stored("t-0") == (1, 1, (1,))


@pytest.mark.scenario(378)
async def test_failed_leader_costs_one_epoch_and_two_equal_requests() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.forget()

        await w.stop(1)

        assert await w.stored("t-0") == (2, 1, (2,))
        assert kinds(w.brokers.of(2)) == ["LeaderAndIsr", "UpdateMetadata"] * 2
        first, second = w.brokers.of(2, LeaderAndIsr)
        assert isinstance(first, LeaderAndIsr)
        assert isinstance(second, LeaderAndIsr)
        for column in ("leader", "leader_epoch", "partition_epoch", "is_new"):
            assert getattr(first.states, column).tolist() == getattr(second.states, column).tolist()
        assert w.brokers.told(2) == {"t-0": (2, 1, (2,), False)}


@pytest.mark.scenario(379)
async def test_failure_of_a_broker_without_replicas_is_sent_to_the_others() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2]])
        w.brokers.forget()

        await w.stop(3)

        for broker in (1, 2):
            assert kinds(w.brokers.of(broker)) == ["UpdateMetadata"]
            assert alive(w.brokers, broker) == [1, 2]
            assert metadata_at(w.brokers, broker) == {}


@pytest.mark.scenario(380)
async def test_failed_broker_with_only_topics_in_deletion_blocks_them() -> None:
    async with world(1, 2, 3) as w:
        await w.create("doomed", [[1, 2]])
        w.brokers.silent |= {1, 2}
        await w.delete("doomed")
        assert w.known("doomed-0").replica_states == {
            1: ReplicaState.DELETION_STARTED,
            2: ReplicaState.DELETION_STARTED,
        }
        w.brokers.forget()

        await w.stop(2)

        assert w.known("doomed-0").replica_states[2] == ReplicaState.DELETION_INELIGIBLE
        assert "doomed" in w.controller.cluster.deletion_ineligible
        assert kinds(w.brokers.of(3)) == ["UpdateMetadata"]
        assert alive(w.brokers, 3) == [1, 3]


# -- directories -------------------------------------------------------------------------------------------------------


def offline_partitions(w: World, broker: int) -> set[str]:
    """Returns the partitions of a broker whose directories have failed."""
    table = w.controller.cluster.table
    return {str(table.view(row).name) for row in table.dirs_offline(broker).tolist()}


@pytest.mark.scenario(381, 382)
async def test_response_marks_failed_and_recovered_directories() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2], [1, 2], [1, 2]])
        w.controller.loop.inbox.put(directory_response(w, 1, {"t-1": ErrorCode.KAFKA_STORAGE_ERROR}))
        await settle()
        t_1, t_2 = await w.stored("t-1"), await w.stored("t-2")
        said = directory_response(
            w,
            1,
            {"t-0": ErrorCode.KAFKA_STORAGE_ERROR, "t-1": ErrorCode.NONE, "t-2": ErrorCode.STALE_CONTROLLER_EPOCH},
        )

        w.controller.loop.inbox.put(said)
        await settle()

        assert offline_partitions(w, 1) == {"t-0"}
        assert await w.stored("t-0") == (2, 1, (2,))
        # It was stopped under the leader epoch that it serves now, and does not start again under that one.
        assert (await w.stored("t-1"), await w.stored("t-2")) == ((t_1[0], t_1[1] + 1, t_1[2]), t_2)
        assert w.brokers.told(1)["t-1"][1] == t_1[1] + 1
        assert w.known("t-1").replica_states[1] == ReplicaState.ONLINE

        w.brokers.forget()
        before = w.controller.history.seq
        w.controller.loop.inbox.put(said)
        await settle()

        assert offline_partitions(w, 1) == {"t-0"}
        assert w.brokers.sent == []
        assert w.controller.history.seq == before


async def test_replica_that_fails_after_each_start_is_started_for_ever() -> None:
    """Responses without an error and failures alternate: a participant acknowledges a leadership before it begins."""
    async with world(1) as w:
        await w.create("t", [[1]])
        starts: list[float] = []
        for _ in range(1_000):
            if len(starts) == 11:
                break
            if offline_partitions(w, 1):
                await w.wait(500)
                continue
            starts.append(w.clock.monotonic_ms())
            for error in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE):
                w.controller.loop.inbox.put(directory_response(w, 1, {"t-0": error}))
                await settle()

        # The first time it was online was before all failures.
        pauses = [after - before for before, after in itertools.pairwise(starts)]
        assert pauses[:4] == [0, 1_000, 2_000, 4_000]
        longest = [8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
        assert [0.75 * most <= pause <= most for pause, most in zip(pauses[4:], longest, strict=True)] == [True] * 6
        assert len(set(pauses[-3:])) > 1


@pytest.mark.scenario(383)
async def test_top_level_error_changes_no_directories(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])

        w.controller.loop.inbox.put(
            directory_response(
                w, 1, {"t-0": ErrorCode.KAFKA_STORAGE_ERROR}, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            )
        )
        await settle()

        assert offline_partitions(w, 1) == set()
        assert "broker 1 rejected the LeaderAndIsr: CLUSTER_AUTHORIZATION_FAILED (31)" in caplog.text


@pytest.mark.scenario(384)
async def test_leader_in_a_failed_directory_is_replaced_and_stopped() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.forget()

        w.controller.loop.inbox.put(directory_response(w, 1, {"t-0": ErrorCode.KAFKA_STORAGE_ERROR}))
        await settle()

        assert await w.stored("t-0") == (2, 1, (2,))
        assert w.known("t-0").state is PartitionState.ONLINE
        assert w.known("t-0").replica_states[1] == ReplicaState.OFFLINE
        (stop,) = w.brokers.of(1, StopReplica)
        assert isinstance(stop, StopReplica)
        assert partitions_of(stop) == ["t-0"]
        assert not stop.delete.any()


@pytest.mark.scenario(385)
async def test_returned_broker_has_all_directories_online() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.controller.loop.inbox.put(directory_response(w, 1, {"t-0": ErrorCode.KAFKA_STORAGE_ERROR}))
        await settle()

        await w.start(1)

        assert offline_partitions(w, 1) == set()
        assert w.known("t-0").replica_states[1] == ReplicaState.ONLINE


@pytest.mark.scenario(386)
@pytest.mark.parametrize("fails", [False, True])
async def test_directory_notification_resends_replicas_and_is_deleted(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2], [2, 1], [2]])
        w.brokers.forget()
        if fails:
            fail_once(monkeypatch, BrokerAnswers, "move_many_replicas")

        await w.store.notify_log_dir(1)
        await settle()

        assert await w.store.log_dir_notifications() == []
        assert set(w.brokers.told(1)) == (set() if fails else {"t-0", "t-1"})


async def test_recovered_directory_is_in_the_metadata_of_all_brokers() -> None:
    """A leader does not propose members whose directories are offline in its metadata."""
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.controller.loop.inbox.put(directory_response(w, 2, {"t-0": ErrorCode.KAFKA_STORAGE_ERROR}))
        await settle()
        assert metadata_at(w.brokers, 1)["t-0"].offline == (2,)

        w.controller.loop.inbox.put(directory_response(w, 2, {"t-0": ErrorCode.NONE}))
        await settle()

        assert offline_partitions(w, 2) == set()
        assert metadata_at(w.brokers, 1)["t-0"].offline == ()


# -- ISRs --------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(387)
async def test_isr_written_by_a_leader_is_sent_as_metadata_only() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.forget()

        await w.write_isr("t-0", 1)

        assert w.known("t-0").isr == (1,)
        for broker in (1, 2):
            assert metadata_at(w.brokers, broker) == {"t-0": MetadataView(1, isr=(1,), replicas=(1, 2), offline=())}
        assert not [request for _, request in w.brokers.sent if isinstance(request, LeaderAndIsr)]
        assert await w.store.isr_notifications() == []


@pytest.mark.parametrize("step", [fails(StoreUnavailable("gone")), returns(with_status(Found.FAILED, "t-0"))],
                         ids=["all", "one"])  # fmt: skip
async def test_unreadable_isr_is_read_later(step: Step) -> None:
    """Kafka deletes the notification and does not know the ISR until its next own write."""
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.script("leaderships", step)

        await w.write_isr("t-0", 1)
        assert len(await w.store.isr_notifications()) == 1
        await w.wait(1_000)

        assert w.known("t-0").isr == (1,)
        assert metadata_at(w.brokers, 2)["t-0"] == MetadataView(1, isr=(1,), replicas=(1, 2), offline=())
        assert await w.store.isr_notifications() == []


@pytest.mark.scenario(388)
async def test_isr_change_completes_a_reassignment() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2]])
        results = await w.controller.reassign({TopicPartition("t", 0): (1, 3)})
        assert [each.error for each in results] == [ErrorCode.NONE]
        await settle()
        assert (await w.store.assignments(["t"])).one(0) == Assignment((1, 3, 2), adding=(3,), removing=(2,))

        await w.write_isr("t-0", 1, 2, 3)

        assert (await w.store.assignments(["t"])).one(0) == Assignment((1, 3))
        assert set((await w.stored("t-0"))[2]) == {1, 3}
        assert await w.controller.reassignments() == {}
