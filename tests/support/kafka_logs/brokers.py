"""Brokers: they apply the requests of controllers and log their actions.

Role changes are applied in order of time over all brokers. A follower may therefore begin before its leader; it then
waits, and truncates its log once the leader has begun.
"""

from operator import itemgetter
from typing import NamedTuple

from .broker_lines import BrokerLines
from .cluster import Cluster, Partition, agreement
from .states import State
from .truth import Recorder

# Processing time per partition of a request, in addition to a millisecond for the request.
PARTITION_MS = 0.03
# Time of the OffsetsForLeaderEpoch request that precedes a truncation.
_EPOCH_REQUEST_MS = 8.0
_TIME = itemgetter(0)


class Origin(NamedTuple):
    """Sender of a request."""

    controller: int
    epoch: int
    correlation: int


class Broker:
    """A broker, running or not.

    Attributes:
        roles: leader epoch and leader by partition, since the broker's start.
        busy: end of the request being processed.
    """

    def __init__(self, id: int, lines: BrokerLines, *, rack: str = "") -> None:
        self.id = id
        self.lines = lines
        self.rack = rack
        self.alive = True
        self.roles: dict[Partition, tuple[int, int]] = {}
        self.busy = 0.0


Change = tuple[float, Broker, State, Origin | None]


class Brokers:
    """All brokers and the replication between them."""

    def __init__(self, cluster: Cluster, recorder: Recorder) -> None:
        self.cluster = cluster
        self.recorder = recorder
        self.by_id: dict[int, Broker] = {}

    def __getitem__(self, id: int) -> Broker:
        return self.by_id[id]

    def alive(self) -> list[int]:
        return [broker.id for broker in self.by_id.values() if broker.alive]

    # -- requests ------------------------------------------------------------------------------------------------------

    def receive(
        self, broker: Broker, time_ms: float, states: list[State], origin: Origin
    ) -> tuple[float, list[Change]]:
        """Receives a LeaderAndIsr request; returns the time of its end and the role changes, for `change`."""
        begin = max(time_ms, broker.busy)
        broker.lines.received(begin, states, *origin)
        changes: list[Change] = []
        done = begin + 1.0
        # Brokers process new leaders first.
        for leads in (True, False):
            for state in states:
                if (state.leader == broker.id) is leads:
                    done += PARTITION_MS
                    changes.append((done, broker, state, origin))
        done += 0.5
        broker.lines.applied(done, done - begin, len(states), origin.controller, origin.correlation)
        broker.busy = done
        return done, changes

    def change(self, changes: list[Change]) -> None:
        """Applies role changes in order of time."""
        for time_ms, broker, state, origin in sorted(changes, key=_TIME):
            if broker.alive:
                self._take(time_ms, broker, state, origin)

    def _take(self, time_ms: float, broker: Broker, state: State, origin: Origin | None) -> None:
        p, lines = state.partition, broker.lines
        known = broker.roles.get(p)
        if known is not None and state.leader_epoch <= known[0]:
            if origin is not None:
                lines.ignored(time_ms, state, known[0], *origin)
            return
        if state.leader < 0:
            if origin is not None:
                lines.no_leader_to_follow(time_ms, state, *origin)
            elif known is not None:
                self._steps_down(time_ms, broker, p, planned=False)
            return
        role = "leader" if state.leader == broker.id else "follower"
        if origin is not None:
            lines.transition(time_ms, p, role, *origin, done=False)
        before = (-1, None) if known is None else known
        self.cluster.advance(p, time_ms)
        if role == "leader":
            self._leads(time_ms, broker, state, before)
        else:
            self._follows(time_ms, broker, state, before)
        broker.roles[p] = (state.leader_epoch, state.leader)
        if origin is not None:
            lines.transition(time_ms + PARTITION_MS / 2, p, role, *origin, done=True)

    def _leads(self, time_ms: float, broker: Broker, state: State, before: tuple[int, int | None]) -> None:
        p = state.partition
        log = p.logs[broker.id]
        stays = p.serving == broker.id
        broker.lines.leads(time_ms, state, log, before)
        log.begin(state.leader_epoch)
        if not stays:
            p.fetching.clear()
        self.recorder.leads(p, time_ms, broker.id, state.leader_epoch, log.end)
        p.serving, p.served_epoch, p.advanced_at = broker.id, state.leader_epoch, time_ms
        p.took_part[broker.id] = state.leader_epoch
        p.waiting.discard(broker.id)
        for follower in sorted(p.waiting):
            self._truncate(time_ms + _EPOCH_REQUEST_MS, self.by_id[follower], p)
        p.waiting.clear()

    def _follows(self, time_ms: float, broker: Broker, state: State, before: tuple[int, int | None]) -> None:
        p = state.partition
        broker.lines.follows(time_ms, state, p.logs[broker.id], before)
        self._steps_down(time_ms, broker, p, planned=True)
        p.fetching.discard(broker.id)
        if p.serving == state.leader and p.served_epoch >= state.leader_epoch:
            self._truncate(time_ms + _EPOCH_REQUEST_MS, broker, p)
        else:
            p.waiting.add(broker.id)

    def _steps_down(self, time_ms: float, broker: Broker, p: Partition, *, planned: bool) -> None:
        if p.serving == broker.id:
            self.recorder.down(p, time_ms, planned=planned)
            p.fetching.clear()

    def _truncate(self, time_ms: float, broker: Broker, p: Partition) -> None:
        """Truncates a follower's log to the records that its leader has; the follower then begins to copy."""
        assert p.serving is not None
        log = p.logs[broker.id]
        same = agreement(log, p.logs[p.serving])
        if same < log.end:
            self.recorder.cut(p, time_ms, broker.id, log.end, same)
            broker.lines.truncates(time_ms, p, same)
            log.cut(same)
        p.fetching.add(broker.id)
        p.took_part[broker.id] = p.served_epoch

    # -- start and failure ---------------------------------------------------------------------------------------------

    def fail(self, broker: Broker, time_ms: float, *, planned: bool = False) -> None:
        """Stops a broker at once."""
        for p in self.cluster.hosted[broker.id]:
            self.cluster.advance(p, time_ms)
            if p.serving == broker.id:
                self.recorder.down(p, time_ms, planned=planned)
                p.fetching.clear()
            p.fetching.discard(broker.id)
            p.waiting.discard(broker.id)
        broker.alive = False

    def start(self, broker: Broker, time_ms: float) -> None:
        """Starts a broker, without memory of earlier roles."""
        broker.alive = True
        broker.roles.clear()
        broker.busy = time_ms

    def update_metadata(self, time_ms: float, broker: Broker, states: list[State], origin: Origin) -> None:
        """Receives an UpdateMetadata request."""
        broker.lines.metadata(time_ms, states, *origin)

    def stop_replicas(
        self, time_ms: float, broker: Broker, partitions: list[Partition], origin: Origin, *, delete: bool
    ) -> None:
        """Receives a StopReplica request."""
        broker.lines.stopping(time_ms, partitions, origin.controller, origin.correlation, delete)
        for p in partitions:
            self.cluster.advance(p, time_ms)
            p.fetching.discard(broker.id)
            p.waiting.discard(broker.id)
