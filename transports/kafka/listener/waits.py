"""Waits for the completion of what a client has requested.

The controller carries a request out whether or not its client waits for it. The wait ends when the client has left: a
place among the connections, memory of a pool and the checks of a condition belong to it.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

import anyio

# The longest wait, whatever a client demands: the end of a client whose host is lost is not noticed. No client of Kafka
# waits so long for a response by default.
WAIT_MAX_MS: Final = 300_000.0


def rest_ms(until_s: float) -> float:
    """Returns the time until a moment of the event loop's clock; 0 if it is over."""
    return max((until_s - anyio.current_time()) * 1000, 0.0)


class Waits:
    """The waits of one connection, one at a time."""

    def __init__(self) -> None:
        self._has_left = False
        self._scope: anyio.CancelScope | None = None

    def end(self) -> None:
        """End the wait, and all later ones: the client has left, or sends no more."""
        self._has_left = True
        if self._scope is not None:
            self._scope.cancel()

    @contextlib.contextmanager
    def wait(self) -> Iterator[anyio.CancelScope]:
        """Yields the scope of a wait, which is cancelled when the client leaves."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                if self._has_left:
                    scope.cancel()
                yield scope
            finally:
                self._scope = None


# Of the connection whose request this task carries out.
WAITS: Final[ContextVar[Waits | None]] = ContextVar("kactl.listener.waits", default=None)


@contextlib.contextmanager
def waiting() -> Iterator[anyio.CancelScope]:
    """Yields the scope of a wait of this task; it is not cancelled outside of a connection."""
    waits = WAITS.get()
    with Waits().wait() if waits is None else waits.wait() as scope:
        yield scope
