"""TLS of one connection, with small buffers.

    socket ──bytes──▶ plain transport ──▶ Encryption ──plain text──▶ protocol
                                     ◀──              ◀──

asyncio's TLS has a buffer of 256 KiB for each connection, which stays allocated, and reads on while its protocol has
paused reading. Here all connections of a listener receive into one shared buffer; a connection owns what OpenSSL needs
between two records, and at most `PIECE` bytes that were received before reading was paused.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Iterable
from typing import Any, Final, cast

from kactl.runtime import forks
from kactl.security.access.validity import has_expired

from .tls_records import TlsRecords
from .tls_turns import TlsTurns

# What is received at a time: a record is not longer, except for its header.
PIECE: Final = 16 * 1024
# What is encrypted at a time: OpenSSL's buffer keeps the size that it once had.
_WRITE_PIECE: Final = 64 * 1024
# Records that end in one step. A peer that writes a byte at a time sends 700 in what is received at once.
_RECORDS_MAX: Final = 16
# Records without content after the handshake, such as updates of keys: Java sends one in 128 GB, OpenSSL none.
EMPTY_MAX: Final = 32


class Encryption(asyncio.BufferedProtocol):
    """The protocol of a socket, and the transport of another protocol, which is connected after the handshake.

    Args:
        protocol: receives the plain text.
        buffer: at least `PIECE` bytes, which all connections of an event loop may share, because received bytes are
            copied out of it at once. A buffered protocol may use the same one.
        turns: of all connections that strangers open. None for a peer that this program has chosen: its bytes are
            decrypted at once, and its records have no limit.
        server_hostname: of the client's side, which verifies it; None for the server's side.

    Attributes:
        secured: set after the handshake. It raises ssl.SSLError or OSError if the handshake fails.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        protocol: asyncio.BufferedProtocol | asyncio.Protocol,
        buffer: memoryview,
        *,
        turns: TlsTurns | None = None,
        server_hostname: str | None = None,
    ) -> None:
        self._context = context
        self._protocol = protocol
        self._shared = buffer[:PIECE]
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_hostname is None, server_hostname=server_hostname
        )
        self._peer_certificate: object = None
        self._loop = asyncio.get_running_loop()
        self._turns = turns
        self._records = TlsRecords()
        # Received, and not decrypted yet: a step waits for its turn, or reading is paused.
        self._held = b""
        # Whether a step waits for its turn. Nothing is received then.
        self._waits = False
        # Records whose end was read by OpenSSL, less those that had content.
        self._empty = 0
        self.secured: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._is_connected = False
        self._is_paused = False
        self._is_writing_paused = False
        self._is_over = False
        self._error: Exception | None = None

    async def handshake(self, limit_s: float | None = None) -> None:
        """Wait until the protocol is connected, without a limit if it is None. The connection is aborted if that fails.

        Raises:
            ssl.SSLError: the peer speaks something else, or one side rejects the other.
            OSError: the peer has closed, or took too long.
        """
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.shield(self.secured)
        except BaseException:
            self.abort()
            # The exception refers to this call, and so to this object. Without the cycle all of it is freed at once,
            # and not by the next garbage collection, before which a flood of handshakes would hold 47 KB for each.
            self._error = None
            self.secured = self._loop.create_future()
            self.secured.set_result(None)
            raise

    # -- called by the socket's transport ------------------------------------------------------------------------------

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`."""
        forks.bury(self._transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        forks.share(self)
        self._transport = cast(asyncio.Transport, transport)
        if self._is_over:
            self._transport.abort()
        else:
            self._advance()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared

    def buffer_updated(self, nbytes: int) -> None:
        if self._turns is None:
            self._incoming.write(self._shared[:nbytes])
            self._advance()
        else:
            self._held += self._shared[:nbytes]
            self._proceed(self._turns)

    def eof_received(self) -> bool:
        self._incoming.write(self._held)
        self._held = b""
        self._incoming.write_eof()
        self._advance()
        return False  # TLS ends both directions at once

    def connection_lost(self, exc: Exception | None) -> None:
        error = self._error or exc
        if not self.secured.done():
            self.secured.set_exception(error or ConnectionResetError("the peer closed during the TLS handshake"))
            self.secured.exception()  # marks the exception as retrieved if no caller waits
        if self._is_connected:
            self._is_connected = False
            self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        if self._is_connected:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._is_connected and self._is_writing_paused:
            self._is_writing_paused = False
            self._protocol.resume_writing()

    # -- the protocol's transport --------------------------------------------------------------------------------------

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        own = {"sslcontext": self._context, "ssl_object": self._tls, "peercert": self._peer_certificate}
        return own[name] if name in own else self._socket.get_extra_info(name, default)

    def can_write_eof(self) -> bool:
        return False  # the end of TLS closes both directions

    def is_closing(self) -> bool:
        return self._is_over or self._socket.is_closing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send. Data that cannot be encrypted ends the connection."""
        if self._is_over or not data:
            return
        view = memoryview(data).cast("B")
        try:
            while view:
                view = view[self._tls.write(view[:_WRITE_PIECE]) :]
                self._flush()
        except ssl.SSLError as error:
            self._fail(error)

    def writelines(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(parts))

    def pause_reading(self) -> None:
        self._is_paused = True
        if not self._socket.is_closing():
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Deliver what has been received, and then read on. The caller is not called from here."""
        self._is_paused = False
        self._loop.call_soon(self._resume)

    def close(self) -> None:
        """Tell the peer, and close the socket after everything is sent."""
        if not self._is_over:
            self._is_over = True
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()  # the peer's answer is not awaited
            self._flush()
            self._socket.close()

    def abort(self) -> None:
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def _socket(self) -> asyncio.Transport:
        assert self._transport is not None, "connected"
        return self._transport

    # -- both ----------------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        if not self._is_paused and not self._is_over:
            self._advance()
        self._read_on()

    def _read_on(self) -> None:
        """Decrypt what is held, and then receive more."""
        if self._turns is not None:
            self._proceed(self._turns)
        if not self._is_paused and not self._waits and not self.is_closing():
            self._socket.resume_reading()

    def _proceed(self, turns: TlsTurns) -> None:
        """Decrypt what is held, some records in each turn, until one has to be waited for or reading is paused."""
        while self._held and not self._waits and not self._is_paused and not self.is_closing():
            mine = turns.records if self.secured.done() else turns.handshakes
            if not mine.take(self._step):
                self._waits = True
                self._socket.pause_reading()

    def _step(self) -> None:
        """Decrypt some records of those that are held."""
        is_late, self._waits = self._waits, False
        if self.is_closing():
            return
        size, ends = self._records.take(self._held, _RECORDS_MAX)
        self._incoming.write(self._held[:size])
        self._held = self._held[size:]
        self._empty += ends
        self._advance()
        if is_late:
            self._read_on()

    def _advance(self) -> None:
        """Continue the handshake, or deliver plain text until more has to be received or reading is paused."""
        try:
            if not self.secured.done():
                self._tls.do_handshake()
                self._verify_resumed()
                self._empty = 0
                # Kept, because OpenSSL does not tell after the connection has failed.
                self._peer_certificate = self._tls.getpeercert()
                self.secured.set_result(None)
                self._is_connected = True
                self._protocol.connection_made(cast(asyncio.Transport, self))
            while not self._is_paused and not self._is_over:
                self._deliver()
        except ssl.SSLWantReadError:
            if self._empty > EMPTY_MAX and self.secured.done():
                text = f"more than {EMPTY_MAX} records without content after the handshake"
                self._fail(ssl.SSLError(ssl.SSL_ERROR_SSL, text))
                return
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError) as error:
            self._end(error)
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._flush()

    def _verify_resumed(self) -> None:
        """Verify the validity of the peer's certificate if the handshake resumed an earlier session: OpenSSL does so
        only in the first one.

        Raises:
            ssl.SSLError: it has expired.
        """
        certificate = self._tls.getpeercert(binary_form=True) if self._tls.session_reused else None
        if certificate is not None and has_expired(certificate, time.time()):
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "the certificate of the resumed session has expired")

    def _deliver(self) -> None:
        """Decrypt and deliver one piece.

        Raises:
            ssl.SSLError: nothing can be decrypted now, or the peer has closed.
        """
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            view = cast(memoryview, self._protocol.get_buffer(-1))
            count: Any = self._tls.read(len(view), cast(bytearray, view))
            if not count:
                raise ssl.SSLZeroReturnError
            self._protocol.buffer_updated(int(count))
        else:
            data = self._tls.read(PIECE)
            if not data:
                raise ssl.SSLZeroReturnError
            self._protocol.data_received(data)
        self._empty = max(0, self._empty - 1)

    def _flush(self) -> None:
        if self._outgoing.pending and not self._socket.is_closing():
            self._socket.write(self._outgoing.read())

    def _end(self, error: ssl.SSLError) -> None:
        """The peer has closed."""
        if not self._is_connected:
            self._fail(error)
            return
        self._protocol.eof_received()
        self.close()

    def _fail(self, error: ssl.SSLError) -> None:
        """Send the alert, and close."""
        self._error = error
        self._is_over = True
        if not self.secured.done():
            self.secured.set_exception(error)
            self.secured.exception()  # marks the exception as retrieved if no caller waits
        self._flush()
        self._socket.close()
