"""Watches of one server. They belong to connections, and are not stored.

Two tables, as on a server: one for data and existence, one for children. A persistent recursive watch is in both. In
each table a connection has one mode for each path: a single watch on the root of a watched tree replaces the watch of
the tree in that table.

Source: WatchManager and WatcherModeManager of ZooKeeper 3.8.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from .codes import Event
from .wire import Acl

_RECURSIVE: Final = True
_SINGLE: Final = False


class Watcher(Protocol):
    """A connection. Compared by identity."""

    def fired(self, kind: Event, path: str, acl: Sequence[Acl]) -> None:
        """Send an event, if the access list of the node permits the client to read it."""


class WatchTable:
    """Watches of one kind, by path and in the order of arrival."""

    def __init__(self) -> None:
        self._modes: dict[str, dict[Watcher, bool]] = {}
        self._recursive = 0

    def add(self, path: str, watcher: Watcher, *, recursive: bool = False) -> None:
        modes = self._modes.setdefault(path, {})
        self._recursive += recursive - modes.get(watcher, _SINGLE)
        modes[watcher] = recursive

    def remove(self, path: str, watcher: Watcher) -> bool:
        """Remove the watch of exactly this path. Returns whether there was one."""
        modes = self._modes.get(path, {})
        if watcher not in modes:
            return False
        self._recursive -= modes.pop(watcher)
        if not modes:
            del self._modes[path]
        return True

    def drop(self, watcher: Watcher) -> None:
        """Remove all watches of a connection."""
        for path in [path for path, modes in self._modes.items() if watcher in modes]:
            self.remove(path, watcher)

    def fire(self, path: str, kind: Event, acl: Sequence[Acl], *, told: Sequence[Watcher] = ()) -> Sequence[Watcher]:
        """Send an event to each connection that watches the path, once. Single watches are disarmed.

        Args:
            told: connections that receive this event already.

        Returns:
            the connections whose watches fired.
        """
        found: dict[Watcher, None] = {}
        for place in _upwards(path) if self._recursive else (path,):
            for watcher, is_recursive in list(self._modes.get(place, {}).items()):
                if is_recursive:
                    if kind is not Event.CHILDREN:
                        found[watcher] = None
                elif place == path:
                    found[watcher] = None
                    self.remove(path, watcher)
        for watcher in found:
            if watcher not in told:
                watcher.fired(kind, path, acl)
        return list(found)


class Watches:
    """Both tables of a server."""

    def __init__(self) -> None:
        self.data = WatchTable()
        self.children = WatchTable()

    def add_tree(self, path: str, watcher: Watcher) -> None:
        self.data.add(path, watcher, recursive=_RECURSIVE)
        self.children.add(path, watcher, recursive=_RECURSIVE)

    def remove(self, path: str, watcher: Watcher) -> bool:
        """Remove all watches of exactly this path. Returns whether there was one."""
        removed = [table.remove(path, watcher) for table in (self.children, self.data)]
        return any(removed)

    def drop(self, watcher: Watcher) -> None:
        """Remove all watches of a connection that has ended."""
        self.data.drop(watcher)
        self.children.drop(watcher)

    def created(self, path: str, acl: Sequence[Acl], parent: str, parent_acl: Sequence[Acl]) -> None:
        self.data.fire(path, Event.CREATED, acl)
        self.children.fire(parent, Event.CHILDREN, parent_acl)

    def deleted(self, path: str, acl: Sequence[Acl], parent: str, parent_acl: Sequence[Acl]) -> None:
        told = self.data.fire(path, Event.DELETED, acl)
        self.children.fire(path, Event.DELETED, acl, told=told)
        self.children.fire(parent, Event.CHILDREN, parent_acl)

    def changed(self, path: str, acl: Sequence[Acl]) -> None:
        self.data.fire(path, Event.CHANGED, acl)


def _upwards(path: str) -> Iterator[str]:
    """Yields a path and all its parents."""
    yield path
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        yield path
