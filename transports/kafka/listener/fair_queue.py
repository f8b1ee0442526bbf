"""Fair queues of connections for CPU-bound work on the event loop.

The loop cannot interrupt the decoding of a request or the encoding of its response. Connections of one kind do this
work one at a time, in steps; the loop runs everything else between two steps, and between two connections. Each kind
therefore takes one step per iteration of the loop, whatever the number of its connections, and clients cannot delay
brokers. The waiting connection that has had the fewest turns lately is next: a connection that sends requests without
end delays only others that do the same. Earlier turns count less and less; otherwise new connections would precede one
that has been open for long.
"""

import asyncio
import contextlib
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

from .field_types import Steps

_T = TypeVar("_T")

# After this time a turn counts half. A tool that sends a request each second has about three turns, and one that sends
# without a pause has hundreds.
_HALF_S: Final = 1.0


class Turns:
    """The turns that one connection has had lately."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._count = 0.0
        self._counted_s = now_s()

    def take(self) -> float:
        """Count a turn. Returns the number of turns, of which earlier ones count less."""
        now_s = self._now_s()
        self._count = self._count * 0.5 ** ((now_s - self._counted_s) / _HALF_S) + 1
        self._counted_s = now_s
        return self._count


class StepRunner:
    """Runs the work of the connection that has its turn."""

    async def steps(self, steps: Steps[_T]) -> _T:
        """Run the steps; the loop runs other tasks in between. Returns their result, and raises their exceptions."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                value: _T = end.value
                return value
            await asyncio.sleep(0)


class FairQueues:
    """One queue for each kind of connection.

    Args:
        kinds: the names of the kinds.
    """

    def __init__(self, kinds: Iterable[str]) -> None:
        self._queues = {kind: _Queue() for kind in kinds}
        self._runner = StepRunner()

    @contextlib.asynccontextmanager
    async def take(self, kind: str, turns: Turns) -> AsyncIterator[StepRunner]:
        """Wait for a turn. The next turn begins in a later iteration of the loop.

        Args:
            turns: of the connection.
        """
        queue = self._queues[kind]
        await queue.acquire(turns.take())
        try:
            yield self._runner
        finally:
            try:
                await asyncio.sleep(0)
            finally:
                queue.release()


class _Queue:
    """A lock that is acquired by the waiter that has held it least often lately."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = itertools.count()

    async def acquire(self, had: float) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        acquired = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (had, next(self._number), acquired))
        try:
            await acquired
        except BaseException:
            if acquired.done() and not acquired.cancelled():
                self.release()
            raise

    def release(self) -> None:
        while self._waiting:
            _, _, acquired = heapq.heappop(self._waiting)
            if not acquired.done():
                acquired.set_result(None)
                return
        self._is_taken = False
