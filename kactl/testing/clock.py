"""Clock of simulated programs."""

import asyncio
from typing import Final

from kactl.runtime.clock import BootTime

from .loop import SimLoop
from .nodes import NODE

# Wall clock at the start of a run: an arbitrary moment with an even number of seconds.
START_MS: Final = 1_600_000_000_000


class LoopClock:
    """Clock in the virtual time of a loop. Wall clock and rate are those of the current node.

    Args:
        loop: by default the running one, which is looked up at each call.
    """

    def __init__(self, loop: SimLoop | None = None) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        loop = self._loop or _running()
        node = NODE.get()
        return START_MS + int(loop.now_s * 1000 + (0.0 if node is None else node.clock.wall_offset_ms))

    def monotonic_ms(self) -> float:
        return (self._loop or _running()).time() * 1000

    def boot_time(self) -> BootTime:
        return BootTime("simulated", int((self._loop or _running()).now_s * 1000))

    def lease_ns(self) -> int:
        # At the rate of the node, like the monotonic clock and unlike the one that all processes of a host share.
        loop, node = self._loop or _running(), NODE.get()
        ahead_s = 0.0 if node is None else node.clock.ahead_s(loop.now_s)
        return int((loop.time() + ahead_s) * 1_000_000_000)

    async def sleep_ms(self, delay_ms: float) -> None:
        await asyncio.sleep(delay_ms / 1000)


def _running() -> SimLoop:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SimLoop):
        raise RuntimeError("LoopClock needs a simulated loop: start the program with kactl.testing.sim.run")
    return loop
