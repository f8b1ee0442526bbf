"""Number of connections of the admin API, and which one makes room for another; see `connections`."""

import enum
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kactl.runtime.addresses import is_loopback
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.runtime.places import Places
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


# The ranks of `Places`. In the first the client has to send, and in the last to read.
_SENDING, _FRESH, _READING = range(3)
RANKS: Final = {
    State.HEAD: _SENDING,
    State.BODY: _SENDING,
    State.IDLE: _SENDING,
    State.FRESH: _FRESH,
    State.UNREAD: _READING,
}


class Gate(Places["Connection"]):
    """All connections of one server.

    Attributes:
        refused: number of connections rejected or cut, by kind.
    """

    def __init__(self, capacity: Capacity, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__("the admin API", now_s)
        self.capacity = capacity
        self.refused: Counter[str] = Counter(dict.fromkeys(_KINDS, 0))
        self._conditions = Conditions(log, lambda: now_s() * 1000, ends_alone=True)

    def decides(self) -> bool:
        """Returns whether the next connection can be decided about now. Otherwise heads may be about to arrive."""
        has_room = len(self) < self.capacity.connections or next(self.replaceable(), None) is not None
        return has_room or next(self.waiting(_FRESH), None) is None

    def admit(self, connection: "Connection") -> bool:
        """Register an accepted connection, and make room for it. Returns False if there is none."""
        if connection.uid is None and not self._room_of(connection):
            self.refuse("address", connection.peer, "refused: it has as many connections as one address may have")
            return False
        if len(self) >= self.capacity.connections and not self.make_room(1):
            if len(self) >= self.capacity.connections + self.capacity.probes:
                reason = f"refused: {len(self)} connections are open, and all are at work"
                self.refuse("full", connection.peer, reason)
                return False
            connection.probes_only = True
        self.enter(connection, _FRESH)
        return True

    def _room_of(self, connection: "Connection") -> bool:
        """Returns whether an address may have another connection. Those of this machine may have any number.

        Many clients may share an address: at its limit, the connection that is idle for longest is closed.
        """
        if len(self.of(connection.owner)) < limits.CONNECTIONS_PER_ADDRESS_MAX or is_loopback(connection.peer):
            return True
        own = (each for each in self.of(connection.owner) if each.is_idle)
        idle = min(own, key=lambda each: each.since_s, default=None)
        if idle is not None:
            idle.close_idle()
        return idle is not None

    def replaceable(self) -> "Iterator[Connection]":
        """Yields connections that wait for their clients.

        A fresh one is among them once it is due and has received nothing. A head that has arrived counts, even if this
        process was too busy to read it.
        """
        fresh = self.waiting(_FRESH, grace_s=limits.FRESH_S)
        silent = (connection for connection in fresh if not connection.has_received)
        return itertools.chain(self.waiting(_SENDING), silent, self.waiting(_READING))

    def close_idle(self, is_concerned: Callable[["Connection"], bool]) -> None:
        """Close connections that are kept alive between two requests."""
        for connection in [each for each in self.waiting(_SENDING) if each.is_idle and is_concerned(each)]:
            connection.close_idle()

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
            "kactl.api.connections": lambda: [(len(self), {})],
            "kactl.api.refused.count": refused,
        }
