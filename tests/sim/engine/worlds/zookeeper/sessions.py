"""Sessions of an ensemble: the servers of each, and when it ends. Kept by the leader.

A session ends at the first tick after its timeout has passed without a message of its client.

Source: SessionTrackerImpl, ExpiryQueue.
"""

import math
from typing import Final

TIMEOUT_TICKS_MIN: Final = 2
TIMEOUT_TICKS_MAX: Final = 20


class Session:
    """One session.

    Attributes:
        server: number of the server that the client is connected to.
        ends_s: when it ends, in the leader's time, unless its client sends something.
        is_closing: the end is decided.
    """

    def __init__(self, number: int, timeout_ms: int, password: bytes, server: int) -> None:
        self.number = number
        self.timeout_ms = timeout_ms
        self.password = password
        self.server = server
        self.ends_s = math.inf
        self.is_closing = False


class Sessions:
    """All sessions that exist."""

    def __init__(self, tick_ms: float) -> None:
        self._tick_s = tick_ms / 1000
        self._sessions: dict[int, Session] = {}

    def get(self, number: int) -> Session | None:
        """Returns a session that has not ended and is not about to end."""
        session = self._sessions.get(number)
        return None if session is None or session.is_closing else session

    def add(self, session: Session, now_s: float) -> None:
        self._sessions[session.number] = session
        self.touch(session, now_s)

    def remove(self, number: int) -> None:
        self._sessions.pop(number, None)

    def touch(self, session: Session, now_s: float) -> None:
        """The client has sent something."""
        session.ends_s = (math.floor((now_s + session.timeout_ms / 1000) / self._tick_s) + 1) * self._tick_s

    def restart(self, now_s: float) -> None:
        """Give all sessions their whole timeout: a new leader does not know when their clients were last seen."""
        for session in self._sessions.values():
            self.touch(session, now_s)

    def due(self, now_s: float) -> list[Session]:
        """Returns the sessions that end now."""
        return [one for one in self._sessions.values() if one.ends_s <= now_s and not one.is_closing]
