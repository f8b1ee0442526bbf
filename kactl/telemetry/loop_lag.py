"""Lag of the event loop: by how much a timer is late. Everything of the process waits for so long."""

from typing import Final

from kactl.runtime.clock import Clock

from .metrics import Telemetry

INTERVAL_MS: Final = 500.0


class LoopLag:
    """Measures the lag twice a second. A loop that is blocked for a second is seen by the next measurement."""

    def __init__(self, telemetry: Telemetry, clock: Clock) -> None:
        self._telemetry = telemetry
        self._clock = clock

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due_ms = self._clock.monotonic_ms() + INTERVAL_MS
            await self._clock.sleep_ms(INTERVAL_MS)
            self._telemetry.lagged(max(0.0, self._clock.monotonic_ms() - due_ms))
