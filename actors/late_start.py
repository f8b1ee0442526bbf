"""Log lines of an instance that cannot start, because its store fails."""

import logging
from typing import Final

from kactl.model.errors import StoreError
from kactl.runtime.clock import Clock
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger

log = logger(__name__)

# A store that elects a leader of its own needs a few seconds; after that, somebody has to look.
LATE_MS: Final = 5_000


class LateStart:
    """Reports failed attempts to start: the first ones as warnings, then an error once a minute."""

    def __init__(self, node_id: int, clock: Clock) -> None:
        self._node_id = node_id
        self._clock = clock
        self._began_ms: float | None = None
        self._conditions = Conditions(log, clock.monotonic_ms)

    def failed(self, error: StoreError) -> None:
        """Report a failed attempt."""
        now_ms = self._clock.monotonic_ms()
        if self._began_ms is None:
            self._began_ms = now_ms
        if now_ms - self._began_ms < LATE_MS:
            text = "controller %d cannot start yet, and tries again: %s"
            self._conditions.add("", logging.WARNING, text, self._node_id, error)
        else:
            text, late_s = "controller %d has not started for %.0f s: %s", (now_ms - self._began_ms) / 1000
            self._conditions.add("", logging.ERROR, text, self._node_id, late_s, error, kind="late")

    def started(self) -> None:
        """Forget the failed attempts."""
        self._conditions.end("", "controller %d has started", self._node_id)
        self._began_ms = None
