"""Armed watches of one client, and the listener that receives their events.

As in ZooKeeper a watch fires once: several changes between two reads are one event, and the listener reads again. The
leadership of single partitions is watched until other partitions are named.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from kactl.model import TopicPartition

from .base import Changed, StoreEvent

Listener = Callable[[StoreEvent], None]

# No read arms these: session events always reach the listener, and watched partitions are named by `watch_leaderships`.
_UNARMED: Final = frozenset(
    (
        Changed.SUSPENDED,
        Changed.CONNECTED,
        Changed.SESSION_LOST,
        Changed.SESSION_OPENED,
        Changed.LEADERSHIP,
    )
)


class Watches:
    """The watches of one client."""

    def __init__(self) -> None:
        self._armed: set[StoreEvent] = set()
        self._listener: Listener | None = None
        self.leaderships: frozenset[TopicPartition] = frozenset()

    @property
    def has_listener(self) -> bool:
        """Whether a listener is subscribed."""
        return self._listener is not None

    def subscribe(self, listener: Listener) -> None:
        self._listener = listener

    def arm(self, kind: Changed, name: str = "") -> None:
        self._armed.add(StoreEvent(kind, name))

    def is_armed(self, event: StoreEvent) -> bool:
        return event in self._armed

    def arm_all(self, kind: Changed, names: Iterable[str]) -> None:
        self._armed.update(StoreEvent(kind, name) for name in names)

    def fire(self, event: StoreEvent) -> None:
        """Report a change if the changed data was read since the last report."""
        if event.what not in _UNARMED:
            key = StoreEvent(Changed.CONTROLLER) if event.what is Changed.CONTROLLER_GONE else event
            if key not in self._armed:
                return
            self._armed.discard(key)
        if self._listener:
            self._listener(event)

    def fire_all(self) -> None:
        """Report every kind of armed change: it is not known what has changed."""
        for event in sorted(self._armed, key=lambda event: (event.what.value, event.name)):
            self.fire(event)

    def clear(self) -> None:
        """Disarm all watches; the listener stays."""
        self._armed.clear()
        self.leaderships = frozenset()

    def watch_leaderships(self, names: Collection[TopicPartition]) -> None:
        self.leaderships = frozenset(names)

    def fire_leaderships(self, written: Iterable[TopicPartition]) -> None:
        """Report those of some written partitions that are watched."""
        if self._listener and self.leaderships:
            # In the order of the write: the order of a set would differ from run to run.
            for name in written:
                if name in self.leaderships:
                    self._listener(StoreEvent(Changed.LEADERSHIP, str(name)))
