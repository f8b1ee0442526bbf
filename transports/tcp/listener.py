"""Accepts connections, and hands them over once their first byte shows the right protocol.

    ACCEPTED ──first byte, a place──▶ HANDSHAKE ──▶ the owner of the link
        └── too many strangers, another protocol, time limit ──▶ closed

A connection is a stranger until its handshake is complete. Each is bounded in time and bytes, and `strangers` has the
rules for their number.
"""

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from kactl.model.errors import BadConfig, KactlError, ProtocolMismatch
from kactl.runtime.addresses import host_and_port, plain_address
from kactl.runtime.conditions import Conditions
from kactl.runtime.front_door import BACKLOG, FrontDoor
from kactl.runtime.listening import listen_on
from kactl.runtime.logs import logger
from kactl.runtime.resolver import is_numeric, resolve
from kactl.security.tls.encryption import PIECE, Encryption
from kactl.security.tls.tls_turns import TlsTurns
from kactl.transports.tcp import wire

from .addresses import Address, Exposure
from .framing import Kind, Message, frames_of, recognised
from .limits import Limits
from .link import Link, LinkClosed
from .metrics import LinkMetrics
from .strangers import Stranger, Strangers
from .tls import Tls

log = logger(__name__)

# For the name of its own address: as long as a resolver whose first server is down takes.
_LOOK_UP_S: Final = 15.0
# The first byte of a TLS record that begins a handshake.
_TLS_FIRST: Final = 0x16
_TOO_MANY: Final = "too many connections have not completed their handshake"


class Listener:
    """A listening address.

    Args:
        accepted: performs the handshake of a connection; raises KactlError if it fails.
        refused: called with the host, the connection if it was accepted, and the reason when this side refuses one. It
            is not called if the peer closes the connection.
    """

    def __init__(
        self,
        address: Address,
        *,
        tls: Tls | None,
        exposure: Exposure,
        limits: Limits,
        metrics: LinkMetrics,
        accepted: Callable[[Link], Awaitable[None]],
        refused: Callable[[str, Link | None, str], None],
    ) -> None:
        self.address = address
        self._tls = tls
        self._exposure = exposure
        self._limits = limits
        self._metrics = metrics
        self._accepted = accepted
        self._refused = refused
        self._door: FrontDoor | None = None
        self._strangers = Strangers(limits)
        self._conditions = Conditions(log, ends_alone=True)
        self._buffer = memoryview(bytearray(PIECE))
        self._tls_turns = TlsTurns()

    async def open(self) -> None:
        """Bind and listen.

        Raises:
            BadConfig: the address does not exist, is in use, or must not be used without TLS.
        """
        if self._tls is not None:
            self._tls.server_context()  # an invalid file is reported now
        try:
            hosts = await resolve(*self.address, limit_s=_LOOK_UP_S)
            if self._exposure.check(hosts, "listen"):
                log.warning(
                    "the network listens on %s without TLS: everything it sends can be read and changed on the way",
                    self.address,
                )
            is_name = not is_numeric(self.address.host)
            sockets = listen_on(hosts, self.address.port, backlog=BACKLOG, is_name=is_name)
        except OSError as error:
            reason = f"{self.address} cannot be listened on ({error.strerror}): choose another address or port"
            raise BadConfig("listen", reason) from None
        self.address = self.address._replace(port=sockets[0].getsockname()[1])
        self._door = FrontDoor(
            sockets,
            self._take,
            make_room=self._strangers.make_room,
            exhausted=self._exhausted,
            name=f"the network at {self.address}",
        )
        self._door.open()

    async def close(self) -> None:
        """Stop listening, and close the connections without a complete handshake."""
        if self._door is not None:
            self._door.close()
        await self._strangers.close()

    def _take(self, accepted: socket.socket, peer: tuple[str, int]) -> bool:
        host = plain_address(str(peer[0]))
        stranger = self._strangers.admit(host)
        if stranger is None:
            self._failed(host, "too many", _TOO_MANY)
            self._refused(host, None, _TOO_MANY)
            accepted.close()
            return False
        self._strangers.run(stranger, accepted, self._serve(accepted, stranger, host, peer[1]))
        return True

    async def _serve(self, accepted: socket.socket, stranger: Stranger, host: str, port: int) -> None:
        link: Link | None = None
        limit_s = self._limits.handshake_ms / 1000
        try:
            async with asyncio.timeout(limit_s) as limit:
                await _readable(accepted, stranger.spoke)
                async with self._strangers.turn(stranger):
                    # The wait for a place is not the peer's fault. It has the same limit: the peer waits no longer.
                    limit.reschedule(asyncio.get_running_loop().time() + limit_s)
                    self._check_protocol(accepted)
                    link = await self._link(accepted, host_and_port(host, port))
                    stranger.is_linked = True
                    link.on_violation = functools.partial(self._refused, host, link)
                    await self._accepted(link)
        except TimeoutError:
            text = f"no handshake within {self._limits.handshake_ms} ms (limits.handshake_ms)"
            self._failed(host, "timeout", text)
            self._refused(host, link, text)
            _give_up(link, "the handshake took too long")
        except KactlError as error:
            self._failed(host, type(error).__name__, str(error))
            if not isinstance(error, LinkClosed):
                self._refused(host, link, str(error))
            if link is not None:
                link.close(str(error))
        except OSError as error:
            self._failed(host, "connection", str(error))
            if isinstance(error, ssl.SSLError):
                self._refused(host, link, str(error))
        except asyncio.CancelledError as error:
            _give_up(link, str(error) or "the listener is closed")
            raise
        except Exception:
            # Its time limit has ended here, and its silence is not watched before it is served.
            self._metrics.handshake_failed("error")
            _give_up(link, "its handshake failed unexpectedly")
            raise
        finally:
            self._strangers.leave(stranger)

    def _check_protocol(self, accepted: socket.socket) -> None:
        """Look at the first bytes of a connection without reading them.

        Raises:
            ProtocolMismatch: the peer uses TLS and this side does not, or the reverse.
        """
        first = accepted.recv(8, socket.MSG_PEEK)
        if not first:
            raise LinkClosed("the peer has closed the connection without a word")
        if self._tls is not None and first[0] != _TLS_FIRST:
            speaks = recognised(first) or "plain text"
            error = ProtocolMismatch(f"{self.address} requires TLS, and the peer speaks {speaks}")
            _refuse_plainly(accepted, error)
            raise error
        if self._tls is None and (other := recognised(first)) is not None:
            raise ProtocolMismatch(f"{self.address} has no TLS, and the peer speaks {other}: compare their settings")

    async def _link(self, accepted: socket.socket, peer: str) -> Link:
        link = Link(peer, limits=self._limits, metrics=self._metrics)
        loop = asyncio.get_running_loop()
        if self._tls is None:
            await loop.connect_accepted_socket(lambda: link, accepted)
            return link
        encryption = Encryption(self._tls.server_context(), link, self._buffer, turns=self._tls_turns)
        await loop.connect_accepted_socket(lambda: encryption, accepted)
        await encryption.handshake(self._limits.handshake_ms / 1000)
        return link

    def _exhausted(self, reason: str) -> None:
        text = "%s accepts no connections for now: %s; raise the limit of open files (ulimit -n, LimitNOFILE)"
        self._conditions.add("accept", logging.WARNING, text, self.address, reason)

    def _failed(self, host: str, reason: str, text: str) -> None:
        self._metrics.handshake_failed(reason)
        failed = "a connection from %s to %s failed: %s"
        self._conditions.add(reason, logging.WARNING, failed, host, self.address, text)


async def _readable(connection: socket.socket, readable: asyncio.Event) -> None:
    """Wait until a socket has something to read, and set an event."""
    loop = asyncio.get_running_loop()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)


def _refuse_plainly(connection: socket.socket, error: KactlError) -> None:
    """Send an error without TLS, to a program of this kind that expected none."""
    refusal = Message(Kind.HANDSHAKE, head=wire.encode(error), error=True)
    with contextlib.suppress(OSError):
        connection.recv(4096)  # unread bytes would reset the connection, and the error would be lost
        connection.send(b"".join(frames_of(refusal, 4096)))


def _give_up(link: Link | None, reason: str) -> None:
    if link is not None:
        link.abort(reason)
