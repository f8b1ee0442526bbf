"""Listening sockets of the admin API, which accept a few connections at a time.

The event loop's own servers accept all waiting connections before the first of them is handled. With few descriptors
this ends in "too many open files", after which they pause for a second, or reset the waiting connections. Here the gate
is checked before each accept, and one descriptor is kept in reserve.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from kactl.runtime import forks
from kactl.runtime.addresses import plain_address
from kactl.runtime.logs import logger
from kactl.security.tls.encryption import PIECE, Encryption
from kactl.security.tls.server_tls import HANDSHAKE_S
from kactl.security.tls.tls_turns import TlsTurns

from .connections import Connection
from .gate import Gate, Room
from .identity.unix_socket import uid_of

log = logger(__name__)

# Per turn of the event loop: about two milliseconds, after which the controller can run.
ACCEPTS_PER_TURN: Final = 16
# For bursts of clients that connect at the same moment.
BACKLOG: Final = 1024
# While all connections are fresh: long enough for some of them to send, or to become replaceable.
PAUSE_S: Final = 0.01
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_GONE: Final = (BlockingIOError, InterruptedError, ConnectionAbortedError)


class Acceptor:
    """Listening sockets. A gate admits or rejects each connection.

    Args:
        make: returns the protocol of a connection, from the address of its client, and from its user if it uses the
            Unix socket.
        tls: returns the context of a connection over the network; None for no TLS.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        gate: Gate,
        make: Callable[[str, int | None], Connection],
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._sockets = sockets
        self._gate = gate
        self._make = make
        self._tls = tls
        self._buffer = memoryview(bytearray(PIECE))
        self._tls_turns = TlsTurns()
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[Any]] = set()
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._spare: int | None = _spare()

    @property
    def addresses(self) -> list[Any]:
        return [listening.getsockname() for listening in self._sockets]

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`."""
        for listening in self._sockets:
            forks.bury(listening)

    def start(self) -> None:
        forks.share(self)
        for listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._ready, listening)

    async def stop(self) -> None:
        """Stop listening, and wait for connections that are being opened."""
        for handle in self._paused.values():
            handle.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        if self._opening:
            await asyncio.gather(*self._opening, return_exceptions=True)
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _ready(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            room = self._gate.room()
            if room is Room.LATER:
                self._pause(listening)
                return
            try:
                accepted, address = listening.accept()
            except _GONE:
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR:
                    log.error("the admin API cannot accept a connection: %s", error)
                else:
                    self._without_descriptor(listening, error)
                return
            self._take(accepted, address, room)

    def _take(self, accepted: socket.socket, address: Any, room: Room) -> None:
        uid = uid_of(accepted) if accepted.family == socket.AF_UNIX else None
        peer = _peer(address) if uid is None else f"unix:uid={uid}"
        if room is Room.NO:
            accepted.close()
            self._gate.refuse("full", peer, f"refused: {len(self._gate)} connections are open, and all are at work")
            return
        if uid is None and not self._gate.room_of(peer):
            accepted.close()
            self._gate.refuse("address", peer, "refused: it has as many connections as one address may have")
            return
        connection = self._make(peer, uid)
        connection.probes_only = room is Room.PROBES
        connection.descriptor = accepted.fileno()
        self._gate.admit(connection)
        accepted.setblocking(False)
        task = self._loop.create_task(self._open(accepted, connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        connection.opening = task

    async def _open(self, accepted: socket.socket, connection: Connection) -> None:
        encryption = (
            None if self._tls is None else Encryption(self._tls(), connection, self._buffer, turns=self._tls_turns)
        )
        try:
            await self._loop.connect_accepted_socket(lambda: encryption or connection, accepted)
            if encryption is not None:
                await encryption.handshake(HANDSHAKE_S)
        except OSError as error:
            log.debug("a connection to the admin API ended before it was opened: %s", error)
            self._gate.remove(connection)
            accepted.close()
        except asyncio.CancelledError:
            # Cut during its handshake, to make room for another one.
            accepted.close()
            raise

    def _pause(self, listening: socket.socket) -> None:
        """Leave connections in the listen queue for a moment."""
        self._loop.remove_reader(listening.fileno())
        self._paused[listening] = self._loop.call_later(PAUSE_S, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        del self._paused[listening]
        self._loop.add_reader(listening.fileno(), self._ready, listening)

    def _without_descriptor(self, listening: socket.socket, error: OSError) -> None:
        """Make room for the waiting connections; if that is not possible, reject one of them."""
        if self._gate.replace_one():
            return  # its descriptor is free in the next turn
        if self._gate.has_fresh:
            self._pause(listening)  # as at the limit of connections
            return
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            try:
                accepted, address = listening.accept()
            except OSError:
                pass
            else:
                accepted.close()
                self._gate.refuse("descriptors", _peer(address), f"refused: {error.strerror}; raise ulimit -n")
        self._spare = _spare()


def _peer(address: Any) -> str:
    """Returns the address of a client for the log; that of a Unix socket has no name."""
    return plain_address(str(address[0])) if isinstance(address, tuple) else "unix"


def _spare() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
