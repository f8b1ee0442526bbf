"""Clock of simulated programs."""

import asyncio
from typing import Final

from kactl.clock import BootTime

from .loop import SimLoop
from .nodes import NODE

# Wall clock at the start of a run: an arbitrary moment with an even number of seconds.
START_MS: Final = 1_600_000_000_000


class LoopClock:
    """Clock in the virtual time of the running loop. Wall clock and rate are those of the current node."""

    def now_ms(self) -> int:
        loop = _loop()
        node = NODE.get()
        return START_MS + int(loop.now_s * 1000 + (0.0 if node is None else node.clock.wall_offset_ms))

    def monotonic_ms(self) -> float:
        return _loop().time() * 1000

    def boot_time(self) -> BootTime:
        return BootTime("simulated", int(_loop().now_s * 1000))

    def lease_ns(self) -> int:
        # Like the monotonic clock, and unlike the one that all processes of a host share, at the rate of the node.
        return int(_loop().time() * 1_000_000_000)

    async def sleep_ms(self, delay_ms: float) -> None:
        await asyncio.sleep(delay_ms / 1000)


def _loop() -> SimLoop:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SimLoop):
        raise RuntimeError("LoopClock needs a simulated loop: start the program with kactl.testing.sim.run")
    return loop
