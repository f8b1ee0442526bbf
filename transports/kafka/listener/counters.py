"""Counters of the listener, and its log of refusals: every refusal is counted, one of a kind is logged now and then."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kactl.runtime.logs import logger
from kactl.telemetry.metrics import Reading

log = logger(__name__)

# A peer that is refused a thousand times a second must not fill a disk: of each kind, one line in this time.
LOG_PAUSE_S: Final = 10.0


class Refused(Exception):
    """A peer sent what is not taken; its connection is closed unless the refusal could be sent as an answer.

    Args:
        kind: under which it is counted.
        reason: a sentence's end, after the peer's address.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Tally:
    """Counters of one listener, for all of its addresses.

    Attributes:
        requests: how many were answered or relayed, by name.
        refused: how many connections and requests were refused, by kind.
        connections: how many are open; `identified` of them are brokers'.
        reserved: how many bytes of memory are reserved for requests, by the kind of peer.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.requests: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.connections = 0
        self.identified = 0
        self.reserved: Callable[[], Mapping[str, int]] = dict
        self._now_s = now_s
        self._logged: dict[str, tuple[float, int]] = {}

    def refuse(self, refused: Refused, peer: str, *, what: str = "the connection is closed") -> None:
        """Count a refusal; log the first of its kind, then one in LOG_PAUSE_S with how many there were since."""
        kind = refused.kind
        self.refused[kind] += 1
        count, now_s = self.refused[kind], self._now_s()
        logged_s, logged_count = self._logged.get(kind, (now_s - LOG_PAUSE_S, 0))
        if now_s - logged_s < LOG_PAUSE_S:
            return
        self._logged[kind] = (now_s, count)
        silent = count - logged_count - 1
        more = f" ({silent} more of the kind since the last time)" if silent else ""
        log.warning("%s: %s; %s%s", peer, refused, what, more)

    def readings(self) -> dict[str, Reading]:
        """For `kactl.telemetry.metrics`."""
        return {
            "kactl.listener.request.count": _by("rpc.method", self.requests),
            "kactl.listener.refused.count": _by("error.type", self.refused),
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
