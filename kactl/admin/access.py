"""Decisions on who may use a route: tokens and roles of kactl's own server, or the host program's own.

The server checks a request in this order: its host, its credential, the page that sent it, and the role that its route
needs. Nothing of a body is read before.
"""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Literal, Protocol

import msgspec
from aiohttp import web

from kactl.access.role import Role, RoleName
from kactl.config.settings import ApiConfig
from kactl.errors import ErrorCode
from kactl.runtime.addresses import is_loopback
from kactl.runtime.logs import logger

from . import origin
from .client import Known, Principal, address_of, forbidden, identify, known_client, user_of
from .identity.certificates import Certificates
from .identity.credentials import Credentials
from .problem import Refused
from .rates import STRANGERS_PER_S, Buckets, Failures, Rate

log = logger(__name__)

# The time in which the host program decides about a request.
DECISION_S: Final = 2.0
# What kactl's own client sends and no form of a web page can: browsers present certificates unasked.
OWN_CLIENT: Final = "X-Kactl-Request"
# The application decides how clients identify themselves; HTTP requires that a challenge names a scheme.
_CHALLENGE: Final = 'Application realm="kactl"'
_BEARER: Final = 'Bearer realm="kactl"'
_SITES_OF_OTHERS: Final = frozenset({"cross-site", "same-site"})


class Access(msgspec.Struct, frozen=True):
    """What a request does.

    Attributes:
        action: "read" changes nothing; "admin" concerns the process itself: resign, kill, restart; "write" is the rest.
        operation: the operation id of the OpenAPI document, such as `delete_v1_topics_by_topic`.
        resource: what the path names, such as `orders`, `orders-7` or `3`; None if it names nothing.
        role: the role that kactl's own server demands for it.
    """

    action: Literal["read", "write", "admin"]
    operation: str
    resource: str | None
    role: RoleName = "viewer"


# Returns who the client is; None if that is not known. Raises web.HTTPForbidden if it may not do what it requests.
Authorize = Callable[[web.Request, Access], Awaitable[Principal | None] | Principal | None]


class Policy(Protocol):
    """Decides on requests. All of its methods raise Refused if they reject one."""

    def check_host(self, http: web.Request) -> None:
        """Check the host that a request of any kind names."""

    def authenticate(self, http: web.Request, *, is_open: bool) -> None:
        """Identify the client of a request, before its route is known. Open paths need no identity."""

    def check_site(self, http: web.Request) -> None:
        """Check the page that sent a request of any kind."""

    async def authorize(self, http: web.Request, access: Access, least: Role) -> Principal:
        """Check a request for a route, before its body is read. Returns the client.

        Args:
            least: the role for the body to be read; the content may need another one.
        """

    def check_rate(self, http: web.Request, access: Access) -> None:
        """Check how often the client sends such requests."""

    async def check_content(self, http: web.Request, access: Access, needed: Role) -> None:
        """Check the role that the content of a request needs."""


class ServerPolicy:
    """The rule of kactl's own server: a credential for everything but probes, and a role for each route."""

    def __init__(self, config: ApiConfig, credentials: Credentials, certificates: Certificates) -> None:
        self._config = config
        self._credentials = credentials
        self._certificates = certificates
        self._failures = Failures()
        self._strangers = Buckets(Rate(STRANGERS_PER_S, 5 * STRANGERS_PER_S))
        self._reads = Buckets(Rate(config.reads_per_second, 5 * config.reads_per_second))
        self._changes = Buckets(Rate(config.changes_per_second, 5 * config.changes_per_second))

    def check_host(self, http: web.Request) -> None:
        """See `Policy`."""
        origin.check_host(http, self._config, compare=user_of(http) is None)

    def authenticate(self, http: web.Request, *, is_open: bool) -> None:
        """See `Policy`."""
        known = identify(http, self._credentials, self._certificates)
        if known is None and not is_open:
            address = address_of(http) or ""
            # Each page that is opened sends one request without a token, which guesses none.
            guesses = bool(http.headers.get("Authorization"))
            wait_s = self._failures.add(address) if guesses else self._strangers.take(address)
            if wait_s:
                raise _too_many("requests without a valid token come from this address", wait_s, closes=True)
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                "Unauthorized",
                "this server needs a valid token: send `Authorization: Bearer TOKEN`, or use its Unix socket as the "
                "user who started it; see `kactl token create`",
                code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                headers={"WWW-Authenticate": _BEARER},
            )

    def check_site(self, http: web.Request) -> None:
        """See `Policy`."""
        origin.check_site(http, self._config, compare=user_of(http) is None)

    async def authorize(self, http: web.Request, access: Access, least: Role) -> Principal:
        """See `Policy`."""
        known = _require_role(least)
        if known.is_ambient and access.action != "read" and http.headers.get(OWN_CLIENT) != "1":
            what = "over the Unix socket" if known.way == "socket" else "by certificate"
            raise forbidden(f"changes {what} need the header `{OWN_CLIENT}: 1`")
        return known.principal

    def check_rate(self, http: web.Request, access: Access) -> None:
        """See `Policy`."""
        buckets, what = (self._reads, "reads") if access.action == "read" else (self._changes, "changes")
        client = _client()
        wait_s = buckets.take(client.principal.label if client.token is None else client.token.id)
        if wait_s:
            raise _too_many(f"{what} come from {client.principal.label}", wait_s)

    async def check_content(self, http: web.Request, access: Access, needed: Role) -> None:
        """See `Policy`."""
        _require_role(needed)


class LocalPolicy:
    """The rule without `authorize`: any client may read, and clients on this machine may make changes.

    A page in a browser on this machine is such a client, too, so the origin of a change is checked.
    """

    def check_host(self, http: web.Request) -> None:
        """See `Policy`."""

    def authenticate(self, http: web.Request, *, is_open: bool) -> None:
        """See `Policy`."""

    def check_site(self, http: web.Request) -> None:
        """See `Policy`."""

    async def authorize(self, http: web.Request, access: Access, least: Role) -> Principal:
        """See `Policy`."""
        if access.action != "read":
            _require_loopback(http, "pass authorize= to kactl.admin.application")
            origin.check_host(http, ApiConfig())
            origin.check_site(http, ApiConfig())
        return Principal("")

    def check_rate(self, http: web.Request, access: Access) -> None:
        """See `Policy`. The host program limits its clients."""

    async def check_content(self, http: web.Request, access: Access, needed: Role) -> None:
        """See `Policy`."""


class HostPolicy:
    """The rule of the host program."""

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize
        self._name = getattr(authorize, "__qualname__", type(authorize).__qualname__)

    def check_host(self, http: web.Request) -> None:
        """See `Policy`."""

    def authenticate(self, http: web.Request, *, is_open: bool) -> None:
        """See `Policy`."""

    def check_site(self, http: web.Request) -> None:
        """See `Policy`."""

    async def authorize(self, http: web.Request, access: Access, least: Role) -> Principal:
        """See `Policy`."""
        site = http.headers.get("Sec-Fetch-Site", "")
        if access.action != "read" and site in _SITES_OF_OTHERS:
            # A browser would send the host's own cookies.
            raise self._refused(HTTPStatus.FORBIDDEN, "Foreign origin", f"a page of another site ({site}) sent it")
        return await self._decide(http, access)

    async def _decide(self, http: web.Request, access: Access) -> Principal:
        """Call the program's function. Whatever goes wrong there denies the request."""
        try:
            async with asyncio.timeout(DECISION_S):
                found = self._authorize(http, access)
                principal = await found if inspect.isawaitable(found) else found
        except web.HTTPForbidden as refusal:
            raise self._refused(HTTPStatus.FORBIDDEN, "Forbidden", refusal.text or "no reason was given") from None
        except web.HTTPUnauthorized as refusal:
            challenge = refusal.headers.get("WWW-Authenticate", _CHALLENGE)
            raise self._unknown(refusal.text or "no reason was given", challenge) from None
        except TimeoutError:
            reason = f"it did not return within {DECISION_S:g} s"
            raise self._refused(HTTPStatus.FORBIDDEN, "Forbidden", reason) from None
        except Exception as error:
            log.error("%s failed, so the request is denied: %s", self._name, error, exc_info=error)
            reason = "it failed; details are in the log of the application"
            raise self._refused(HTTPStatus.FORBIDDEN, "Forbidden", reason) from None
        if principal is None:
            raise self._unknown("it returned no principal", _CHALLENGE)
        if not isinstance(principal, Principal):
            reason = f"it returned a {type(principal).__name__}, and no principal"
            raise self._refused(HTTPStatus.FORBIDDEN, "Forbidden", reason)
        return principal

    def _unknown(self, reason: str, challenge: str) -> Refused:
        return self._refused(HTTPStatus.UNAUTHORIZED, "Unauthorized", reason, {"WWW-Authenticate": challenge})

    def _refused(self, status: int, title: str, reason: str, headers: dict[str, str] | None = None) -> Refused:
        return Refused(
            status,
            title,
            f"{self._name}, which this application passed as authorize=, does not admit the request: {reason}",
            code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            headers=headers,
        )

    def check_rate(self, http: web.Request, access: Access) -> None:
        """See `Policy`. The host program limits its clients."""

    async def check_content(self, http: web.Request, access: Access, needed: Role) -> None:
        """See `Policy`. The host program decides again if the content needs more than the path."""
        if needed > Role.of(access.role):
            await self._decide(http, msgspec.structs.replace(access, role=needed.label))


def _client() -> Known:
    known = known_client()
    assert known is not None, "set before the route was known"
    return known


def _require_role(needed: Role) -> Known:
    """Returns the client, if it has a role.

    Raises:
        Refused: 403.
    """
    known = _client()
    if known.role < needed:
        raise forbidden(
            f"this needs the role {needed.label}, and {known.principal.label} has the role {known.role.label}"
        )
    return known


def _too_many(what: str, wait_s: float, *, closes: bool = False) -> Refused:
    return Refused(
        HTTPStatus.TOO_MANY_REQUESTS,
        "Too many requests",
        f"too many {what}: retry in {math.ceil(wait_s)} s",
        code=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        headers={"Retry-After": str(math.ceil(wait_s))},
        retriable=True,
        closes=closes,
    )


def _require_loopback(http: web.Request, remedy: str) -> None:
    """Check that a client that wants to change something runs on this machine.

    Raises:
        Refused: 403.
    """
    peer = http.transport.get_extra_info("peername") if http.transport is not None else None
    if isinstance(peer, tuple) and is_loopback(peer[0]):
        return
    raise Refused(
        HTTPStatus.FORBIDDEN,
        "Read only",
        f"this server accepts changes from its own machine only, and {peer[0] if peer else 'this client'} is another "
        f"one: send the request from there, or {remedy}",
        code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )
