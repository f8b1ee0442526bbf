"""Execution of the three control requests, and the calls of the listener."""

import dataclasses

import anyio
import pytest

from kactl.decide.messages.control import LeaderAndIsr, LeaderAndIsrResponse, StopReplica, StopReplicaResponse
from kactl.model import EPOCH_DURING_DELETE, TopicPartition, ownership_id
from kactl.model.errors import ErrorCode
from kactl.participant import Listener, Role
from tests.support.clocks import settle
from tests.support.control_requests import (
    BILLS_0,
    CONTROLLER,
    ID_A,
    ID_B,
    ORDERS_0,
    ORDERS_1,
    StateRow,
    deleted_row,
    errors,
    leader_and_isr,
    stop_replica,
    update_metadata,
)

from .conftest import Network, Recorder

pytestmark = pytest.mark.anyio


async def test_became_leader_is_called_before_became_follower(network: Network) -> None:
    async with network.participant(listener=(recorder := Recorder())) as participant:
        answers = await network.lead_and_follow(
            1,
            StateRow(BILLS_0, leader=2, leader_epoch=3),
            StateRow(ORDERS_0, leader_epoch=1, isr=(1,)),
            StateRow(ORDERS_1, leader=-1, leader_epoch=2),
        )

        assert answers == [0, 0, 0]
        assert recorder.calls == [
            "leads orders-0 at 1 with (1,)",
            "follows 2 for bills-0 at 3",
            "follows -1 for orders-1 at 2",
        ]
        hosted = participant.hosted(BILLS_0)
        assert hosted is not None
        assert (hosted.role, hosted.leader, hosted.leader_epoch) == (Role.FOLLOWER, 2, 3)


async def test_controller_of_a_copied_store_does_not_lead_beside_the_first(network: Network) -> None:
    async with network.participant() as participant:
        await network.lead_and_follow(1, StateRow(ORDERS_0, leader_epoch=1))
        copied = dataclasses.replace(
            leader_and_isr(StateRow(ORDERS_0, leader=2, leader_epoch=2)), controller_id=CONTROLLER + 1
        )

        refused = await network.send(1, copied)
        accepted = await network.send(1, dataclasses.replace(copied, controller_epoch=copied.controller_epoch + 1))

        assert isinstance(refused, LeaderAndIsrResponse)
        assert isinstance(accepted, LeaderAndIsrResponse)
        assert errors(refused.partitions) == {ORDERS_0: ErrorCode.STALE_CONTROLLER_EPOCH}
        assert errors(accepted.partitions) == {ORDERS_0: ErrorCode.NONE}
        assert participant.controller_epoch == copied.controller_epoch + 1


async def test_async_listener_is_awaited(network: Network) -> None:
    class Slow(Listener):
        async def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
            await network.clock.sleep_ms(1_000)
            calls.append(name)

    calls: list[TopicPartition] = []
    async with network.participant(listener=Slow()) as participant, anyio.create_task_group() as tasks:
        tasks.start_soon(network.lead_and_follow, 1, StateRow(ORDERS_0))
        await network.clock.advance(999)
        assert participant.hosts == []

        await network.clock.advance(1)
        assert calls == participant.hosts == [ORDERS_0]


async def test_repeated_request_is_carried_out_once(network: Network) -> None:
    async with network.participant(listener=(recorder := Recorder())):
        row = StateRow(ORDERS_0, leader=2)
        answers = [await network.lead_and_follow(1, row) for _ in range(3)]
        for _ in range(3):
            await network.send(1, stop_replica(ORDERS_0))

        assert answers == [[0], [11], [11]]
        assert recorder.calls == ["follows 2 for orders-0 at 0", "stops orders-0"]


@pytest.mark.parametrize("leader", [1, 2])
async def test_failed_leader_and_isr_is_accepted_when_repeated(network: Network, leader: int) -> None:
    async with network.participant(listener=(recorder := Recorder())) as participant:
        recorder.failing.add(ORDERS_0)
        rows = StateRow(ORDERS_0, leader=leader, leader_epoch=4), StateRow(ORDERS_1, leader=leader, leader_epoch=4)
        assert await network.lead_and_follow(1, *rows) == [56, 0]
        assert participant.hosts == [ORDERS_1]

        recorder.failing.clear()
        assert await network.lead_and_follow(1, *rows) == [0, 11]

        hosted = participant.hosted(ORDERS_0)
        assert hosted is not None
        assert hosted.leader_epoch == 4


async def test_failed_stop_replica_is_accepted_when_repeated(network: Network) -> None:
    async with network.participant(listener=(recorder := Recorder())) as participant:
        await network.lead_and_follow(1, StateRow(ORDERS_0), StateRow(BILLS_0))
        recorder.failing.add(ORDERS_0)

        first = await network.send(1, stop_replica(ORDERS_0, BILLS_0, delete=True))
        assert isinstance(first, StopReplicaResponse)
        assert errors(first.partitions) == {ORDERS_0: 56, BILLS_0: 0}
        assert participant.hosts == [ORDERS_0]

        recorder.failing.clear()
        await network.send(1, stop_replica(ORDERS_0, BILLS_0, delete=True))
        assert participant.hosts == []


async def test_stopped_replica_keeps_its_epoch_deleted_one_does_not(network: Network) -> None:
    async with network.participant() as participant:
        await network.lead_and_follow(1, StateRow(ORDERS_0, leader_epoch=4), StateRow(BILLS_0, leader_epoch=4))
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=4))
        await network.send(1, stop_replica(BILLS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True))

        replica = participant.hosted(ORDERS_0)
        assert replica is not None
        assert replica.role is Role.STOPPED
        assert await network.lead_and_follow(1, StateRow(ORDERS_0, leader_epoch=4)) == [11]
        assert await network.lead_and_follow(1, StateRow(BILLS_0, leader_epoch=0)) == [0]


@pytest.mark.parametrize("stop", [True, False])
async def test_later_controller_sets_aside_a_replica_of_another_topic_id(network: Network, stop: bool) -> None:
    """The id may have been lost: data is deleted only if a deletion is ordered for the id that it belongs to."""
    recorder = Recorder()
    old = StateRow(ORDERS_0, leader_epoch=4, partition_epoch=9, topic_id=ID_A)
    new = StateRow(ORDERS_0, topic_id=ID_B)
    async with network.participant(listener=recorder):
        assert await network.lead_and_follow(1, old) == [0]
        if stop:
            await network.send(1, stop_replica(ORDERS_0))
        assert await network.lead_and_follow(1, new) == [103]
        await network.send(1, update_metadata(new, epoch=2))
        recorder.calls.clear()

        for _ in range(2):
            assert await network.lead_and_follow(1, new, epoch=2) == [ErrorCode.KAFKA_STORAGE_ERROR]
        await network.send(1, stop_replica(ORDERS_0, topic_id=ID_B, delete=True, epoch=2))
        assert recorder.calls == ([] if stop else ["stops orders-0"])

        await network.send(1, stop_replica(ORDERS_0, topic_id=ID_A, delete=True, epoch=2))
        assert await network.lead_and_follow(1, new, epoch=2) == [0]
        assert recorder.calls[-2:] == ["deletes orders-0", "leads orders-0 at 0 with (1, 2, 3)"]
        assert await network.lead_and_follow(1, old.but(leader_epoch=9), epoch=2) == [103]


async def test_replica_that_was_set_aside_serves_again_under_its_own_id(network: Network) -> None:
    recorder = Recorder()
    own = StateRow(ORDERS_0, leader_epoch=4, topic_id=ID_A)
    async with network.participant(listener=recorder):
        assert await network.lead_and_follow(1, own) == [0]
        assert await network.lead_and_follow(1, own.but(topic_id=ID_B), epoch=2) == [ErrorCode.KAFKA_STORAGE_ERROR]
        recorder.calls.clear()

        assert await network.lead_and_follow(1, own, epoch=2) == [0]

        assert recorder.calls == ["leads orders-0 at 4 with (1, 2, 3)"]


@pytest.mark.parametrize(
    ("stop", "other"),
    [
        (False, StateRow(ORDERS_0)),
        (True, StateRow(ORDERS_0)),
        (False, StateRow(ORDERS_0, leader_epoch=4)),
        (False, StateRow(ORDERS_0, leader=3, topic_id=ID_A)),
    ],
    ids=["lower epoch", "lower epoch, stopped", "other leader", "lower epoch, with an id"],
)
async def test_later_controller_sets_aside_a_replica_with_a_later_epoch(
    network: Network, stop: bool, other: StateRow
) -> None:
    """The topic was created again, and has no id; or the store was restored from a backup."""
    recorder = Recorder()
    async with network.participant(listener=recorder) as participant:
        await network.send(1, leader_and_isr(StateRow(ORDERS_0, leader=2, leader_epoch=4)))
        if stop:
            await network.send(1, stop_replica(ORDERS_0))
        recorder.calls.clear()
        assert await network.lead_and_follow(1, other) == [11]

        recorder.failing = {ORDERS_0}
        assert await network.lead_and_follow(1, other, epoch=2) == [ErrorCode.KAFKA_STORAGE_ERROR]
        recorder.failing = set()
        assert await network.lead_and_follow(1, other, epoch=2) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert recorder.calls == ([] if stop else ["stops orders-0"])

        await network.send(1, stop_replica(ORDERS_0, delete=True, epoch=2))
        assert await network.lead_and_follow(1, other, epoch=2) == [0]
        replica = participant.hosted(ORDERS_0)
        assert replica is not None
        assert (replica.leader, replica.leader_epoch) == (other.leader, other.leader_epoch)


FOLLOWED = StateRow(ORDERS_0, leader=2, leader_epoch=4, partition_epoch=3)
OWNED_A, OWNED_B = ownership_id(ID_A), ownership_id(ID_B)


@pytest.mark.parametrize("epoch", [1, 2], ids=["same controller", "later controller"])
@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "served"])
@pytest.mark.parametrize("leader", [1, 2], ids=["leads", "follows"])
@pytest.mark.parametrize("next_id", [OWNED_B, ID_B], ids=["owned again", "replicated"])
async def test_shard_of_a_deleted_topic_gives_way_to_the_next_topic(
    network: Network, leader: int, stop: bool, epoch: int, next_id: bytes
) -> None:
    """Its deletion has not reached this participant, which did not own it any more."""
    recorder = Recorder()
    old = StateRow(ORDERS_0, leader=1, leader_epoch=4, partition_epoch=9, topic_id=OWNED_A)
    new = StateRow(ORDERS_0, leader=leader, topic_id=next_id)
    async with network.participant(listener=recorder) as participant:
        await network.send(1, numbered(old, 1))
        if stop:
            await network.send(1, stop_replica(ORDERS_0, leader_epoch=5, topic_id=OWNED_A))
        recorder.calls.clear()

        answer = await network.send(1, numbered(new, 3, epoch=epoch))

        assert isinstance(answer, LeaderAndIsrResponse)
        assert errors(answer.partitions) == {ORDERS_0: ErrorCode.NONE}
        served = "leads orders-0 at 0 with (1, 2, 3)" if leader == 1 else "follows 2 for orders-0 at 0"
        assert recorder.calls == ([served] if stop else ["stops orders-0", served])
        replica = participant.hosted(ORDERS_0)
        assert replica is not None
        assert (replica.leader, replica.leader_epoch, replica.partition_epoch) == (leader, 0, 0)


@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "served"])
async def test_late_request_of_a_deleted_topic_replaces_no_shard(network: Network, stop: bool) -> None:
    recorder = Recorder()
    old = StateRow(ORDERS_0, leader_epoch=4, topic_id=OWNED_A)
    new = StateRow(ORDERS_0, topic_id=OWNED_B)
    async with network.participant(listener=recorder):
        await network.send(1, numbered(new, 2))
        if stop:
            await network.send(1, stop_replica(ORDERS_0, topic_id=OWNED_B))
        recorder.calls.clear()

        answer = await network.send(1, numbered(old, 1))

        assert isinstance(answer, LeaderAndIsrResponse)
        assert errors(answer.partitions) == {ORDERS_0: ErrorCode.INCONSISTENT_TOPIC_ID}
        assert recorder.calls == []


def numbered(row: StateRow, number: int, *, epoch: int = 1) -> LeaderAndIsr:
    return dataclasses.replace(leader_and_isr(row, epoch=epoch), number=number)


@pytest.mark.parametrize(
    ("first", "stop_epoch", "sent", "error"),
    [
        (FOLLOWED, None, FOLLOWED, 11),
        (FOLLOWED, None, FOLLOWED.but(partition_epoch=2), 11),
        (FOLLOWED, None, FOLLOWED.but(leader=3, leader_epoch=5, partition_epoch=4), 0),
        (FOLLOWED, 5, FOLLOWED.but(leader=3, leader_epoch=5, partition_epoch=4), 0),
        (FOLLOWED.but(topic_id=ID_A), None, FOLLOWED.but(topic_id=ID_A, leader_epoch=3), 11),
        (FOLLOWED, None, FOLLOWED.but(topic_id=ID_A), 0),
    ],
    ids=["same", "before the leader wrote its ISR", "later", "later, stopped", "lower epoch, same id", "id is new"],
)
async def test_later_controller_keeps_the_replica_of_the_same_topic(
    network: Network, first: StateRow, stop_epoch: int | None, sent: StateRow, error: int
) -> None:
    recorder = Recorder()
    async with network.participant(listener=recorder):
        await network.send(1, leader_and_isr(first))
        if stop_epoch is not None:
            await network.send(1, stop_replica(ORDERS_0, leader_epoch=stop_epoch))

        assert await network.lead_and_follow(1, sent, epoch=2) == [error]

        assert "deletes orders-0" not in recorder.calls


async def test_replica_that_could_not_be_deleted_is_deleted_for_the_next_topic(network: Network) -> None:
    """A reassignment has removed it, and ends although the deletion fails. So the topic is deleted without it."""
    recorder = Recorder()
    old, new = StateRow(ORDERS_0, leader_epoch=4, topic_id=ID_A), StateRow(ORDERS_0, topic_id=ID_B)
    async with network.participant(listener=recorder):
        assert await network.lead_and_follow(1, old) == [0]
        recorder.failing = {ORDERS_0}
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True))
        assert await network.lead_and_follow(1, new) == [ErrorCode.KAFKA_STORAGE_ERROR]
        recorder.failing, recorder.calls = set(), []

        assert await network.lead_and_follow(1, new) == [0]

        assert recorder.calls == ["deletes orders-0", "leads orders-0 at 0 with (1, 2, 3)"]
        assert await network.lead_and_follow(1, old.but(leader_epoch=9)) == [ErrorCode.INCONSISTENT_TOPIC_ID]


async def test_data_of_an_earlier_registration_is_deleted(network: Network) -> None:
    async with network.participant(listener=(recorder := Recorder())):
        await network.send(1, stop_replica(ORDERS_0))
        await network.send(1, stop_replica(ORDERS_0, delete=True))

        assert recorder.calls == ["deletes orders-0"]


async def test_metadata_is_readable(network: Network) -> None:
    async with network.participant() as participant:
        assert participant.leader(ORDERS_0) is None

        await network.send(1, update_metadata(StateRow(ORDERS_0, leader=2), live=(1, 2)))
        assert participant.leader(ORDERS_0) == 2
        assert sorted(participant.live_brokers) == [1, 2]
        known = participant.partition(ORDERS_0)
        assert known is not None
        assert known.isr == (1, 2, 3)

        await network.send(1, update_metadata(deleted_row(ORDERS_0)))
        assert participant.leader(ORDERS_0) is None


async def test_failed_directory_is_reported_and_its_replicas_are_rejected(network: Network) -> None:
    async with network.participant() as participant:
        await network.lead_and_follow(1, StateRow(ORDERS_0), StateRow(ORDERS_1))

        await participant.fail_directory([ORDERS_0, BILLS_0])

        assert [notification.broker for notification in await network.store.log_dir_notifications()] == [1]
        assert await network.lead_and_follow(
            1, StateRow(ORDERS_0, leader_epoch=1), StateRow(BILLS_0), StateRow(ORDERS_1, leader_epoch=1)
        ) == [56, 56, 0]

        await participant.restart()
        assert await network.lead_and_follow(1, StateRow(ORDERS_0)) == [0]


@pytest.mark.parametrize("delete", [False, True])
async def test_directory_that_fails_while_a_listener_stops_a_replica(network: Network, delete: bool) -> None:
    """A deletion that succeeds nevertheless has deleted the data."""
    begun, done = anyio.Event(), anyio.Event()
    codes: list[int] = []

    class Slow(Listener):
        async def stopped(self, name: TopicPartition, *, deleted: bool) -> None:
            begun.set()
            await done.wait()

    async def stop() -> None:
        response = await network.send(1, stop_replica(ORDERS_0, leader_epoch=1, delete=delete))
        assert isinstance(response, StopReplicaResponse)
        codes.append(errors(response.partitions)[ORDERS_0])

    async with network.participant(listener=Slow()) as participant, anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, StateRow(ORDERS_0))
        tasks.start_soon(stop)
        await begun.wait()
        await participant.fail_directory([ORDERS_0])
        done.set()
        await settle()

        assert codes == [0 if delete else 56]
        view = participant.hosted(ORDERS_0)
        assert view is not None
        assert (view.role, view.failed) == (Role.NONE if delete else Role.LEADER, True)
        assert await network.lead_and_follow(1, StateRow(ORDERS_0, leader_epoch=2)) == [56]


# -- delayed copies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "call"),
    [
        (leader_and_isr(StateRow(ORDERS_0, leader_epoch=9)), "leads orders-0 at 9 with (1, 2, 3)"),
        (stop_replica(ORDERS_0, leader_epoch=9), "stops orders-0"),
        (stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True), "deletes orders-0"),
    ],
    ids=["lead", "stop", "delete"],
)
@pytest.mark.parametrize(
    ("epoch", "number", "is_skipped"),
    [(1, 6, True), (1, 7, False), (1, 8, False), (2, 1, False), (1, 0, False)],
    ids=["earlier", "repeated", "later", "of a later controller", "without a number"],
)
async def test_request_about_a_topic_without_an_id_is_skipped_after_a_later_one(
    network: Network, order: LeaderAndIsr | StopReplica, call: str, epoch: int, number: int, is_skipped: bool
) -> None:
    follow = leader_and_isr(StateRow(ORDERS_0, leader=2, leader_epoch=1))
    async with network.participant(listener=(recorder := Recorder())):
        await network.send(1, dataclasses.replace(follow, number=7))
        await network.send(1, update_metadata(StateRow(ORDERS_0), number=90))
        response = await network.send(1, dataclasses.replace(order, controller_epoch=epoch, number=number))

        assert response.error == (ErrorCode.INVALID_REQUEST if is_skipped else ErrorCode.NONE)
        assert recorder.calls == ["follows 2 for orders-0 at 1", *([] if is_skipped else [call])]


async def test_delayed_request_about_a_topic_with_an_id_is_judged_by_its_rows(network: Network) -> None:
    async with network.participant(listener=(recorder := Recorder())):
        first = leader_and_isr(StateRow(ORDERS_0, leader=2, leader_epoch=1, topic_id=ID_A))
        await network.send(1, dataclasses.replace(first, number=7))
        later = leader_and_isr(StateRow(ORDERS_0, leader_epoch=2, topic_id=ID_A))
        await network.send(1, dataclasses.replace(later, number=6))

        assert recorder.calls[1:] == ["leads orders-0 at 2 with (1, 2, 3)"]
