"""A move as both machines make it: in chunks, and brokers told in portions of what is kept already.

Not an actor; each machine has one. What to do with a chunk is the machine's; this is what holds for any.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from kactl.clock import Clock, SystemClock
from kactl.errors import ControllerMoved, StoreError
from kactl.outbound.batch import RequestBatch
from kactl.state.cluster import Cluster
from kactl.state.rows import RowNumbers

from ..chunks import WHOLE, SendBuffer, in_chunks
from .commit import Committer
from .outbox import Outbox

T = TypeVar("T")


class Large(Protocol):
    """What may have to be parted; see `messages.Move` for its attributes."""

    @property
    def at(self) -> RowNumbers: ...

    @property
    def pause(self) -> Callable[[], bool]: ...

    @property
    def high_rate(self) -> bool: ...


class ChunkedMove:
    """See the module.

    Args:
        chunk: how many rows are made at one time.

    Attributes:
        batch: where the machine gathers what is to be sent; empty between moves.
        outbox: where it goes then.
    """

    def __init__(
        self, cluster: Cluster, committer: Committer, outbox: Outbox, *, chunk: int = WHOLE, clock: Clock | None = None
    ) -> None:
        self.chunk = chunk
        self.batch = RequestBatch(cluster)
        self.outbox = outbox
        self._cluster = cluster
        self._committer = committer
        self._clock = SystemClock() if clock is None else clock

    async def run(
        self,
        move: Large,
        *,
        begin: Callable[[slice], Coroutine[Any, Any, T]],
        finish: Callable[[T], Awaitable[None]],
        whole: bool = False,
    ) -> tuple[int, bool]:
        """Begin and finish each chunk, and send what that gathers.

        After the store has failed a whole call nothing is tried any more: the rest is noted as undone.

        Args:
            whole: send everything at the end, in place of a portion after some chunks.

        Returns:
            for how many rows, from the first on, the move was made, and whether the rest was given up; if not, it
            waits for the end of a pause.

        Raises:
            ControllerMoved, StoreError: nothing was sent but what was kept in earlier portions.
        """
        failures = self._committer.failures
        portions = SendBuffer(self._clock)
        self.batch.begin()

        async def finished(begun: T) -> bool:
            await finish(begun)
            if not whole and portions.is_full():
                self._send()
            return self._committer.failures == failures

        try:
            count = len(move.at)
            done = await in_chunks(
                count, self.chunk, begin=begin, finish=finished, pause=move.pause, high_rate=move.high_rate
            )
        except (ControllerMoved, StoreError):
            raise
        except Exception:
            # A mistake of ours: what was kept before is in force.
            self._send()
            raise
        else:
            self._send()
        finally:
            # Whatever ended the move, the next one begins with an empty batch.
            self.batch.clear()
        given_up = done < count and self._committer.failures > failures
        if given_up:
            self._cluster.mark_for_retry(move.at[done:])
        return done, given_up

    def _send(self) -> None:
        self.outbox.send(self.batch.flush())
