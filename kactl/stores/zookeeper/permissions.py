"""The permissions of the nodes that exist: which are open, and their change to secure ones and back.

Deletion is a right on the parent, so the folder of the cluster (the chroot) counts most: an identity that may delete
below it can delete /controller_epoch, which protects all writes.

Source: Kafka's ZkSecurityMigrator, ZkData.SecureRootPaths.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any, Final, NamedTuple

from kazoo.exceptions import BadVersionError, NoAuthError, NoNodeError, ZookeeperError
from kazoo.protocol.serialization import GetACL, SetACL

from kactl.model.errors import StoreError

from . import connection, layout
from .acls import NodeAcls, is_open
from .client import Client
from .request import WhoAmI

# With everything below them. The chroot itself is one node more.
ROOTS: Final = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/delegation_token",
    "/feature",
    "/isr_change_notification",
    "/kactl",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/kafka-acl-extended-changes",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/migration",
)
_CHROOT: Final = ""
# Nodes in one round, and the shortest time of a round that changes nodes: 500 a second.
_ROUND: Final = 100
_ROUND_S: Final = 0.2
# Of one node that another client changes at the same time.
_TRIES: Final = 5
# Topics of a survey, at least.
SAMPLE: Final = 100


class Survey(NamedTuple):
    """The permissions of a cluster's nodes.

    Attributes:
        nodes: the number of nodes.
        open_nodes: paths of nodes that every client may change, of children that every client may delete.
        unreadable: paths of nodes with permissions that this connection may not even read.
    """

    nodes: int
    open_nodes: tuple[str, ...]
    unreadable: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        """Whether no node is protected: a cluster without permissions."""
        return len(self.open_nodes) == self.nodes


class Migration(NamedTuple):
    """The result of a change of permissions.

    Attributes:
        nodes: the number of nodes that were looked at.
        changed: the number of nodes that had, or have still, other permissions.
    """

    nodes: int
    changed: int


class Permissions:
    """The permissions below one chroot, over a connection of its own.

    Args:
        connect, session_timeout_ms, credentials: as for the store.
    """

    def __init__(self, connect: str, *, session_timeout_ms: int, credentials: connection.Credentials) -> None:
        self._client = Client(
            connect, session_timeout_ms=session_timeout_ms, max_in_flight=_ROUND, credentials=credentials
        )

    async def __aenter__(self) -> "Permissions":
        await self._client.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def survey(self) -> Survey:
        """Read the permissions of the nodes that brokers secure, of SAMPLE topics.

        Raises:
            StoreError: they cannot be read.
        """
        nodes = 0
        open_nodes: list[str] = []
        unreadable: list[str] = []
        async for paths in self._tree(sample=True):
            for path, acls, _ in await self._acls(paths):
                nodes += 1
                if acls is None:
                    unreadable.append(path or "/")
                elif any(is_open(acl) for acl in acls):
                    open_nodes.append(path or "/")
        return Survey(nodes, tuple(open_nodes), tuple(unreadable))

    async def migrate(self, *, secure: bool, apply: bool) -> Migration:
        """Give all nodes the permissions of a secure or of an open cluster.

        It can be interrupted and run again at any time: nodes that have the permissions already are not written.

        Args:
            apply: False only counts.

        Raises:
            StoreError: a node cannot be read or changed.
        """
        expected = NodeAcls(secure)
        nodes = changed = 0
        own = await self._identities() if secure else ()
        async for paths in self._tree(sample=False):
            began = asyncio.get_running_loop().time()
            written = False
            for path, acls, version in await self._acls(paths):
                nodes += 1
                if acls is not None and _normal(acls) == _normal(expected.of(path), own):
                    continue
                changed += 1
                if apply:
                    written = True
                    await self._set(path, expected.of(path), version)
            if written:
                await asyncio.sleep(began + _ROUND_S - asyncio.get_running_loop().time())
        return Migration(nodes, changed)

    async def _tree(self, *, sample: bool) -> AsyncIterator[list[str]]:
        """Yields the nodes in rounds, parents before their children.

        Args:
            sample: with some topics only, and without nodes below those that may not be listed.
        """
        yield [_CHROOT]
        left = [path for path in ROOTS if await self._exists(path)]
        while left:
            paths, left = left[:_ROUND], left[_ROUND:]
            yield paths
            results = (await self._client.ask_all([self._client.children(path) for path in paths])).results
            for path, result in zip(paths, results, strict=True):
                if isinstance(result, NoNodeError):
                    continue  # deleted meanwhile
                if isinstance(result, NoAuthError) and sample:
                    continue
                if isinstance(result, ZookeeperError):
                    raise StoreError(f"{path} could not be listed in ZooKeeper: {result!r}")
                names = sorted(result[0])
                if sample and path == layout.TOPICS:
                    names = names[:: max(1, len(names) // SAMPLE)]
                left += [f"{path}/{name}" for name in names]

    async def _exists(self, path: str) -> bool:
        return await self._client.ask(self._client.exists(path)) is not None

    async def _acls(self, paths: Collection[str]) -> list[tuple[str, list[Any] | None, int]]:
        """Returns path, permissions and their version of each node that exists; None if they may not be read."""
        results = (await self._client.ask_all([GetACL(self._client.path(path) or "/") for path in paths])).results
        found: list[tuple[str, list[Any] | None, int]] = []
        for path, result in zip(paths, results, strict=True):
            if isinstance(result, NoNodeError):
                continue
            if isinstance(result, NoAuthError):
                found.append((path, None, -1))
            elif isinstance(result, ZookeeperError):
                raise StoreError(f"the permissions of {path or '/'} could not be read in ZooKeeper: {result!r}")
            else:
                found.append((path, result[0], result[1].aversion))
        return found

    async def _set(self, path: str, acls: list[Any], version: int) -> None:
        """Set the permissions of a node, unless it is deleted meanwhile. A concurrent change is overwritten."""
        for _ in range(_TRIES):
            result = await self._client.ask(SetACL(self._client.path(path) or "/", acls, version))
            if isinstance(result, BadVersionError):
                ((_, _, version),) = await self._acls([path]) or [(path, None, -1)]
                continue
            if isinstance(result, NoNodeError) or not isinstance(result, ZookeeperError):
                return
            raise StoreError(
                f"the permissions of {path or '/'} could not be changed in ZooKeeper: {result!r}; "
                "use the identity that owns the node"
            )
        raise StoreError(f"the permissions of {path or '/'} could not be changed: another client keeps changing them")

    async def _identities(self) -> list[tuple[str, str]]:
        """Returns scheme and id of what the server puts in the place of `auth`.

        Raises:
            StoreError: there is none: the nodes would belong to nobody.
        """
        answer = await self._client.ask(WhoAmI())
        if isinstance(answer, ZookeeperError):
            raise StoreError(f"ZooKeeper does not tell the connection's identity ({answer!r}): version 3.7 is needed")
        # An address is an identity that no permission of `auth` stands for.
        own = [(scheme, name) for scheme, name in answer if scheme != "ip"]
        if not own:
            raise StoreError(
                "the connection to ZooKeeper has no identity that nodes could belong to: give user and password-file, "
                "or tls with cert and key"
            )
        return own


def _normal(acls: list[Any], own: Collection[tuple[str, str]] = ()) -> set[tuple[str, str, int]]:
    """Returns permissions in a form that can be compared; `auth` stands for the own identities."""
    return {
        (scheme, name, acl.perms)
        for acl in acls
        for scheme, name in (own if acl.id.scheme == "auth" else [(acl.id.scheme, acl.id.id)])
    }
