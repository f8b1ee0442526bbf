"""Patience of a program that starts before the servers that it needs.

Programs of a host or of a cluster start in any order. An attempt that may succeed later is repeated, with a time limit
for the start alone, which does not depend on the length of sessions or the time limits of single requests.
"""

import logging
import math
import re
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kactl.model.errors import KactlError, StoreUnavailable
from kactl.runtime.clock import Clock

from .conditions import Conditions
from .logs import logger

log = logger(__name__)

# Servers that start together need less than a minute, also on a busy machine.
START_TIMEOUT_MS: Final = 60_000
# Programs that start together are late by less, which is not worth a line.
_FIRST_MS: Final = 1_000
# Pause before another attempt to open a store.
_PAUSE_MS: Final = 200
# In OpenSSL's names of errors: one side does not accept the certificate of the other.
_CERTIFICATE: Final = re.compile("CERTIFICATE|UNKNOWN_CA")
T = TypeVar("T")


class Patience:
    """Failed attempts of one start, which are logged after a second, and then once a minute.

    Args:
        what: the beginning of the log lines, such as "broker 1 is not registered".
        limit_ms: None waits for ever.
    """

    def __init__(self, what: str, clock: Clock, limit_ms: float | None) -> None:
        self._what = what
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self.limit_ms = math.inf if limit_ms is None else limit_ms
        self._conditions = Conditions(log, clock.monotonic_ms)

    @property
    def rest_ms(self) -> float:
        """The rest of the time; infinite without a limit."""
        return self._began_ms + self.limit_ms - self._clock.monotonic_ms()

    async def repeat(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call while the store does not answer. A certificate that is not accepted does not change by waiting.

        Raises:
            StoreError: the store has rejected the call, or the time is over.
        """
        while True:
            try:
                result = await call()
            except StoreUnavailable as error:
                cause = error.__cause__
                if isinstance(cause, ssl.SSLError) and _CERTIFICATE.search(cause.reason or ""):
                    raise
                self.failed(error)
            else:
                self.ended()
                return result
            await self._clock.sleep_ms(_PAUSE_MS)

    def failed(self, error: KactlError, *, ends_ms: float = 0, is_logged: bool = False) -> None:
        """Log an error, or raise it if the time is over.

        Args:
            ends_ms: when the error will be over by itself, which is waited for whatever the limit.
            is_logged: the caller has logged it.
        """
        if self.rest_ms <= 0 and ends_ms <= 0:
            raise error
        waited_ms = self._clock.monotonic_ms() - self._began_ms
        if waited_ms >= _FIRST_MS and not is_logged:
            text, waited_s = "%s after %.0f s, and tries again: %s", waited_ms / 1000
            self._conditions.add("", logging.WARNING, text, self._what, waited_s, error)

    def ended(self) -> None:
        """Log that the start has succeeded, if failed attempts were logged."""
        self._conditions.end("", "%s", self._what.replace(" is not ", " is "))
