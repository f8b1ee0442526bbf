"""kactl's own ZooKeeper connection: finds a server, keeps the session over successive connections, replaces an ended
one.

One task lives as long as the connection is open: connect, wait for the end of the connection, connect again. Servers
are tried in a new random order each time, each for a part of the session's timeout. The pause between two rounds grows
to a second, and so does the pause between connections that break at once.

Only a server can end the session. Until one reports its end the session may exist, and every connection resumes it,
with the last transaction that was seen, so that a server with older state rejects the client.

If that lasts for longer than the session's timeout, the history of the servers may have gone back for good: their data
was lost, or a backup was restored. A new session is requested then from each server that rejects the old one. A
majority grants it, so what it reads is their latest state, and the old session counts as ended.
"""

import asyncio
import contextlib
import logging
import random
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kactl.runtime import forks
from kactl.runtime.conditions import Conditions
from kactl.runtime.connecting import NoAddressAnswers, NotCompleted, connect
from kactl.runtime.logs import logger

from . import credentials as security
from . import hosts as names
from .credentials import Credentials, NoSession, NotAuthenticated
from .frames import FRAME_BYTES_MAX
from .hosts import Host
from .interface import CLOSE_S_MAX, OPEN_STEP_S, RECONNECT_S_MAX, RECONNECT_S_MIN, ConnectionListener, State
from .messages import Granted, Session
from .socket_connection import SocketConnection

log = logger(__name__)

# All servers together get a third of the timeout: two thirds may have passed before the last one was given up.
_CONNECT_SHARE: Final = 3
# The minimum, which a busy server may need to create a session.
HANDSHAKE_S_MIN: Final = 1.0
# After a round in which a server rejected the credentials: only a change at the server can help.
REJECTED_PAUSE_S: Final = 5.0

# Of a server that closes the connection of a client that was connected before: it used the right port.
_OLDER_STATE: Final = ": it is not ready, or its state is older than what this client has seen"

# Connects a new protocol to an address and a port. Raises OSError if that fails.
Dial = Callable[[Callable[[], SocketConnection], str, int], Awaitable[object]]


class NativeConnection:
    """Implementation of `Connection` on asyncio.

    Args:
        rng: orders the servers, and spreads the pauses of many clients.
        frame_bytes_max: the longest accepted response; a longer one closes the connection.
        dial: connects to a server; by default `connect`.
        credentials: the encryption, and the identity to present; without effect on `dial`.

    Raises:
        BadConfig: `hosts` is malformed.
    """

    watcher: Any = True

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int,
        listener: ConnectionListener,
        rng: random.Random | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        dial: Dial | None = None,
        credentials: Credentials = security.NONE,
    ) -> None:
        self._hosts = names.parse(hosts)
        self._text = hosts
        self._timeout_ms = session_timeout_ms
        self.granted_ms = session_timeout_ms
        self._listener = listener
        self._rng = rng or random.SystemRandom()
        self._dial = dial
        self._credentials = credentials
        self._rejected = False
        self._rejections = 0  # of servers, in the present round
        self.is_rejected = False
        self._frame_bytes_max = frame_bytes_max
        self._session = Session()
        self._zxid = 0
        self._contact_at = 0.0  # when the last connection ended, by the loop's clock
        self._connection: SocketConnection | None = None
        self._opened: asyncio.Event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._conditions = Conditions(log)
        self.trouble = ""

    @property
    def session(self) -> tuple[int, bytes] | None:
        return None if self._connection is None else self._session

    # -- beginning and end

    async def open(self) -> bool:
        if self._task is None:
            forks.share(self)
            self._task = asyncio.create_task(self._run(), name=f"ZooKeeper session at {self._text}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._timeout_ms / 1000, OPEN_STEP_S)):
                await self._opened.wait()
        return self._opened.is_set()

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`: the session is the parent's."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        self._closing = True
        connection, task = self._connection, self._task
        if connection is not None:
            connection.end_session()
            limit_s = min(self._timeout_ms / 1000, CLOSE_S_MAX)
            await asyncio.wait([connection.ended], timeout=limit_s)
            if not connection.ended.done():
                log.warning("the session at %s could not be ended within %g s; it will time out", self._text, limit_s)
                connection.drop("closed by the client")
        while task is not None and not task.done():
            task.cancel()  # once suffices, unless a lower layer swallows the cancellation
            await asyncio.wait([task], timeout=RECONNECT_S_MAX)

    def send(self, call: Any) -> None:
        assert self._connection is not None, "only while connected"
        self._connection.send(call)

    # -- reconnecting

    async def _run(self) -> None:
        pause_s = RECONNECT_S_MIN
        while not self._closing:
            duration_s = 0.0
            try:
                duration_s = await self._hold()
            except Exception:
                log.exception("internal error in the session at %s, reconnecting", self._text)
            if duration_s >= RECONNECT_S_MAX:
                pause_s = RECONNECT_S_MIN  # not one of a series that breaks at once
            if self._rejected:
                await asyncio.sleep(REJECTED_PAUSE_S)
            await asyncio.sleep(pause_s * self._rng.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, RECONNECT_S_MAX)

    async def _hold(self) -> float:
        """Run one connection from its handshake to its end. Returns its duration in seconds, 0 if no server accepted
        it.
        """
        connection = await self._connect()
        if connection is None:
            return 0.0
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._connection = connection
        for key in ("", *self._hosts):
            self._conditions.end(key, "ZooKeeper at %s accepts connections again", self._text)
        try:
            if self._closing:
                return 0.0
            self._opened.set()
            log.info("connected to ZooKeeper at %s, session 0x%x", self._text, self._session.id & 2**64 - 1)
            self._listener.state_changed(State.CONNECTED)
            self._listener.settled()
            await asyncio.wait([connection.ended])
        finally:
            connection.drop("closed by the client")
            self._connection = None
            self._zxid = max(self._zxid, connection.zxid)
            self._contact_at = loop.time()
        if not self._closing:
            self.trouble = connection.ended.result()
            log.warning("the connection to ZooKeeper at %s is lost: %s", self._text, self.trouble)
            self._listener.state_changed(State.SUSPENDED)
        for call in connection.left():
            self._listener.lost(call)
        return loop.time() - began

    async def _connect(self) -> SocketConnection | None:
        """Try each server once. Returns a connection, or None."""
        limit_s = max(self.granted_ms / 1000 / _CONNECT_SHARE / len(self._hosts), HANDSHAKE_S_MIN)
        self._rejected, self._rejections = False, 0
        behind = []
        for host in self._rng.sample(self._hosts, len(self._hosts)):
            connection, is_behind = await self._try(host, limit_s, self._session, self._zxid)
            if connection is not None:
                return connection
            if is_behind:
                behind.append(host)
        if asyncio.get_running_loop().time() - self._contact_at > self.granted_ms / 1000:
            # Only now: another server than the one that is behind may know the session. An ensemble that has lost its
            # data serves by a majority; a single one may be of another ensemble.
            is_lost = 2 * len(behind) > len(self._hosts)
            if behind and not is_lost:
                self._report_minority(len(behind))
            for host in behind if is_lost else ():
                connection, _ = await self._try(host, limit_s, Session(), 0)
                if connection is not None:
                    self._zxid = 0
                    log.error(
                        "ZooKeeper at %s accepts a new session, and not the state of the old one: its data was lost or "
                        "restored from a backup, so everything is read again; if that was not intended, stop all "
                        "programs and restore its data",
                        self._text,
                    )
                    return connection
        self.is_rejected = self._rejections == len(self._hosts)
        return None

    def _report_minority(self, behind: int) -> None:
        reason = (
            f"{behind} of {len(self._hosts)} servers in {self._text} have an older state than this client has seen, "
            "and no other one answers: if the ensemble was restored, start the others; if they belong to another "
            "ensemble, take them out of connect"
        )
        self._conditions.add("", logging.ERROR, "ZooKeeper: %s", reason, kind=behind)
        self.trouble = reason

    async def _try(
        self, host: Host, limit_s: float, session: Session, zxid: int
    ) -> tuple[SocketConnection | None, bool]:
        """Connect to one server, and resume a session or open one.

        Returns:
            the connection, None if the server rejects the session; and whether it may be because its state is older.
        """
        try:
            return await self._open(host, limit_s, session, zxid), False
        except OSError as error:
            self._refused(host, self._reason(error, limit_s, zxid))
            errors = error.errors.values() if isinstance(error, NoAddressAnswers) else (error,)
            self._rejections += all(
                isinstance(each, NotAuthenticated | ssl.SSLCertVerificationError) for each in errors
            )
            return None, zxid > 0 and any(isinstance(each, NoSession) for each in errors)

    async def _open(self, host: Host, limit_s: float, session: Session, zxid: int) -> SocketConnection:
        """Connect to one of the addresses of a server. Raises OSError if none accepts the session."""

        async def complete(opened: socket.socket | None) -> SocketConnection:
            connection = SocketConnection(self._listener, frame_bytes_max=self._frame_bytes_max)
            try:
                if self._dial is not None:
                    await self._dial(lambda: connection, *host)
                else:
                    tls = self._credentials.tls
                    await asyncio.get_running_loop().create_connection(
                        lambda: connection, sock=opened, ssl=tls, server_hostname=host.name if tls else None
                    )
                await self._greet(connection, host, session, zxid)
            except BaseException:
                connection.drop("given up")
                raise
            return connection

        if self._dial is None:
            return await connect(*host, complete, limit_s=limit_s)
        async with asyncio.timeout(limit_s):
            return await complete(None)

    async def _greet(self, connection: SocketConnection, host: Host, session: Session, zxid: int) -> None:
        """Open or resume the session. Raises OSError if the server rejects it."""
        granted = await connection.handshake(
            session,
            timeout_ms=self._timeout_ms,
            zxid=zxid,
            login=self._credentials.login(host.name),
            digest=self._credentials.digest,
        )
        if reason := self._refusal(granted):
            raise ConnectionError(reason)

    def _reason(self, error: Exception, limit_s: float, zxid: int) -> str:
        match error:
            case NoAddressAnswers():
                return error.explained(lambda each: self._reason(each, limit_s, zxid))
            case NotAuthenticated():
                self._rejected = True
                return f"it does not accept {self._credentials.identity}: {error}"
            case socket.gaierror():
                return f"its address cannot be resolved ({error.strerror})"
            case NotCompleted():
                return f"it did not answer within {error.limit_s:g} s"
            case TimeoutError():
                return f"it did not answer within {limit_s:g} s"
            case NoSession() if zxid > 0:
                return f"{error}{_OLDER_STATE}"
            case OSError():
                return security.failure(error, self._credentials.tls)
        return str(error)

    def _refusal(self, granted: Granted) -> str:
        """Returns reason a granted session is useless; empty if it is not, and then it becomes the current session."""
        ended = granted.timeout_ms <= 0
        if granted.read_only and not ended:
            return "it has lost its quorum and is read-only"
        if self._session.id and (ended or granted.session.id != self._session.id):
            self._session = Session()
            self._listener.state_changed(State.LOST)
        if ended:
            return "it has ended the session"
        self._session, self.granted_ms = granted.session, granted.timeout_ms
        return ""

    def _refused(self, host: Host, reason: str) -> None:
        self.trouble = f"{host}: {reason}"
        text = "ZooKeeper at %s did not accept the connection: %s"
        self._conditions.add(host, logging.WARNING, text, host, reason)
