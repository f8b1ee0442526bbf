"""Connections of the admin API: how many there are, what each waits for, and for how long.

    FRESH ─▶ HEAD ─▶ ANSWERING ◀─▶ BODY
              ▲          │
            IDLE ◀── UNREAD

A connection in FRESH, HEAD, BODY or IDLE waits for its client to send, one in UNREAD for its client to read. Each of
these states has a deadline, at which the connection is cut. At the limit a new connection replaces the one that has
waited longest, so a probe gets through a crowd of silent clients as long as its head follows the connection at once: a
fresh connection is not replaced for a moment, and others stay in the listen queue for that long. A connection whose
handler is at work is never replaced; if all are, the connections reserved for probes remain.

aiohttp parses the requests. It has no time limit for a head and none on the number of connections, so its request
handler is subclassed here, in the methods that it documents for that.
"""

import asyncio
import contextlib
import enum
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from aiohttp import web

from kactl.runtime.logs import logger
from kactl.telemetry.metrics import Reading

from . import limits
from .limits import Capacity

log = logger(__name__)

# Of each kind of refusal, one line in this time: a flood must not fill the disk.
LOG_PAUSE_S: Final = 10.0
_KINDS: Final = ("full", "replaced", "head", "body", "idle", "unread", "unanswered", "malformed", "descriptors")


class State(enum.Enum):
    """What a connection waits for."""

    FRESH = "fresh"
    HEAD = "head"
    ANSWERING = "answering"
    BODY = "body"
    UNREAD = "unread"
    IDLE = "idle"
    STREAMING = "streaming"


# The client is to act; such a connection may be replaced.
_WAITING: Final = frozenset({State.HEAD, State.BODY, State.IDLE})

# Under which a connection is counted that stays too long in a state.
_KIND_OF_STATE: Final = {State.ANSWERING: "unanswered", State.FRESH: "head"}


class Room(enum.Enum):
    """Whether there is room for a connection."""

    YES = "yes"
    PROBES = "probes"
    LATER = "later"
    NO = "no"


class Gate:
    """All connections of one server.

    Attributes:
        refused: connections that were refused or cut, by kind.
    """

    def __init__(self, capacity: Capacity, now_s: Callable[[], float] = time.monotonic) -> None:
        self.capacity = capacity
        self.refused: Counter[str] = Counter(dict.fromkeys(_KINDS, 0))
        self._open: set[Connection] = set()
        # When they were accepted, in this order.
        self._fresh: dict[Connection, float] = {}
        # In the order in which they began to wait.
        self._waiting: dict[Connection, None] = {}
        self._unread: dict[Connection, None] = {}
        self._now_s = now_s
        self._logged_s: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._open)

    def room(self) -> Room:
        """Make room for a connection, if that can be done now."""
        if len(self._open) < self.capacity.connections or self.replace_one():
            return Room.YES
        if self._fresh:
            return Room.LATER
        return Room.PROBES if len(self._open) < self.capacity.connections + self.capacity.probes else Room.NO

    def admit(self, connection: "Connection") -> None:
        """A connection has been accepted."""
        self._open.add(connection)
        self._fresh[connection] = self._now_s()

    def replace_one(self) -> bool:
        """Cut the connection that has waited longest for its client, if one does."""
        oldest = next(iter(self._waiting), None)
        if oldest is None and self._fresh:
            first, since_s = next(iter(self._fresh.items()))
            oldest = first if self._now_s() - since_s >= limits.FRESH_S else None
        if oldest is None:
            oldest = next(iter(self._unread), None)
        if oldest is None:
            return False
        oldest.cut("replaced", "cut to make room for another one")
        return True

    def moved(self, connection: "Connection", state: State) -> None:
        """A connection has entered a state."""
        if connection not in self._open:
            return
        if state is not State.FRESH:
            self._fresh.pop(connection, None)
        if state not in _WAITING:
            self._waiting.pop(connection, None)
        else:
            self._waiting.setdefault(connection)
        if state is State.UNREAD:
            self._unread.setdefault(connection)
        else:
            self._unread.pop(connection, None)

    def left(self, connection: "Connection") -> None:
        """A connection has ended, or is about to."""
        self._open.discard(connection)
        self._fresh.pop(connection, None)
        self._waiting.pop(connection, None)
        self._unread.pop(connection, None)

    def refuse(self, kind: str, peer: str, reason: str) -> None:
        """Count a refusal; log one of its kind in `LOG_PAUSE_S`."""
        self.refused[kind] += 1
        now_s = self._now_s()
        if now_s - self._logged_s.get(kind, -LOG_PAUSE_S) >= LOG_PAUSE_S:
            self._logged_s[kind] = now_s
            log.warning("admin API: connection from %s %s (%s: %d so far)", peer, reason, kind, self.refused[kind])

    def readings(self) -> dict[str, Reading]:
        """For `kactl.telemetry.metrics`."""

        def refused() -> Iterable[tuple[float, Mapping[str, str | int]]]:
            return [(count, {"error.type": kind}) for kind, count in self.refused.items()]

        return {
            "kactl.api.connections": lambda: [(len(self._open), {})],
            "kactl.api.refused.count": refused,
        }


class Connection(web.RequestHandler):
    """One connection, as aiohttp's protocol with deadlines.

    Args:
        server: of the application's runner.
        problem: makes the response to what aiohttp itself refuses: its status, and its reason in aiohttp's words.
        peer: address of the client, for the log.

    Attributes:
        probes_only: it was admitted on a place that is reserved for probes.
    """

    __slots__ = ("_cut", "_gate", "_head_bytes", "_peer", "_problem", "_requests", "_state", "_timer", "probes_only")

    def __init__(
        self,
        server: web.Server,
        gate: Gate,
        problem: Callable[[int, str], web.Response],
        *,
        peer: str,
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            # The deadlines below come first.
            keepalive_timeout=2 * limits.ANSWER_TIMEOUT_S,
            access_log=None,  # type: ignore[arg-type]  # as AppRunner passes it
            max_line_size=limits.LINE_BYTES_MAX,
            max_field_size=limits.FIELD_BYTES_MAX,
            max_headers=limits.FIELDS_MAX,
            lingering_time=limits.LINGERING_S,
            auto_decompress=False,  # an unfolded bomb would hold up the controller before it could be refused
        )
        self.probes_only = False
        self._gate = gate
        self._problem = problem
        self._peer = peer
        self._state = State.FRESH
        self._head_bytes = 0
        self._requests = 0
        self._cut = False
        self._timer: asyncio.TimerHandle | None = None

    # -- from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._cut:
            self._abort()
            return
        self._enter(State.FRESH, limits.HEAD_TIMEOUT_S)

    def data_received(self, data: bytes) -> None:
        if self._cut:
            return
        if self._state is State.IDLE:
            self._head_bytes = 0
            self._enter(State.HEAD, limits.HEAD_TIMEOUT_S)
        super().data_received(data)
        if self._state is State.FRESH:
            # Behind the same task: a complete head never waits.
            self._loop.call_soon(self._wait_for_head)
        if self._state in (State.FRESH, State.HEAD):
            self._head_bytes += len(data)
            if self._head_bytes > limits.HEAD_BYTES_MAX:
                # Behind the task that a complete head has woken up, which leaves this state.
                self._loop.call_soon(self._check_head)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        self._gate.left(self)
        super().connection_lost(exc)

    # -- from aiohttp's own loop

    def began(self) -> None:
        """A head is complete, and its request begins."""
        self._requests += 1
        if self._state is not State.STREAMING:
            self._enter(State.ANSWERING, limits.ANSWER_TIMEOUT_S)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPException):
            resp = self._problem(resp.status, resp.reason)
            resp.force_close()
        if self._requests >= limits.REQUESTS_PER_CONNECTION_MAX or self.probes_only:
            resp.force_close()
        self._enter(State.UNREAD, limits.UNREAD_TIMEOUT_S)
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            # Also if aiohttp closes now: until a client has taken the rest, or gone, the descriptor stays.
            self._enter(State.IDLE, limits.IDLE_TIMEOUT_S)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status < 500:
            self._gate.refuse("malformed", self._peer, f"sent what is no request: {_first_line(message or '')}")
        else:
            log.error("admin API: a request from %s failed: %s", self._peer, exc, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun; no other can follow")
        response = self._problem(status, _first_line(message or ""))
        response.force_close()
        return response

    # -- from handlers

    @contextlib.contextmanager
    def receiving(self) -> Iterator[None]:
        """While the handler reads a body; the reader has deadlines of its own, which are longer."""
        self._enter(State.BODY, limits.ANSWER_TIMEOUT_S)
        try:
            yield
        finally:
            self._enter(State.ANSWERING, limits.ANSWER_TIMEOUT_S)

    def streaming(self) -> None:
        """The response is an event stream, which has no end and detects a client that does not read."""
        self._enter(State.STREAMING, None)

    # -- ending

    def cut(self, kind: str, reason: str) -> None:
        """End the connection at once, whatever is on its way."""
        self._gate.refuse(kind, self._peer, reason)
        self._abort()

    def _abort(self) -> None:
        self._cut = True
        self._stop_timer()
        self._gate.left(self)
        if self.transport is not None:
            self.transport.abort()

    def _enter(self, state: State, timeout_s: float | None) -> None:
        if self._cut or self.transport is None:
            return
        self._state = state
        self._gate.moved(self, state)
        self._stop_timer()
        if timeout_s is not None:
            left = self.transport.get_write_buffer_size()
            self._timer = self._loop.call_later(timeout_s, self._late, timeout_s, left)

    def _late(self, timeout_s: float, left: int) -> None:
        """The client, or the handler, did not act in time."""
        transport = self.transport
        if transport is not None and self._state in (State.UNREAD, State.IDLE):
            now_left = transport.get_write_buffer_size()
            if 0 < now_left < left:
                # It reads, though slowly.
                self._timer = self._loop.call_later(timeout_s, self._late, timeout_s, now_left)
                return
        kind = _KIND_OF_STATE.get(self._state, self._state.value)
        if self._state is State.IDLE:
            # The normal end of a connection that is kept alive.
            self._abort()
        else:
            self.cut(kind, f"cut: nothing happened in state {kind} for {timeout_s:g} s")

    def _wait_for_head(self) -> None:
        if self._state is State.FRESH and not self._cut:
            # The deadline stays as it is.
            self._state = State.HEAD
            self._gate.moved(self, State.HEAD)

    def _check_head(self) -> None:
        if self._state in (State.FRESH, State.HEAD):
            self.cut("head", f"cut: its head has more than {limits.HEAD_BYTES_MAX} bytes")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def observe(server: web.Server) -> None:
    """Let connections of a server know when their requests begin."""
    made = server.request_factory

    def request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        if isinstance(protocol, Connection):
            protocol.began()
        return made(message, payload, protocol, writer, task)

    server.request_factory = request


def receiving(request: web.BaseRequest) -> contextlib.AbstractContextManager[None]:
    """While the body of a request is read."""
    protocol = request.protocol
    return protocol.receiving() if isinstance(protocol, Connection) else contextlib.nullcontext()


def streaming(request: web.BaseRequest) -> None:
    """The response to a request is an event stream."""
    if isinstance(request.protocol, Connection):
        request.protocol.streaming()


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
