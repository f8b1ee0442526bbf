"""Brokers: they do what controllers say, when it reaches them, and write what they do.

Roles are taken in the order of time over all brokers, so that a follower may begin before its leader does: it waits,
and cuts its log once the leader has begun.
"""

from operator import itemgetter
from typing import NamedTuple

from .broker_lines import BrokerLines
from .cluster import Cluster, Partition, agree
from .states import State
from .truth import Watch

# What a broker takes for each partition of a request, beside a millisecond for the request.
PARTITION_MS = 0.03
# A replica asks its leader where epochs end before it cuts its log.
_ASKS_MS = 8.0
_TIME = itemgetter(0)


class Origin(NamedTuple):
    """Whose request it is."""

    controller: int
    epoch: int
    correlation: int


class Broker:
    """One of them, dead or alive.

    Attributes:
        roles: leader epoch and leader, as it remembers them; nothing of before it was started.
        busy: until when it works on requests.
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
    """All brokers, and what happens between them."""

    def __init__(self, cluster: Cluster, watch: Watch) -> None:
        self.cluster = cluster
        self.watch = watch
        self.by_id: dict[int, Broker] = {}

    def __getitem__(self, id: int) -> Broker:
        return self.by_id[id]

    def alive(self) -> list[int]:
        return [broker.id for broker in self.by_id.values() if broker.alive]

    # -- what controllers tell them ------------------------------------------------------------------------------------

    def receive(self, broker: Broker, at: float, states: list[State], origin: Origin) -> tuple[float, list[Change]]:
        """A LeaderAndIsr; when it will be done, and what will change then, to be given to `change`."""
        begin = max(at, broker.busy)
        broker.lines.received(begin, states, *origin)
        changes: list[Change] = []
        done = begin + 1.0
        # Leaders first, as brokers do it.
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
        """Let brokers take their roles, in the order of time."""
        for at, broker, state, origin in sorted(changes, key=_TIME):
            if broker.alive:
                self._take(at, broker, state, origin)

    def _take(self, at: float, broker: Broker, state: State, origin: Origin | None) -> None:
        p, lines = state.partition, broker.lines
        known = broker.roles.get(p)
        if known is not None and state.leader_epoch <= known[0]:
            if origin is not None:
                lines.ignored(at, state, known[0], *origin)
            return
        if state.leader < 0:
            if origin is not None:
                lines.nobody_to_follow(at, state, *origin)
            elif known is not None:
                self._steps_down(at, broker, p, planned=False)
            return
        role = "leader" if state.leader == broker.id else "follower"
        if origin is not None:
            lines.transition(at, p, role, *origin, done=False)
        before = (-1, None) if known is None else known
        self.cluster.advance(p, at)
        if role == "leader":
            self._leads(at, broker, state, before)
        else:
            self._follows(at, broker, state, before)
        broker.roles[p] = (state.leader_epoch, state.leader)
        if origin is not None:
            lines.transition(at + PARTITION_MS / 2, p, role, *origin, done=True)

    def _leads(self, at: float, broker: Broker, state: State, before: tuple[int, int | None]) -> None:
        p = state.partition
        log = p.logs[broker.id]
        stays = p.serving == broker.id
        broker.lines.leads(at, state, log, before)
        log.begin(state.leader_epoch)
        if not stays:
            p.fetching.clear()
        self.watch.leads(p, at, broker.id, state.leader_epoch, log.end)
        p.serving, p.served_epoch, p.advanced_at = broker.id, state.leader_epoch, at
        p.took_part[broker.id] = state.leader_epoch
        p.waiting.discard(broker.id)
        for follower in sorted(p.waiting):
            self._cuts(at + _ASKS_MS, self.by_id[follower], p)
        p.waiting.clear()

    def _follows(self, at: float, broker: Broker, state: State, before: tuple[int, int | None]) -> None:
        p = state.partition
        broker.lines.follows(at, state, p.logs[broker.id], before)
        self._steps_down(at, broker, p, planned=True)
        p.fetching.discard(broker.id)
        if p.serving == state.leader and p.served_epoch >= state.leader_epoch:
            self._cuts(at + _ASKS_MS, broker, p)
        else:
            p.waiting.add(broker.id)

    def _steps_down(self, at: float, broker: Broker, p: Partition, *, planned: bool) -> None:
        if p.serving == broker.id:
            self.watch.down(p, at, planned=planned)
            p.fetching.clear()

    def _cuts(self, at: float, broker: Broker, p: Partition) -> None:
        """A follower cuts what its leader does not have, and begins to copy."""
        assert p.serving is not None
        log = p.logs[broker.id]
        same = agree(log, p.logs[p.serving])
        if same < log.end:
            self.watch.cut(p, at, broker.id, log.end, same)
            broker.lines.truncates(at, p, same)
            log.cut(same)
        p.fetching.add(broker.id)
        p.took_part[broker.id] = p.served_epoch

    # -- what they do by themselves ------------------------------------------------------------------------------------

    def dies(self, broker: Broker, at: float, *, planned: bool = False) -> None:
        """It is gone at once, whatever it was doing."""
        for p in self.cluster.held[broker.id]:
            self.cluster.advance(p, at)
            if p.serving == broker.id:
                self.watch.down(p, at, planned=planned)
                p.fetching.clear()
            p.fetching.discard(broker.id)
            p.waiting.discard(broker.id)
        broker.alive = False

    def starts(self, broker: Broker, at: float) -> None:
        """It is there again, and remembers nothing."""
        broker.alive = True
        broker.roles.clear()
        broker.busy = at

    def cached(self, at: float, broker: Broker, states: list[State], origin: Origin) -> None:
        """An UpdateMetadata."""
        broker.lines.metadata(at, states, *origin)

    def stopped(self, at: float, broker: Broker, partitions: list[Partition], origin: Origin, *, delete: bool) -> None:
        """A StopReplica."""
        broker.lines.stopping(at, partitions, origin.controller, origin.correlation, delete)
        for p in partitions:
            self.cluster.advance(p, at)
            p.fetching.discard(broker.id)
            p.waiting.discard(broker.id)
