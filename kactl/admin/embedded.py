"""Authentication and authorization by the program in which the API is mounted.

The program passes an access object to `kactl.admin.application`; there is no default. `Delegated` calls two functions
of the program, `Tokens` and `Certificates` work as in kactl's own server, and `Open` admits all clients of this
machine.

An error, a delay or an unknown value of an access object denies the request. No decision is cached.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

import msgspec
from aiohttp import web

from kactl.model.errors import BadRequest
from kactl.runtime.addresses import is_loopback
from kactl.runtime.clock import SystemClock
from kactl.security.access import Principal, PrincipalRules
from kactl.security.access.role import Role, RoleName

from . import exposure
from .client import identify
from .identity.certificates import Certificates as Holders
from .identity.credentials import POLL_S, Credentials

_NO_CERTIFICATES: Final = Holders("", {}, PrincipalRules())


class AccessRequest(NamedTuple):
    """A request whose client is to be identified. Nothing of its body has been read.

    Attributes:
        headers: a copy; their names are in any case.
        peer: address at the other end of the connection, which may be a proxy, or what a middleware of the program has
            put in its place; empty for a Unix socket, None if the connection is closed.
        certificate: the client's certificate, which TLS has verified, as DER; None without one.
        host_request: the request itself, with what middlewares of the program have stored in it.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    peer: str | None
    certificate: bytes | None
    host_request: web.Request


class Action(msgspec.Struct, frozen=True):
    """What a client wants to do.

    Attributes:
        effect: "read" changes nothing; "admin" concerns the process itself: resign, kill, restart; "write" is the rest.
        operation: the operation id of the OpenAPI document, such as `delete_v1_topics_by_topic`.
        kind: what the path leads to, such as `topic`, `partition`, `broker` or `controller`.
        name: which one, such as `orders`, `orders-7` or `3`; None if the path names none. What a body names, such as
            the topic to create, is not read before the decision.
        role: the role that kactl's own server demands. On routes with `dry_run` the first decision is for the role
            viewer; unless the body contains `dry_run`, a second one follows for the role of the route.
    """

    effect: Literal["read", "write", "admin"]
    operation: str
    kind: str
    name: str | None
    role: RoleName = "viewer"


class Allow(NamedTuple):
    """The decision that a client may do what it requests."""


class Deny(NamedTuple):
    """The decision that it may not; the client receives the reason."""

    reason: str


Decision = Allow | Deny


class Access(Protocol):
    """Identifies the clients of a mounted API, and decides what they may do.

    Both methods have 2 s for each request. They may be coroutine functions, or others, which must not block.
    """

    def authenticate(self, request: AccessRequest, /) -> Awaitable[Principal | None] | Principal | None:
        """Returns the client; None for the response 401."""

    def authorize(self, principal: Principal, action: Action, /) -> Awaitable[Decision] | Decision:
        """Returns whether the client may do something."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a mounted API. Connections, heads of requests and rates are up to the program.

    Attributes:
        streams: open event streams.
        streams_per_principal: of these, streams of one client.
    """

    streams: int = 100
    streams_per_principal: int = 10

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise BadRequest(f"limits.{name}", f"{value!r} is not a number of streams: give at least 1")


class Delegated:
    """Both decisions are functions of the program."""

    def __init__(
        self,
        authenticate: Callable[[AccessRequest], Awaitable[Principal | None] | Principal | None],
        authorize: Callable[[Principal, Action], Awaitable[Decision] | Decision],
    ) -> None:
        for name, function in (("authenticate", authenticate), ("authorize", authorize)):
            if not callable(function):
                raise BadRequest(name, f"{function!r} cannot be called: pass a function")
        self.authenticate = authenticate
        self.authorize = authorize


class ByRole:
    """Decides by the role of a principal, which is one of its groups."""

    async def authorize(self, principal: Principal, action: Action) -> Decision:
        """See `Access`."""
        owned = max((role for role in Role if role.label in principal.groups), default=Role.NONE)
        if owned >= Role.of(action.role):
            return Allow()
        return Deny(f"this needs the role {action.role}, and {principal.label} has the role {owned.label}")


class Tokens(ByRole):
    """Clients have tokens, as `kactl token --tokens FILE` makes them. New tokens count at once, other changes of the
    file within 2 s.

    Raises:
        BadConfig: the file cannot be read, or others can use it.
    """

    def __init__(self, file: str | Path) -> None:
        self.credentials = Credentials(tokens=Path(file).absolute(), local=None, clock=SystemClock())
        self.credentials.load()
        self._checked_s = time.monotonic()

    async def authenticate(self, request: AccessRequest) -> Principal | None:
        """See `Access`."""
        now_s = time.monotonic()
        if now_s - self._checked_s >= POLL_S:
            self._checked_s = now_s
            await self.credentials.refresh()
        known = identify(request.host_request, self.credentials, _NO_CERTIFICATES)
        if known is None and "Authorization" in request.headers and await self.credentials.catch_up():
            known = identify(request.host_request, self.credentials, _NO_CERTIFICATES)
        return None if known is None else msgspec.structs.replace(known.principal, groups=(known.role.label,))


class Certificates(ByRole):
    """Clients have certificates, which the TLS of the program has verified.

    Args:
        roles: the role of each client by its name; others have none.
        cluster: of the names `kactl://CLUSTER/user/NAME` in certificates.
        rules: from other subjects to names, as `ssl.principal.mapping.rules` of Kafka.

    Raises:
        BadRequest: a role does not exist, or a rule cannot be used.
    """

    def __init__(self, roles: Mapping[str, str], *, cluster: str = "", rules: str = "DEFAULT") -> None:
        try:
            self._holders = Holders(cluster, roles, PrincipalRules(rules))
        except ValueError as error:
            raise BadRequest("certificates", str(error)) from None

    async def authenticate(self, request: AccessRequest) -> Principal | None:
        """See `Access`."""
        transport = request.host_request.transport
        holder = self._holders.find(transport) if self._holders.still_count(transport) else None
        if holder is None:
            return None
        return Principal(holder.name, "certificate", (holder.role.label,), method="certificate")


class Open:
    """Every client of this machine may do everything, and has no name.

    A proxy on this machine makes clients of other machines look like such ones. `GET /v1/controller` lists the API as
    insecure.

    Args:
        allow_insecure: `["api"]` admits the clients of other machines, too.

    Raises:
        BadRequest: an interface has another name.
    """

    def __init__(self, *, allow_insecure: tuple[str, ...] | list[str] = ()) -> None:
        if isinstance(allow_insecure, str) or any(name != exposure.API for name in allow_insecure):
            raise BadRequest(
                "allow_insecure", f'{allow_insecure!r}: the only interface of an application is "{exposure.API}"'
            )
        self.admits_others = bool(allow_insecure)

    async def authenticate(self, request: AccessRequest) -> Principal | None:
        """See `Access`."""
        return Principal("", "anonymous", () if _is_here(request.peer) else ("remote",))

    async def authorize(self, principal: Principal, action: Action) -> Decision:
        """See `Access`."""
        if self.admits_others or "remote" not in principal.groups:
            return Allow()
        return Deny("clients of other machines need another access than kactl.admin.Open()")


def _is_here(peer: str | None) -> bool:
    """Returns whether a client runs on this machine. That of a closed connection is not known."""
    return peer is not None and (not peer or is_loopback(peer))
