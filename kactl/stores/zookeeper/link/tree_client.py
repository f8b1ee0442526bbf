"""kazoo's client, taught to hear of a whole tree: by itself it drops events that no single node's watch waits for."""

import collections
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient

from .armed import is_within

Watcher = Callable[[Any], None]


class TreeClient(KazooClient):  # type: ignore[misc]
    """See the module. The server is not asked by this; paths are whole."""

    def watch_tree(self, root: str, watcher: Watcher) -> None:
        """Tell `watcher` of every event at or below a path, in kazoo's connection thread."""
        self._data_watchers.trees = {**self._data_watchers.trees, root: watcher}

    def unwatch_tree(self, root: str) -> None:
        """Tell nobody of it any more. Harmless where nobody was told."""
        self._data_watchers.trees = {path: told for path, told in self._data_watchers.trees.items() if path != root}

    def _reset_watchers(self) -> None:
        before = getattr(self, "_data_watchers", None)
        super()._reset_watchers()
        self._data_watchers = _Watchers()
        if isinstance(before, _Watchers):
            self._data_watchers.trees = before.trees


class _Watchers(collections.defaultdict[str, set[Watcher]]):
    """Who waits for the data of which node, and who for all nodes of a tree."""

    def __init__(self) -> None:
        super().__init__(set)
        self.trees: dict[str, Watcher] = {}

    def pop(self, path: str, default: Any = None) -> Any:
        """kazoo asks by this who is to be told of an event at `path`."""
        waiting = super().pop(path, default)
        trees = [watcher for root, watcher in self.trees.items() if is_within(path, root)]
        return [*waiting, *trees] if trees else waiting
