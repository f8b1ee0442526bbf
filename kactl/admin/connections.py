"""Connections of the admin API: their number, states and timeouts.

    FRESH ─▶ HEAD ─▶ ANSWERING ◀─▶ BODY
              ▲          │
            IDLE ◀── UNREAD

A connection in FRESH, HEAD, BODY or IDLE waits for its client to send; one in UNREAD waits for its client to read.
Each of these states has a timeout, after which the connection is cut. At the limit a new connection replaces the one
that has waited longest, so a probe succeeds in a crowd of silent clients if its head follows the connection at once: a
fresh connection is not replaced for a moment, nor while received data is unread, and others stay in the listen queue
for that long. A connection with a running handler is never replaced. If all handlers are running, the connections
reserved for probes remain.

aiohttp parses the requests. It has no timeout for a head and no limit on the number of connections, so its request
handler is subclassed here, in the methods that it documents for that.
"""

import array
import asyncio
import contextlib
import fcntl
import termios
from collections.abc import Callable, Iterator
from typing import Any, Final

from aiohttp import web

from kactl.runtime import forks
from kactl.runtime.addresses import group_of
from kactl.runtime.error_id import log_error
from kactl.runtime.logs import logger
from kactl.runtime.places import Place

from . import limits
from .gate import RANKS, Gate, State

log = logger(__name__)

# The kind under which a timeout in a state is counted; by default the state's name.
_KIND_OF_STATE: Final = {State.ANSWERING: "unanswered", State.FRESH: "head"}


class Connection(web.RequestHandler, Place):
    """One connection: aiohttp's protocol with timeouts.

    Args:
        server: of the application's runner.
        problem: returns the response to a request that aiohttp rejects, from its status and aiohttp's reason.
        peer: address of the client, for the log.
        uid: the user at the other end of the Unix socket; None for other connections.

    Attributes:
        probes_only: the connection was admitted as one of those reserved for probes.
        descriptor: of its accepted socket.
    """

    __slots__ = (
        "_cut",
        "_gate",
        "_head_bytes",
        "_problem",
        "_requests",
        "_state",
        "_timer",
        "descriptor",
        "peer",
        "probes_only",
        "uid",
    )

    def __init__(
        self,
        server: web.Server,
        gate: Gate,
        problem: Callable[[int, str, str], web.Response],
        *,
        peer: str,
        uid: int | None = None,
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            # The timeouts below are shorter.
            keepalive_timeout=2 * limits.ANSWER_TIMEOUT_S,
            access_log=None,  # type: ignore[arg-type]  # as AppRunner passes it
            max_line_size=limits.LINE_BYTES_MAX,
            max_field_size=limits.FIELD_BYTES_MAX,
            max_headers=limits.FIELDS_MAX,
            lingering_time=limits.LINGERING_S,
            auto_decompress=False,  # decompressing a bomb would block the controller before it could be rejected
        )
        self.probes_only = False
        self.uid = uid
        self.owner = group_of(peer)
        self.descriptor = -1
        self._gate = gate
        self._problem = problem
        self.peer = peer
        self._state = State.FRESH
        self._head_bytes = 0
        self._requests = 0
        self._cut = False
        self._timer: asyncio.TimerHandle | None = None

    # -- called by the transport

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`."""
        forks.bury(self.transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        forks.share(self)
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
            # Scheduled after the task that handles a complete head, so that a complete head never waits.
            self._loop.call_soon(self._wait_for_head)
        if self._state in (State.FRESH, State.HEAD):
            self._head_bytes += len(data)
            if self._head_bytes > limits.HEAD_BYTES_MAX:
                # Scheduled after the task that a complete head has woken, which leaves this state.
                self._loop.call_soon(self._check_head)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        self._gate.leave(self)
        super().connection_lost(exc)

    # -- called by aiohttp's loop

    def began(self) -> None:
        """Called when a head is complete and its request begins."""
        self._requests += 1
        if self._state is not State.STREAMING:
            self._enter(State.ANSWERING, limits.ANSWER_TIMEOUT_S)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPException):
            resp = self._problem(resp.status, resp.reason, "")
            resp.force_close()
        if self._requests >= limits.REQUESTS_PER_CONNECTION_MAX or self.probes_only:
            resp.force_close()
        self._enter(State.UNREAD, limits.UNREAD_TIMEOUT_S)
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            # Also if aiohttp closes now: the descriptor stays until the client has read the rest or disconnected.
            self._enter(State.IDLE, limits.IDLE_TIMEOUT_S)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        error_id = ""
        if status < 500:
            self._gate.refuse("malformed", self.peer, f"sent an invalid request: {_first_line(message or '')}")
        else:
            failed = exc or RuntimeError(message or "unknown")
            error_id = log_error(log, failed, "admin API: a request from %s failed", self.peer)
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun; a second one cannot follow")
        response = self._problem(status, _first_line(message or ""), error_id)
        response.force_close()
        return response

    # -- called by handlers

    @contextlib.contextmanager
    def receiving(self) -> Iterator[None]:
        """Enter BODY while the handler reads a body. The reader has its own deadlines, which are shorter."""
        self._enter(State.BODY, limits.ANSWER_TIMEOUT_S)
        try:
            yield
        finally:
            self._enter(State.ANSWERING, limits.ANSWER_TIMEOUT_S)

    def streaming(self) -> None:
        """Mark the response as an event stream, which has no end and detects a client that does not read."""
        self._enter(State.STREAMING, None)

    @property
    def has_received(self) -> bool:
        """Whether its client has sent anything, read by this process or not."""
        if self._head_bytes:
            return True
        unread = array.array("i", [0])
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.descriptor, termios.FIONREAD, unread)
        return unread[0] > 0

    @property
    def is_idle(self) -> bool:
        """Whether it is kept alive between two requests."""
        return self._state is State.IDLE

    # -- termination

    def close_idle(self) -> None:
        """Close the connection between two requests, which is the normal end of one that is kept alive."""
        self._abort()

    def make_way(self) -> None:
        self.cut("replaced", "was cut to make room for another connection")

    def cut(self, kind: str, reason: str) -> None:
        """Abort the connection; data in transit is lost."""
        self._gate.refuse(kind, self.peer, reason)
        self._abort()

    def _abort(self) -> None:
        self._cut = True
        self._stop_timer()
        self._gate.leave(self)
        if self.transport is not None:
            self.transport.abort()
        elif self.task is not None:
            self.task.cancel()

    def _enter(self, state: State, timeout_s: float | None) -> None:
        if self._cut or self.transport is None:
            return
        self._state = state
        self._gate.set_rank(self, RANKS.get(state))
        self._stop_timer()
        if timeout_s is not None:
            unsent = self.transport.get_write_buffer_size()
            self._timer = self._loop.call_later(timeout_s, self._late, timeout_s, unsent)

    def _late(self, timeout_s: float, unsent: int) -> None:
        """Called when the client or the handler did not act in time."""
        transport = self.transport
        if transport is not None and self._state in (State.UNREAD, State.IDLE):
            unsent_now = transport.get_write_buffer_size()
            if 0 < unsent_now < unsent:
                # The client reads slowly.
                self._timer = self._loop.call_later(timeout_s, self._late, timeout_s, unsent_now)
                return
        kind = _KIND_OF_STATE.get(self._state, self._state.value)
        if self._state is State.IDLE:
            self.close_idle()
        else:
            self.cut(kind, f"was cut: no progress in state {kind} for {timeout_s:g} s")

    def _wait_for_head(self) -> None:
        if self._state is State.FRESH and not self._cut:
            # The timeout is not changed.
            self._state = State.HEAD
            self._gate.set_rank(self, RANKS[State.HEAD])

    def _check_head(self) -> None:
        if self._state in (State.FRESH, State.HEAD):
            self.cut("head", f"was cut: its head has more than {limits.HEAD_BYTES_MAX} bytes")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def observe(server: web.Server) -> None:
    """Notify connections of a server when their requests begin."""
    make_request = server.request_factory

    def request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        if isinstance(protocol, Connection):
            protocol.began()
        return make_request(message, payload, protocol, writer, task)

    server.request_factory = request


def receiving(request: web.BaseRequest) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which the body of a request is read."""
    protocol = request.protocol
    return protocol.receiving() if isinstance(protocol, Connection) else contextlib.nullcontext()


def streaming(request: web.BaseRequest) -> None:
    """Mark the response to a request as an event stream."""
    if isinstance(request.protocol, Connection):
        request.protocol.streaming()


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
