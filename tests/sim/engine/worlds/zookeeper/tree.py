"""Tree of nodes of one server, changed only by transactions.

Every server applies the same transactions in the same order and has the same tree after them.

Source: DataTree, DataNode.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from .access import OPEN
from .codes import Code, Op
from .watches import Watches
from .wire import Acl, Stat

# Nodes of every new server.
_FIRST: Final = ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config")
# Nodes that cannot be deleted.
SPECIAL: Final = frozenset(_FIRST)


class Node:
    """A node.

    Attributes:
        creations: number of children that were ever created; names of sequential children continue it.
        owner: the session of an ephemeral node, or 0.
        children: names, in the order of their creation.
    """

    __slots__ = (
        "acl", "aversion", "children", "creations", "ctime", "czxid", "data", "mtime", "mzxid", "owner", "pzxid",
        "version",
    )  # fmt: skip

    def __init__(self, data: bytes | None, acl: tuple[Acl, ...], owner: int, zxid: int, time_ms: int) -> None:
        self.data = data
        self.acl = acl
        self.owner = owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = time_ms
        self.version = self.aversion = self.creations = 0
        self.children: dict[str, None] = {}

    def stat(self) -> Stat:
        """Returns the metadata. Clients see the number of changes of the children: creations and deletions."""
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            2 * self.creations - len(self.children),
            self.aversion,
            self.owner,
            len(self.data or b""),
            len(self.children),
            self.pzxid,
        )


class Created(NamedTuple):
    """Creation of a node. `creations` is the parent's count after it, `op` the kind of the request."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    owner: int
    creations: int
    op: Op


class Deleted(NamedTuple):
    path: str


class DataSet(NamedTuple):
    path: str
    data: bytes | None
    version: int


class AclSet(NamedTuple):
    path: str
    acl: tuple[Acl, ...]
    aversion: int


class Checked(NamedTuple):
    path: str


class Failed(NamedTuple):
    """An operation without effect."""

    code: Code


class RegisterBrokerAndReelect(NamedTuple):
    timeout_ms: int
    password: bytes


class SessionClosed(NamedTuple):
    """End of the transaction's session, with its ephemeral nodes."""

    paths: tuple[str, ...]


Change = Created | Deleted | DataSet | AclSet | Checked | Failed | RegisterBrokerAndReelect | SessionClosed


class Txn(NamedTuple):
    """A transaction, as decided by the leader.

    Attributes:
        changes: one, or those of a multi. They succeed together: either all or none of them is `Failed`.
    """

    zxid: int
    time_ms: int
    session: int
    changes: tuple[Change, ...]


class Result(NamedTuple):
    """What a change has done, as the client that requested it sees it."""

    change: Change
    stat: Stat | None = None


class Tree:
    """Nodes by path, and the ephemeral nodes of each session.

    Attributes:
        zxid: the last applied transaction.
    """

    def __init__(self) -> None:
        self.nodes = {path: Node(b"", OPEN, 0, 0, 0) for path in _FIRST}
        for path in _FIRST[1:]:
            parent, _, name = path.rpartition("/")
            self.nodes[parent or "/"].children[name] = None
        self.ephemerals: dict[int, dict[str, None]] = {}
        self.zxid = 0

    def apply(self, txn: Txn, watches: Watches) -> list[Result]:
        """Apply the next transaction and fire watches. Returns the result of each of its changes."""
        self.zxid = txn.zxid
        return [_APPLY[type(change)](self, change, txn, watches) for change in txn.changes]

    def _created(self, change: Created, txn: Txn, watches: Watches) -> Result:
        parent, name = split(change.path)
        above = self.nodes[parent]
        node = self.nodes[change.path] = Node(change.data, change.acl, change.owner, txn.zxid, txn.time_ms)
        above.children[name] = None
        above.creations, above.pzxid = change.creations, txn.zxid
        if change.owner:
            self.ephemerals.setdefault(change.owner, {})[change.path] = None
        stat = node.stat()
        watches.created(change.path, node.acl, parent, above.acl)
        return Result(change, stat)

    def _deleted(self, change: Deleted, txn: Txn, watches: Watches) -> Result:
        self._delete(change.path, txn.zxid, watches)
        return Result(change)

    def _delete(self, path: str, zxid: int, watches: Watches) -> None:
        parent, name = split(path)
        node, above = self.nodes.pop(path), self.nodes[parent]
        del above.children[name]
        above.pzxid = zxid
        if node.owner:
            self.ephemerals[node.owner].pop(path, None)
        watches.deleted(path, node.acl, parent, above.acl)

    def _data_set(self, change: DataSet, txn: Txn, watches: Watches) -> Result:
        node = self.nodes[change.path]
        node.data, node.version = change.data, change.version
        node.mzxid, node.mtime = txn.zxid, txn.time_ms
        stat = node.stat()
        watches.changed(change.path, node.acl)
        return Result(change, stat)

    def _acl_set(self, change: AclSet, txn: Txn, watches: Watches) -> Result:
        node = self.nodes[change.path]
        node.acl, node.aversion = change.acl, change.aversion
        return Result(change, node.stat())

    def _session_closed(self, change: SessionClosed, txn: Txn, watches: Watches) -> Result:
        for path in change.paths:
            self._delete(path, txn.zxid, watches)
        self.ephemerals.pop(txn.session, None)
        return Result(change)

    def _unchanged(self, change: Change, txn: Txn, watches: Watches) -> Result:
        return Result(change)


_APPLY: Final[dict[type, Callable[..., Result]]] = {
    Created: Tree._created,
    Deleted: Tree._deleted,
    DataSet: Tree._data_set,
    AclSet: Tree._acl_set,
    SessionClosed: Tree._session_closed,
    Checked: Tree._unchanged,
    Failed: Tree._unchanged,
    RegisterBrokerAndReelect: Tree._unchanged,
}


def split(path: str) -> tuple[str, str]:
    """Returns the path of the parent, and the name."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def dump(tree: Tree, root: str = "/") -> Iterable[tuple[str, Node]]:
    """Yields all nodes at and below a path, in the order of their paths."""
    below = root if root == "/" else root + "/"
    return ((path, node) for path, node in sorted(tree.nodes.items()) if path == root or path.startswith(below))
