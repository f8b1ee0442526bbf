"""Counters of the listener, and its log of rejections: every rejection is counted, and those of one kind are a
condition of the log: a peer that is rejected 1,000 times a second must not fill a disk.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.telemetry.metrics import Reading

log = logger(__name__)


class PeerRejected(Exception):
    """A connection or request is rejected; the connection is closed unless an error response was sent.

    Args:
        kind: the kind under which the rejection is counted.
        reason: the reason; the log line puts the peer's address in front.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class ListenerCounters:
    """Counters of one listener, for all of its addresses.

    Attributes:
        requests: number of requests handled or relayed, by name.
        rejected: number of rejected connections and requests, by kind.
        connections: number of open connections; `identified` of them belong to brokers.
        reserved: returns the bytes of memory reserved for requests, by the kind of peer.
    """

    def __init__(self, now_ms: Callable[[], float] | None = None) -> None:
        self.requests: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.connections = 0
        self.identified = 0
        self.reserved: Callable[[], Mapping[str, int]] = dict
        self._conditions = Conditions(log, now_ms, ends_alone=True)

    def reject(self, rejected: PeerRejected, peer: str, *, action: str = "the connection is closed") -> None:
        """Count and log a rejection."""
        self.rejected[rejected.kind] += 1
        # A handler may keep its arguments: the text, since the exception refers to the whole connection.
        self._conditions.add(rejected.kind, logging.WARNING, "%s: %s; %s", peer, str(rejected), action)

    def readings(self) -> dict[str, Reading]:
        """Returns the readings for `kactl.telemetry.metrics`."""
        return {
            "kactl.listener.request.count": _by("rpc.method", self.requests),
            "kactl.listener.refused.count": _by("error.type", self.rejected),
            "kactl.listener.connections": lambda: [
                (self.connections - self.identified, {"kactl.peer.kind": "client"}),
                (self.identified, {"kactl.peer.kind": "broker"}),
            ],
            "kactl.listener.memory.reserved": lambda: [
                (size, {"kactl.peer.kind": kind}) for kind, size in self.reserved().items()
            ],
        }


def _by(attribute: str, counter: Counter[str]) -> Reading:
    def reading() -> Iterable[tuple[float, Mapping[str, str | int]]]:
        return [(count, {attribute: name}) for name, count in counter.items()]

    return reading
