"""Front door of a server: the loop that accepts connections.

The event loop's own servers accept all connections that wait before the first of them is handled. With few descriptors
this ends in "too many open files", after which they pause for a second. Here a server decides about each connection
when it is accepted, which takes microseconds, and closes others if there is no descriptor left; those that wait stay in
the listen queue meanwhile.
"""

import asyncio
import errno
import select
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

from . import forks
from .logs import logger

log = logger(__name__)

# Queue of connections to accept, for bursts of clients that connect at the same moment. With a shorter queue a broker's
# attempt waits for a second if 1,000 others connect at once.
BACKLOG: Final = 1024
# Connections that are accepted in one iteration of the loop, and how many of these are served: some milliseconds.
ACCEPTED_MAX: Final = 64
SERVED_MAX: Final = 16
# While the server has no room: long enough for some connections to send, or to become replaceable.
FULL_PAUSE_S: Final = 0.01
# If descriptors or memory ran out, and the number of connections that are closed then. Without a pause the loop would
# retry at once, since the socket stays readable.
_EXHAUSTED_PAUSE_S: Final = 0.05
_MAKE_ROOM: Final = 16
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class FrontDoor:
    """Accepts connections of listening sockets until closed.

    Args:
        sockets: `close` closes them.
        take: called with each connection and its peer's address, as the socket has it. Returns whether it is served;
            one that is not served is closed by `take`.
        make_room: closes up to that many connections to free their descriptors. Returns how many it closed.
        exhausted: called with the reason, and how many were closed, each time that no descriptor was left.
        name: of the server, for the log.
        has_room: called before each connection. While it returns False, connections stay in the listen queue.
    """

    def __init__(
        self,
        sockets: Iterable[socket.socket],
        take: Callable[[socket.socket, Any], bool],
        *,
        make_room: Callable[[int], int],
        exhausted: Callable[[str], None],
        name: str,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self._sockets = list(sockets)
        self._take = take
        self._make_room = make_room
        self._exhausted = exhausted
        self._name = name
        self._has_room = has_room
        self._loop = asyncio.get_running_loop()
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}

    def open(self) -> None:
        forks.share(self)
        for listening in self._sockets:
            listening.setblocking(False)
            self._loop.add_reader(listening.fileno(), self._ready, listening)

    def close(self) -> None:
        for handle in self._paused.values():
            handle.cancel()
        for listening in self._sockets:
            if listening.fileno() >= 0:
                self._loop.remove_reader(listening.fileno())
                listening.close()

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`."""
        for listening in self._sockets:
            forks.bury(listening)

    def _ready(self, listening: socket.socket) -> None:
        served = 0
        for _ in range(ACCEPTED_MAX):
            if served == SERVED_MAX:
                return
            if not self._has_room():
                self._pause(listening, FULL_PAUSE_S)
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # Without a descriptor this is the error even if no connection waits.
                if _is_waiting(listening):
                    self._on_error(listening, error)
                return
            accepted.setblocking(False)
            served += self._take(accepted, address)

    def _on_error(self, listening: socket.socket, error: OSError) -> None:
        self._pause(listening, _EXHAUSTED_PAUSE_S)
        if error.errno not in _EXHAUSTED:
            log.error("%s cannot accept a connection: %s", self._name, error)
            return
        closed = self._make_room(_MAKE_ROOM)
        self._exhausted(f"{error.strerror}, and {closed} connections that wait for their peers are closed")

    def _pause(self, listening: socket.socket, pause_s: float) -> None:
        """Leave connections in the listen queue for a moment."""
        self._loop.remove_reader(listening.fileno())
        self._paused[listening] = self._loop.call_later(pause_s, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        del self._paused[listening]
        self._loop.add_reader(listening.fileno(), self._ready, listening)


def _is_waiting(listening: socket.socket) -> bool:
    """Returns whether a connection waits to be accepted."""
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    return bool(poll.poll(0))
