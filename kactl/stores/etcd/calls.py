"""Calls of etcd's gRPC services, over HTTP/2 at one of several endpoints.

A read is repeated at another endpoint until its time limit. A write is repeated only if the server cannot have executed
it: it was not reached, it turned the request away, or the credentials had expired. In all other cases its outcome is
unknown, and the caller gets StoreUnavailable.
"""

import contextlib
import random
import ssl
import struct
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Final, Self
from urllib.parse import unquote, urlsplit

import anyio

from kactl.model.errors import BadConfig, IllegalState, StoreError, StoreUnavailable
from kactl.runtime import forks
from kactl.runtime.logs import logger
from kactl.runtime.secret import Secret
from kactl.runtime.threads import run_in_thread

from . import messages
from .http2 import Connection, ConnectionLost, NotExecuted, Stream, connected

log = logger(__name__)

RANGE: Final = "/etcdserverpb.KV/Range"
TXN: Final = "/etcdserverpb.KV/Txn"
WATCH: Final = "/etcdserverpb.Watch/Watch"
LEASE_GRANT: Final = "/etcdserverpb.Lease/LeaseGrant"
LEASE_REVOKE: Final = "/etcdserverpb.Lease/LeaseRevoke"
LEASE_KEEP_ALIVE: Final = "/etcdserverpb.Lease/LeaseKeepAlive"
AUTHENTICATE: Final = "/etcdserverpb.Auth/Authenticate"
MEMBER_LIST: Final = "/etcdserverpb.Cluster/MemberList"

# gRPC's codes of errors.
CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
ABORTED: Final = 10
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16

# These leave open whether the request was executed. A member that is stopped ends its requests with CANCELLED, and one
# that hands its leadership over rejects writes with UNKNOWN: another member may respond.
_UNDECIDED: Final = frozenset({CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, ABORTED, INTERNAL, UNAVAILABLE})

_REMEDIES: Final = {
    RESOURCE_EXHAUSTED: "free space (`etcdctl compact`, then `defrag`), then `etcdctl alarm disarm`",
    PERMISSION_DENIED: "grant the user read and write access to the cluster's prefix",
    FAILED_PRECONDITION: "turn authentication on in etcd, or leave `user` out",
    UNAUTHENTICATED: "check `user` and `password-file`",
}
_PAUSE_MS: Final = 100
# Shortest time between two logins for the sake of watches. A watch that is not permitted must not log in each time.
TOKEN_PAUSE_S: Final = 2.0
# Of one message. The store reads its largest keys in pages; etcd's own limit of a request is
# 1.5 MiB by default.
RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
# A second server answers while the first one is silent.
_ATTEMPTS_PER_LIMIT: Final = 3
# A connection is given up if nothing arrives for this part of the limit while it should: less than one attempt.
_SILENT_PART: Final = 0.25


class EtcdError(StoreError):
    """etcd rejected a request; nothing was changed. `grpc_code` is the code of the error."""

    def __init__(self, message: str, code: int) -> None:
        remedy = _REMEDIES.get(code)
        super().__init__(f"etcd: {message}" + (f"; {remedy}" if remedy else ""))
        self.grpc_code = code
        self.message = message


class Calls:
    """Calls of one client.

    Args:
        endpoints: `http://host:port` or `https://host:port`, tried in a random order.
        user, password: for etcd's authentication.
        tls: for https; None for the certificates that the system trusts.
        limit_ms: time limit of one call, with all its repetitions.
        rng: draws the order of the endpoints.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        user: str | None = None,
        password: Secret | str | None = None,
        tls: ssl.SSLContext | None = None,
        limit_ms: float,
        rng: random.Random,
    ) -> None:
        self._endpoints = [_checked(endpoint) for endpoint in endpoints]
        if not self._endpoints:
            raise BadConfig("endpoints", "is empty: write http://host:2379")
        if (user is None) != (password is None):
            raise BadConfig("user", "needs a password, and a password needs a user")
        rng.shuffle(self._endpoints)
        self._user = user
        self._password = Secret.of(password or "")
        self._tls = tls
        self.limit_s = limit_ms / 1000
        self._connections: dict[str, Connection] | None = None
        self._connecting = [anyio.Lock() for _ in self._endpoints]
        self._token = ""
        self._token_since_s = 0.0
        self._current = 0
        self.trouble = ""

    @property
    def has_user(self) -> bool:
        """Whether requests are authenticated."""
        return self._user is not None

    @property
    def has_several(self) -> bool:
        """Whether there are several endpoints."""
        return len(self._endpoints) > 1

    async def __aenter__(self) -> Self:
        self._connections = {}
        self._home = forks.home()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connections, self._connections = self._connections or {}, None
        for connection in connections.values():
            connection.close()

    async def read(self, method: str, request: bytes, *, limit_ms: float | None = None) -> bytes:
        """Returns the response to a request that may be repeated.

        Raises:
            EtcdError: the server rejected it.
            StoreUnavailable: no server answered in time.
        """
        limit_s = self.limit_s if limit_ms is None else limit_ms / 1000
        return await self._call(method, request, repeats=True, limit_s=limit_s)

    async def write(self, method: str, request: bytes) -> bytes:
        """Returns the response to a request that must not be executed twice.

        Raises:
            EtcdError: the server rejected it; nothing was changed.
            StoreUnavailable: the outcome is unknown.
        """
        return await self._call(method, request, repeats=False, limit_s=self.limit_s)

    async def responses(self, method: str, request: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the responses to a request without an end, as they arrive.

        A member that is cut off from the others ends them.

        Raises:
            EtcdError: the server rejected the request.
            StoreUnavailable: the connection broke, or could not be opened.
        """
        endpoint = self._current
        try:
            await self._log_in(endpoint)
            call = await self._begin(endpoint, method, request, end=False)
            try:
                while (response := await call.response()) is not None:
                    self.trouble = ""
                    yield response
                call.check_status()
            finally:
                call.close()
            raise ConnectionLost("the server ended the response")
        except EtcdError as error:
            if error.grpc_code == UNAUTHENTICATED:
                self.renew_token()
            if error.grpc_code not in _UNDECIDED:
                raise
            self._leave(endpoint)
            raise self._failed(error) from error
        except OSError as error:
            self._leave(endpoint)
            raise self._failed(error) from error

    async def _call(self, method: str, request: bytes, *, repeats: bool, limit_s: float) -> bytes:
        last: Exception = TimeoutError("no answer in time")
        renewed = False
        with anyio.move_on_after(limit_s):
            while True:
                endpoint = self._current
                try:
                    with anyio.fail_after(limit_s / _ATTEMPTS_PER_LIMIT if repeats else None):
                        answer = await self._ask(endpoint, method, request)
                    self.trouble = ""
                    return answer
                except EtcdError as error:
                    if error.grpc_code == UNAUTHENTICATED and self._user and not renewed:
                        renewed, self._token = True, ""
                        continue
                    if error.grpc_code not in _UNDECIDED:
                        raise
                    last = error
                    may_repeat = repeats
                except (OSError, TimeoutError) as error:
                    last = error
                    may_repeat = repeats or isinstance(error, NotExecuted)
                self._leave(endpoint)
                if not may_repeat:
                    break
                self._give_up_silent()
                await anyio.sleep(_PAUSE_MS / 1000)
        self._give_up_silent()
        raise self._failed(last) from last

    async def of_each(self, method: str, request: bytes) -> dict[str, bytes]:
        """Returns the response of each endpoint that sends one within an attempt's time."""
        answers: dict[str, bytes] = {}

        async def one(number: int, name: str) -> None:
            with anyio.move_on_after(self.limit_s / _ATTEMPTS_PER_LIMIT), contextlib.suppress(EtcdError, OSError):
                answers[name] = await self._ask(number, method, request)

        async with anyio.create_task_group() as tasks:
            for number, name in enumerate(self._endpoints):
                tasks.start_soon(one, number, name)
        return answers

    def _leave(self, endpoint: int) -> None:
        """Call the next endpoint from now on, unless another call has already left this one."""
        if self._current == endpoint:
            self._current = (endpoint + 1) % len(self._endpoints)

    def _give_up_silent(self) -> None:
        """Close connections over which nothing arrives any longer, as behind a firewall that has forgotten them."""
        for connection in (self._connections or {}).values():
            if connection.silent_s >= self.limit_s * _SILENT_PART:
                connection.close()

    def renew_token(self) -> None:
        """Log in before the next request, unless the last login was a moment ago: another one would not help."""
        if anyio.current_time() - self._token_since_s >= TOKEN_PAUSE_S:
            self._token = ""

    async def _log_in(self, endpoint: int) -> None:
        """Get a token, unless there is one or none is needed."""
        if self._user and not self._token:
            request = messages.authenticate(self._user, self._password.reveal().decode())
            answer = await self._answer(endpoint, AUTHENTICATE, request)
            self._token = messages.token_response.parse(answer).token
            self._token_since_s = anyio.current_time()

    async def _ask(self, endpoint: int, method: str, request: bytes) -> bytes:
        await self._log_in(endpoint)
        return await self._answer(endpoint, method, request)

    async def _answer(self, endpoint: int, method: str, request: bytes) -> bytes:
        # A renewal is a stream of requests in gRPC, which would otherwise wait for the next one.
        call = await self._begin(endpoint, method, request, end=True)
        try:
            answer = await call.response()
            while await call.response() is not None:
                pass
            call.check_status()
        finally:
            call.close()
        if answer is None:
            raise EtcdError("a response without a message, which is not etcd's", UNAVAILABLE)
        return answer

    async def _begin(self, endpoint: int, method: str, request: bytes, *, end: bool) -> "_Call":
        """Send a request; the last one of its stream, or one of a stream that ends if the member loses its leader."""
        url = urlsplit(self._endpoints[endpoint])
        connection = await self._connection(endpoint)
        headers = [
            (":method", "POST"),
            (":scheme", url.scheme),
            (":authority", url.netloc),
            (":path", method),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "kactl"),
        ]
        if self._token and method != AUTHENTICATE:
            headers.append(("token", self._token))
        if not end:
            headers.append(("hasleader", "true"))
        call = _Call(await connection.stream(headers))
        try:
            await call.send(request, end=end)
        except BaseException:
            call.close()
            raise
        return call

    async def _connection(self, endpoint: int) -> Connection:
        """Returns the connection to an endpoint. It is opened if there is none, or not any longer."""
        url = self._endpoints[endpoint]
        async with self._connecting[endpoint]:
            connection = self._opened().get(url)
            if connection is not None and connection.is_usable:
                return connection
            if connection is not None:
                connection.close()
            parts = urlsplit(url)
            tls = self._tls if parts.scheme == "https" else None
            if parts.scheme == "https" and tls is None:
                # Reading the system's certificates takes a tenth of a second. They change while the process runs.
                tls = await run_in_thread(ssl.create_default_context)
            port = parts.port or (443 if tls else 80)
            connection = await connected(parts.hostname or "", port, tls, self.limit_s / _ATTEMPTS_PER_LIMIT)
            try:
                self._opened()[url] = connection
            except IllegalState:
                connection.close()
                raise
            return connection

    def _opened(self) -> dict[str, Connection]:
        if self._connections is None:
            raise IllegalState("an EtcdStore can only be used inside `async with`")
        self._home.check("the etcd store")
        return self._connections

    def _failed(self, error: Exception) -> StoreUnavailable:
        """Returns the error for a call that no server answered; notes it as the present trouble."""
        reason = str(error) or type(error).__name__
        self.trouble = f"etcd at {', '.join(self._endpoints)} does not answer: {reason}; check that it runs"
        return StoreUnavailable(self.trouble)


class _Call:
    """One call: its messages and its status, over a stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._read = bytearray()
        self.close = stream.close

    async def send(self, request: bytes, *, end: bool) -> None:
        await self._stream.send(_PREFIX.pack(False, len(request)) + request, end=end)

    async def response(self) -> bytes | None:
        """Returns the next message; None at the end.

        Raises:
            EtcdError: it is longer than any that the store asks for, or not etcd's.
            ConnectionLost, NotExecuted: the stream has failed.
        """
        prefix = await self._next(_PREFIX.size)
        if prefix is None and not self._read:
            return None
        if prefix is not None:
            is_compressed, size = _PREFIX.unpack(prefix)
            if is_compressed or size > RESPONSE_BYTES_MAX:
                what = "a compressed response" if is_compressed else f"a response of {size} bytes"
                raise EtcdError(f"{what}, which is not etcd's", UNAVAILABLE)
            message = await self._next(size)
            if message is not None:
                return message
        raise ConnectionLost("the response ends within a message")

    async def _next(self, size: int) -> bytes | None:
        """Returns the next bytes; None if there are fewer."""
        while len(self._read) < size:
            part = await self._stream.part()
            if part is None:
                return None
            self._read += part
        with memoryview(self._read) as read:
            found = bytes(read[:size])
        del self._read[:size]
        return found

    def check_status(self) -> None:
        """Raise the error that the complete response contains.

        Raises:
            EtcdError: there is one.
        """
        headers = self._stream.headers
        status, code = headers.get(":status", ""), headers.get("grpc-status", "")
        if status != _OK or not code.isdecimal():
            shown = f"HTTP status {status}" if status != _OK else "a response without a status"
            raise EtcdError(f"{shown}, which is not etcd's", UNAVAILABLE)
        if int(code):
            raise _rejected(int(code), unquote(headers.get("grpc-message", "")))


# Of a message: whether it is compressed, and its length.
_PREFIX: Final = struct.Struct(">?I")
_OK: Final = "200"
_UNAUTHENTICATED: Final = (
    "invalid auth token",
    "authentication failed",
    "user name is empty",
    "revision of auth store is old",  # a signed token from before a change of users or roles
)


def _rejected(code: int, text: str) -> EtcdError:
    # An expired token, wrong credentials and missing ones are told from other invalid requests by their text only.
    if any(part in text for part in _UNAUTHENTICATED):
        return EtcdError(text, UNAUTHENTICATED)
    return EtcdError(text.removeprefix("etcdserver: "), code)


def _checked(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/"):
        raise BadConfig("endpoints", f"{endpoint!r} should be http://host:port or https://host:port")
    return f"{parts.scheme}://{parts.netloc}"
