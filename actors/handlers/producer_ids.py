"""Brokers want producer ids; what the controller does then.

Source: the classic controller's processAllocateProducerIds, ZkProducerIdManager.
"""

from typing import Final

from kactl.errors import BrokerNotRegistered, ProducerIdsExhausted, StaleBrokerEpoch, StoreError
from kactl.messages.broker import PRODUCER_ID_BLOCK_SIZE, ProducerIdsRequested
from kactl.messages.events import Event
from kactl.model import ProducerIdBlock
from kactl.runtime.logs import logger

from .base import Handler, Handlers

log = logger(__name__)

PRODUCER_ID_MAX: Final = 2**63 - 1
# Whoever refuses us has taken a block itself, as brokers below protocol level 3.0 do when they start: one for each
# broker of a large cluster.
TRIES_MAX: Final = 100


class ProducerIds(Handlers):
    """See the module."""

    def handlers(self) -> dict[type[Event], Handler]:
        return {ProducerIdsRequested: self.on_producer_ids_requested}

    async def on_producer_ids_requested(self, event: ProducerIdsRequested) -> ProducerIdBlock:
        """Give the next block away. One whose writing got no answer is lost, and the broker asks for another: to give
        it after all could be to give it twice."""
        known = self.cluster.brokers.get(event.broker)
        if known is None:
            raise BrokerNotRegistered(event.broker)
        if known.epoch != event.broker_epoch:
            raise StaleBrokerEpoch(event.broker, event.broker_epoch, known.epoch)
        for _ in range(TRIES_MAX):
            last, version = await self.store.producer_ids()
            block = following(last, event.broker)
            if await self.store.write_producer_ids(block, expected=version):
                log.info("broker %d was given the producer ids %d to %d", block.broker, block.first, block.last)
                return block
        raise StoreError(f"others were faster {TRIES_MAX} times to take a block of producer ids; ask again")


def following(last: ProducerIdBlock | None, broker: int) -> ProducerIdBlock:
    """The block behind the last one.

    Raises:
        ProducerIdsExhausted: there is none.
    """
    if last is None:
        return ProducerIdBlock(broker, 0, PRODUCER_ID_BLOCK_SIZE)
    if last.last > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise ProducerIdsExhausted(last.last)
    return ProducerIdBlock(broker, last.last + 1, PRODUCER_ID_BLOCK_SIZE)
