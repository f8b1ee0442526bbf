"""Time limit of a call, by an injected clock."""

import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from .clock import Clock

T = TypeVar("T")


async def limited(clock: Clock, limit_ms: float, call: Callable[[], Awaitable[T]], late: Exception) -> T:
    """Returns the result of a call. An infinite limit is none.

    Raises:
        Exception: what the call raises, outside any group; or `late` if it has not returned in time, and was cancelled.
    """
    if limit_ms == math.inf:
        return await call()
    results: list[T] = []
    failure: Exception = late

    async def run() -> None:
        nonlocal failure
        try:
            results.append(await call())
        except Exception as error:
            failure = error
        timed.cancel_scope.cancel()

    async with anyio.create_task_group() as timed:
        timed.start_soon(run)
        await clock.sleep_ms(limit_ms)
        timed.cancel_scope.cancel()
    if results:
        return results[0]
    raise failure
