"""Turns of connections at the event loop.

Decoding a request and encoding its answer is work that the loop cannot interrupt. Connections of one kind do it one
after the other, in steps: between two steps, and between two connections, the loop runs everything else. So each kind
takes one step of each turn of the loop, however many connections it has, and clients cannot keep brokers waiting.
Among those that wait, the one that has had the fewest turns is next: a connection that sends requests without an end
keeps only others of its like waiting.
"""

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

from .schema import Steps

_T = TypeVar("_T")


class Turn:
    """The turn of one connection."""

    async def steps(self, steps: Steps[_T]) -> _T:
        """Carry out steps with the loop running in between; raises what they raise."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                value: _T = end.value
                return value
            await asyncio.sleep(0)


class Turns:
    """One turn at a time for each kind of connection.

    Args:
        kinds: their names.
    """

    def __init__(self, kinds: Iterable[str]) -> None:
        self._queues = {kind: _Queue() for kind in kinds}
        self._turn = Turn()

    @contextlib.asynccontextmanager
    async def take(self, kind: str, *, had: int) -> AsyncIterator[Turn]:
        """Wait for a turn. The next one begins in a later turn of the loop.

        Args:
            had: how many turns the connection has had.
        """
        queue = self._queues[kind]
        await queue.acquire(had)
        try:
            yield self._turn
        finally:
            try:
                await asyncio.sleep(0)
            finally:
                queue.release()


class _Queue:
    """A lock that goes to whoever has had it least."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._number = itertools.count()

    async def acquire(self, had: int) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        mine = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (had, next(self._number), mine))
        try:
            await mine
        except BaseException:
            if mine.done() and not mine.cancelled():
                self.release()
            raise

    def release(self) -> None:
        while self._waiting:
            _, _, mine = heapq.heappop(self._waiting)
            if not mine.done():
                mine.set_result(None)
                return
        self._is_taken = False
