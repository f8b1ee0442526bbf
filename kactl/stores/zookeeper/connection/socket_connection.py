"""One connection to one server: greeted, kept alive, and told apart from a dead one, until its end.

Requests that are sent in one turn of the loop leave in one write. Answers come in the order of the requests; the number
that each carries says no more than that nothing got lost. What cannot be understood ends the connection, since nothing
after it can be trusted to be what it seems; the reason is kept for whoever asks.

A server that says nothing for two thirds of the session's timeout is taken for dead. It is pinged every third, however
much is being said, so that a healthy one always has something to say.
"""

import asyncio
from collections import deque
from typing import Any, Final, Protocol, cast

from kazoo.exceptions import AuthFailedError, NoNodeError
from kazoo.protocol.serialization import Exists

from kactl.runtime.logs import logger
from kactl.stores.zookeeper.request import error_of

from . import messages
from .armed_watches import ArmedWatches
from .frames import FRAME_BYTES_MAX, Frames, MalformedFrame
from .interface import PendingCall
from .messages import Granted, Session

log = logger(__name__)

# Before a silent server is given up the loop gets round once more: if it was we who were late, its words are there.
LAST_LOOK_S: Final = 0.05

_NO_NODE: Final = NoNodeError.code
# What the server answers to those whom it does not know, or does not know any more.
_NOT_LET_IN: Final = {-115: "the server refuses us", -124: "the server wants us to prove who we are, by SASL"}
_SESSION_GONE: Final = {-112: "the session has ended", -118: "the session has moved to another server"}


class Owner(Protocol):
    """Who has the connection: hears as a link's client does, and knows the tree up to a transaction."""

    def answered(self, call: Any, result: Any) -> None: ...

    def watch_fired(self, kind: str, path: str) -> None: ...

    def tree_changed(self, root: str, kind: str, path: str) -> None: ...

    def settled(self) -> None: ...


class SocketConnection(asyncio.Protocol):
    """See the module. Made for `create_connection`; then `greet`, and then all else.

    Attributes:
        ended: set when the connection is closed, with the reason.
        zxid: the last transaction that the server is known to have seen.
        armed: what is watched over it.
    """

    def __init__(self, owner: Owner, *, frame_bytes_max: int = FRAME_BYTES_MAX, first_xid: int = 1) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._frames = Frames(bytes_max=frame_bytes_max)
        self._xid = first_xid
        self._transport: asyncio.Transport | None = None
        self._granted: asyncio.Future[Granted] = self._loop.create_future()
        self._reason = ""
        self._pending: deque[tuple[int, PendingCall | None]] = deque()
        self._out: list[bytes] = []
        self._flushing = False
        self._third_s = 0.0
        self._heard_at = self._pinged_at = 0.0
        self._looking_again = False
        self._timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[str] = self._loop.create_future()
        self.zxid = 0
        self.armed = ArmedWatches()

    # -- beginning and end

    async def greet(self, session: Session, *, timeout_ms: int, zxid: int) -> Granted:
        """Ask for a session and wait for what is granted; from then on the server is pinged.

        Raises:
            ConnectionError: the server closed the connection, or answered something else.
        """
        self._write([messages.connect(session, timeout_ms=timeout_ms, zxid=zxid)])
        granted_or_gone: list[asyncio.Future[Any]] = [self._granted, self.ended]
        await asyncio.wait(granted_or_gone, return_when=asyncio.FIRST_COMPLETED)
        if not self._granted.done():
            raise ConnectionError(f"{self.ended.result()} before it gave us a session")
        granted = self._granted.result()
        self.zxid = zxid
        if granted.timeout_ms > 0:
            self._third_s = granted.timeout_ms / 3000
            self._pinged_at = self._loop.time()
            self._beat()
        return granted

    def drop(self, reason: str) -> None:
        """Close the connection now, whatever is on its way. The first reason counts."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    def left(self) -> list[Any]:
        """The calls that were not answered, once the connection has ended; each is given once."""
        calls = [call for _, call in self._pending if call is not None]
        self._pending.clear()
        return calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is none by its class.
        self._transport = cast(asyncio.Transport, transport)
        self._heard_at = self._loop.time()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._reason = self._reason or (f"the connection broke ({error})" if error else "the server closed it")
        if not self.ended.done():
            self.ended.set_result(self._reason)

    # -- what we say

    def send(self, call: PendingCall) -> None:
        """Ask by the end of this turn of the loop. If the connection has ended already, the call is among the left."""
        try:
            head, body = messages.ask(self._xid, call.request)
        except Exception as error:
            log.exception("a request cannot be written")
            self._loop.call_soon(self._owner.answered, call, error)
            return
        self.armed.asked(call.request)
        self._pending.append((self._xid, call))
        self._next_xid()
        self._out += (head, body)
        self._flush_soon()

    def end_session(self) -> None:
        """Ask the server to end the session after all that was asked before; then it closes the connection."""
        self._pending.append((self._xid, None))
        self._out.append(messages.close(self._xid))
        self._next_xid()
        self._flush_soon()

    def _next_xid(self) -> None:
        self._xid = self._xid + 1 if self._xid < messages.XID_MAX else 1

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._out:
            out, self._out = self._out, []
            self._write(out)

    def _write(self, out: list[bytes]) -> None:
        # Without regard to how much the transport holds back: it is what the client's window lets pass, at most.
        if self._transport is not None and not self._transport.is_closing():
            # After `writelines` with an empty last part, asyncio's loop of Python 3.12 and 3.13 is never idle again
            # (gh-155888).
            self._transport.write(b"".join(out))

    # -- what the server says

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            for frame in self._frames.feed(data):
                if self._reason:
                    return  # given up meanwhile
                self._take(frame)
        except MalformedFrame as error:
            log.error("ZooKeeper said what cannot be understood, the connection is closed: %s", error)
            self.drop(f"what it said cannot be understood: {error}")
            return
        self._owner.settled()
        self._flush()

    def _take(self, frame: bytes) -> None:
        if not self._granted.done():
            self._granted.set_result(messages.granted(frame))
            return
        xid, zxid, code = messages.answer(frame)
        if xid > 0:
            self._take_answer(frame, xid, code)
            if zxid > 0:
                self.zxid = zxid
        elif xid == messages.WATCH_XID:
            self._take_event(frame)
        elif xid != messages.PING_XID:
            raise MalformedFrame(f"an answer to request {xid}, which has no such number")

    def _take_event(self, frame: bytes) -> None:
        kind, path = messages.event(frame)
        if kind is None:
            log.info("ZooKeeper tells of %s by an event that is unknown here", path)
            return
        single, roots = self.armed.fired(kind, path)
        if single:
            self._owner.watch_fired(kind, path)
        for root in roots:
            self._owner.tree_changed(root, kind, path)

    def _take_answer(self, frame: bytes, xid: int, code: int) -> None:
        if not self._pending:
            raise MalformedFrame(f"an answer to request {xid}, and nothing was asked")
        expected, call = self._pending[0]
        if xid != expected:
            raise MalformedFrame(f"an answer to request {xid}, where {expected} is the next")
        if code in _SESSION_GONE:
            raise MalformedFrame(
                _SESSION_GONE[code]
            )  # what else it would say is void; the next greeting tells for certain
        self._pending.popleft()
        if call is None:
            self.drop("closed by us")
            return
        request = call.request
        result: Any
        if not code:
            try:
                result = request.deserialize(frame, messages.BODY)
            except Exception as error:
                log.exception("an answer cannot be read")
                result = error
            self.armed.answered(request, found=True)
        elif code == _NO_NODE and request.type == Exists.type:
            result = None
            self.armed.answered(request, found=False)
        elif code in _NOT_LET_IN:
            result = AuthFailedError(_NOT_LET_IN[code])
            self.drop(_NOT_LET_IN[code])
        else:
            result = error_of(code)
        self._owner.answered(call, result)

    # -- whether it lives

    def _beat(self) -> None:
        now = self._loop.time()
        silent_until = self._heard_at + 2 * self._third_s
        if now < silent_until:
            self._looking_again = False
            if now >= self._pinged_at + self._third_s:
                self._write([messages.PING])
                self._pinged_at = now
            due = min(self._pinged_at + self._third_s, silent_until)
        elif not self._looking_again:
            self._looking_again = True
            due = now + LAST_LOOK_S
        else:
            self.drop(f"the server said nothing for {now - self._heard_at:.1f} s")
            return
        self._timer = self._loop.call_at(due, self._beat)
