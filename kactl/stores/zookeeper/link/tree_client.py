"""kazoo's client, taught to hear of a whole tree: by itself it drops events that no single node's watch waits for."""

import collections
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient

from .armed import is_within

Watcher = Callable[[Any], None]


class TreeClient(KazooClient):  # type: ignore[misc]
    """See the module. All of it is for kazoo's connection thread; paths are whole; the server is not asked by this.

    Like all watches in kazoo, those of trees are forgotten with their connection.
    """

    def watch_tree(self, root: str, watcher: Watcher) -> None:
        """Tell `watcher` of every event at or below a path."""
        self._data_watchers.trees[root] = watcher

    def unwatch(self, root: str) -> None:
        """Tell nobody any more who watches just this path, or all below it. Harmless where nobody was told."""
        self._data_watchers.trees.pop(root, None)
        self._data_watchers.pop_single(root)
        self._child_watchers.pop(root, None)

    def _reset_watchers(self) -> None:
        super()._reset_watchers()
        self._data_watchers = _Watchers()


class _Watchers(collections.defaultdict[str, set[Watcher]]):
    """Who waits for the data of which node, and who for all nodes of a tree."""

    def __init__(self) -> None:
        super().__init__(set)
        self.trees: dict[str, Watcher] = {}

    def pop_single(self, path: str) -> Any:
        """Who waits for just this node."""
        return super().pop(path, ())

    def pop(self, path: str, default: Any = None) -> Any:
        """kazoo asks by this who is to be told of an event at `path`."""
        trees = [watcher for root, watcher in self.trees.items() if is_within(path, root)]
        return [*self.pop_single(path), *trees]
