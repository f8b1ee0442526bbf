"""Threads for kactl's own blocking work: files, certificates, passwords, large messages.

Jobs of the host program fill asyncio's default executor, and anyio's limit of 40 threads, for as long as they take.
kactl's work must not wait for them, because leases depend on it.
"""

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Of one kind, in one event loop. Most of the work takes milliseconds.
THREADS_MAX: Final = 16
# Of a login at a server. A mechanism of the host program may fetch a token from a server that does not answer.
LOGINS: Final = "logins"
_limiters: Final[RunVar[dict[str, anyio.CapacityLimiter]]] = RunVar("kactl's threads")


async def run_in_thread(work: Callable[[*Ts], T], *args: *Ts, kind: str = "work", abandon_on_cancel: bool = False) -> T:
    """Returns the result of a function that blocks.

    Args:
        kind: of work, each of which has threads of its own.
        abandon_on_cancel: whether a cancelled caller returns at once, while the thread completes its work.
    """
    limiters = _limiters.get(None)
    if limiters is None:
        limiters = {}
        _limiters.set(limiters)
    limiter = limiters.setdefault(kind, anyio.CapacityLimiter(THREADS_MAX))
    return await anyio.to_thread.run_sync(work, *args, limiter=limiter, abandon_on_cancel=abandon_on_cancel)
