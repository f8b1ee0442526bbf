"""The token file: TOML, written by `kactl token`, read by servers.

[[token]]
id = "k3qz7w2a"
name = "grafana"
role = "viewer"
sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
created = 2026-11-23T12:00:00Z
expires = 2027-02-21T12:00:00Z
networks = ["10.0.0.0/8"]
"""

import datetime
import ipaddress
import re
import secrets
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from kactl.model.errors import BadConfig
from kactl.runtime.private_files import read_private, write_private
from kactl.security.access.role import Role
from kactl.security.access.tickets import KEY_BYTES
from kactl.security.access.tokens import NAME, TokenRecord, record_of

KEY: Final = "api.tokens"
# 10,000 tokens and more.
BYTES_MAX: Final = 4 << 20
LOCAL_BYTES_MAX: Final = 4096
# The token that a server makes for the user that it runs as.
LOCAL_NAME: Final = "local"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_ID: Final = re.compile(r"[a-z2-7]{8}")
_HEAD: Final = "# Tokens of kactl's admin API, without their secrets. Written by `kactl token`.\n"


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    name: str
    role: str
    sha256: str
    created: datetime.datetime
    expires: datetime.datetime | None = None
    networks: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token: tuple[_Entry, ...] = ()


def read_tokens(path: Path) -> tuple[TokenRecord, ...]:
    """Returns the tokens of a file; none if there is no such file.

    Raises:
        BadConfig: it cannot be read, others can use it, or it is not a token file.
    """
    try:
        content = read_private(path, KEY, bytes_max=BYTES_MAX)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise BadConfig(KEY, f"{path} cannot be read: {error.strerror}") from None
    try:
        file = msgspec.convert(tomllib.loads(content.decode()), _File)
        records = tuple(map(_record, file.token))
    except (ValueError, RecursionError) as error:  # also of tomllib and msgspec
        raise BadConfig(KEY, f"{path} is not a token file: {error}") from None
    ids = [record.id for record in records]
    if len(set(ids)) < len(ids):
        raise BadConfig(KEY, f"{path} is not a token file: an id occurs twice")
    return records


def write_tokens(path: Path, records: Iterable[TokenRecord]) -> None:
    """Replace the token file.

    Raises:
        BadConfig: it cannot be written.
    """
    _write(path, (_HEAD + "".join(map(_rendered, records))).encode(), KEY)


def local_token(path: Path, make: Callable[[], str]) -> TokenRecord:
    """Returns the record of the token in a file, which is created if it does not exist.

    Args:
        make: returns the text of a new token.

    Raises:
        BadConfig: it cannot be read or written, others can use it, or it holds no token.
    """
    try:
        text = read_private(path, "security.folder", bytes_max=LOCAL_BYTES_MAX).decode("ascii", "replace").strip()
    except FileNotFoundError:
        text = make()
        _write(path, f"{text}\n".encode(), "security.folder")
    except OSError as error:
        raise BadConfig("security.folder", f"{path} cannot be read: {error.strerror}") from None
    record = record_of(text, LOCAL_NAME, Role.ADMIN)
    if record is None:
        raise BadConfig("security.folder", f"{path} holds no token: remove it, and the server makes another one")
    return record


def ticket_key(path: Path) -> bytes:
    """Returns the key in a file, which is created if it does not exist.

    Raises:
        BadConfig: it cannot be read or written, others can use it, or it holds no key.
    """
    try:
        key = read_private(path, "security.folder", bytes_max=LOCAL_BYTES_MAX)
    except FileNotFoundError:
        key = secrets.token_bytes(KEY_BYTES)
        _write(path, key, "security.folder")
    except OSError as error:
        raise BadConfig("security.folder", f"{path} cannot be read: {error.strerror}") from None
    if len(key) != KEY_BYTES:
        raise BadConfig("security.folder", f"{path} holds no key: remove it, and the server makes another one")
    return key


def _record(entry: _Entry) -> TokenRecord:
    for value, form in ((entry.id, _ID), (entry.name, NAME), (entry.sha256, _SHA256)):
        if form.fullmatch(value) is None:
            raise ValueError(f"{value!r} is invalid")
    return TokenRecord(
        id=entry.id,
        name=entry.name,
        role=Role.of(entry.role),
        sha256=bytes.fromhex(entry.sha256),
        created_ms=_ms(entry.created),
        expires_ms=None if entry.expires is None else _ms(entry.expires),
        networks=tuple(map(ipaddress.ip_network, entry.networks)),
    )


def _rendered(record: TokenRecord) -> str:
    """Returns a token as TOML. No value has characters that would have to be escaped."""
    values: list[tuple[str, Any]] = [
        ("id", f'"{record.id}"'),
        ("name", f'"{record.name}"'),
        ("role", f'"{record.role.label}"'),
        ("sha256", f'"{record.sha256.hex()}"'),
        ("created", moment(record.created_ms)),
    ]
    if record.expires_ms is not None:
        values.append(("expires", moment(record.expires_ms)))
    if record.networks:
        values.append(("networks", "[{}]".format(", ".join(f'"{network}"' for network in record.networks))))
    return "\n[[token]]\n" + "".join(f"{key} = {value}\n" for key, value in values)


def moment(time_ms: int) -> str:
    """Returns a time in UTC, in the form of RFC 3339."""
    moment = datetime.datetime.fromtimestamp(time_ms // 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _ms(moment: datetime.datetime) -> int:
    if moment.tzinfo is None:
        raise ValueError(f"{moment} has no time zone: write it as 2027-02-21T12:00:00Z")
    return int(moment.timestamp() * 1000)


def _write(path: Path, content: bytes, key: str) -> None:
    try:
        write_private(path, content)
    except OSError as error:
        remedy = "check its folder and the free space"
        raise BadConfig(key, f"{path} cannot be written ({error.strerror}): {remedy}") from None
