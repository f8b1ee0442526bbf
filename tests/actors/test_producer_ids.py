"""Producer id blocks requested by brokers."""

import pytest

from kactl.actors.handlers.producer_ids import TRIES_MAX
from kactl.actors.system import Controller
from kactl.decide.messages.broker import PRODUCER_ID_BLOCK_SIZE, AllocateProducerIds
from kactl.model import ProducerIdBlock
from kactl.model.errors import (
    BrokerNotRegistered,
    ErrorCode,
    NotController,
    ProducerIdsExhausted,
    StaleBrokerEpoch,
    StoreError,
)
from kactl.stores.memory import MemoryStore
from tests.support.clocks import settle
from tests.support.controller_harness import CONTROLLER, World, open_standby, world

from .one_partition import epoch_of, led_partition, send_request

pytestmark = pytest.mark.anyio


async def next_block(made: World, broker: int = 1) -> tuple[int, int, int]:
    block = await send_request(made, AllocateProducerIds(broker, epoch_of(made, broker)))
    assert isinstance(block, ProducerIdBlock)
    return block.broker, block.first, block.length


@pytest.mark.scenario(404)
async def test_blocks_are_consecutive() -> None:
    async with world(1, 2) as made:
        assert (await made.store.producer_ids())[0] is None

        assert await next_block(made, 1) == (1, 0, 1000)
        assert await next_block(made, 2) == (2, 1000, 1000)

        assert (await made.store.producer_ids())[0] == ProducerIdBlock(2, 1000, 1000)


async def test_next_controller_continues_after_the_last_block() -> None:
    async with world(1) as made:
        await next_block(made)
        other, _ = open_standby(made, 7)
        async with other:
            await made.store.contest(98, take_over=True)  # another controller in between
            await made.store.resign(await made.store.contest(98, take_over=True))
            await settle()
            active = other if other.is_active else made.controller
            found = active.hub.controller(active.node_id)
            assert found is not None

            block = await found(AllocateProducerIds(1, epoch_of_active(active)))

            assert (block.first, block.last) == (1000, 1999)


def epoch_of_active(controller: Controller) -> int:
    return controller.cluster.brokers[1].epoch


@pytest.mark.scenario(405)
async def test_stale_broker_epoch_and_standby_get_no_block() -> None:
    async with world(1) as made:
        epoch = epoch_of(made, 1)
        with pytest.raises(BrokerNotRegistered) as unknown:
            await send_request(made, AllocateProducerIds(99, epoch))
        for wrong in (epoch - 1, epoch + 1):
            with pytest.raises(StaleBrokerEpoch) as stale:
                await send_request(made, AllocateProducerIds(1, wrong))
        other, _ = open_standby(made, 7)
        async with other:
            await settle()
            found = other.hub.controller(7)
            assert found is not None
            with pytest.raises(NotController) as inactive:
                await found(AllocateProducerIds(1, epoch))

        assert unknown.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
        assert stale.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert (inactive.value.code, inactive.value.active_id) == (ErrorCode.NOT_CONTROLLER, CONTROLLER)
        assert (await made.store.producer_ids())[0] is None


class Contended(MemoryStore):
    """Another instance takes the block first, a given number of times."""

    faster = 0

    async def write_producer_ids(self, block: ProducerIdBlock, *, expected: int) -> bool:
        if self.faster:
            self.faster -= 1
            other = ProducerIdBlock(50, block.first, block.length)
            assert await super().write_producer_ids(other, expected=expected)
        return await super().write_producer_ids(block, expected=expected)


def contended(store: MemoryStore) -> MemoryStore:
    return Contended(store.state, clock=store._clock)


@pytest.mark.scenario(406)
async def test_taken_block_is_skipped() -> None:
    async with led_partition(make_store=contended) as made:
        made.controller.store.faster = 1  # type: ignore[attr-defined]

        assert await next_block(made) == (1, 1000, 1000)


async def test_repeated_conflicts_fail_the_request() -> None:
    async with led_partition(make_store=contended) as made:
        made.controller.store.faster = TRIES_MAX  # type: ignore[attr-defined]

        with pytest.raises(StoreError, match=f"producer ids {TRIES_MAX} times"):
            await next_block(made)
        assert (await next_block(made))[1] == TRIES_MAX * PRODUCER_ID_BLOCK_SIZE


@pytest.mark.scenario(407)
async def test_ids_are_limited_to_the_highest_number() -> None:
    async with world(1) as made:
        _, version = await made.store.producer_ids()
        last_but_one = ProducerIdBlock(50, 2**63 - 1 - 1999, 1000)
        assert await made.store.write_producer_ids(last_but_one, expected=version)
        assert last_but_one.last == 2**63 - 1 - 1000

        assert await next_block(made) == (1, 2**63 - 1 - 999, 1000)  # the last id is the highest number
        with pytest.raises(ProducerIdsExhausted) as exhausted:
            await next_block(made)

        _, version = await made.store.producer_ids()
        assert await made.store.write_producer_ids(ProducerIdBlock(50, 2**63 - 1998, 1000), expected=version)
        last, _ = await made.store.producer_ids()
        assert last is not None
        assert last.last == 2**63 - 999
        with pytest.raises(ProducerIdsExhausted):
            await next_block(made)
        assert exhausted.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
