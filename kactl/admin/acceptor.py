"""Connections of the admin API, from the front door to the end of their handshakes."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from kactl.runtime.addresses import plain_address
from kactl.runtime.front_door import FrontDoor
from kactl.runtime.logs import logger
from kactl.security.tls.encryption import PIECE, Encryption
from kactl.security.tls.server_tls import HANDSHAKE_S
from kactl.security.tls.tls_turns import TlsTurns

from .connections import Connection
from .gate import Gate, Room
from .identity.unix_socket import uid_of

log = logger(__name__)


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
        self._room = Room.YES
        self._door = FrontDoor(
            sockets,
            self._take,
            make_room=gate.make_room,
            exhausted=gate.exhausted,
            name="the admin API",
            has_room=self._has_room,
        )
        self.start = self._door.open

    @property
    def addresses(self) -> list[Any]:
        return [listening.getsockname() for listening in self._sockets]

    async def stop(self) -> None:
        """Stop listening, and wait for connections that are being opened."""
        self._door.close()
        if self._opening:
            await asyncio.gather(*self._opening, return_exceptions=True)

    def _has_room(self) -> bool:
        """Make room for the next connection, if possible. Returns whether it can be decided about now."""
        self._room = self._gate.room()
        return self._room is not Room.LATER

    def _take(self, accepted: socket.socket, address: Any) -> bool:
        uid = uid_of(accepted) if accepted.family == socket.AF_UNIX else None
        peer = _peer(address) if uid is None else f"unix:uid={uid}"
        if self._room is Room.NO:
            accepted.close()
            self._gate.refuse("full", peer, f"refused: {len(self._gate)} connections are open, and all are at work")
            return False
        if uid is None and not self._gate.room_of(peer):
            accepted.close()
            self._gate.refuse("address", peer, "refused: it has as many connections as one address may have")
            return False
        connection = self._make(peer, uid)
        connection.probes_only = self._room is Room.PROBES
        connection.descriptor = accepted.fileno()
        self._gate.admit(connection)
        task = self._loop.create_task(self._open(accepted, connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        connection.opening = task
        return True

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


def _peer(address: Any) -> str:
    """Returns the address of a client for the log; that of a Unix socket has no name."""
    return plain_address(str(address[0])) if isinstance(address, tuple) else "unix"
