"""Allocation of producer id blocks to brokers.

Source: the classic controller's processAllocateProducerIds, ZkProducerIdManager.
"""

from typing import Final

from kactl.decide.messages.broker import PRODUCER_ID_BLOCK_SIZE, AllocateProducerIds
from kactl.decide.messages.events import Event
from kactl.model import ProducerIdBlock
from kactl.model.errors import BrokerNotRegistered, ProducerIdsExhausted, StaleBrokerEpoch, StoreError
from kactl.runtime.logs import logger

from .base import Handler, Handlers

log = logger(__name__)

PRODUCER_ID_MAX: Final = 2**63 - 1
# A write is rejected if a broker took a block itself, as brokers below protocol level 3.0 do at startup: at most once
# per broker of a large cluster.
TRIES_MAX: Final = 100


class ProducerIds(Handlers):
    """Handler of requests for producer ids."""

    def handlers(self) -> dict[type[Event], Handler]:
        return {AllocateProducerIds: self.on_allocate_producer_ids}

    async def on_allocate_producer_ids(self, event: AllocateProducerIds) -> ProducerIdBlock:
        """Returns the next block.

        A block is lost if its write got no response, and the broker requests another one: returning it could
        allocate it twice.
        """
        known = self.cluster.brokers.get(event.broker)
        if known is None:
            raise BrokerNotRegistered(event.broker)
        if known.epoch != event.broker_epoch:
            raise StaleBrokerEpoch(event.broker, event.broker_epoch, known.epoch)
        for _ in range(TRIES_MAX):
            last, version = await self.store.producer_ids()
            block = following(last, event.broker)
            if await self.store.write_producer_ids(block, expected=version):
                log.info("producer ids %d to %d are allocated to broker %d", block.first, block.last, block.broker)
                return block
        raise StoreError(f"other brokers took the next block of producer ids {TRIES_MAX} times; retry")


def following(last: ProducerIdBlock | None, broker: int) -> ProducerIdBlock:
    """Returns the block that follows the last one.

    Raises:
        ProducerIdsExhausted: all ids are allocated.
    """
    if last is None:
        return ProducerIdBlock(broker, 0, PRODUCER_ID_BLOCK_SIZE)
    if last.last > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise ProducerIdsExhausted(last.last)
    return ProducerIdBlock(broker, last.last + 1, PRODUCER_ID_BLOCK_SIZE)
