"""Which reads armed a watch, and who is told when it fires.

As in ZooKeeper a watch fires once: several changes between two reads are one event, and whoever was told reads again.
The leadership of single partitions is watched until other partitions are named.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from kactl.model import TopicPartition

from .base import Changed, StoreEvent

Listener = Callable[[StoreEvent], None]

# No read arms these: the owner of a session hears of it anyway, and who watches single partitions has named them.
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
        """Whether anybody would be told."""
        return self._listener is not None

    def subscribe(self, listener: Listener) -> None:
        self._listener = listener

    def arm(self, what: Changed, name: str = "") -> None:
        self._armed.add(StoreEvent(what, name))

    def arm_all(self, what: Changed, names: Iterable[str]) -> None:
        self._armed.update(StoreEvent(what, name) for name in names)

    def fire(self, event: StoreEvent) -> None:
        """Tell of a change, if what has changed was read since it was last told of."""
        if event.what not in _UNARMED:
            key = StoreEvent(Changed.CONTROLLER) if event.what is Changed.CONTROLLER_GONE else event
            if key not in self._armed:
                return
            self._armed.discard(key)
        if self._listener:
            self._listener(event)

    def watch_leaderships(self, names: Collection[TopicPartition]) -> None:
        self.leaderships = frozenset(names)

    def fire_leaderships(self, written: Iterable[TopicPartition]) -> None:
        """Tell of those among some written partitions that are watched."""
        if self._listener and self.leaderships:
            for name in self.leaderships.intersection(written):
                self._listener(StoreEvent(Changed.LEADERSHIP, str(name)))
