"""Tokens of the admin API: their form, and the decision whether a text is one of them.

A token is `kactl_<id>_<secret>`. The id is public; the secret has 256 random bits. Only the hash of a secret is stored.
A fast hash suffices: 2**256 secrets cannot be tried.
"""

import base64
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from .role import Role

PREFIX: Final = "kactl_"
ID_BYTES: Final = 5
SECRET_BYTES: Final = 32
# Anywhere in a text: so that a token can be found where none belongs.
TOKEN: Final = re.compile(r"kactl_(?P<id>[a-z2-7]{8})_(?P<secret>[A-Za-z0-9_-]{43})")
# A token, or what a web page receives for one: a ticket, or a code for a ticket.
CREDENTIAL: Final = re.compile(
    rf"{TOKEN.pattern}|kactlticket_[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{{43}}|kactlcode_[A-Za-z0-9_-]{{43}}"
)
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# Compared with if there is no token.
_NO_HASH: Final = bytes(32)


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is stored, without its secret.

    Attributes:
        sha256: of the secret.
        created_ms, expires_ms: since 1970; None if it does not expire.
        networks: addresses from which it is accepted; any if empty.
    """

    id: str
    name: str
    role: Role
    sha256: bytes
    created_ms: int
    expires_ms: int | None = None
    networks: tuple[Network, ...] = ()


class NewToken(NamedTuple):
    """A new token.

    Attributes:
        text: the token itself, to be shown once.
    """

    text: str
    record: TokenRecord


class Tokens:
    """A set of tokens."""

    def __init__(self, records: Iterable[TokenRecord] = ()) -> None:
        self._by_id: Mapping[str, TokenRecord] = {record.id: record for record in records}

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def records(self) -> tuple[TokenRecord, ...]:
        return tuple(self._by_id.values())

    def find(self, text: str, *, now_ms: int, address: str | None) -> TokenRecord | None:
        """Returns the record of a token; None if it is unknown, wrong, expired, or not meant for the address.

        Args:
            address: of the client; None if it connects from this machine without an address.
        """
        matched = TOKEN.fullmatch(text)
        given = hash_of(matched["secret"] if matched else text)
        record = self._by_id.get(matched["id"]) if matched else None
        is_right = hmac.compare_digest(given, _NO_HASH if record is None else record.sha256)
        if record is None or not is_right or not is_valid(record, now_ms=now_ms):
            return None
        return record if _is_within(address, record.networks) else None

    def get(self, id_: str, *, now_ms: int, address: str | None) -> TokenRecord | None:
        """Returns the record of an id; None if it is unknown, expired, or not meant for the address."""
        record = self._by_id.get(id_)
        if record is None or not is_valid(record, now_ms=now_ms):
            return None
        return record if _is_within(address, record.networks) else None

    def holds(self, record: TokenRecord, *, now_ms: int) -> bool:
        """Returns whether a record is still the same, and valid."""
        return self._by_id.get(record.id) == record and is_valid(record, now_ms=now_ms)


def new_token(
    name: str,
    role: Role,
    *,
    random: bytes,
    now_ms: int,
    expires_ms: int | None,
    networks: Iterable[Network] = (),
) -> NewToken:
    """Returns a token made of random bytes, of which it needs `ID_BYTES + SECRET_BYTES`."""
    id_ = base64.b32encode(random[:ID_BYTES]).decode().lower()
    secret = base64.urlsafe_b64encode(random[ID_BYTES : ID_BYTES + SECRET_BYTES]).decode().rstrip("=")
    return NewToken(
        f"{PREFIX}{id_}_{secret}",
        TokenRecord(
            id=id_,
            name=name,
            role=role,
            sha256=hash_of(secret),
            created_ms=now_ms,
            expires_ms=expires_ms,
            networks=tuple(networks),
        ),
    )


def record_of(text: str, name: str, role: Role) -> TokenRecord | None:
    """Returns the record of a token by its text; None if the text is no token."""
    matched = TOKEN.fullmatch(text)
    if matched is None:
        return None
    return TokenRecord(id=matched["id"], name=name, role=role, sha256=hash_of(matched["secret"]), created_ms=0)


def without_secrets(text: str) -> str:
    """Returns a text with the secrets of all tokens, tickets and codes in it removed."""
    return CREDENTIAL.sub(
        lambda found: f"{PREFIX}{found['id']}_***" if found["id"] else f"{found[0].partition('_')[0]}_***", text
    )


def hash_of(secret: str) -> bytes:
    """Returns the hash under which a secret is stored."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def is_valid(record: TokenRecord, *, now_ms: int) -> bool:
    """Returns whether a token has not expired."""
    return record.expires_ms is None or now_ms < record.expires_ms


def _is_within(address: str | None, networks: tuple[Network, ...]) -> bool:
    if not networks:
        return True
    if address is None:
        return False
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return any((mapped or parsed) in network for network in networks)
