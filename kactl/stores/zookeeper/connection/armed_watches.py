"""Watches armed over one connection; they end with it.

The server reports which path changed and how, not which watch fired: a single one, which is disarmed then, one on a
whole tree, which stays armed, or both at once.
"""

from collections.abc import Sequence
from typing import Any, Final

from kazoo.protocol.serialization import Exists, GetChildren2
from kazoo.protocol.states import EventType

from kactl.stores.zookeeper.request import Unwatch, WatchTree
from kactl.stores.zookeeper.set_watches import SetWatches

_EXISTS: Final = Exists.type
_CHILDREN: Final = (8, GetChildren2.type)


class ArmedWatches:
    """The armed watches of one connection. Paths are absolute."""

    def __init__(self) -> None:
        self._data: set[str] = set()
        self._children: set[str] = set()
        self._roots: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._data or self._children or self._roots)

    def sent(self, request: Any) -> None:
        """Handle a request that is sent. The watches of SetWatches may fire before its response."""
        if request.type == SetWatches.type:
            self._data.update(request.paths)

    def answered(self, request: Any, *, found: bool) -> None:
        """Handle the response to a request that may watch; `found` is False if there is no such node."""
        if getattr(request, "watcher", None):
            if request.type in _CHILDREN:
                if found:
                    self._children.add(request.path)
            elif found or request.type == _EXISTS:
                self._data.add(request.path)
        elif found and request.type == WatchTree.type:
            self._roots = tuple(dict.fromkeys((*self._roots, request.path)))
        elif found and request.type == Unwatch.type:
            self._roots = tuple(root for root in self._roots if root != request.path)
            self._data.discard(request.path)
            self._children.discard(request.path)

    def fired(self, kind: str, path: str) -> tuple[bool, Sequence[str]]:
        """Handle an event: returns whether single watches fired, which are disarmed by that, and the trees that it is
        in.

        Trees do not report lists of children: each created or deleted node is reported by itself.
        """
        single = False
        if kind != EventType.CHILD and path in self._data:
            self._data.discard(path)
            single = True
        if kind in (EventType.CHILD, EventType.DELETED) and path in self._children:
            self._children.discard(path)
            single = True
        return single, [root for root in self._roots if kind != EventType.CHILD and is_within(path, root)]


def is_within(path: str, root: str) -> bool:
    """Returns whether a node is the root of a tree, or below it."""
    return path == root or path.startswith(root if root == "/" else root + "/")
