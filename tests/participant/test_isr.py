"""Which followers join an ISR: with a controller that commits each proposal; test_isr_proposer has the proposals."""

from typing import Any

import msgspec
import pytest

from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.broker import AlterPartitionReceived, IsrResult
from kactl.model import Leadership, TopicPartition
from kactl.model.errors import ErrorCode
from kactl.participant import Participants
from kactl.participant.isr import RETRY_MS
from tests.support.clocks import settle
from tests.support.control_requests import CONTROLLER, ORDERS_0, update_metadata

from .conftest import SESSION_MS, Network

pytestmark = pytest.mark.anyio


def stored_isr_group(network: Network, **options: Any) -> Participants:
    """Returns participants whose proposals are committed as they are, unless another writer was faster."""

    async def commit(request: ControllerRequest, /) -> list[IsrResult]:
        assert isinstance(request, AlterPartitionReceived)
        results = []
        for proposal in request.proposals:
            name = TopicPartition("orders", proposal.partition)
            wanted = Leadership(
                1, proposal.leader_epoch, proposal.isr, proposal.partition_epoch, 1, bool(proposal.recovering)
            )
            version = await network.store.write_isr(name, wanted, expected=proposal.partition_epoch)
            error = ErrorCode.NONE if version is not None else ErrorCode.INVALID_UPDATE_VERSION
            committed = None if version is None else msgspec.structs.replace(wanted, partition_epoch=version)
            results.append(IsrResult(proposal.topic, proposal.partition, error, committed))
        return results

    network.hub.attach_controller(CONTROLLER, commit)
    options.setdefault("session_timeout_ms", SESSION_MS)
    return Participants(3, store=network.store, hub=network.hub, clock=network.clock, shutdown_attempts=0, **options)


async def isr(network: Network) -> tuple[int, ...]:
    stored = await network.stored()
    assert stored is not None
    return stored.isr


async def test_following_replica_joins_the_isr(network: Network) -> None:
    async with stored_isr_group(network) as brokers:
        await network.send_to_all(await network.elect(isr=(3, 1)))
        await settle()

        stored = await network.stored()
        assert stored == Leadership(
            leader=1, leader_epoch=0, isr=(1, 2, 3), partition_epoch=1, controller_epoch=1, recovering=False
        )
        hosted = brokers[1].hosted(ORDERS_0)
        assert hosted is not None
        assert (hosted.isr, hosted.partition_epoch) == ((1, 2, 3), 1)


async def test_request_order_of_leader_and_follower_does_not_matter(network: Network) -> None:
    async with stored_isr_group(network):
        row = await network.elect()
        for broker in (2, 1, 3):
            await network.lead_and_follow(broker, row)
        await settle()
        assert await isr(network) == (1, 3)  # no broker is known as live yet

        await network.send(1, update_metadata(row))
        await settle()
        assert await isr(network) == (1, 3)  # broker 2 does not know its leader as live

        await network.send(2, update_metadata(row))
        await settle()
        assert await isr(network) == (1, 2, 3)


async def test_replica_not_live_in_the_metadata_does_not_join(network: Network) -> None:
    async with stored_isr_group(network):
        row = await network.elect()
        await network.send_to_all(row, live=(1, 3))
        await network.send(2, update_metadata(row))
        await network.lead_and_follow(2, row)
        await settle()

        assert await isr(network) == (1, 3)


async def test_replica_following_an_older_epoch_does_not_join(network: Network) -> None:
    async with stored_isr_group(network):
        await network.send_to_all(await network.elect(isr=(1, 2, 3)))
        newer = await network.elect(isr=(1, 3), leader_epoch=1, expected=0)
        await network.send(1, update_metadata(newer))
        await network.lead_and_follow(1, newer)
        await settle()
        assert await isr(network) == (1, 3)

        await network.lead_and_follow(2, newer)
        await settle()
        assert await isr(network) == (1, 2, 3)


async def test_paused_follower_joins_after_resume(network: Network) -> None:
    async with stored_isr_group(network) as brokers:
        row = await network.elect()
        await network.send(2, update_metadata(row))
        await network.lead_and_follow(2, row)
        brokers.pause(2)
        await network.send_to_all(row, live=(1,))
        await network.send(1, update_metadata(row))
        await settle()
        assert await isr(network) == (1, 3)

        brokers.resume(2)
        await settle()
        assert await isr(network) == (1, 2, 3)


async def test_killed_follower_does_not_join_while_registered(network: Network) -> None:
    async with stored_isr_group(network) as brokers:
        row = await network.elect()
        await network.lead_and_follow(2, row)
        await network.send(2, update_metadata(row))
        await brokers.kill(2)
        await network.send_to_all(row, live=(1,))
        await network.send(1, update_metadata(row))
        await settle()

        assert await isr(network) == (1, 3)


async def test_replica_with_a_failed_directory_does_not_join(network: Network) -> None:
    async with stored_isr_group(network) as brokers:
        row = await network.elect()
        await network.send_to_all(row, live=(2, 3))
        await network.send(2, update_metadata(row))
        await brokers[2].fail_directory([ORDERS_0])
        await network.send(1, update_metadata(row))
        await network.lead_and_follow(1, row)
        await settle()

        assert await isr(network) == (1, 3)


async def test_newer_leadership_in_the_store_is_not_overwritten(network: Network) -> None:
    async with stored_isr_group(network):
        row = await network.elect()
        for broker in (2, 3):
            await network.send(broker, update_metadata(row))
            await network.lead_and_follow(broker, row)
        await network.elect(leader=3, isr=(3,), leader_epoch=1, expected=0)
        await network.send(1, update_metadata(row))
        await network.lead_and_follow(1, row)  # late
        await network.clock.advance(10 * RETRY_MS)

        stored = await network.stored()
        assert stored is not None
        assert (stored.leader, stored.leader_epoch, stored.isr, stored.partition_epoch) == (3, 1, (3,), 1)


async def test_leader_ends_its_recovery(network: Network) -> None:
    async with stored_isr_group(network):
        row = await network.elect(isr=(1, 2, 3))
        await network.send_to_all(row.but(recovering=True))
        await settle()

        stored = await network.stored()
        assert stored is not None
        assert (stored.isr, stored.recovering, stored.partition_epoch) == ((1, 2, 3), False, 1)


async def test_follower_joins_when_the_application_reports_it_in_sync(network: Network) -> None:
    calls: list[tuple[TopicPartition, int]] = []
    caught_up = False

    def in_sync(name: TopicPartition, follower: int) -> bool:
        calls.append((name, follower))
        return caught_up

    async with stored_isr_group(network, in_sync=in_sync):
        await network.send_to_all(await network.elect())
        await settle()
        assert set(calls) == {(ORDERS_0, 2)}
        assert await isr(network) == (1, 3)

        caught_up = True
        await network.clock.advance(RETRY_MS)
        assert await isr(network) == (1, 2, 3)
