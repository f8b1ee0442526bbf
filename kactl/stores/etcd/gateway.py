"""Connection to etcd: calls of its JSON gateway over HTTP, at one of several endpoints.

A read is repeated at another endpoint until its time limit. A write is repeated only if the server cannot have executed
it: the connection was refused, or the credentials had expired. In all other cases its outcome is unknown, and the
caller gets StoreUnavailable.
"""

import random
import ssl
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

import anyio

from kactl.errors import BadConfig, IllegalState, StoreError, StoreUnavailable
from kactl.runtime.logs import logger
from kactl.runtime.secret import Secret

from . import messages

if TYPE_CHECKING:
    import aiohttp

log = logger(__name__)

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
# Of one response, or one line of a watch. The store reads its largest keys in pages; etcd's own limit of a request is
# 1.5 MiB by default.
RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
# A second server answers while the first one is silent.
_ATTEMPTS_PER_LIMIT: Final = 3


class EtcdError(StoreError):
    """etcd rejected a request; nothing was changed. `grpc_code` is the code of the error."""

    def __init__(self, message: str, code: int) -> None:
        remedy = _REMEDIES.get(code)
        super().__init__(f"etcd: {message}" + (f"; {remedy}" if remedy else ""))
        self.grpc_code = code
        self.message = message


class Gateway:
    """Calls of the gateway.

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
        self._session: aiohttp.ClientSession | None = None
        self._token = ""
        self._token_since_s = 0.0
        self._current = 0
        self.trouble = ""

    @property
    def has_user(self) -> bool:
        """Whether requests are authenticated."""
        return self._user is not None

    async def __aenter__(self) -> Self:
        import aiohttp

        connector = aiohttp.TCPConnector(ssl=self._tls if self._tls is not None else True, limit=0)
        # The gateway's own limits apply; aiohttp has one of five minutes, which would end every watch.
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=None), auto_decompress=True
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def read(self, path: str, body: bytes, *, limit_ms: float | None = None) -> bytes:
        """Returns the response to a request that may be repeated.

        Raises:
            EtcdError: the server rejected it.
            StoreUnavailable: no server answered in time.
        """
        return await self._call(path, body, repeats=True, limit_s=self.limit_s if limit_ms is None else limit_ms / 1000)

    async def write(self, path: str, body: bytes) -> bytes:
        """Returns the response to a request that must not be executed twice.

        Raises:
            EtcdError: the server rejected it; nothing was changed.
            StoreUnavailable: the outcome is unknown.
        """
        return await self._call(path, body, repeats=False, limit_s=self.limit_s)

    async def lines(self, path: str, body: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a response without an end, as they arrive.

        Raises:
            EtcdError: the server rejected the request.
            StoreUnavailable: the connection broke, or could not be opened.
        """
        import aiohttp

        begun = b""
        try:
            await self._log_in()
            async with self._post(path, body) as response:
                if response.status != _OK:
                    rejected = _rejected(await _whole(response))
                    if rejected.grpc_code == UNAUTHENTICATED:
                        self.renew_token()
                    raise self._failed(rejected) if rejected.grpc_code in _UNDECIDED else rejected
                self.trouble = ""
                async for part in response.content.iter_any():
                    *complete, begun = (begun + part).split(b"\n")
                    if len(begun) > RESPONSE_BYTES_MAX:
                        raise _too_long()
                    for line in complete:
                        yield line
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._failed(error) from error
        raise self._failed(ConnectionResetError("the server ended the response"))

    async def _call(self, path: str, body: bytes, *, repeats: bool, limit_s: float) -> bytes:
        import aiohttp

        last: Exception = TimeoutError("no answer in time")
        renewed = False
        with anyio.move_on_after(limit_s):
            while True:
                try:
                    with anyio.fail_after(limit_s / _ATTEMPTS_PER_LIMIT if repeats else None):
                        answer = await self._ask(path, body)
                    self.trouble = ""
                    return answer
                except EtcdError as error:
                    if error.grpc_code == UNAUTHENTICATED and self._user and not renewed:
                        renewed, self._token = True, ""
                        continue
                    if error.grpc_code not in _UNDECIDED:
                        raise
                    last = error
                    if not repeats:
                        break
                except aiohttp.ClientConnectorError as error:  # never sent
                    last = error
                except (aiohttp.ClientError, OSError, TimeoutError) as error:
                    last = error
                    if not repeats:
                        break
                self._current = (self._current + 1) % len(self._endpoints)
                await anyio.sleep(_PAUSE_MS / 1000)
        raise self._failed(last)

    def renew_token(self) -> None:
        """Log in before the next request, unless the last login was a moment ago: another one would not help."""
        if anyio.current_time() - self._token_since_s >= TOKEN_PAUSE_S:
            self._token = ""

    async def _log_in(self) -> None:
        """Get a token, unless there is one or none is needed."""
        if self._user and not self._token:
            credentials = {"name": self._user, "password": self._password.reveal().decode()}
            async with self._post("/v3/auth/authenticate", messages.encoder.encode(credentials)) as response:
                answer = await _whole(response)
                if response.status != _OK:
                    raise _rejected(answer)
                self._token = messages.decoded(messages.token_response, answer).token
                self._token_since_s = anyio.current_time()

    async def _ask(self, path: str, body: bytes) -> bytes:
        await self._log_in()
        async with self._post(path, body) as response:
            answer = await _whole(response)
            if response.status != _OK:
                raise _rejected(answer)
            return answer

    def _post(self, path: str, body: bytes) -> "aiohttp.client._RequestContextManager":
        if self._session is None:
            raise IllegalState("an EtcdStore can only be used inside `async with`")
        headers = {"Authorization": self._token} if self._token else {}
        return self._session.post(self._endpoints[self._current] + path, data=body, headers=headers)

    def _failed(self, error: Exception) -> StoreUnavailable:
        """Returns the error for a call that no server answered; notes it as the present trouble."""
        self._current = (self._current + 1) % len(self._endpoints)
        reason = str(error) or type(error).__name__
        if isinstance(getattr(error, "os_error", None), ConnectionRefusedError):
            reason = "connection refused"  # aiohttp's text repeats the address twice
        self.trouble = f"etcd at {', '.join(self._endpoints)} does not answer: {reason}; check that it runs"
        return StoreUnavailable(self.trouble)


_OK: Final = 200
_UNAUTHENTICATED: Final = (
    "invalid auth token",
    "authentication failed",
    "user name is empty",
    "revision of auth store is old",  # a signed token from before a change of users or roles
)


async def _whole(response: "aiohttp.ClientResponse") -> bytes:
    """Returns the body of a response.

    Raises:
        EtcdError: it is longer than any that the store asks for.
    """
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > RESPONSE_BYTES_MAX:
            raise _too_long()
    return bytes(body)


def _too_long() -> EtcdError:
    return EtcdError(f"a response of more than {RESPONSE_BYTES_MAX} bytes, which is not etcd's", UNAVAILABLE)


def _rejected(answer: bytes) -> EtcdError:
    try:
        failure = messages.failure.decode(answer)
    except messages.UNREADABLE:
        return EtcdError(f"an answer that is not etcd's: {answer[:80]!r}", UNAVAILABLE)
    # An expired token, wrong credentials and missing ones are told from other invalid requests by their text only.
    if any(text in failure.error for text in _UNAUTHENTICATED):
        return EtcdError(failure.error, UNAUTHENTICATED)
    return EtcdError(failure.error.removeprefix("etcdserver: "), failure.code)


def _checked(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/"):
        raise BadConfig("endpoints", f"{endpoint!r} should be http://host:port or https://host:port")
    return f"{parts.scheme}://{parts.netloc}"
