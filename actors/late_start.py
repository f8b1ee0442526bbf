"""Log lines of an instance that cannot start, because its store fails."""

from typing import Final

from kactl.model.errors import StoreError
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger

log = logger(__name__)

# A store that elects a leader of its own needs a few seconds; after that, somebody has to look.
LATE_MS: Final = 5_000
REPEAT_MS: Final = 60_000


class LateStart:
    """Reports failed attempts to start: the first ones as warnings, then an error once a minute."""

    def __init__(self, node_id: int, clock: Clock) -> None:
        self._node_id = node_id
        self._clock = clock
        self._began_ms: float | None = None
        self._reported_ms: float | None = None

    def failed(self, error: StoreError) -> None:
        """Report a failed attempt."""
        now_ms = self._clock.monotonic_ms()
        if self._began_ms is None:
            self._began_ms = now_ms
        if now_ms - self._began_ms < LATE_MS:
            log.warning("controller %d cannot start yet, and tries again: %s", self._node_id, error)
        elif self._reported_ms is None or now_ms - self._reported_ms >= REPEAT_MS:
            self._reported_ms = now_ms
            log.error("controller %d has not started for %.0f s: %s", self._node_id,
                      (now_ms - self._began_ms) / 1000, error)  # fmt: skip

    def started(self) -> None:
        """Forget the failed attempts."""
        self._began_ms = self._reported_ms = None
