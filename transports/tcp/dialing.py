"""Opens connections to other programs."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Final

from kactl.decide.messages.sessions import NotController
from kactl.model.errors import KactlError, NotAuthorized, ProtocolMismatch
from kactl.runtime.connecting import NoAddressAnswers, NotCompleted, connect
from kactl.runtime.resolver import Resolved
from kactl.security.tls.encryption import PIECE, Encryption
from kactl.security.tls.outgoing import rejected_certificate

from . import handshake
from .addresses import Address, Exposure
from .handshake import Credentials, Hello
from .limits import Limits
from .link import Link, LinkClosed
from .metrics import LinkMetrics
from .tls import Tls

# Errors of the network itself, before the handshake of TLS.
_UNREACHABLE: Final = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT})

# A link, the claims of its listener, and what the listener answered.
_Dialed = tuple[Link, Hello, handshake.Welcome | NotController]


class Dialer:
    """Settings that all connections of one program share.

    Args:
        renewed: brings `credentials` up to date, before each connection.
    """

    def __init__(
        self,
        *,
        tls: Tls | None,
        exposure: Exposure,
        credentials: Credentials,
        limits: Limits,
        metrics: LinkMetrics,
        renewed: Callable[[], None],
    ) -> None:
        self.limits = limits
        self.metrics = metrics
        self.credentials = credentials
        self._tls = tls
        self._exposure = exposure
        self._renewed = renewed
        self._buffer = memoryview(bytearray(PIECE))

    async def dial(
        self,
        address: Address,
        ours: Hello,
        expected: Callable[[Hello], str | None],
        *,
        choose: Callable[[list[Resolved]], list[Resolved]] = list,
    ) -> _Dialed:
        """Open a connection and perform the handshake.

        Args:
            expected: returns the fault of the listener's claims; None if there is none.
            choose: returns which addresses of a name may be connected to, or raises a KactlError.

        Raises:
            KactlError: no link could be opened; see `handshake.dial`.
        """
        limits = self.limits
        self._renewed()

        def chosen(hosts: list[Resolved]) -> list[Resolved]:
            hosts = choose(hosts)
            self._exposure.check(hosts, "controllers")
            return hosts

        async def complete(connection: socket.socket) -> _Dialed:
            return await self._complete(connection, address, ours, expected)

        try:
            link, theirs, answer = await connect(
                *address,
                complete,
                limit_s=limits.dial_ms / 1000,
                complete_s=limits.handshake_ms / 1000,
                failures=(OSError, KactlError),
                choose=chosen,
            )
        except NoAddressAnswers as error:
            raise _refusal(error) or LinkClosed(error.explained(self._reason)) from None
        except OSError as error:
            raise LinkClosed(self._reason(error)) from None
        if isinstance(answer, NotController):
            link.close("it is not the active controller")
        else:
            self.metrics.connected()
        return link, theirs, answer

    async def _complete(
        self, connection: socket.socket, address: Address, ours: Hello, expected: Callable[[Hello], str | None]
    ) -> _Dialed:
        """Perform the handshakes of TLS and of the link."""
        link = Link(str(address), limits=self.limits, metrics=self.metrics)
        encryption: Encryption | None = None
        if self._tls is not None:
            context = self._tls.client_context()
            encryption = Encryption(context, link, self._buffer, server_hostname=address.host)
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: encryption or link, sock=connection)
            if encryption is not None:
                await encryption.handshake()
            theirs, answer = await handshake.dial(link, ours, self.credentials, expected)
        except LinkClosed as error:
            hint = "" if self._tls is None else "; it may not accept the certificate of this program"
            raise LinkClosed(f"{error}{hint}") from None
        except BaseException as error:
            link.abort(str(error))
            if encryption is not None:
                encryption.abort()
            if rejected := rejected_certificate(error):
                raise NotAuthorized(f"{rejected}; use certificates of one authority") from None
            raise
        return link, theirs, answer

    def _reason(self, error: Exception) -> str:
        if not isinstance(error, OSError):
            return str(error)
        if isinstance(error, NotCompleted):
            return f"no handshake within {error.limit_s * 1000:g} ms (limits.handshake_ms)"
        if isinstance(error, TimeoutError):
            return f"no connection within {self.limits.dial_ms} ms (limits.dial_ms)"
        if isinstance(error, socket.gaierror):
            return f"the name of the host cannot be resolved ({error.strerror})"
        if self._tls is not None and error.errno not in _UNREACHABLE:
            return f"the TLS handshake failed, or the address does not use TLS: {error}"
        return os.strerror(error.errno) if error.errno else str(error)


def _refusal(error: NoAddressAnswers) -> KactlError | None:
    """Returns the error of one address if all of them have refused the link for good."""
    refusals = [each for each in error.errors.values() if isinstance(each, NotAuthorized | ProtocolMismatch)]
    return refusals[0] if len(refusals) == len(error.errors) else None
