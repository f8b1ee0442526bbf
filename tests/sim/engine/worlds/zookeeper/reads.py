"""Requests that a server answers from its own tree: reads, and requests about watches.

Source: FinalRequestProcessor.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Final

from . import access, wire
from .access import Identity
from .codes import Code, Event, Op, Perm, Refused
from .tree import Node, Tree
from .watches import Watcher, Watches
from .wire import Acl, Request

_RECURSIVE: Final = 1
_HIDDEN: Final = "x"


def serve(tree: Tree, watches: Watches, watcher: Watcher, request: Request, identities: Sequence[Identity]) -> bytes:
    """Returns the body of the response; arms watches and sends events as the request demands.

    Raises:
        Refused: the request fails.
    """
    return _SERVE[request.op](tree, watches, watcher, request, identities)


_Identities = Sequence[Identity]


def _readable(tree: Tree, path: str, identities: _Identities) -> Node:
    node = tree.nodes.get(path)
    if node is None:
        raise Refused(Code.NO_NODE)
    access.check(node.acl, Perm.READ, identities)
    return node


def _get(tree: Tree, watches: Watches, watcher: Watcher, request: Request, identities: _Identities) -> bytes:
    node = _readable(tree, request.path, identities)
    if request.watch:
        watches.data.add(request.path, watcher)
    return wire.buffer(node.data) + wire.stat(node.stat())


def _exists(tree: Tree, watches: Watches, watcher: Watcher, request: Request, identities: _Identities) -> bytes:
    if "\0" in request.path:
        raise Refused(Code.BAD_ARGUMENTS)
    node = tree.nodes.get(request.path)
    if node is not None:
        access.check(node.acl, Perm.READ, identities)
    if request.watch:
        watches.data.add(request.path, watcher)
    if node is None:
        raise Refused(Code.NO_NODE)
    return wire.stat(node.stat())


def _children(tree: Tree, watches: Watches, watcher: Watcher, request: Request, identities: _Identities) -> bytes:
    node = _readable(tree, request.path, identities)
    if request.watch:
        watches.children.add(request.path, watcher)
    # Servers list children in the order of a hash table: neither by name nor by age.
    names = wire.texts(sorted(node.children, key=lambda name: zlib.crc32(name.encode())))
    return names + wire.stat(node.stat()) if request.op == Op.CHILDREN_2 else names


def _many(tree: Tree, watches: Watches, watcher: Watcher, request: Request, identities: _Identities) -> bytes:
    results: list[tuple[Op | Code, bytes]] = []
    for part in request.parts:
        try:
            results.append((part.op, serve(tree, watches, watcher, part, identities)))
        except Refused as refused:
            results.append((refused.code, b""))
    return wire.multi(results)


def _get_acl(tree: Tree, watches: Watches, watcher: Watcher, request: Request, identities: _Identities) -> bytes:
    node = tree.nodes.get(request.path)
    if node is None:
        raise Refused(Code.NO_NODE)
    access.check(node.acl, Perm.READ | Perm.ADMIN, identities)
    entries = node.acl
    if not access.allows(entries, Perm.ADMIN, identities):
        entries = tuple(_hidden(entry) for entry in entries)
    return wire.acl(entries) + wire.stat(node.stat())


def _hidden(entry: Acl) -> Acl:
    """Returns an entry without the hash of its password."""
    return entry._replace(id=f"{entry.id.partition(':')[0]}:{_HIDDEN}") if entry.scheme == "digest" else entry


def _add_watch(tree: Tree, watches: Watches, watcher: Watcher, request: Request, identities: _Identities) -> bytes:
    if request.mode != _RECURSIVE:
        raise Refused(Code.BAD_ARGUMENTS)
    watches.add_tree(request.path, watcher)
    return wire.number(Code.OK)


def _remove_watches(tree: Tree, watches: Watches, watcher: Watcher, request: Request, identities: _Identities) -> bytes:
    if not watches.remove(request.path, watcher):
        raise Refused(Code.NO_WATCHER)
    return b""


def _set_watches(tree: Tree, watches: Watches, watcher: Watcher, request: Request, identities: _Identities) -> bytes:
    """Arm many watches; those of nodes that were written after the client's transaction fire at once."""
    data, existence, children = request.paths
    for path in data:
        node = tree.nodes.get(path)
        if node is None:
            watcher.fired(Event.DELETED, path, ())
        elif node.mzxid > request.zxid:
            watcher.fired(Event.CHANGED, path, ())
        else:
            watches.data.add(path, watcher)
    for path in existence:
        if path in tree.nodes:
            watcher.fired(Event.CREATED, path, ())
        else:
            watches.data.add(path, watcher)
    for path in children:
        node = tree.nodes.get(path)
        if node is None:
            watcher.fired(Event.DELETED, path, ())
        elif node.pzxid > request.zxid:
            watcher.fired(Event.CHILDREN, path, ())
        else:
            watches.children.add(path, watcher)
    return b""


def _nothing(tree: Tree, watches: Watches, watcher: Watcher, request: Request, identities: _Identities) -> bytes:
    return b""


_SERVE: Final[dict[Op, Callable[[Tree, Watches, Watcher, Request, _Identities], bytes]]] = {
    Op.GET_DATA: _get,
    Op.EXISTS: _exists,
    Op.CHILDREN: _children,
    Op.CHILDREN_2: _children,
    Op.MULTI_READ: _many,
    Op.GET_ACL: _get_acl,
    Op.ADD_WATCH: _add_watch,
    Op.REMOVE_WATCHES: _remove_watches,
    Op.SET_WATCHES: _set_watches,
    Op.PING: _nothing,
}
