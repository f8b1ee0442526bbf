"""Rejected ISR proposals of leaders that do not survive an error: version 0 of AlterPartition, Kafka 2.7 to 3.1.

By default broker 1 leads t-0 under leader epoch 5, ISR {1}, version 9.
"""

import logging

import pytest

from kactl.actors.handlers.isr_proposals import REPEAT_MS
from kactl.decide.messages.admin import UndrainBroker
from kactl.decide.messages.control import StopReplica
from kactl.model import Assignment, Drain, Maintenance
from kactl.model.errors import ErrorCode, StoreUnavailable
from kactl.stores.base import Names
from tests.support.clocks import settle
from tests.support.controller_harness import World
from tests.support.scripted_store import fails

from .one_partition import EPOCH, T0, VERSION, led_partition, proposal, propose

pytestmark = pytest.mark.anyio

FENCED, NONE = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE


async def proposed_anew(made: World, *isr: int) -> ErrorCode:
    """Propose an ISR under the stored epochs, which the leader has received. Returns the error."""
    stored = (await made.store.leaderships(Names.of([T0]))).one(0)
    assert stored is not None
    assert made.brokers.told(1)["t-0"][:2] == (1, stored.leader_epoch)
    now = proposal(isr, leader_epoch=stored.leader_epoch, version=stored.partition_epoch)
    (result,) = await propose(made, now, version=0)
    return result.error


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize(
    ("version", "expected"),
    [(0, NONE), (1, ErrorCode.OPERATION_NOT_ATTEMPTED), (2, ErrorCode.INELIGIBLE_REPLICA)],
)
async def test_follower_in_shutdown_joins_in_the_first_version_only(
    version: int, expected: ErrorCode, drained: bool
) -> None:
    async with led_partition(isr=(1,)) as made:
        if drained:
            made.controller.cluster.set_maintenance(Maintenance({2: Drain(0)}))
        else:
            made.controller.cluster.mark_shutting_down(2)

        (result,) = await propose(made, proposal((1, 2)), version=version)

        assert result.error is expected


async def test_drained_follower_that_joined_leaves_again() -> None:
    """Its last fetch may be on its way while it is drained. Producers would wait for it."""
    async with led_partition(isr=(1,)) as made:
        made.controller.cluster.set_maintenance(Maintenance({2: Drain(0)}))

        await propose(made, proposal((1, 2)), version=0)
        await settle()

        assert await made.stored("t-0") == (1, EPOCH + 1, (1,))
        assert made.brokers.told(1)["t-0"][:3] == (1, EPOCH + 1, (1,))
        assert made.brokers.told(2) == {}
        assert made.brokers.of(2, StopReplica)


async def test_rejection_of_an_absent_follower_raises_the_leader_epoch() -> None:
    async with led_partition(isr=(1,), brokers=(1, 3), assignment=Assignment((1, 2, 3))) as made:
        (result,) = await propose(made, proposal((1, 2)), version=0)

        assert result.error is FENCED
        assert await made.stored("t-0") == (1, EPOCH + 1, (1,))
        assert made.brokers.told(3)["t-0"][:2] == (1, EPOCH + 1)
        assert await proposed_anew(made, 1, 3) is NONE
        await made.start(2)
        assert await made.stored("t-0") == (1, EPOCH + 1, (1, 3))


async def test_rejection_of_a_leaderless_isr_raises_the_leader_epoch() -> None:
    async with led_partition() as made:
        (result,) = await propose(made, proposal((2,)), version=0)

        assert result.error is FENCED
        assert await proposed_anew(made, 1) is NONE


async def test_rejection_of_an_old_version_raises_the_leader_epoch() -> None:
    async with led_partition() as made:
        (result,) = await propose(made, proposal((1,), version=VERSION - 1), version=0)

        assert result.error is FENCED
        assert await proposed_anew(made, 1) is NONE


async def test_proposal_of_another_broker_raises_no_leader_epoch() -> None:
    async with led_partition() as made:
        (result,) = await propose(made, proposal((1, 2), version=VERSION + 1), broker=2, version=0)

        assert result.error is not NONE
        assert await made.stored("t-0") == (1, EPOCH, (1, 2))


async def test_failed_write_of_an_isr_raises_the_leader_epoch() -> None:
    async with led_partition() as made:
        made.script("commit", fails(StoreUnavailable("gone")))

        (result,) = await propose(made, proposal((1,)), version=0)

        assert result.error is FENCED
        assert await made.stored("t-0") == (1, EPOCH + 1, (1, 2))
        assert await proposed_anew(made, 1) is NONE


async def test_leader_repeats_all_proposals_if_no_leader_epoch_can_be_written() -> None:
    async with led_partition(partitions=2) as made:
        both = proposal((2,)), proposal((1,), partition=1)
        made.script("commit", *[fails(StoreUnavailable("gone"))] * 2)

        with pytest.raises(StoreUnavailable, match="proposes them again"):
            await propose(made, *both, version=0)
        results = await propose(made, *both, version=0)

        assert [result.error for result in results] == [FENCED, NONE]
        assert await made.stored("t-1") == (1, EPOCH, (1,))


async def test_unassigned_replica_is_stopped_at_its_first_proposal() -> None:
    """The leader's proposal stays in flight, so it cannot propose a second time."""
    async with led_partition(isr=(1,), assignment=Assignment((1,))) as made:
        (result,) = await propose(made, proposal((1, 2)), version=0)
        await settle()

        assert result.error is FENCED
        stops = [request for request in made.brokers.of(2, StopReplica) if isinstance(request, StopReplica)]
        assert [delete for request in stops for delete in request.delete.tolist()] == [False, True]
        assert await proposed_anew(made, 1) is NONE


async def test_repeated_rejection_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kactl.actors.handlers.alter_partition")
    async with led_partition(isr=(1,), brokers=(1,), partitions=2) as made:
        for _ in range(3):
            await propose(made, proposal((1, 2)))
        await propose(made, proposal((1, 2)), proposal((1, 2), partition=1))
        await made.wait(REPEAT_MS)
        await propose(made, proposal((1, 2)), proposal((1, 2), partition=1))

        lines = [record.getMessage() for record in caplog.records if "are rejected" in record.getMessage()]
        assert [line.split()[0] for line in lines] == ["1", "1", "2"]
        assert "first: t-0" in lines[0]
        assert "first: t-1" in lines[1]
        # Three of the first partition and none of the second one were not logged; two are new.
        assert [line.split("; ")[-1].split()[0] for line in lines] == ["1", "1", "5"]


# -- drained brokers ---------------------------------------------------------------------------------------------------


def stops_after_orders(made: World, broker: int) -> list[str]:
    """Returns the kinds of requests that a broker received for partitions, in order."""
    return [type(request).__name__ for request in made.brokers.of(broker) if type(request).__name__ != "UpdateMetadata"]


ORDER_AND_STOP = ["LeaderAndIsr", "StopReplica"]


async def test_drained_leader_is_stopped_after_its_leadership_moved() -> None:
    """It would follow, fetch, and be proposed for the ISR for as long as it is drained."""
    async with led_partition() as made:
        await made.controller.drain(1)
        await settle()

        assert await made.stored("t-0") == (2, EPOCH + 1, (2,))
        assert stops_after_orders(made, 1) == ORDER_AND_STOP
        (stop,) = made.brokers.of(1, StopReplica)
        assert isinstance(stop, StopReplica)
        assert (stop.leader_epoch.tolist(), stop.delete.tolist()) == ([EPOCH + 1], [False])


async def test_drained_broker_stays_stopped_when_another_follower_fails() -> None:
    async with led_partition(isr=(1, 2, 3), brokers=(1, 2, 3), assignment=Assignment((1, 2, 3))) as made:
        await made.controller.drain(3)
        await settle()
        made.brokers.forget()

        await made.stop(2)

        assert await made.stored("t-0") == (1, EPOCH + 2, (1,))
        assert stops_after_orders(made, 3) == ORDER_AND_STOP


@pytest.mark.parametrize("broker", [1, 2])
async def test_restored_broker_receives_a_leader_epoch_after_its_stops(broker: int) -> None:
    """Brokers ignore a LeaderAndIsr under the leader epoch that they know; 1 led, and 2 followed."""
    async with led_partition(brokers=(1, 2, 3), isr=(1, 2, 3), assignment=Assignment((1, 2, 3))) as made:
        await made.controller.drain(broker)
        await made.stop(3)
        stopped = [
            epoch for request in made.brokers.of(broker, StopReplica)
            if isinstance(request, StopReplica) for epoch in request.leader_epoch.tolist()
        ]  # fmt: skip
        made.brokers.forget()

        assert await made.controller.ask(UndrainBroker(broker)) is True
        await settle()

        assert made.brokers.told(broker)["t-0"][1] > max(stopped)
        assert stops_after_orders(made, broker) == ["LeaderAndIsr"]
