"""Decisions on who may use a route: tokens and roles of kactl's own server, or the access object of another program.

The server checks a request in this order: its host, its credential, the page that sent it, and the role that its route
needs. Nothing of a body is read before.
"""

import asyncio
import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol, TypeVar

import msgspec
from aiohttp import web

from kactl.config.settings import ApiConfig
from kactl.model.errors import ErrorCode
from kactl.runtime.addresses import group_of
from kactl.runtime.budget import Budget, Excess, Rate, Unit, account_of
from kactl.runtime.error_id import log_error
from kactl.runtime.logs import logger
from kactl.security.access import Principal
from kactl.security.access.role import Role

from . import embedded, origin
from .client import (
    PEER,
    PRINCIPAL,
    STILL_ADMITTED,
    Known,
    address_of,
    forbidden,
    identify,
    known_client,
    peer_of,
    remote_of,
    user_of,
)
from .embedded import AccessRequest, Action, Allow, Deny
from .forwarded import forwarded_peer
from .identity.certificates import Certificates, peer_certificate
from .identity.credentials import Credentials
from .problem import Refused

log = logger(__name__)

T = TypeVar("T")

# The time in which the host program decides about a request.
DECISION_S: Final = 2.0
# What kactl's own client sends and no form of a web page can: browsers present certificates unasked.
OWN_CLIENT: Final = "X-Kactl-Request"
# Reads and changes that may come at once, in seconds of their rates.
_AT_ONCE_S: Final = 5
# The application decides how clients identify themselves; HTTP requires that a challenge names a scheme.
_CHALLENGE: Final = 'Application realm="kactl"'
_BEARER: Final = 'Bearer realm="kactl"'


class Policy(Protocol):
    """Decides on requests. All of its methods raise Refused if they reject one."""

    def check_host(self, http: web.Request) -> None:
        """Check the host that a request of any kind names."""

    async def authenticate(self, http: web.Request, *, is_open: bool) -> None:
        """Identify the client of a request, before its route is known. Open paths need no identity."""

    def check_site(self, http: web.Request) -> None:
        """Check the page that sent a request of any kind."""

    async def authorize(self, http: web.Request, action: Action, least: Role) -> Principal:
        """Check a request for a route, before its body is read. Returns the client.

        Args:
            least: the role for the body to be read; the content may need another one.
        """

    def charge(self, amounts: Mapping[Unit, float]) -> None:
        """Charge the client of this task's request before the work."""

    async def metered(self, work: Awaitable[T], *, paid_ms: float) -> T:
        """Carry the request out, and charge the processor time beyond what was charged before."""

    async def check_content(self, http: web.Request, action: Action, needed: Role) -> None:
        """Check the role that the content of a request needs."""


class ServerPolicy:
    """The rule of kactl's own server: a credential for everything but probes, and a role for each route."""

    def __init__(self, config: ApiConfig, credentials: Credentials, certificates: Certificates, budget: Budget) -> None:
        self._config = config
        self._credentials = credentials
        self._certificates = certificates
        self._proxies = config.proxies
        self._budget = budget
        budget.limit(Unit.READS, Rate(config.reads_per_second, _AT_ONCE_S * config.reads_per_second))
        budget.limit(Unit.CHANGES, Rate(config.changes_per_second, _AT_ONCE_S * config.changes_per_second))

    def check_host(self, http: web.Request) -> None:
        origin.check_host(http, self._config, compare=user_of(http) is None)

    async def authenticate(self, http: web.Request, *, is_open: bool) -> None:
        PEER.set(forwarded_peer(http, address_of(http) or "", self._proxies))
        if not is_open and not self._certificates.still_count(http.transport):
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                "Unauthorized",
                "the certificate of this connection has expired, the files that verified it have changed, or the "
                "connection has failed: connect again",
                code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                headers={"WWW-Authenticate": _BEARER},
                closes=True,
            )
        known = identify(http, self._credentials, self._certificates)
        # Each page that is opened sends one request without a token, which guesses none.
        guesses = bool(http.headers.get("Authorization"))
        if known is None and guesses and not is_open and await self._credentials.catch_up():
            known = identify(http, self._credentials, self._certificates)
        if known is None and not is_open:
            address = group_of(address_of(http) or "")
            unit = Unit.FAILURES if guesses else Unit.STRANGE
            if (excess := self._budget.charge(address, {unit: 1})) is not None:
                raise _too_much(excess, "this address", closes=True)
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                "Unauthorized",
                "this server needs a valid token: send `Authorization: Bearer TOKEN`, or use its Unix socket as the "
                "user who started it; see `kactl token create`",
                code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                headers={"WWW-Authenticate": _BEARER},
            )

    def check_site(self, http: web.Request) -> None:
        origin.check_site(http, self._config, compare=user_of(http) is None)

    async def authorize(self, http: web.Request, action: Action, least: Role) -> Principal:
        known = _require_role(least)
        if known.is_ambient and action.effect != "read" and http.headers.get(OWN_CLIENT) != "1":
            what = "over the Unix socket" if known.way == "socket" else "by certificate"
            raise forbidden(f"changes {what} need the header `{OWN_CLIENT}: 1`")
        return known.principal

    def charge(self, amounts: Mapping[Unit, float]) -> None:
        """See `Policy`. Administrators are charged, and not turned away."""
        client = _client()
        excess = self._budget.charge(account_of(client.principal), amounts, is_free=client.role is Role.ADMIN)
        if excess is not None:
            raise _too_much(excess, client.principal.label)

    async def metered(self, work: Awaitable[T], *, paid_ms: float) -> T:
        return await self._budget.metered(account_of(_client().principal), work, paid_ms=paid_ms)

    async def check_content(self, http: web.Request, action: Action, needed: Role) -> None:
        _require_role(needed)


class ProbePolicy:
    """The rule of the address that serves probes alone: any client that names it as its host may send them."""

    def __init__(self, config: ApiConfig) -> None:
        self._config = config

    def check_host(self, http: web.Request) -> None:
        origin.check_host(http, self._config)

    async def authenticate(self, http: web.Request, *, is_open: bool) -> None:
        """See `Policy`. No credential is read here: it would have been sent in clear text."""
        if not is_open:
            raise Refused(
                HTTPStatus.NOT_FOUND, "No such route", "this address serves /livez, /readyz and /leader alone"
            )

    def check_site(self, http: web.Request) -> None:
        origin.check_site(http, self._config)

    async def authorize(self, http: web.Request, action: Action, least: Role) -> Principal:
        """See `Policy`. No route of this address needs a role."""
        raise forbidden("this address serves probes alone")

    def charge(self, amounts: Mapping[Unit, float]) -> None:
        """See `Policy`."""

    async def metered(self, work: Awaitable[T], *, paid_ms: float) -> T:
        return await work

    async def check_content(self, http: web.Request, action: Action, needed: Role) -> None:
        """See `Policy`."""


class MountedPolicy:
    """The rule of the program in which the API is mounted, as its access object states it.

    Hosts and sites are checked as by kactl's own server: the program's pages may send requests, others may not.

    Args:
        hosts: names by which clients reach the program, as `api.hosts`.
    """

    def __init__(self, access: embedded.Access, hosts: Sequence[str] = ()) -> None:
        self._access = access
        self._config = ApiConfig(hosts=tuple(hosts))

    def check_host(self, http: web.Request) -> None:
        origin.check_host(http, self._config, compare=http.remote != "")

    async def authenticate(self, http: web.Request, *, is_open: bool) -> None:
        """See `Policy`. Open paths do not call the program."""
        PEER.set(remote_of(http) or "")  # a middleware of the program may know a proxy
        PRINCIPAL.set(None if is_open else await self._identify(http))

    def check_site(self, http: web.Request) -> None:
        origin.check_site(http, self._config, compare=http.remote != "")

    async def authorize(self, http: web.Request, action: Action, least: Role) -> Principal:
        if action.effect != "read" and _is_ambient(http) and http.headers.get(OWN_CLIENT) != "1":
            raise forbidden(
                f"changes by cookie, certificate or password of a browser need the header `{OWN_CLIENT}: 1`"
            )
        action = msgspec.structs.replace(action, role=least.label)
        principal = _principal()
        await self._require(principal, action)
        STILL_ADMITTED.set(functools.partial(self._still_admits, http, principal, action))
        return principal

    def charge(self, amounts: Mapping[Unit, float]) -> None:
        """See `Policy`. The program limits its clients."""

    async def metered(self, work: Awaitable[T], *, paid_ms: float) -> T:
        return await work

    async def check_content(self, http: web.Request, action: Action, needed: Role) -> None:
        await self._require(_principal(), msgspec.structs.replace(action, role=needed.label))

    async def _identify(self, http: web.Request) -> Principal:
        """Returns the client.

        Raises:
            Refused: 401, or 403 if the program failed.
        """
        try:
            certificate = peer_certificate(http.transport)
        except ConnectionResetError as error:
            raise self._refused(HTTPStatus.UNAUTHORIZED, str(error), {"WWW-Authenticate": _CHALLENGE}) from None
        request = AccessRequest(http.method, http.path, http.headers.copy(), remote_of(http), certificate, http)
        principal = await self._decide(self._access.authenticate, request)
        if principal is None:
            raise self._refused(HTTPStatus.UNAUTHORIZED, "the client is not known", {"WWW-Authenticate": _CHALLENGE})
        if not isinstance(principal, Principal):
            raise self._refused(HTTPStatus.FORBIDDEN, f"it returned a {type(principal).__name__}, and no principal")
        return principal if principal.peer else msgspec.structs.replace(principal, peer=peer_of(http))

    async def _require(self, principal: Principal, action: Action) -> None:
        """Check that a client may do something.

        Raises:
            Refused: 403.
        """
        decision = await self._decide(self._access.authorize, principal, action)
        if isinstance(decision, Deny):
            raise self._refused(HTTPStatus.FORBIDDEN, decision.reason)
        if not isinstance(decision, Allow):
            raise self._refused(HTTPStatus.FORBIDDEN, f"it returned a {type(decision).__name__}, and no decision")

    async def _still_admits(self, http: web.Request, principal: Principal, action: Action) -> bool:
        try:
            if await self._identify(http) != principal:
                return False
            await self._require(principal, action)
        except Refused:
            return False
        return True

    async def _decide(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the program. Whatever goes wrong there denies the request.

        Raises:
            Refused: it raised an exception, or did not return in time.
        """
        try:
            async with asyncio.timeout(DECISION_S):
                found = function(*arguments)
                return await found if inspect.isawaitable(found) else found
        except Refused:
            raise  # of the ready-made ones
        except web.HTTPForbidden as refusal:
            raise self._refused(HTTPStatus.FORBIDDEN, refusal.text or "no reason was given") from None
        except web.HTTPUnauthorized as refusal:
            challenge = refusal.headers.get("WWW-Authenticate", _CHALLENGE)
            reason = refusal.text or "no reason was given"
            raise self._refused(HTTPStatus.UNAUTHORIZED, reason, {"WWW-Authenticate": challenge}) from None
        except TimeoutError:
            raise self._refused(HTTPStatus.FORBIDDEN, f"it did not return within {DECISION_S:g} s") from None
        except Exception as error:
            name = getattr(function, "__qualname__", type(function).__qualname__)
            error_id = log_error(log, error, "%s failed, so the request is denied", name)
            reason = f"it failed; the log of the application has the details under {error_id}"
            raise self._refused(HTTPStatus.FORBIDDEN, reason) from None

    def _refused(self, status: HTTPStatus, reason: str, headers: dict[str, str] | None = None) -> Refused:
        return Refused(
            status,
            status.phrase,
            f"the access of this application ({type(self._access).__qualname__}) does not admit the request: {reason}",
            code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            headers=headers,
        )


def _principal() -> Principal:
    principal = PRINCIPAL.get()
    assert principal is not None, "set before the route was known"
    return principal


def _is_ambient(http: web.Request) -> bool:
    """Returns whether a browser could have sent a credential unasked. No page can send a bearer token unseen."""
    schemes = {value.partition(" ")[0].lower() for value in http.headers.getall("Authorization", [])}
    if "bearer" in schemes:
        return False
    if schemes or "Cookie" in http.headers:
        return True
    try:
        return peer_certificate(http.transport) is not None
    except ConnectionResetError:
        return True


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


def _too_much(excess: Excess, client: str, *, closes: bool = False) -> Refused:
    wait_s = math.ceil(excess.wait_s)
    return Refused(
        HTTPStatus.TOO_MANY_REQUESTS,
        "Too many requests",
        f"too many {excess.unit.value} come from {client}: retry in {wait_s} s",
        code=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        headers={"Retry-After": str(wait_s)},
        retriable=True,
        closes=closes,
    )
