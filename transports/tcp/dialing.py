"""Opens connections to other programs."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Final

from kactl.messages.sessions import NotController
from kactl.runtime.encryption import PIECE, Encryption
from kactl.runtime.tls import rejected_certificate

from . import handshake
from .addresses import Address, Exposure, resolve
from .handshake import Credentials, Hello
from .limits import Limits
from .link import Link, LinkClosed
from .metrics import LinkMetrics
from .tls import Tls

# Errors of the network itself, before the handshake of TLS.
_UNREACHABLE: Final = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT})


class Dialer:
    """Settings that all connections of one program share."""

    def __init__(
        self, *, tls: Tls | None, exposure: Exposure, credentials: Credentials, limits: Limits, metrics: LinkMetrics
    ) -> None:
        self.limits = limits
        self.metrics = metrics
        self.credentials = credentials
        self._tls = tls
        self._exposure = exposure
        self._buffer = memoryview(bytearray(PIECE))

    async def dial(
        self, address: Address, ours: Hello, expected: Callable[[Hello], str | None]
    ) -> tuple[Link, Hello, handshake.Welcome | NotController]:
        """Open a connection and perform the handshake.

        Args:
            expected: returns the fault of the listener's claims; None if there is none.

        Raises:
            KactlError: no link could be opened; see `handshake.dial`.
        """
        limits, link = self.limits, None
        try:
            async with asyncio.timeout(limits.dial_ms / 1000):
                link = await self._connect(address)
        except TimeoutError:
            raise LinkClosed(f"no connection within {limits.dial_ms} ms (limits.dial_ms)") from None
        except OSError as error:
            raise LinkClosed(self._reason(error)) from None
        try:
            async with asyncio.timeout(limits.handshake_ms / 1000):
                theirs, answer = await handshake.dial(link, ours, self.credentials, expected)
        except TimeoutError:
            link.abort("the handshake took too long")
            raise LinkClosed(f"no handshake within {limits.handshake_ms} ms (limits.handshake_ms)") from None
        except LinkClosed as error:
            hint = "" if self._tls is None else "; it may not accept the certificate of this program"
            raise LinkClosed(f"{error}{hint}") from None
        except BaseException as error:
            link.abort(str(error))
            raise
        if isinstance(answer, NotController):
            link.close("it is not the active controller")
        else:
            self.metrics.connected()
        return link, theirs, answer

    async def _connect(self, address: Address) -> Link:
        # All addresses are checked, because any of them may be used.
        hosts = await resolve(address)
        self._exposure.check(hosts, "controllers")
        link = Link(str(address), limits=self.limits, metrics=self.metrics)
        loop = asyncio.get_running_loop()
        last: OSError | None = None
        for host in hosts:
            numeric = str(host.sockaddr[0])
            try:
                if self._tls is None:
                    await loop.create_connection(lambda: link, numeric, address.port)
                    return link
                context = self._tls.client_context()
                encryption = Encryption(context, link, self._buffer, server_hostname=address.host)
                await loop.create_connection(lambda: encryption, numeric, address.port)  # noqa: B023 - called at once
                await encryption.handshake(self.limits.handshake_ms / 1000)
            except OSError as error:
                last = error
            else:
                return link
        raise last or OSError(f"{address.host} has no address")

    def _reason(self, error: OSError) -> str:
        if isinstance(error, socket.gaierror):
            return f"the name of the host cannot be resolved ({error.strerror})"
        if rejected := rejected_certificate(error):
            return f"{rejected}; use certificates of one authority"
        if self._tls is not None and error.errno not in _UNREACHABLE:
            return f"the TLS handshake failed, or the address does not use TLS: {error}"
        return os.strerror(error.errno) if error.errno else str(error)
