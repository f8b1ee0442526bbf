"""Accepting connections on one bound socket.

asyncio's own servers create a transport before admission is decided, and stop accepting for a second if descriptors
run out. This acceptor decides first, which costs some microseconds, and closes idle connections to free descriptors.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

from kactl.runtime import forks
from kactl.runtime.addresses import host_and_port, plain_address
from kactl.runtime.logs import logger

from .counters import ListenerCounters, PeerRejected

log = logger(__name__)

# Connections that are accepted in one iteration of the loop, and how many of these are served: some milliseconds.
_BATCH: Final = 64
_TAKEN_MAX: Final = 16
# Pause of accepting if descriptors or memory ran out, and the number of connections that are closed then.
_PAUSE_S: Final = 0.05
_MAKE_ROOM: Final = 16
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Accepts until closed.

    Args:
        bound: a listening socket; `close` closes it.
        take: called with each connection and the address of its peer; raises Refused to reject it.
        make_room: closes up to that many connections, and returns how many it closed.
    """

    def __init__(
        self,
        bound: socket.socket,
        *,
        take: Callable[[socket.socket, str], None],
        make_room: Callable[[int], int],
        counters: ListenerCounters,
    ) -> None:
        self._bound = bound
        self._take = take
        self._make_room = make_room
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        bound.setblocking(False)
        forks.share(self)
        self._resume()

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`."""
        forks.bury(self._bound)

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._bound.fileno())
        self._bound.close()

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._bound.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        taken = 0
        for _ in range(_BATCH):
            if taken == _TAKEN_MAX:
                return
            try:
                connection, address = self._bound.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._exhausted(error)
                return
            connection.setblocking(False)
            host = plain_address(str(address[0]))
            try:
                self._take(connection, host)
                taken += 1
            except PeerRejected as rejected:
                connection.close()
                self._counters.reject(rejected, host_and_port(host, address[1]))

    def _exhausted(self, error: OSError) -> None:
        """Pause accepting: the socket stays readable, and the loop would retry at once."""
        self._loop.remove_reader(self._bound.fileno())
        self._pause = self._loop.call_later(_PAUSE_S, self._resume)
        if error.errno not in _EXHAUSTED:
            log.error("connections cannot be accepted: %s", error)
            return
        closed = self._make_room(_MAKE_ROOM)
        self._counters.reject(
            PeerRejected(
                "descriptors", f"{error.strerror}: raise the limit of open files, or lower kafka.max-connections"
            ),
            f"the listener at {host_and_port(*self._bound.getsockname()[:2])}",
            action=f"{closed} idle connections are closed",
        )
