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
from .gate import Gate
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
        self._door = FrontDoor(
            sockets,
            self._take,
            make_room=gate.make_room,
            exhausted=gate.exhausted,
            name="the admin API",
            has_room=gate.decides,
        )
        self.start = self._door.open

    @property
    def addresses(self) -> list[Any]:
        return [listening.getsockname() for listening in self._sockets]

    async def stop(self) -> None:
        """Stop listening, and end the handshakes of connections."""
        self._door.close()
        await self._gate.close()

    def _take(self, accepted: socket.socket, address: Any) -> bool:
        uid = uid_of(accepted) if accepted.family == socket.AF_UNIX else None
        peer = _peer(address) if uid is None else f"unix:uid={uid}"
        connection = self._make(peer, uid)
        connection.descriptor = accepted.fileno()
        if not self._gate.admit(connection):
            accepted.close()
            return False
        self._gate.run(connection, accepted, self._open(accepted, connection))
        return True

    async def _open(self, accepted: socket.socket, connection: Connection) -> None:
        encryption = (
            None if self._tls is None else Encryption(self._tls(), connection, self._buffer, turns=self._tls_turns)
        )
        try:
            await self._loop.connect_accepted_socket(lambda: encryption or connection, accepted)
            if encryption is not None:
                await encryption.handshake(HANDSHAKE_S)
            connection.is_linked = True
        except OSError as error:
            log.debug("a connection to the admin API ended before it was opened: %s", error)


def _peer(address: Any) -> str:
    """Returns the address of a client for the log; that of a Unix socket has no name."""
    return plain_address(str(address[0])) if isinstance(address, tuple) else "unix"
