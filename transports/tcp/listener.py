"""Accepts connections, and hands them over once their first byte shows the right protocol.

    ACCEPTED ──first byte──▶ HANDSHAKE ──▶ the owner of the link
        └── too many strangers, another protocol, time limit ──▶ closed

A connection is a stranger until its handshake is complete. Strangers are few, and each is bounded in time and bytes. At
the limit, a connection from an address that has completed a handshake before displaces the stranger that has waited
longest: one of the same address if these are too many, otherwise one of an address without a handshake.
"""

import asyncio
import contextlib
import functools
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kactl import wire
from kactl.errors import BadConfig, KactlError, ProtocolMismatch
from kactl.runtime.addresses import group_of
from kactl.runtime.encryption import PIECE, Encryption
from kactl.runtime.logs import logger
from kactl.runtime.tls_turns import TlsTurns

from .addresses import Address, Exposure, resolve
from .framing import Kind, Message, frames_of, recognised
from .limits import Limits
from .link import Link, LinkClosed
from .metrics import LinkMetrics
from .tasks import Tasks
from .tls import Tls

log = logger(__name__)

_BACKLOG: Final = 512
# The first byte of a TLS record that begins a handshake.
_TLS_FIRST: Final = 0x16
# Pause after a failure to accept, for instance because the process has too many open files.
_ACCEPT_PAUSE_S: Final = 0.1
# Connections that fail are logged as warnings this often; the others at level debug.
_WARN_EVERY_S: Final = 10.0
# Addresses with a complete handshake that are remembered: as many as a large cluster has processes.
_KNOWN_MAX: Final = 4_096
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
        self._sockets: list[socket.socket] = []
        self._tasks = Tasks(f"the listener on {address}")
        # The task of each connection without a complete handshake, its host and the `group_of` it, oldest first.
        self._strangers: dict[asyncio.Task[None], tuple[str, str]] = {}
        # The hosts that have completed a handshake, the latest one last.
        self._known: dict[str, None] = {}
        self._warn_at = 0.0
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
            hosts = await resolve(self.address)
            if self._exposure.check(hosts, "listen"):
                log.warning(
                    "the network listens on %s without TLS: everything it sends can be read and changed on the way",
                    self.address,
                )
            for family, sockaddr in hosts:
                self._sockets.append(_bound(family, (sockaddr[0], self.address.port, *sockaddr[2:])))
                # Port 0 chooses one, which the further addresses of the host then use as well.
                self.address = self.address._replace(port=self._sockets[0].getsockname()[1])
        except OSError as error:
            self._close_sockets()
            reason = f"{self.address} cannot be listened on ({error.strerror}): choose another address or port"
            raise BadConfig("listen", reason) from None
        for listening in self._sockets:
            self._tasks.spawn(self._accept(listening))

    async def close(self) -> None:
        """Stop listening, and close the connections without a complete handshake."""
        await self._tasks.close()
        self._close_sockets()

    def _close_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("a connection to %s could not be accepted: %s", self.address, error)
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            host = str(peer[0])
            if not self._has_room(host):
                self._failed(host, "too many", _TOO_MANY)
                self._refused(host, None, _TOO_MANY)
                accepted.close()
                continue
            task = self._tasks.spawn(self._serve(accepted, host, peer[1]))
            self._strangers[task] = host, group_of(host)
            task.add_done_callback(lambda task: self._strangers.pop(task, None))
            await asyncio.sleep(0)  # once the task has begun, its end closes the socket

    def _has_room(self, host: str) -> bool:
        """Returns whether a host may open a connection, and makes room for one that is known."""
        limits, group = self._limits, group_of(host)
        own = [task for task, (_, other) in self._strangers.items() if other == group]
        is_too_many = len(own) >= limits.strangers_per_address
        if not is_too_many and len(self._strangers) < limits.strangers:
            return True
        if host not in self._known:
            return False
        others = (task for task, (other, _) in self._strangers.items() if other not in self._known)
        displaced = own[0] if is_too_many else next(others, None)
        if displaced is None:
            return False
        del self._strangers[displaced]
        displaced.cancel(_TOO_MANY)
        return True

    async def _serve(self, accepted: socket.socket, host: str, port: int) -> None:
        link: Link | None = None
        try:
            async with asyncio.timeout(self._limits.handshake_ms / 1000):
                await self._check_protocol(accepted)
                link = await self._link(accepted, f"{host}:{port}")
                link.on_violation = functools.partial(self._refused, host, link)
                await self._accepted(link)
            self._remember(host)
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
            if link is None:
                accepted.close()

    def _remember(self, host: str) -> None:
        self._known.pop(host, None)
        self._known[host] = None
        if len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]

    async def _check_protocol(self, accepted: socket.socket) -> None:
        """Look at the first bytes of a connection without reading them.

        Raises:
            ProtocolMismatch: the peer uses TLS and this side does not, or the reverse.
        """
        await _readable(accepted)
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

    def _failed(self, host: str, reason: str, text: str) -> None:
        self._metrics.handshake_failed(reason)
        now = asyncio.get_running_loop().time()
        if now >= self._warn_at:
            self._warn_at = now + _WARN_EVERY_S
            log.warning("a connection from %s to %s failed: %s", host, self.address, text)
        else:
            log.debug("a connection from %s to %s failed: %s", host, self.address, text)


def _bound(family: socket.AddressFamily, sockaddr: tuple[Any, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(sockaddr)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


async def _readable(connection: socket.socket) -> None:
    """Wait until a socket has something to read."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
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
