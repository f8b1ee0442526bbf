"""One connection to one server, from its handshake to its end, with keep-alive.

Requests of one turn of the loop leave in one write. Responses arrive in the order of the requests; their numbers serve
only to detect a loss. A malformed response ends the connection, since later data cannot be trusted; the reason is kept.

A server that sends nothing for two thirds of the session's timeout is considered dead. It is pinged every third,
whatever else is sent, so that a healthy server always has something to send.
"""

import asyncio
from collections import deque
from typing import Any, Final, Protocol, TypeVar, cast

from kazoo.exceptions import AuthFailedError, NoNodeError
from kazoo.protocol.serialization import Exists

from kactl.runtime import forks
from kactl.runtime.logs import logger
from kactl.runtime.threads import LOGINS, run_in_thread
from kactl.security.sasl import ClientMechanism, Conversation, SaslError
from kactl.stores.zookeeper.request import error_of

from . import messages
from .armed_watches import ArmedWatches
from .credentials import NoSession, NotAuthenticated
from .frames import FRAME_BYTES_MAX, Frames, MalformedFrame
from .interface import PendingCall
from .messages import Granted, Session

log = logger(__name__)

_T = TypeVar("_T")

# Before a silent server is given up the loop runs once more: if this process was delayed, its responses have arrived.
LAST_LOOK_S: Final = 0.05

_NO_NODE: Final = NoNodeError.code
# Errors of a server that rejects the client or its session.
_NOT_LET_IN: Final = {
    -115: "the server rejects this client: check its username and password",
    -124: "the server requires SASL authentication: give a username and a password",
}
_SESSION_GONE: Final = {-112: "the session has ended", -118: "the session has moved to another server"}


class Owner(Protocol):
    """The owner of a connection; receives its events."""

    def answered(self, call: Any, result: Any) -> None: ...

    def watch_fired(self, kind: str, path: str) -> None: ...

    def tree_changed(self, root: str, kind: str, path: str) -> None: ...

    def settled(self) -> None: ...


class SocketConnection(asyncio.Protocol):
    """A protocol for `create_connection`; call `handshake` first.

    Attributes:
        ended: set to the reason when the connection is closed.
        zxid: the last transaction that the server is known to have seen.
        armed: the watches armed over this connection.
    """

    def __init__(self, owner: Owner, *, frame_bytes_max: int = FRAME_BYTES_MAX, first_xid: int = 1) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._frames = Frames(bytes_max=frame_bytes_max)
        self._xid = first_xid
        self._transport: asyncio.Transport | None = None
        self._granted: asyncio.Future[Granted] = self._loop.create_future()
        self._login: asyncio.Future[bytes] | None = None
        self._login_xid = 0
        self._reason = ""
        self._pending: deque[tuple[int, PendingCall | None]] = deque()
        self._out: list[bytes] = []
        self._flushing = False
        self._third_s = 0.0
        self._received_at = self._pinged_at = 0.0
        self._looking_again = False
        self._timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[str] = self._loop.create_future()
        self.zxid = 0
        self.armed = ArmedWatches()

    # -- beginning and end

    async def handshake(
        self,
        session: Session,
        *,
        timeout_ms: int,
        zxid: int,
        login: ClientMechanism | None = None,
        digest: bytes | None = None,
    ) -> Granted:
        """Request a session and wait for the response, and log in; from then on the server is pinged.

        A server may answer a request that arrives during a login with an error. So nothing is sent before its end.

        Args:
            login: presents an identity to the server, which belongs to the connection and not to the session.
            digest: the secret of an identity of scheme digest.

        Returns:
            the granted session.

        Raises:
            NotAuthenticated: the server rejected the login, or could not prove that it knows the password.
            ConnectionError: the server closed the connection, or sent another response.
        """
        self._write([messages.connect(session, timeout_ms=timeout_ms, zxid=zxid)])
        granted = await self._first(self._granted)
        self.zxid = zxid
        if granted.timeout_ms > 0:
            if digest is not None:
                await self._asked(messages.AUTH_XID, messages.auth("digest", digest))
            if login is not None:
                await self._log_in(login)
            self._third_s = granted.timeout_ms / 3000
            self._pinged_at = self._loop.time()
            self._keep_alive()
        return granted

    async def _log_in(self, login: ClientMechanism) -> None:
        conversation = Conversation(login)
        try:
            # A mechanism may block.
            token: bytes | None = await run_in_thread(conversation.begin, kind=LOGINS)
            while token is not None:
                challenge = await self._asked(self._xid, messages.sasl(self._xid, token))
                token = await run_in_thread(conversation.next, challenge, kind=LOGINS)
                self._next_xid()
        except SaslError as error:
            raise NotAuthenticated(f"{login.name}: {error}") from None

    async def _asked(self, xid: int, frame: bytes) -> bytes:
        self._login, self._login_xid = self._loop.create_future(), xid
        try:
            self._write([frame])
            return await self._first(self._login)
        finally:
            self._login = None

    async def _first(self, response: "asyncio.Future[_T]") -> _T:
        """Returns a response of the handshake, unless the connection ends first."""
        response_or_end: list[asyncio.Future[Any]] = [response, self.ended]
        await asyncio.wait(response_or_end, return_when=asyncio.FIRST_COMPLETED)
        if not response.done():
            raise NoSession(
                f"{self.ended.result()} {'during the login' if self._login else 'before it granted a session'}"
            )
        return response.result()

    def drop(self, reason: str) -> None:
        """Close the connection at once. The first reason is kept."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    def left(self) -> list[Any]:
        """Returns the unanswered calls after the end of the connection, each once."""
        calls = [call for _, call in self._pending if call is not None]
        self._pending.clear()
        return calls

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`."""
        forks.bury(self._transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        forks.share(self)
        # uvloop's transport is not a subclass.
        self._transport = cast(asyncio.Transport, transport)
        self._received_at = self._loop.time()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._reason = self._reason or (f"the connection broke ({error})" if error else "the server closed it")
        if not self.ended.done():
            self.ended.set_result(self._reason)

    # -- sending

    def send(self, call: PendingCall) -> None:
        """Send a call by the end of this turn of the loop. If the connection has ended, the call is returned by
        `left`.
        """
        try:
            head, body = messages.request_frame(self._xid, call.request)
        except Exception as error:
            log.exception("a request cannot be serialized")
            self._loop.call_soon(self._owner.answered, call, error)
            return
        self.armed.sent(call.request)
        self._pending.append((self._xid, call))
        self._next_xid()
        self._out += (head, body)
        self._flush_soon()

    def end_session(self) -> None:
        """Request the end of the session after all earlier requests; the server then closes the connection."""
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
        # Regardless of how much the transport buffers: that is at most what the client's window permits.
        if self._transport is not None and not self._transport.is_closing():
            # After `writelines` with an empty last part, asyncio's loop of Python 3.12 and 3.13 is never idle again
            # (gh-155888).
            self._transport.write(b"".join(out))

    # -- receiving

    def data_received(self, data: bytes) -> None:
        self._received_at = self._loop.time()
        try:
            for frame in self._frames.feed(data):
                if self._reason:
                    return  # closed meanwhile
                self._take(frame)
        except MalformedFrame as error:
            log.error("closing the connection to ZooKeeper after a malformed response: %s", error)
            self.drop(f"malformed response: {error}")
            return
        self._owner.settled()
        self._flush()

    def _take(self, frame: bytes) -> None:
        if not self._granted.done():
            self._granted.set_result(messages.granted(frame))
            return
        xid, zxid, code = messages.reply_header(frame)
        if self._login is not None:
            self._take_login(frame, xid, code)
        elif xid > 0:
            self._take_answer(frame, xid, code)
            if zxid > 0:
                self.zxid = zxid
        elif xid == messages.WATCH_XID:
            self._take_event(frame)
        elif xid != messages.PING_XID:
            raise MalformedFrame(f"a response to request {xid}, a number that no request has")

    def _take_login(self, frame: bytes, xid: int, code: int) -> None:
        assert self._login is not None
        if xid != self._login_xid or self._login.done():
            raise MalformedFrame(f"a response to request {xid} during the login")
        if code:
            reason = _NOT_LET_IN.get(code, f"the server ended the login with error {code}")
            self._login.set_exception(NotAuthenticated(reason))
        else:
            self._login.set_result(b"" if xid == messages.AUTH_XID else messages.sasl_token(frame))

    def _take_event(self, frame: bytes) -> None:
        kind, path = messages.event(frame)
        if kind is None:
            log.info("ignoring an event of unknown type from ZooKeeper for %s", path)
            return
        single, roots = self.armed.fired(kind, path)
        if single:
            self._owner.watch_fired(kind, path)
        for root in roots:
            self._owner.tree_changed(root, kind, path)

    def _take_answer(self, frame: bytes, xid: int, code: int) -> None:
        if not self._pending:
            raise MalformedFrame(f"a response to request {xid}, but no request is in flight")
        expected, call = self._pending[0]
        if xid != expected:
            raise MalformedFrame(f"a response to request {xid}, but {expected} is the next")
        if code in _SESSION_GONE:
            # Later frames are void; the next handshake shows whether the session has ended.
            raise MalformedFrame(_SESSION_GONE[code])
        self._pending.popleft()
        if call is None:
            self.drop("closed by the client")
            return
        request = call.request
        result: Any
        if not code:
            try:
                result = request.deserialize(frame, messages.BODY)
            except Exception as error:
                log.exception("a response cannot be deserialized")
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

    # -- keep-alive

    def _keep_alive(self) -> None:
        now = self._loop.time()
        silent_until = self._received_at + 2 * self._third_s
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
            self.drop(f"the server sent nothing for {now - self._received_at:.1f} s")
            return
        self._timer = self._loop.call_at(due, self._keep_alive)
