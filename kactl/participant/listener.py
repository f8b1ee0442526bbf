"""What an application is told of its replicas."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio.lowlevel
import numpy as np

from kactl.errors import ErrorCode
from kactl.messages.control import Shorts
from kactl.model import TopicPartition
from kactl.runtime.logs import logger
from kactl.state.rows import Bools
from kactl.stores.base import Names

log = logger(__name__)

# After so many calls that did not wait, others get their turn: the session must be kept alive meanwhile.
CALLS_PER_TURN: Final = 1_000


class Listener:
    """Derive from this and override what you want to be told; every method may be `async` as well.

    The participant does one instruction after the other and waits for each call: a call that hangs makes a broker
    that hangs. A call that raises has not happened: the controller is told that the replica's storage failed, what
    the participant knew of the replica stays as it was, and the same instruction is taken when it comes again. So
    every call has to bear being repeated.
    """

    def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> Awaitable[None] | None:
        """Lead from now on. Called again under a higher epoch if this broker stays the leader."""
        return None

    def became_follower(self, name: TopicPartition, *, leader: int, leader_epoch: int) -> Awaitable[None] | None:
        """Follow from now on. `leader` may be NO_LEADER: there is nobody to follow then."""
        return None

    def stopped(self, name: TopicPartition, *, deleted: bool) -> Awaitable[None] | None:
        """Serve the replica no more: it was stopped, or the broker's registration has ended.

        With `deleted` its data is to be deleted; this may come for a replica of which an earlier life of the broker
        has left nothing, or something.
        """
        return None


def overrides(listener: Listener, method: str) -> bool:
    """Whether the listener wants to be told; asking each of a hundred thousand rows would be dear."""
    return getattr(type(listener), method, None) is not getattr(Listener, method)


async def tell(
    call: Callable[[TopicPartition, int], Awaitable[None] | None], names: Names, chosen: Bools, error: Shorts
) -> None:
    """Make one call for each chosen row, with its name and its position, in order.

    Rows whose call raised are marked as failed in `error`, int16[n], and are chosen no more.
    """
    positions = np.flatnonzero(chosen).tolist()
    for count, (position, name) in enumerate(zip(positions, names.take(chosen), strict=True), start=1):
        try:
            waited = call(name, position)
            if waited is not None:
                await waited
        except Exception:
            log.exception("the listener failed for %s: the instruction counts as not carried out", name)
            error[position] = ErrorCode.KAFKA_STORAGE_ERROR
            chosen[position] = False
        if count % CALLS_PER_TURN == 0:
            await anyio.lowlevel.checkpoint()
