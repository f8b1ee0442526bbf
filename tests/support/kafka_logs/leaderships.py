"""How a controller over ZooKeeper decides who leads, and who is in sync once a broker is gone."""

from collections.abc import Sequence
from typing import Final

from .brokers import Brokers
from .cluster import NOBODY, Cluster, Partition
from .controller_lines import OFFLINE, Lines
from .requests import Requests
from .states import State, state_of
from .truth import Controllership, Watch

# A partition's turn in memory, and a write of a batch.
TURN_MS: Final = 0.02
_WRITE_MS: Final = 1.5
_BATCH: Final = 100


class Leaderships:
    """Of all partitions, as whoever is in charge has stored them.

    Args:
        lines: what each broker, or instance, writes as the controller.

    Attributes:
        now: who is in charge.
        live: brokers as it knows them.
        stopping: those that it was asked to let go.
    """

    _requests: Requests  # of whoever is in charge; there are none before

    def __init__(self, cluster: Cluster, brokers: Brokers, watch: Watch, lines: dict[int, Lines]) -> None:
        self.cluster = cluster
        self.brokers = brokers
        self.watch = watch
        self.lines = lines
        self.now = NOBODY
        self.epoch = 0
        self.live: set[int] = set()
        self.stopping: set[int] = set()

    @property
    def says(self) -> Lines:
        return self.lines[self.now]

    def _begin(self, at: float, who: int) -> None:
        """Somebody else is in charge, or the same anew: with another epoch, and connections of its own."""
        self.now = who
        self.epoch += 1
        self.stopping.clear()
        self.live = set(self.brokers.alive())
        self.says.epoch = self.epoch
        self._requests = Requests(self.brokers, self.says, controller=who, epoch=self.epoch, live=self.live)
        self.watch.truth.controllers.append(Controllership(controller=who, epoch=self.epoch, at=at))

    def _stored(self, p: Partition, leader: int, isr: tuple[int, ...]) -> State:
        """New leadership; both epochs rise."""
        p.leader, p.isr = leader, isr
        p.leader_epoch += 1
        p.partition_epoch += 1
        return state_of(p, self.epoch)

    def _elect_offline(self, at: float) -> float:
        """Find leaders for all partitions that have none."""
        usable = self.live - self.stopping
        states = []
        for p in list(self.cluster.offline):
            alive = [broker for broker in p.replicas if broker in usable]
            leader = next((broker for broker in alive if broker in p.isr), None)
            at += TURN_MS
            if leader is None and not (p.unclean and alive):
                self.says.failed(at, p, OFFLINE, "offline")
                continue
            p.recovering = leader is None
            if leader is None:
                leader = alive[0]
                state = self._stored(p, leader, (leader,))
                self.watch.unclean(p, at, leader, p.leader_epoch)
            else:
                state = self._stored(p, leader, tuple(broker for broker in p.isr if broker in alive))
            p.online = True
            del self.cluster.offline[p]
            self.says.online(at, OFFLINE, state)
            states.append(state)
        return self._requests.tell(at + self._write(states), states)

    def _offline(
        self,
        at: float,
        broker: int,
        before: str,
        *,
        only: Sequence[Partition] | None = None,
        stop: bool = False,
        left: frozenset[Partition] = frozenset(),
    ) -> float:
        """A broker's replicas are gone, and leave their ISRs, unless they are the last."""
        states = []
        held = [p for p in self.cluster.held[broker] if not p.topic.deleting] if only is None else only
        if stop:
            at = self._requests.stop(at, broker, held, delete=False)
        for p in held:
            at += TURN_MS
            if broker in p.isr:
                leader = NOBODY if p.leader == broker else p.leader
                isr = p.isr if len(p.isr) == 1 else tuple(each for each in p.isr if each != broker)
                states.append(self._stored(p, leader, isr))
                self.says.cut(at, states[-1], broker)
            self.says.replica(at, p, broker, "OfflineReplica" if p in left else before, "OfflineReplica")
        return self._requests.tell(at + self._write(states), states, but=broker)

    def _write(self, states: Sequence[State]) -> float:
        """What it takes to store these."""
        return (len(states) + _BATCH - 1) // _BATCH * _WRITE_MS
