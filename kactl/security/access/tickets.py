"""Logins of web pages: a ticket that a page receives for a token or a code, and presents as a credential for hours.

A ticket names its client and is signed by the server, which therefore keeps no list of sessions. It is sent in a header
by the page alone: browsers share cookies among all servers of a host, and would send them with requests of any page.
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final, Literal

import msgspec

from .role import Role
from .tokens import TokenRecord

PREFIX: Final = "kactlticket_"
KEY_BYTES: Final = 32
LIFETIME_MS: Final = 8 * 3_600_000
# A name, and some numbers.
LENGTH_MAX: Final = 1000
_GENERATION_BYTES: Final = 8
_FORM: Final = re.compile(r"kactlticket_(?P<content>[A-Za-z0-9_-]+)\.(?P<mac>[A-Za-z0-9_-]{43})")


class Ticket(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """The content of a ticket.

    Attributes:
        name, kind: of the client.
        token: id of the token that it was given for; empty for a user of this machine.
        generation: of that token, so that a ticket ends when its token is replaced or changed.
    """

    name: str
    kind: Literal["token", "unix"]
    role: Role
    token: str
    generation: bytes
    expires_ms: int


def ticket_of_token(record: TokenRecord, *, now_ms: int) -> Ticket:
    """Returns a ticket that lasts no longer than its token."""
    expires_ms = now_ms + LIFETIME_MS
    if record.expires_ms is not None:
        expires_ms = min(expires_ms, record.expires_ms)
    return Ticket(
        name=record.name,
        kind="token",
        role=record.role,
        token=record.id,
        generation=generation_of(record),
        expires_ms=expires_ms,
    )


def ticket_of_user(name: str, role: Role, *, now_ms: int) -> Ticket:
    """Returns a ticket for a user of this machine."""
    return Ticket(name=name, kind="unix", role=role, token="", generation=b"", expires_ms=now_ms + LIFETIME_MS)


def generation_of(record: TokenRecord) -> bytes:
    """Returns a digest of a token's secret, role, lifetime and networks."""
    networks = tuple(map(str, record.networks))
    content = msgspec.msgpack.encode((record.sha256, record.role, record.expires_ms, networks))
    return hashlib.sha256(content).digest()[:_GENERATION_BYTES]


def signed(ticket: Ticket, key: bytes) -> str:
    """Returns a ticket as text."""
    content = msgspec.msgpack.encode(ticket)
    return f"{PREFIX}{_text(content)}.{_text(_mac(content, key))}"


def read_ticket(text: str, key: bytes, *, now_ms: int) -> Ticket | None:
    """Returns the content of a ticket; None if it was not signed with this key, or has expired."""
    matched = _FORM.fullmatch(text) if len(text) <= LENGTH_MAX else None
    if matched is None:
        return None
    try:
        content, given = _bytes(matched["content"]), _bytes(matched["mac"])
    except binascii.Error:
        return None
    if (_text(content), _text(given)) != matched.groups():
        return None  # the last character has bits that decoding ignores
    if not hmac.compare_digest(given, _mac(content, key)):
        return None
    try:
        ticket = msgspec.msgpack.decode(content, type=Ticket)
    except msgspec.MsgspecError:
        return None  # of another version
    return ticket if now_ms < ticket.expires_ms else None


def _mac(content: bytes, key: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
