"""kazoo's client, taught to hear of a whole tree: by itself it drops events that no single node's watch waits for."""

import collections
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient

Watcher = Callable[[Any], None]


class TreeClient(KazooClient):  # type: ignore[misc]
    """See the module."""

    def watch_tree(self, root: str, watcher: Watcher) -> None:
        """Tell `watcher` of every event at or below a path, in kazoo's connection thread. The server is not asked."""
        self._data_watchers.root, self._data_watchers.watcher = root, watcher

    def _reset_watchers(self) -> None:
        before = getattr(self, "_data_watchers", None)
        super()._reset_watchers()
        self._data_watchers = _Watchers()
        if isinstance(before, _Watchers):
            self._data_watchers.root, self._data_watchers.watcher = before.root, before.watcher


class _Watchers(collections.defaultdict[str, set[Watcher]]):
    """Who waits for the data of which node, and who for all nodes of a tree."""

    def __init__(self) -> None:
        super().__init__(set)
        self.root = ""
        self.watcher: Watcher | None = None

    def pop(self, path: str, default: Any = None) -> Any:
        """kazoo asks by this who is to be told of an event at `path`."""
        waiting = super().pop(path, default)
        if self.watcher is not None and (path == self.root or path.startswith(self.root + "/")):
            return [*waiting, self.watcher]
        return waiting
