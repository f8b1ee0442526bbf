"""Armed watches by revision.

Reads and events travel over different connections, so an event may arrive after a read that has seen its change
already. It must not use up the watch of that read: a watch fires for changes behind the revision of its read only.
"""

from collections.abc import Iterable

from kactl.stores.base import Changed, StoreEvent
from kactl.stores.watch_registry import Watches


class RevisionWatches(Watches):
    """The watches of one client. The data of registrations is always watched: their ids are not known before a read."""

    def __init__(self) -> None:
        super().__init__()
        self._after: dict[StoreEvent, int] = {}

    def arm_after(self, kind: Changed, names: Iterable[str], revision: int) -> None:
        """Arm watches for changes behind a revision; 0 for any change, before the data is read."""
        for name in names:
            event = StoreEvent(kind, name)
            self._after[event] = revision
            self.arm(kind, name)

    def fire_at(self, event: StoreEvent, revision: int) -> None:
        """Report the change of a revision, if the changed data was read at an earlier one."""
        if event.what is Changed.BROKER:
            self.arm(event.what, event.name)
        armed_by = StoreEvent(Changed.CONTROLLER) if event.what is Changed.CONTROLLER_GONE else event
        if revision > self._after.get(armed_by, 0):
            self.fire(event)

    def clear(self) -> None:
        super().clear()
        self._after.clear()
