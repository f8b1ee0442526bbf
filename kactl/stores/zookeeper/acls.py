"""Permissions of the nodes that kactl creates.

They are those that brokers with the same setting give their nodes, so that brokers and kactl can take over from each
other. Open nodes give everything to every client. Secure nodes give everything to the identity that created them, and
reading to every client, except where they hold secrets.

A client without rights on a node can still delete it if it may delete below the parent, so the folder of the cluster
has to be secure, too (`kactl.stores.zookeeper.tree`).

Source: Kafka's ZkData.defaultAcls, `zookeeper.set.acl`.
"""

from typing import Any, Final, Protocol

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import GetACL
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Permissions

from kactl.model.errors import StoreError

from . import layout

_OPEN: Final = list(OPEN_ACL_UNSAFE)
_SECURE: Final = [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]
_SECRET: Final = list(CREATOR_ALL_ACL)
# Below these, nodes may hold credentials.
_SECRET_FOLDERS: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
# Consumers of old versions write here themselves.
_OPEN_FOLDER: Final = "/consumers"
_CHANGES: Final = Permissions.WRITE | Permissions.CREATE | Permissions.DELETE | Permissions.ADMIN


class AclReader(Protocol):
    """The part of a client that `NodeAcls.adapt` uses."""

    hosts: str
    chroot: str

    def path(self, path: str) -> str: ...

    async def ask(self, request: Any, /) -> Any: ...


class NodeAcls:
    """The permissions of new nodes, by their paths.

    Args:
        secure: whether nodes are secure; None to do as the cluster does, which `adapt` reads.
    """

    def __init__(self, secure: bool | None = False) -> None:
        self._wanted = secure
        self.secure = bool(secure)

    @property
    def is_automatic(self) -> bool:
        """Whether new nodes are as the cluster's are."""
        return self._wanted is None

    def of(self, path: str) -> list[Any]:
        """Returns the permissions of a new node; `path` is relative to the chroot."""
        if not self.secure or path == _OPEN_FOLDER:
            return _OPEN
        return _SECRET if path.startswith(_SECRET_FOLDERS) and _is_secret(path) else _SECURE

    async def adapt(self, client: AclReader, *, identity: str | None) -> None:
        """Find out whether the cluster's nodes are secure, unless that is configured.

        Args:
            identity: of the connection; None if it has none.

        Raises:
            StoreError: they are, and the connection has no identity: it could write nothing.
        """
        if self._wanted is not None:
            return
        answer = await client.ask(GetACL(client.path(layout.TOPICS)))
        if isinstance(answer, NoNodeError):
            self.secure = False
            return
        if isinstance(answer, Exception):
            raise StoreError(f"the permissions of {layout.TOPICS} could not be read in ZooKeeper: {answer!r}")
        acls, _ = answer
        self.secure = not any(is_open(acl) for acl in acls)
        if self.secure and identity is None:
            owners = ", ".join(sorted({f"{acl.id.scheme}:{acl.id.id}" for acl in acls if acl.perms & _CHANGES}))
            raise StoreError(
                f"ZooKeeper at {client.hosts}{client.chroot} lets only {owners or 'its superuser'} write "
                f"{layout.TOPICS}, and this connection has no identity: give username and password of the brokers"
            )


def is_open(acl: Any) -> bool:
    """Returns whether a permission lets every client change something."""
    return bool(acl.id.scheme == "world" and acl.perms & _CHANGES)


def _is_secret(path: str) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in _SECRET_FOLDERS)
