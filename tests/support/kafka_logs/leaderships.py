"""Leader elections and ISR changes of a ZooKeeper controller."""

from collections.abc import Sequence
from typing import Final

from .brokers import Brokers
from .cluster import NO_BROKER, Cluster, Partition
from .controller_lines import OFFLINE, Lines
from .requests import Requests
from .states import State, state_of
from .truth import Controllership, Recorder

# Time per partition in memory, and per write of a batch.
TURN_MS: Final = 0.02
_WRITE_MS: Final = 1.5
_BATCH: Final = 100


class Leaderships:
    """Stored leadership of all partitions.

    Args:
        lines: writer of each broker's, or instance's, lines as the controller.

    Attributes:
        active: id of the active controller.
        live: brokers that the controller considers alive.
        stopping: brokers in controlled shutdown.
    """

    _requests: Requests  # of the active controller; absent before the first one

    def __init__(self, cluster: Cluster, brokers: Brokers, recorder: Recorder, lines: dict[int, Lines]) -> None:
        self.cluster = cluster
        self.brokers = brokers
        self.recorder = recorder
        self.lines = lines
        self.active = NO_BROKER
        self.epoch = 0
        self.live: set[int] = set()
        self.stopping: set[int] = set()

    @property
    def writer(self) -> Lines:
        return self.lines[self.active]

    def _begin(self, time_ms: float, controller: int) -> None:
        """Makes a controller active, with a new epoch and new connections."""
        self.active = controller
        self.epoch += 1
        self.stopping.clear()
        self.live = set(self.brokers.alive())
        self.writer.epoch = self.epoch
        self._requests = Requests(self.brokers, self.writer, controller=controller, epoch=self.epoch, live=self.live)
        self.recorder.truth.controllers.append(Controllership(controller=controller, epoch=self.epoch, time_ms=time_ms))

    def _stored(self, p: Partition, leader: int, isr: tuple[int, ...]) -> State:
        """Stores new leadership; both epochs increase."""
        p.leader, p.isr = leader, isr
        p.leader_epoch += 1
        p.partition_epoch += 1
        return state_of(p, self.epoch)

    def _elect_offline(self, time_ms: float) -> float:
        """Elects leaders for all offline partitions."""
        usable = self.live - self.stopping
        states = []
        for p in list(self.cluster.offline):
            alive = [broker for broker in p.replicas if broker in usable]
            leader = next((broker for broker in alive if broker in p.isr), None)
            time_ms += TURN_MS
            if leader is None and not (p.unclean and alive):
                self.writer.failed(time_ms, p, OFFLINE, "offline")
                continue
            p.recovering = leader is None
            if leader is None:
                leader = alive[0]
                state = self._stored(p, leader, (leader,))
                self.recorder.unclean(p, time_ms, leader, p.leader_epoch)
            else:
                state = self._stored(p, leader, tuple(broker for broker in p.isr if broker in alive))
            p.online = True
            del self.cluster.offline[p]
            self.writer.online(time_ms, OFFLINE, state)
            states.append(state)
        return self._requests.send_leaderships(time_ms + self._write(states), states)

    def _offline(
        self,
        time_ms: float,
        broker: int,
        before: str,
        *,
        only: Sequence[Partition] | None = None,
        stop: bool = False,
        left: frozenset[Partition] = frozenset(),
    ) -> float:
        """Takes a broker's replicas offline and removes them from ISRs of more than one replica."""
        states = []
        hosted = [p for p in self.cluster.hosted[broker] if not p.topic.deleting] if only is None else only
        if stop:
            time_ms = self._requests.stop(time_ms, broker, hosted, delete=False)
        for p in hosted:
            time_ms += TURN_MS
            if broker in p.isr:
                leader = NO_BROKER if p.leader == broker else p.leader
                isr = p.isr if len(p.isr) == 1 else tuple(id for id in p.isr if id != broker)
                states.append(self._stored(p, leader, isr))
                self.writer.cut(time_ms, states[-1], broker)
            self.writer.replica(time_ms, p, broker, "OfflineReplica" if p in left else before, "OfflineReplica")
        return self._requests.send_leaderships(time_ms + self._write(states), states, but=broker)

    def _write(self, states: Sequence[State]) -> float:
        """Returns the time to store these states."""
        return (len(states) + _BATCH - 1) // _BATCH * _WRITE_MS
