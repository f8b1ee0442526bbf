"""Access lists and the identities of a connection.

Source: PrepRequestProcessor.fixupACL, ZooKeeperServer.checkACL, DigestAuthenticationProvider.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from .codes import Code, Perm, Refused
from .wire import Acl

OPEN: Final = (Acl(31, "world", "anyone"),)


class Identity(NamedTuple):
    """An authenticated name of a client."""

    scheme: str
    id: str


def identity(scheme: str, secret: bytes) -> Identity | None:
    """Returns the identity of `user:password`, None if the scheme is unknown or the secret is malformed."""
    user, colon, _ = secret.partition(b":")
    if scheme != "digest" or not colon:
        return None
    digest = base64.b64encode(hashlib.sha1(secret, usedforsecurity=False).digest())
    return Identity(scheme, f"{user.decode()}:{digest.decode()}")


def resolve(entries: Sequence[Acl] | None, identities: Iterable[Identity]) -> tuple[Acl, ...]:
    """Returns the list to store: without duplicates, the scheme `auth` replaced by the client's identities.

    Raises:
        Refused: INVALID_ACL.
    """
    stored: list[Acl] = []
    for entry in dict.fromkeys(entries or ()):
        if entry.scheme == "auth":
            own = [Acl(entry.perms, one.scheme, one.id) for one in identities if one.scheme == "digest"]
            if not own:
                raise Refused(Code.INVALID_ACL)
            stored += own
        elif _is_valid(entry):
            stored.append(entry)
        else:
            raise Refused(Code.INVALID_ACL)
    if not stored:
        raise Refused(Code.INVALID_ACL)
    return tuple(stored)


def _is_valid(entry: Acl) -> bool:
    match entry.scheme:
        case "world":
            return entry.id == "anyone"
        case "digest":
            return len(entry.id.split(":")) == 2
        case "ip":
            return len(entry.id.partition("/")[0].split(".")) == 4
        case _:
            return False


def allows(entries: Sequence[Acl], wanted: Perm, identities: Iterable[Identity]) -> bool:
    """Returns whether a list permits a client to do something. An empty list permits everything."""
    if not entries or entries is OPEN:
        return True
    return any(
        entry.perms & wanted
        and (entry.scheme == "world" or any((one.scheme, one.id) == (entry.scheme, entry.id) for one in identities))
        for entry in entries
    )


def check(entries: Sequence[Acl], wanted: Perm, identities: Iterable[Identity]) -> None:
    """Raises Refused with NO_AUTH if a list does not permit it."""
    if not allows(entries, wanted, identities):
        raise Refused(Code.NO_AUTH)
