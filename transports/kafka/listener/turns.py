"""Turns of connections at work on the event loop: decoding a request, encoding its response.

The loop cannot interrupt such work. Connections of one kind do it one at a time, in the order in which they wait, and
in steps; the loop runs everything else between two steps, and between two connections. Each kind therefore takes one
step per iteration of the loop, whatever the number of its connections, and clients cannot delay brokers. What the
requests of a principal or of an address take altogether is limited by its budget (`kactl.runtime.budget`).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

from .field_types import Steps

_T = TypeVar("_T")


class Turns:
    """The turns of all connections of a listener.

    Args:
        kinds: the names of the kinds of connections.
    """

    def __init__(self, kinds: Iterable[str]) -> None:
        self._locks = {kind: asyncio.Lock() for kind in kinds}

    @contextlib.asynccontextmanager
    async def take(self, kind: str) -> AsyncIterator[None]:
        """Wait for a turn. The next turn begins in a later iteration of the loop."""
        async with self._locks[kind]:
            try:
                yield
            finally:
                await asyncio.sleep(0)


async def stepwise(steps: Steps[_T]) -> _T:
    """Run the steps; the loop runs other tasks in between. Returns their result, and raises their exceptions."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: _T = end.value
            return value
        await asyncio.sleep(0)
