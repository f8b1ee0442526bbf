"""Requests of a ZooKeeper controller to brokers, with their order and timing.

Each broker receives one request at a time. A request to a stopped broker has no effect.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from .brokers import Broker, Brokers, Change, Origin
from .cluster import NO_BROKER, Partition
from .controller_lines import Lines
from .states import State

# One-way network latency.
_NET_MS: Final = 0.8


@dataclasses.dataclass(slots=True)
class _Channel:
    """A controller's connection to one broker: one request at a time, numbered from 0."""

    next: int = 0
    free: float = 0.0


class Requests:
    """Requests of one controllership.

    Args:
        writer: writer of the controller's lines.
        live: brokers that the controller considers alive; shared and updated by the caller.
    """

    def __init__(self, brokers: Brokers, writer: Lines, *, controller: int, epoch: int, live: set[int]) -> None:
        self._brokers = brokers
        self._writer = writer
        self._controller = controller
        self._epoch = epoch
        self._live = live
        self._channels: dict[int, _Channel] = {}

    def disconnect(self, broker: int) -> None:
        """Drops the connection to a broker; its next incarnation gets a new one."""
        self._channels.pop(broker, None)

    def send_leaderships(
        self,
        time_ms: float,
        states: Sequence[State],
        *,
        only: set[int] | None = None,
        but: int = NO_BROKER,
        also: tuple[int, ...] = (),
    ) -> float:
        """Sends LeaderAndIsr to the brokers of the replicas, and then UpdateMetadata to all brokers."""
        if not states:
            return time_ms
        by_broker: dict[int, list[State]] = {}
        for state in states:
            for broker in (*state.replicas, *also):
                if broker in self._live and broker != but and (only is None or broker in only):
                    by_broker.setdefault(broker, []).append(state)
        changes: list[Change] = []
        for broker, batch in sorted(by_broker.items()):
            self._writer.sending(time_ms, broker, batch)
            time_ms += 0.05
        for broker, batch in sorted(by_broker.items()):
            changes += self._deliver(time_ms, broker, batch)
        self._brokers.change(changes)
        return self.metadata(time_ms, states)

    def metadata(self, time_ms: float, states: Sequence[State]) -> float:
        """Sends UpdateMetadata to all live brokers; without partitions if only brokers changed."""
        known = [state for state in states if state.leader_epoch >= 0]
        self._writer.metadata(time_ms, sorted(self._live), known)
        for broker in sorted(self._live):
            target = self._brokers[broker]

            def receive(begin: float, origin: Origin, target: Broker = target) -> float:
                self._brokers.update_metadata(begin + 0.4, target, known, origin)
                return begin + 0.4 + 0.002 * len(known)

            self._request(time_ms + 0.1, broker, "UPDATE_METADATA", receive)
        return time_ms + 0.2

    def stop(self, time_ms: float, broker: int, partitions: Sequence[Partition], *, delete: bool) -> float:
        """Sends StopReplica to a broker."""
        if broker not in self._live or not partitions:
            return time_ms
        self._writer.stopping(time_ms, broker, partitions, delete)

        def receive(begin: float, origin: Origin) -> float:
            self._brokers.stop_replicas(begin, self._brokers[broker], list(partitions), origin, delete=delete)
            return begin + 1

        self._request(time_ms, broker, "STOP_REPLICA", receive)
        return time_ms + 2

    def _deliver(self, time_ms: float, broker: int, states: list[State]) -> list[Change]:
        target = self._brokers[broker]
        changes: list[Change] = []

        def receive(begin: float, origin: Origin) -> float:
            done, received = self._brokers.receive(target, begin, states, origin)
            changes.extend(received)
            return done

        self._request(time_ms, broker, "LEADER_AND_ISR", receive)
        return changes

    def _request(self, time_ms: float, broker: int, request: str, receive: Callable[[float, Origin], float]) -> None:
        """Sends one request after the earlier ones to the same broker; no effect if the broker is stopped."""
        channel = self._channels.setdefault(broker, _Channel())
        origin = Origin(self._controller, self._epoch, channel.next)
        channel.next += 1
        if not self._brokers[broker].alive:
            return
        done = receive(max(time_ms, channel.free) + _NET_MS, origin)
        channel.free = done + _NET_MS
        self._writer.answered(channel.free, request, broker, origin.correlation)
