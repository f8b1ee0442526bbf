"""What a controller over ZooKeeper sends to brokers, in which order, and when it reaches them.

Each broker gets one request at a time. Nothing comes of one that is sent while nobody is there.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from .brokers import Broker, Brokers, Change, Origin
from .cluster import NOBODY, Partition
from .controller_lines import Lines
from .states import State

# A network's way.
_NET_MS: Final = 0.8


@dataclasses.dataclass(slots=True)
class _Channel:
    """A controller's connection to one broker: one request at a time, numbered from 0 on."""

    next: int = 0
    free: float = 0.0


class Requests:
    """Those of one controllership.

    Args:
        says: what the controller writes.
        live: brokers as it knows them, now and later.
    """

    def __init__(self, brokers: Brokers, says: Lines, *, controller: int, epoch: int, live: set[int]) -> None:
        self._brokers = brokers
        self._says = says
        self._controller = controller
        self._epoch = epoch
        self._live = live
        self._channels: dict[int, _Channel] = {}

    def disconnect(self, broker: int) -> None:
        """A broker is gone; whoever comes in its place is connected anew."""
        self._channels.pop(broker, None)

    def tell(
        self,
        at: float,
        states: Sequence[State],
        *,
        only: set[int] | None = None,
        but: int = NOBODY,
        also: tuple[int, ...] = (),
    ) -> float:
        """Send leaderships to those who hold a replica, and then to all who cache them."""
        if not states:
            return at
        told: dict[int, list[State]] = {}
        for state in states:
            for broker in (*state.replicas, *also):
                if broker in self._live and broker != but and (only is None or broker in only):
                    told.setdefault(broker, []).append(state)
        changes: list[Change] = []
        for broker, theirs in sorted(told.items()):
            self._says.sending(at, broker, theirs)
            at += 0.05
        for broker, theirs in sorted(told.items()):
            changes += self._deliver(at, broker, theirs)
        self._brokers.change(changes)
        return self.metadata(at, states)

    def metadata(self, at: float, states: Sequence[State]) -> float:
        """Tell everybody alive who leads; of no partitions if only brokers changed."""
        known = [state for state in states if state.leader_epoch >= 0]
        self._says.metadata(at, sorted(self._live), known)
        for broker in sorted(self._live):
            target = self._brokers[broker]

            def receive(begin: float, origin: Origin, target: Broker = target) -> float:
                self._brokers.cached(begin + 0.4, target, known, origin)
                return begin + 0.4 + 0.002 * len(known)

            self._request(at + 0.1, broker, "UPDATE_METADATA", receive)
        return at + 0.2

    def stop(self, at: float, broker: int, partitions: Sequence[Partition], *, delete: bool) -> float:
        """Have a broker stop replicas, or delete them."""
        if broker not in self._live or not partitions:
            return at
        self._says.stopping(at, broker, partitions, delete)

        def receive(begin: float, origin: Origin) -> float:
            self._brokers.stopped(begin, self._brokers[broker], list(partitions), origin, delete=delete)
            return begin + 1

        self._request(at, broker, "STOP_REPLICA", receive)
        return at + 2

    def _deliver(self, at: float, broker: int, states: list[State]) -> list[Change]:
        target = self._brokers[broker]
        changes: list[Change] = []

        def receive(begin: float, origin: Origin) -> float:
            done, found = self._brokers.receive(target, begin, states, origin)
            changes.extend(found)
            return done

        self._request(at, broker, "LEADER_AND_ISR", receive)
        return changes

    def _request(self, at: float, broker: int, request: str, receive: Callable[[float, Origin], float]) -> None:
        """One request, after those before it; nothing comes of it if nobody is there."""
        channel = self._channels.setdefault(broker, _Channel())
        origin = Origin(self._controller, self._epoch, channel.next)
        channel.next += 1
        if not self._brokers[broker].alive:
            return
        done = receive(max(at, channel.free) + _NET_MS, origin)
        channel.free = done + _NET_MS
        self._says.answered(channel.free, request, broker, origin.correlation)
