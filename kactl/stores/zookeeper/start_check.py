"""Check of the nodes' permissions when a store is opened.

Two kinds of mistakes are found: nodes that this connection may not change, without which no controller works, and nodes
of a secured cluster that every client may change or read.

Deletion is a right on the parent: an identity that may delete below the cluster's folder can delete /controller_epoch,
which protects all writes, although that node has permissions of its own.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from kazoo.exceptions import NoAuthError, NoNodeError, ZookeeperError
from kazoo.protocol.serialization import GetACL
from kazoo.security import Permissions

from kactl.model.errors import StoreError
from kactl.runtime.logs import logger

from .acls import AclReader, is_open
from .request import WhoAmI

log = logger(__name__)

_CHROOT: Final = ""
_FOLDER: Final = Permissions.READ | Permissions.CREATE | Permissions.DELETE
_NODE: Final = Permissions.READ | Permissions.WRITE
# What a controller does with each node.
_NEEDED: Final[Mapping[str, int]] = {
    _CHROOT: _FOLDER,
    "/controller_epoch": _NODE,
    "/brokers": Permissions.READ,
    "/brokers/ids": Permissions.READ,
    "/brokers/topics": _FOLDER,
    "/admin": Permissions.READ | Permissions.CREATE,
    "/admin/delete_topics": _FOLDER,
    "/config": Permissions.READ,
    "/config/topics": _FOLDER,
    "/config/changes": Permissions.READ,
    "/isr_change_notification": _FOLDER,
    "/log_dir_event_notification": _FOLDER,
}
_SECRET: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
_LISTS: Final = ("/kafka-acl", "/kafka-acl-extended")
_PATHS: Final = (*_NEEDED, *_SECRET, *_LISTS)
# Schemes whose identities `whoAmI` returns in the form of a permission. Others are left to the server.
_COMPARED: Final = frozenset({"world", "sasl", "digest", "x509"})
_RIGHTS: Final = {
    Permissions.READ: "read",
    Permissions.WRITE: "write",
    Permissions.CREATE: "create nodes below",
    Permissions.DELETE: "delete nodes below",
}

Identity = tuple[str, str]


class Findings(NamedTuple):
    """Mistakes in the permissions, each by its path.

    Attributes:
        not_ours: the rights that this connection lacks.
        open: nodes that every client may change.
        readable: nodes with credentials that every client may read.
    """

    not_ours: dict[str, int]
    open: tuple[str, ...]
    readable: tuple[str, ...]


def findings(acls: Mapping[str, list[Any] | None], own: Collection[Identity]) -> Findings:
    """Returns what is wrong with permissions.

    Args:
        acls: of the nodes that exist; None if they may not even be read.
        own: scheme and id of each identity of this connection; empty if they are not known.
    """
    not_ours = {}
    if own and "super" not in {scheme for scheme, _ in own}:
        for path, needed in _NEEDED.items():
            known = acls.get(path, [])
            if path in acls and (missing := needed & ~_granted(known, own)):
                not_ours[path] = missing
    readable = [
        path
        for path in _SECRET
        if any(acl.id.scheme == "world" and acl.perms & Permissions.READ for acl in acls.get(path) or ())
    ]
    return Findings(
        not_ours, tuple(path for path, known in acls.items() if any(map(is_open, known or ()))), tuple(readable)
    )


def _granted(acls: list[Any] | None, own: Collection[Identity]) -> int:
    granted = 0
    for acl in acls or ():
        identity = (acl.id.scheme, acl.id.id)
        if identity == ("world", "anyone") or identity in own or acl.id.scheme not in _COMPARED:
            granted |= acl.perms
    return granted


async def check(client: AclReader, *, secure: bool, identity: str, digest: Identity | None = None) -> None:
    """Read the permissions, and log what others may do.

    Args:
        secure: whether the cluster's nodes belong to an identity.
        identity: of this connection, for messages.
        digest: its identity of scheme digest, of which the server names only the user.

    Raises:
        StoreError: this connection may not do what a controller does.
    """
    own = await _identities(client)
    if own and digest is not None:
        own = (*own, digest)
    found = findings(await _acls(client), own)
    where = f"ZooKeeper at {client.hosts}{client.chroot}"
    if found.not_ours:
        path, missing = next(iter(found.not_ours.items()))
        rights = ", ".join(text for right, text in _RIGHTS.items() if missing & right)
        more = f", and {len(found.not_ours) - 1} other nodes are not its own either" if len(found.not_ours) > 1 else ""
        raise StoreError(
            f"{where} does not let this connection ({identity}) {rights} {path or '/'}{more}: set store.user and "
            "store.password-file to the brokers' credentials"
        )
    if not secure:
        return
    if _CHROOT in found.open:
        log.error(
            "%s: anyone can delete /controller_epoch, since %s is open: run `kactl zk-secure --apply`",
            where, client.chroot or "/",
        )  # fmt: skip
    if others := [path for path in found.open if path]:
        log.error("%s: anyone can change %s: run `kactl zk-secure --apply`", where, ", ".join(others))
    if found.readable:
        log.error(
            "%s: anyone can read the credentials below %s: run `kactl zk-secure --apply`",
            where, ", ".join(found.readable),
        )  # fmt: skip


async def _acls(client: AclReader) -> dict[str, list[Any] | None]:
    found: dict[str, list[Any] | None] = {}
    for path in _PATHS:
        answer = await client.ask(GetACL(client.path(path) or "/"))
        if isinstance(answer, NoAuthError):
            found[path] = None
        elif isinstance(answer, ZookeeperError) and not isinstance(answer, NoNodeError):
            raise StoreError(f"the permissions of {path or '/'} could not be read in ZooKeeper: {answer!r}")
        elif not isinstance(answer, Exception):
            found[path] = answer[0]
    return found


async def _identities(client: AclReader) -> tuple[Identity, ...]:
    """Returns the identities of this connection; none before ZooKeeper 3.7."""
    answer = await client.ask(WhoAmI())
    return () if isinstance(answer, Exception) else tuple(answer)
