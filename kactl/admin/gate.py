"""Number of connections of the admin API, and which one makes room for another; see `connections`."""

import enum
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kactl.runtime.addresses import group_of, is_loopback
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.telemetry.metrics import Reading

from . import limits
from .limits import Capacity

if TYPE_CHECKING:
    from .connections import Connection

log = logger(__name__)

_KINDS: Final = (
    "full",
    "address",
    "replaced",
    "head",
    "body",
    "idle",
    "unread",
    "unanswered",
    "malformed",
    "descriptors",
)


class State(enum.Enum):
    """The action that a connection waits for."""

    FRESH = "fresh"
    HEAD = "head"
    ANSWERING = "answering"
    BODY = "body"
    UNREAD = "unread"
    IDLE = "idle"
    STREAMING = "streaming"


# The client must act next; such a connection may be replaced.
_WAITING: Final = frozenset({State.HEAD, State.BODY, State.IDLE})


class Room(enum.Enum):
    """Result of an attempt to make room for a connection."""

    YES = "yes"
    PROBES = "probes"
    LATER = "later"
    NO = "no"


class Gate:
    """All connections of one server.

    Attributes:
        refused: number of connections rejected or cut, by kind.
    """

    def __init__(self, capacity: Capacity, now_s: Callable[[], float] = time.monotonic) -> None:
        self.capacity = capacity
        self.refused: Counter[str] = Counter(dict.fromkeys(_KINDS, 0))
        self._open: set[Connection] = set()
        # By `group_of` their addresses.
        self._of_peer: Counter[str] = Counter()
        # Time of acceptance; in order of acceptance.
        self._fresh: dict[Connection, float] = {}
        # In the order in which they began to wait.
        self._waiting: dict[Connection, None] = {}
        self._unread: dict[Connection, None] = {}
        self._now_s = now_s
        self._conditions = Conditions(log, lambda: now_s() * 1000, ends_alone=True)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def has_fresh(self) -> bool:
        """Whether connections exist whose heads may be about to arrive."""
        return bool(self._fresh)

    def room(self) -> Room:
        """Make room for a connection, if possible."""
        if len(self._open) < self.capacity.connections or self.replace_one():
            return Room.YES
        if self.has_fresh:
            return Room.LATER
        return Room.PROBES if len(self._open) < self.capacity.connections + self.capacity.probes else Room.NO

    def room_of(self, peer: str) -> bool:
        """Returns whether an address may have another connection. Those of this machine may have any number.

        Many clients may share an address: at its limit, the connection that is idle for longest is closed.
        """
        group = group_of(peer)
        if self._of_peer[group] < limits.CONNECTIONS_PER_ADDRESS_MAX or is_loopback(peer):
            return True
        idle = next((each for each in self._waiting if each.is_idle and group_of(each.peer) == group), None)
        if idle is not None:
            idle.close_idle()
        return idle is not None

    def admit(self, connection: "Connection") -> None:
        """Register an accepted connection."""
        self._open.add(connection)
        self._of_peer[group_of(connection.peer)] += 1
        self._fresh[connection] = self._now_s()

    def make_room(self, count: int) -> int:
        """Cut up to `count` connections that wait. Returns the number."""
        return sum(self.replace_one() for _ in range(count))

    def replace_one(self) -> bool:
        """Cut the connection that has waited longest for its client. Returns whether there was one."""
        oldest = next(iter(self._waiting), None) or self._silent() or next(iter(self._unread), None)
        if oldest is None:
            return False
        oldest.cut("replaced", "was cut to make room for another connection")
        return True

    def _silent(self) -> "Connection | None":
        """Returns the oldest fresh connection that is due and has received nothing.

        A head that has arrived counts, even if this process was too busy to read it.
        """
        now_s = self._now_s()
        due = itertools.takewhile(lambda item: now_s - item[1] >= limits.FRESH_S, self._fresh.items())
        return next((connection for connection, _ in due if not connection.has_received), None)

    def close_idle(self, is_concerned: Callable[["Connection"], bool]) -> None:
        """Close connections that are kept alive between two requests."""
        for connection in [each for each in self._waiting if each.is_idle and is_concerned(each)]:
            connection.close_idle()

    def moved(self, connection: "Connection", state: State) -> None:
        """Record that a connection has entered a state."""
        if connection not in self._open:
            return
        if state is not State.FRESH:
            self._fresh.pop(connection, None)
        if state not in _WAITING:
            self._waiting.pop(connection, None)
        else:
            self._waiting.setdefault(connection)
        if state is State.UNREAD:
            self._unread.setdefault(connection)
        else:
            self._unread.pop(connection, None)

    def remove(self, connection: "Connection") -> None:
        """Remove a connection that has ended or is about to end."""
        if connection in self._open:
            self._open.remove(connection)
            group = group_of(connection.peer)
            self._of_peer[group] -= 1
            if not self._of_peer[group]:
                del self._of_peer[group]
        self._fresh.pop(connection, None)
        self._waiting.pop(connection, None)
        self._unread.pop(connection, None)

    def refuse(self, kind: str, peer: str, reason: str) -> None:
        """Count and log a rejected connection."""
        self.refused[kind] += 1
        self._conditions.add(kind, logging.WARNING, "admin API: connection from %s %s (%s)", peer, reason, kind)

    def exhausted(self, reason: str) -> None:
        """Count and log that no file descriptor was left."""
        self.refused["descriptors"] += 1
        text = "admin API: connections have to wait: %s; raise the limit of open files (ulimit -n, LimitNOFILE)"
        self._conditions.add("descriptors", logging.WARNING, text, reason)

    def readings(self) -> dict[str, Reading]:
        """Returns the gauges and counters for `kactl.telemetry.metrics`."""

        def refused() -> Iterable[tuple[float, Mapping[str, str | int]]]:
            return [(count, {"error.type": kind}) for kind, count in self.refused.items()]

        return {
            "kactl.api.connections": lambda: [(len(self._open), {})],
            "kactl.api.refused.count": refused,
        }
