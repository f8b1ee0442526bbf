"""Callbacks through which an application follows the state of its replicas."""

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

# The event loop runs other tasks after this many calls: the session must be kept alive meanwhile.
CALLS_PER_TURN: Final = 1_000


class Listener:
    """Base class for an application's callbacks. Override those that you need; every method may be `async` as well.

    The participant carries out one request at a time and waits for each call, so a call that hangs makes the broker
    hang. If a call raises, the participant reports a storage failure of the replica to the controller, leaves its state
    of the replica unchanged, and accepts the same request again. Every call must therefore be idempotent.
    """

    def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> Awaitable[None] | None:
        """Lead the partition from now on. Called again with a higher epoch if this broker remains the leader."""
        return None

    def became_follower(self, name: TopicPartition, *, leader: int, leader_epoch: int) -> Awaitable[None] | None:
        """Follow `leader` from now on. If it is NO_LEADER, the partition has no leader to follow."""
        return None

    def stopped(self, name: TopicPartition, *, deleted: bool) -> Awaitable[None] | None:
        """Stop serving the replica: it was stopped, or the broker's registration has ended.

        If `deleted` is true, delete the replica's data. The call may also concern a replica that this registration has
        never served, and of which an earlier registration of the broker may have left data.
        """
        return None


def overrides(listener: Listener, method: str) -> bool:
    """Returns whether the listener overrides a method; otherwise the calls for up to 100,000 rows are skipped."""
    return getattr(type(listener), method, None) is not getattr(Listener, method)


async def call_listener(
    call: Callable[[TopicPartition, int], Awaitable[None] | None], names: Names, chosen: Bools, error: Shorts
) -> None:
    """Call `call` for each chosen row in order, with its name and its position.

    If a call raises, the row's error in int16[n] `error` is set to KAFKA_STORAGE_ERROR, and the row is not chosen any
    more.
    """
    positions = np.flatnonzero(chosen).tolist()
    for count, (position, name) in enumerate(zip(positions, names.take(chosen), strict=True), start=1):
        try:
            pending = call(name, position)
            if pending is not None:
                await pending
        except Exception:
            log.exception("the listener failed for %s: the request is not carried out for this partition", name)
            error[position] = ErrorCode.KAFKA_STORAGE_ERROR
            chosen[position] = False
        if count % CALLS_PER_TURN == 0:
            await anyio.lowlevel.checkpoint()
