"""When a lost connection makes our session doubtful: the server may have ended it, and nobody can tell us.

The server counts from the last that it heard of us. That is up to two thirds of the timeout before the connection is
taken for lost, if it was lost without a word; of what is left we take a quarter of the timeout, and keep the rest as a
margin.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kactl.stores.base import Changed, StoreEvent

SUSPENDED_AFTER: Final = 0.25


class SessionState:
    """See the module. Used from one event loop, whose clock is ours and not the server's.

    Args:
        tell: gets SESSION_DOUBTFUL, and SESSION_SURE if the session turns out to stand. Of a loss others tell.
    """

    def __init__(self, tell: Callable[[StoreEvent], None], *, session_timeout_ms: int) -> None:
        self._tell = tell
        self._delay_s = SUSPENDED_AFTER * session_timeout_ms / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._told = False

    def disconnected(self) -> None:
        if self._timer is None and not self._told:
            self._timer = asyncio.get_running_loop().call_later(self._delay_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._told = True
        self._tell(StoreEvent(Changed.SUSPENDED))

    def connected(self) -> None:
        """In the same session, unless it was said to be lost before."""
        told = self._told
        self.forget()
        if told:
            self._tell(StoreEvent(Changed.CONNECTED))

    def forget(self) -> None:
        """There is nothing to doubt any more."""
        self._told = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
