"""Detection of a session that may have ended because its connection was lost.

The server counts the timeout from the client's last message. That may be up to two thirds of the timeout before the
connection is detected as lost, if it broke silently. Of the remaining third, SUSPENDED is reported after a quarter of
the timeout; the rest is a margin.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kactl.stores.base import Changed, StoreEvent

SUSPENDED_AFTER: Final = 0.25


class SessionState:
    """Reports a suspended session. Used from one event loop, whose clock is independent of the server's.

    Args:
        listener: receives SUSPENDED, and CONNECTED if the session turns out to exist. The store reports its loss.
        timeout_ms: returns the session timeout that the server has granted.
    """

    def __init__(self, listener: Callable[[StoreEvent], None], *, timeout_ms: Callable[[], int]) -> None:
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._timer: asyncio.TimerHandle | None = None
        self._suspended = False

    def disconnected(self) -> None:
        if self._timer is None and not self._suspended:
            delay_s = SUSPENDED_AFTER * self._timeout_ms() / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._suspended = True
        self._listener(StoreEvent(Changed.SUSPENDED))

    def connected(self) -> None:
        """Report CONNECTED if the session was reported as suspended and not as lost."""
        suspended = self._suspended
        self.reset()
        if suspended:
            self._listener(StoreEvent(Changed.CONNECTED))

    def reset(self) -> None:
        """Cancel a pending report and discard the state."""
        self._suspended = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
