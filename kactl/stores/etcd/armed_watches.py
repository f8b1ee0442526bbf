"""Armed watches by revision.

Reads and events travel over different connections, so an event may arrive after a read that has seen its change
already, or during a read of which it is not known yet whether it has. A watch fires for changes behind the revision of
its read only. Events that arrive during a read wait for its revision.
"""

import contextlib
from collections.abc import Collection, Iterator

from kactl.stores.base import Changed, StoreEvent
from kactl.stores.watch_registry import Watches

from .client import reading


class RevisionWatches(Watches):
    """The watches of one client. The data of registrations is always watched: their ids are not known before a read."""

    def __init__(self) -> None:
        super().__init__()
        self._after: dict[StoreEvent, int] = {}
        self._reads: dict[StoreEvent, int] = {}
        self._waiting: dict[StoreEvent, list[tuple[StoreEvent, int]]] = {}

    @contextlib.contextmanager
    def read(self, kind: Changed, names: Collection[str]) -> Iterator[None]:
        """Arm watches for the changes that the reads in this block do not see. Armed if the block succeeds."""
        keys = [StoreEvent(kind, name) for name in names]
        for key in keys:
            self._reads[key] = self._reads.get(key, 0) + 1
        try:
            with reading() as noted:
                yield
            for key in keys:
                self._after[key] = noted.revision
                self.arm(key.what, key.name)
        finally:
            for key in keys:
                self._end_read(key)

    def _end_read(self, key: StoreEvent) -> None:
        self._reads[key] -= 1
        if not self._reads[key]:
            del self._reads[key]
            for event, revision in self._waiting.pop(key, ()):
                self.fire_at(event, revision)

    def fire_at(self, event: StoreEvent, revision: int) -> None:
        """Report the change of a revision, if the changed data was read at an earlier one."""
        if event.what is Changed.BROKER:
            self.arm(event.what, event.name)
        key = StoreEvent(Changed.CONTROLLER) if event.what is Changed.CONTROLLER_GONE else event
        if key in self._reads and not self.is_armed(key):
            self._waiting.setdefault(key, []).append((event, revision))
        elif revision > self._after.get(key, 0):
            self.fire(event)

    def fire_all_at(self, revision: int) -> None:
        """Report every kind of armed change, up to a revision: it is not known what has changed."""
        for key in self._reads:
            self._waiting.setdefault(key, []).append((key, revision))
        self.fire_all()

    def clear(self) -> None:
        super().clear()
        self._after.clear()
        self._waiting.clear()
