"""One connection between two programs, from its first byte to its end.

    HANDSHAKE ──serve──▶ OPEN ──close──▶ CLOSING ──▶ CLOSED
        └── peer ends, violation, abort, silence ──────▲

A link writes the messages of its lanes, one part at a time, and never more than one part ahead of what the socket
accepts: a heartbeat therefore waits for at most one part in this process. It sends a sign of life whenever it has sent
nothing for a third of the time limit, and closes itself if it has received nothing for the whole of it.
"""

import asyncio
import itertools
import math
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from kactl.model.errors import KactlError, MalformedMessage
from kactl.runtime import forks
from kactl.runtime.addresses import host_and_port, plain_address
from kactl.runtime.logs import logger
from kactl.security.access import Principal, stranger

from .framing import STREAM_MAX, Bounds, FrameDecoder, Kind, Lane, Message, Partial, recognised
from .lanes import LaneFull, Lanes
from .limits import KIB, MIB, PART_BYTES_MAX, PART_BYTES_MIN, RESPONSE_BYTES_MAX, Limits
from .metrics import LinkMetrics

log = logger(__name__)

# Before the peer is authenticated.
HELLO_BYTES_MAX: Final = 4 * KIB
HELLO_FRAMES_MAX: Final = 4
# The socket takes a part once less than this waits for it. More would delay a heartbeat behind it.
_WRITE_HIGH: Final = 16 * KIB
# Bytes that the kernel accepts before it has sent earlier ones; the rest of its buffer is on its way.
_NOT_SENT_MAX: Final = 64 * KIB
# How long a closing link may take to write its waiting messages.
_FLUSH_S: Final = 2.0


class LinkClosed(KactlError):
    """The link is closed, or was closed before an answer arrived."""


class Link(asyncio.Protocol):
    """A connection, as a protocol of an asyncio transport.

    Args:
        what: the peer, for log lines.
    """

    def __init__(self, what: str, *, limits: Limits, metrics: LinkMetrics, silence_ms: float | None = None) -> None:
        self.what = what
        self.limits = limits
        self.reason = ""
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.on_closed: Callable[[str], None] | None = None
        self.on_violation: Callable[[str], None] | None = None
        self._principal: Principal | None = None
        self.silence_s = (silence_ms or limits.silence_ms) / 1000
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder(Bounds(HELLO_BYTES_MAX, HELLO_BYTES_MAX, 0, HELLO_FRAMES_MAX))
        self._lanes = Lanes(part=limits.part_bytes, limit=limits.lane_bytes)
        self._transport: asyncio.Transport | None = None
        self._handler: Callable[[Message], None] | None = None
        self._early: list[Message] = []
        self._arrived = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._streams = itertools.cycle(range(1, STREAM_MAX))
        self._incomplete: dict[Partial, float] = {}  # and when they were first seen
        self._is_paused = False  # the socket takes no more
        self._is_closing = False
        self._is_broken = False  # nothing more can be read
        self._lost = asyncio.Event()
        self._first = b""
        self._unhandled_bytes = 0
        self._unhandled = 0
        self._reads = True
        self._received_at = self._sent_at = self._checked_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._expires_s = math.inf  # end of the validity of the peer's certificate, since 1970

    # -- life ----------------------------------------------------------------------------------------------------------

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`."""
        forks.bury(self._transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        forks.share(self)
        # That of uvloop is no subclass of asyncio.Transport.
        self._transport = stream = cast(asyncio.Transport, transport)
        stream.set_write_buffer_limits(high=_WRITE_HIGH)
        self._received_at = self._sent_at = self._checked_at = self._loop.time()
        set_options(transport.get_extra_info("socket"), silence_ms=int(self.silence_s * 1000))
        if self._is_closing:
            stream.abort()

    def connection_lost(self, error: Exception | None) -> None:
        ended = "the peer has closed the connection" if error is None else f"the connection broke: {error}"
        self._lost.set()
        self._ended(self.reason or ended)

    def eof_received(self) -> None:
        """The peer sends no more: nothing can be answered."""
        self.abort("the peer has closed the connection")

    def close(self, reason: str) -> None:
        """Write the waiting messages, then close. Requests that wait for an answer fail at once.

        Nothing more is read: it would not be handled, and a peer may send without end.
        """
        if self._is_closing or self._transport is None:
            self.abort(reason)
            return
        self._is_closing, self.reason = True, reason
        self._fail_requests(reason)
        self._loop.call_later(_FLUSH_S, self.abort, reason)
        self._write()
        if self._reads and not self._transport.is_closing():
            self._reads = False
            self._transport.pause_reading()

    def abort(self, reason: str) -> None:
        """Close at once."""
        self._is_closing = True
        self.reason = self.reason or reason
        if self._transport is not None:
            self._transport.abort()
        self._ended(self.reason)

    async def wait_lost(self) -> None:
        """Wait until a closed link has left its socket; bounded by the time that it may take to write the rest."""
        if self._transport is not None:
            await self._lost.wait()

    @property
    def is_live(self) -> bool:
        """Whether the peer has sent something lately: one that has given up the link has been silent for longer."""
        return self.is_open and self._loop.time() - self._received_at < self.silence_s / 3

    @property
    def is_open(self) -> bool:
        return not self._is_closing and not self.closed.done()

    @property
    def peer_address(self) -> str:
        return host_and_port(self.peer_host, self._peer[1]) if self._peer else ""

    @property
    def peer_host(self) -> str:
        return plain_address(self._peer[0]) if self._peer else ""

    @property
    def _peer(self) -> Any:
        return None if self._transport is None else self._transport.get_extra_info("peername")

    @property
    def principal(self) -> Principal:
        """The peer, once the handshake has shown who it is."""
        return stranger(self.peer_host) if self._principal is None else self._principal

    @principal.setter
    def principal(self, principal: Principal) -> None:
        self._principal = principal

    def peer_certificate(self) -> dict[str, object] | None:
        """Returns the verified certificate of the peer; None without TLS."""
        assert self._transport is not None
        certificate: dict[str, object] | None = self._transport.get_extra_info("peercert")
        return certificate

    def _ended(self, reason: str) -> None:
        if self.closed.done():
            return
        self.reason = self.reason or reason
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._lanes.clear()
        self._metrics.forget_queue(id(self))
        self._fail_requests(self.reason)
        self.closed.set_result(self.reason)
        self._arrived.set()
        if self.on_closed is not None:
            self.on_closed(self.reason)

    def _fail_requests(self, reason: str) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(LinkClosed(reason))

    # -- handshake -----------------------------------------------------------------------------------------------------

    async def next_message(self) -> Message:
        """Wait for a message of the handshake, before `serve`.

        Raises:
            LinkClosed: the link has ended.
        """
        self._pump()
        while not self._early:
            if self.closed.done():
                raise LinkClosed(self.reason)
            self._arrived.clear()
            await self._arrived.wait()
        return self._early.pop(0)

    def serve(
        self,
        handler: Callable[[Message], None],
        *,
        silence_ms: float | None = None,
        kinds: Mapping[Kind, int] | None = None,
    ) -> None:
        """Accept all messages of the peer: its identity is known now.

        Args:
            handler: called for each message that is no answer and no sign of life.
            silence_ms: the time limit of the peer, if it is shorter.
            kinds: sizes of what a client of a controller may send; a controller may send `limits.message_bytes`.
        """
        limits = self.limits
        message = limits.message_bytes if kinds is None else min(limits.message_bytes, RESPONSE_BYTES_MAX)
        if silence_ms is not None:
            self.silence_s = min(self.silence_s, silence_ms / 1000)
        self._decoder.bounds = Bounds(
            PART_BYTES_MAX, message, limits.streams, part_min=PART_BYTES_MIN, kinds={} if kinds is None else kinds
        )
        self._handler = handler
        if certificate := self.peer_certificate() if self.is_open else None:
            self._expires_s = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
        if self.is_open:
            self._metrics.watch_queue(id(self), self._lanes.queued)
        self._received_at = self._loop.time()
        self._watch()
        self._pump()

    # -- reading -------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._received_at = self._loop.time()
        if self._is_closing:
            return
        if len(self._first) < 8:
            self._first += data[: 8 - len(self._first)]
        self._decoder.feed(data)
        self._pump()

    def _pump(self) -> None:
        """Handle the messages that have arrived.

        During the handshake this is one at a time, because each changes the rules. It goes on after the peer has closed
        the connection, because its last message has the reason.
        """
        if self._is_broken:
            return
        try:
            if (other := recognised(self._first)) is not None:
                raise MalformedMessage(f"it speaks {other} on a connection without TLS: compare the settings")
            while not self._is_broken and (self.is_open if self._handler is not None else not self._early):
                message = self._decoder.next()
                if message is None:
                    break
                self._metrics.received(message)
                self._received(message)
        except MalformedMessage as error:
            self._is_broken = True
            self._metrics.violation()
            log.warning("link with %s is closed: %s", self.what, error)
            if self.on_violation is not None:
                self.on_violation(str(error))
            self.abort(str(error))
        except Exception:
            self._is_broken = True
            log.exception("link with %s is closed: a message could not be handled", self.what)
            self.abort("a message could not be handled")
        self._set_reading()

    def _received(self, message: Message) -> None:
        if self._handler is None:
            self._early.append(message)
            self._arrived.set()
        elif message.kind is Kind.PING:
            return
        elif message.answer:
            waiting = self._waiting.get(message.stream)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        else:
            self._handler(message)

    def _set_reading(self) -> None:
        """Read from the socket, unless too much is not handled yet."""
        if self._handler is None:
            reads = not self._early
        elif self._reads:
            # A single message never stops the reading: signs of life may follow it.
            reads = self._unhandled <= 1 or self._unhandled_bytes <= self.limits.unhandled_bytes
        else:
            reads = self._unhandled <= 1 or self._unhandled_bytes <= self.limits.unhandled_bytes // 2
        if reads is self._reads or self._transport is None or not self.is_open:
            return
        self._reads = reads
        if reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def hold(self, size: int) -> None:
        """Count a message as not handled. Several of them may stop the reading."""
        self._unhandled += 1
        self._unhandled_bytes += size
        self._set_reading()

    def release(self, size: int) -> None:
        """Count a message as handled."""
        self._unhandled -= 1
        self._unhandled_bytes -= size
        self._set_reading()

    # -- writing -------------------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Queue a message.

        Raises:
            LinkClosed: the link is closed.
            LaneFull: too many bytes wait in the lane of the message.
        """
        if not self.is_open:
            raise LinkClosed(self.reason)
        self._lanes.put(message)
        self._write()

    def answer(self, request: Message, head: bytes, *, error: bool = False) -> None:
        """Answer a request. Does nothing if the link is closed or its lane is full: the sender asks again."""
        try:
            self.send(Message(request.kind, request.stream, head, answer=True, error=error))
        except LinkClosed:
            return
        except LaneFull as full:
            self.abort(str(full))

    def one_way(self, kind: Kind, head: bytes) -> None:
        """Send a message without an answer.

        Raises:
            LinkClosed, LaneFull: see `send`.
        """
        self.send(Message(kind, next(self._streams), head))

    async def request(self, kind: Kind, pieces: Sequence[bytes | memoryview]) -> Message:
        """Send a request and wait for the answer. After a cancellation the answer is ignored.

        Raises:
            LinkClosed: the link was closed before an answer arrived.
            LaneFull: nothing was sent.
        """
        if len(self._waiting) >= self.limits.streams:
            raise LaneFull(Lane.REQUESTS, sum(self._lanes.queued.values()))
        stream = next(stream for stream in self._streams if stream not in self._waiting)
        waiting = self._waiting[stream] = self._loop.create_future()
        try:
            self.send(Message(kind, stream, pieces=pieces))
            answer: Message = await waiting
            return answer
        finally:
            del self._waiting[stream]
            if not waiting.done() or waiting.cancelled():
                self._lanes.withdraw(kind, stream)

    @property
    def queued(self) -> dict[Lane, int]:
        """Bytes that wait in each lane."""
        return self._lanes.queued

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._write()

    def _write(self) -> None:
        transport = self._transport
        if transport is None:
            return
        while not self._is_paused and not self.closed.done():
            taken = self._lanes.take()
            if taken is None:
                break
            lane, frame = taken
            self._sent_at = self._loop.time()
            self._metrics.sent(lane, len(frame))
            transport.write(frame)
        if self._is_closing and not self._lanes:
            transport.close()

    # -- liveness ------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Close a silent link, and show the peer that this one is alive."""
        if not self.is_open:
            return
        now, interval_s = self._loop.time(), self.silence_s / 6
        late_s = now - self._checked_at - interval_s
        if late_s > interval_s:
            # The event loop was blocked, or the process stopped: messages of the peer are still unread.
            self._received_at += late_s
        self._checked_at = now
        if now - self._received_at >= self.silence_s:
            self.abort(f"nothing was received for {self.silence_s * 1000:.0f} ms (limits.silence_ms)")
            return
        if time.time() >= self._expires_s:
            log.warning("link with %s is closed: %s", self.what, "the certificate of the peer has expired")
            self.abort("the certificate of the peer has expired")
            return
        if self._is_slow(now):
            limit_ms = self.limits.request_ms
            self.abort(f"a message is not complete, {limit_ms} ms and {limit_ms} ms a MiB after its begin")
            return
        if now - self._sent_at >= self.silence_s / 3 and not self._lanes:
            self.send(Message(Kind.PING))
        self._timer = self._loop.call_later(interval_s, self._watch)

    def _is_slow(self, now_s: float) -> bool:
        """Returns whether a message arrives too slowly. Signs of life between its parts do not prolong its time."""
        if not self._reads:  # the peer cannot send the rest: its time begins again
            self._incomplete = {}
            return False
        self._incomplete = {one: self._incomplete.get(one, now_s) for one in self._decoder.incomplete}
        limit_s = self.limits.request_ms / 1000
        return any(now_s - begun_s > limit_s * (1 + one.size / MIB) for one, begun_s in self._incomplete.items())


def set_options(sock: socket.socket | None, *, silence_ms: int) -> None:
    """Set the options of a connection, as far as the platform and the kind of socket have them."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    options = {"TCP_NODELAY": 1, "TCP_NOTSENT_LOWAT": _NOT_SENT_MAX, "TCP_USER_TIMEOUT": silence_ms}
    for name, value in options.items():
        number = getattr(socket, name, None)
        if number is not None:
            sock.setsockopt(socket.IPPROTO_TCP, number, value)
