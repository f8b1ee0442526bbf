"""Time, as something that is handed in, so that every run can be run again."""

import time
from typing import Protocol

import anyio


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Wall clock, ms since 1970; may jump."""

    def monotonic_ms(self) -> float:
        """Never goes back; only differences mean something."""

    async def sleep_ms(self, delay_ms: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.perf_counter() * 1000

    async def sleep_ms(self, delay_ms: float) -> None:
        await anyio.sleep(delay_ms / 1000)
