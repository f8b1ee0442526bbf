"""The client of a request: who sent it, and how kactl's own server finds that out."""

import contextvars
import functools
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple

import msgspec
from aiohttp import web

from kactl.model.errors import ErrorCode
from kactl.runtime.addresses import plain_address
from kactl.security.access import Principal, tickets
from kactl.security.access.role import Role
from kactl.security.access.tokens import CREDENTIAL, TokenRecord

from .connections import Connection
from .identity import login_codes
from .identity.certificates import Certificates
from .identity.credentials import Credentials
from .identity.unix_socket import is_own_user
from .problem import Refused

# Where a page exchanges a token or a code for a ticket.
LOGIN: Final = "/v1/login"
# The client whose request this task carries out; None if it is not known.
PRINCIPAL: Final["contextvars.ContextVar[Principal | None]"] = contextvars.ContextVar(
    "kactl.admin.principal", default=None
)
# The client of the request that this task carries out; for the audit trail.
CLIENT: Final["contextvars.ContextVar[ClientInfo | None]"] = contextvars.ContextVar("kactl.admin.client", default=None)


def caller() -> str:
    """Returns the user of the request that this task carries out; empty if it is not known."""
    principal = PRINCIPAL.get()
    return "" if principal is None else principal.label


class ClientInfo(NamedTuple):
    """The client of a request, for the audit trail.

    Attributes:
        principal, kind, method: of its `Principal`.
        peer: its address; `192.0.2.7 via 10.0.0.5` if a trusted proxy names it; `unix` for the Unix socket.
        operation: method and path of the route.
    """

    principal: str = ""
    kind: str = ""
    method: str = ""
    role: str = ""
    peer: str = ""
    operation: str = ""


class Known(NamedTuple):
    """The client of a request to kactl's own server.

    Attributes:
        token: the token that it has, or for which it received its ticket; None if it has none.
        way: what it sent.
        until_ms: when its ticket expires; None without one.
        holds: returns whether the certificate of its connection, if it has one, would be accepted now.
    """

    principal: Principal
    role: Role
    token: TokenRecord | None
    way: Literal["token", "ticket", "code", "socket", "certificate"]
    until_ms: int | None = None
    holds: Callable[[], bool] = lambda: True

    @property
    def is_ambient(self) -> bool:
        """Whether a browser could have sent the credential without the will of its user."""
        return self.way in ("socket", "certificate")


# The client of the request that this task carries out, as its proxies name it; empty without a trusted proxy.
PEER: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("kactl.admin.peer", default="")
# Whether the client of this task's request may use its route, so that responses may contain facts about the cluster.
IS_ADMITTED: Final[contextvars.ContextVar[bool]] = contextvars.ContextVar("kactl.admin.is_admitted", default=False)
# Returns whether the client of this task's request would still be admitted; None if `Credentials.follow` knows it.
STILL_ADMITTED: Final["contextvars.ContextVar[Callable[[], Awaitable[bool]] | None]"] = contextvars.ContextVar(
    "kactl.admin.still_admitted", default=None
)
# The client of the request that this task carries out; None if it is not identified.
_KNOWN: Final[contextvars.ContextVar[Known | None]] = contextvars.ContextVar("kactl.admin.known", default=None)


def forget() -> None:
    """Forget the client of the previous request: one task handles all requests of a connection."""
    PRINCIPAL.set(None)
    CLIENT.set(None)
    PEER.set("")
    IS_ADMITTED.set(False)
    STILL_ADMITTED.set(None)
    _KNOWN.set(None)


def identify(http: web.Request, credentials: Credentials, certificates: Certificates) -> Known | None:
    """Returns the client, which `known_client` returns from now on; None if it sent no valid credential.

    A client with a token and a certificate needs the same name in both.

    Raises:
        Refused: 400, a credential is where others can read it; 403, another user uses the Unix socket.
    """
    _KNOWN.set(None)
    _check_places(http)
    known = _identified(http, credentials)
    holder = certificates.find(http.transport)
    if holder is not None:
        if "Authorization" not in http.headers:
            known = Known(Principal(holder.name, "certificate"), holder.role, None, "certificate")
        elif known is not None and known.principal.name != holder.name:
            known = None
    if known is not None:
        principal = msgspec.structs.replace(known.principal, peer=peer_of(http), method=known.way)
        known = known._replace(principal=principal, holds=functools.partial(certificates.still_count, http.transport))
    _KNOWN.set(known)
    return known


def known_client() -> Known | None:
    """Returns the client that sent the request of this task; None if it is not known."""
    return _KNOWN.get()


def client_of(http: web.Request) -> ClientInfo:
    """Returns the client of the request that this task carries out, as far as it is known."""
    known = _KNOWN.get()
    principal = PRINCIPAL.get() if known is None else known.principal
    resource = http.match_info.route.resource
    path = "" if resource is None else f" {resource.canonical}"
    return ClientInfo(
        principal="" if principal is None else principal.label,
        kind="" if principal is None else principal.kind,
        method="" if principal is None else principal.method,
        role="" if known is None else known.role.label,
        peer=peer_of(http),
        operation=f"{http.method}{path}",
    )


def client_name(http: web.Request) -> str:
    """Returns what distinguishes the client of the request that this task carries out from others."""
    principal = PRINCIPAL.get()
    return (principal.label if principal is not None else "") or address_of(http) or ""


def peer_of(http: web.Request) -> str:
    """Returns the address of the client, for audit trails."""
    return "unix" if user_of(http) is not None else PEER.get() or address_of(http) or ""


def user_of(http: web.Request) -> int | None:
    """Returns the user of the client of a Unix socket; None for other connections."""
    return http.protocol.uid if isinstance(http.protocol, Connection) else None


def address_of(http: web.Request) -> str | None:
    """Returns the address of the client; None if it has none."""
    peer: Any = None if http.transport is None else http.transport.get_extra_info("peername")
    return plain_address(peer[0]) if isinstance(peer, tuple) else None


def remote_of(http: web.Request) -> str | None:
    """Returns the address of the client as the host program sees it, whose middleware may know a proxy."""
    return None if http.remote is None else plain_address(http.remote)


def forbidden(detail: str) -> Refused:
    """Returns the refusal of a client that is known and may not do this."""
    return Refused(HTTPStatus.FORBIDDEN, "Forbidden", detail, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _identified(http: web.Request, credentials: Credentials) -> Known | None:
    values = http.headers.getall("Authorization", [])
    if not values:
        return _unix_user(http)
    scheme, _, text = values[0].partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer":
        return None
    text = text.strip()
    if text.startswith(tickets.PREFIX):
        return _page(text, http, credentials)
    if text.startswith(login_codes.PREFIX):
        # It works once, and where it belongs.
        if http.method != "POST" or http.path != LOGIN:
            return None
        known: Known | None = credentials.codes.take(text)
        return None if known is None else known._replace(way="code")
    record = credentials.find(text, address_of(http))
    return None if record is None else Known(Principal(record.name, "token"), record.role, record, "token")


def _page(text: str, http: web.Request, credentials: Credentials) -> Known | None:
    found = credentials.find_ticket(text, address_of(http))
    if found is None:
        return None
    ticket, record = found
    return Known(Principal(ticket.name, ticket.kind), ticket.role, record, "ticket", ticket.expires_ms)


def _unix_user(http: web.Request) -> Known | None:
    """Returns the user at the other end of the Unix socket; None if the connection is another one."""
    uid = user_of(http)
    if uid is None:
        return None
    principal = Principal(f"uid={uid}", "unix")
    if not is_own_user(uid):
        raise forbidden(f"the Unix socket is for the user that kactl runs as, and root; {principal.label} is another")
    return Known(principal, Role.ADMIN, None, "socket")


def _check_places(http: web.Request) -> None:
    """Reject a credential outside its header: proxies and browsers keep paths and cookies."""
    for place, texts in (("path", [http.raw_path]), ("Cookie", http.headers.getall("Cookie", []))):
        found: re.Match[str] | None = next(filter(None, map(CREDENTIAL.search, texts)), None)
        if found is not None:
            remedy = f"revoke it with `kactl token revoke {found['id']}`" if found["id"] else "log out and in again"
            raise Refused(
                HTTPStatus.BAD_REQUEST,
                "Bad request",
                f"{place}: it contains a {'token' if found['id'] else 'credential'}, which others can read there: "
                f"{remedy}, and send tokens as `Authorization: Bearer TOKEN`",
                is_denial=True,
            )
