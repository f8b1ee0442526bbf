"""A controller over ZooKeeper: what it does about each thing that happens, and in which order.

It follows the classic controller: elections first, then the replicas that are gone are taken out of ISRs, and requests
behind each. Whether its lines are Kafka's or kactl's is not its business.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from .brokers import Brokers
from .cluster import Cluster, Partition
from .controller_lines import OFFLINE, ONLINE, Lines
from .leaderships import TURN_MS
from .states import State, state_of
from .topics import Topics
from .truth import Watch

# Whoever takes over reads everything first.
_READ_MS: Final = 25.0


class ZooKeeperControl(Topics):
    """The controllers of a cluster, of which one is in charge; see `Leaderships` for arguments and attributes."""

    def __init__(self, cluster: Cluster, brokers: Brokers, watch: Watch, lines: dict[int, Lines]) -> None:
        super().__init__(cluster, brokers, watch, lines)
        # What brokers had let go of before they went.
        self._left: dict[int, frozenset[Partition]] = {}

    # -- who is in charge ----------------------------------------------------------------------------------------------

    def take_over(self, at: float, who: int) -> float:
        """Another one, or the same anew, is elected. All that follow return when they are done."""
        self._begin(at, who)
        says = self.says
        says.elected(at, sorted(self.live))
        at += _READ_MS
        everything = [p for topic in self.cluster.topics.values() for p in topic.partitions if not topic.deleting]
        at = self._requests.metadata(at, [state_of(p, self.epoch) for p in everything if p.leader_epoch >= 0])
        states: list[State] = []
        for p in everything:
            for broker in p.replicas:
                if broker in self.live:
                    says.replica(at, p, broker, "OnlineReplica", "OnlineReplica")
                    at += TURN_MS
            states.append(state_of(p, self.epoch))
        at = self._requests.tell(at, states)
        dead = [broker for broker in sorted(self.cluster.held) if broker not in self.live]
        for broker in dead:
            at = self._offline(at, broker, "ReplicaDeletionIneligible")
        for p in everything:
            p.online = p.leader in self.live
            if not p.online:
                self.cluster.offline[p] = None
        at = self._elect_offline(at)
        says.ready(at)
        for topic in list(self._waiting.values()):
            at = self._delete(at + 1, topic)
        says.started(at + 2)
        return at + 2

    def resign(self, at: float) -> None:
        """It finds out that its session is over."""
        self.says.resigned(at)

    # -- brokers -------------------------------------------------------------------------------------------------------

    def failed(self, at: float, dead: int) -> float:
        """A broker's session has ended."""
        if dead not in self.live:
            return at
        self.live.discard(dead)
        says = self.says
        says.brokers(at, [], [dead], sorted(self.live))
        at += 1
        if dead in self.stopping:
            says.broker_stopped(at, dead)
            self.stopping.discard(dead)
        self._requests.disconnect(dead)
        for p in self.cluster.held[dead]:
            if p.leader == dead and p.online:
                says.moved(at, p, ONLINE, OFFLINE)
                p.online = False
                self.cluster.offline[p] = None
                at += TURN_MS
        at = self._elect_offline(at)
        at = self._offline(at, dead, "OnlineReplica", left=self._left.pop(dead, frozenset()))
        return self._requests.metadata(at, [])

    def started(self, at: float, broker: int) -> float:
        """A broker has registered."""
        self.live.add(broker)
        says = self.says
        says.brokers(at, [broker], [], sorted(self.live))
        at += 1
        held = [p for p in self.cluster.held[broker] if not p.topic.deleting]
        for p in self.cluster.held[broker]:
            if p.topic.deleting:
                says.replica(at, p, broker, "ReplicaDeletionIneligible", "OnlineReplica")
        at = self._requests.metadata(at, [])
        for p in held:
            says.replica(at, p, broker, "OfflineReplica", "OnlineReplica")
            at += TURN_MS
        at = self._requests.tell(at, [state_of(p, self.epoch) for p in held], only={broker})
        at = self._elect_offline(at)
        for topic in list(self._waiting.values()):
            at = self._delete(at, topic)
        return at

    def stop(self, at: float, broker: int) -> float:
        """A broker asks to be let go: others take over from it, and it leaves all ISRs."""
        self.stopping.add(broker)
        says = self.says
        says.broker_stopping(at, broker)
        at += 1
        states = []
        for p in [each for each in self.cluster.held[broker] if each.leader == broker and not each.topic.deleting]:
            isr = tuple(each for each in p.isr if each in self.live and each not in self.stopping)
            leader = next((each for each in p.replicas if each in isr), None)
            if leader is None:
                if len(p.replicas) > 1:
                    says.failed(at, p, ONLINE, "controlled-shutdown")
                continue
            states.append(self._stored(p, leader, isr))
            says.online(at, ONLINE, states[-1])
            at += TURN_MS
        at = self._requests.tell(at + self._write(states), states)
        followed = [p for p in self.cluster.held[broker] if p.leader != broker and not p.topic.deleting]
        self._left[broker] = frozenset(followed)
        return self._offline(at, broker, "OnlineReplica", only=followed, stop=True)

    # -- what is asked of it -------------------------------------------------------------------------------------------

    def prefer(self, at: float, partitions: Sequence[Partition], trigger: str = "AutoTriggered") -> float:
        """The first of the assignment is to lead again, where it is in sync."""
        due = [p for p in partitions if p.online and p.leader != p.replicas[0] and p.replicas[0] in p.isr]
        due = [p for p in due if p.replicas[0] in self.live - self.stopping]
        self.says.election(at, "PREFERRED", due, trigger)
        at += 1
        states = []
        for p in due:
            states.append(self._stored(p, p.replicas[0], p.isr))
            self.says.online(at, ONLINE, states[-1])
            at += TURN_MS
        return self._requests.tell(at + self._write(states), states)

    def proposed(self, at: float, p: Partition, isr: tuple[int, ...]) -> float:
        """A leader has changed its ISR."""
        before = self.cluster.propose(p, at, isr)
        p.recovering = False
        self.watch.isr(p, len(before), len(isr))
        assert p.serving is not None
        self.brokers[p.serving].lines.isr(at, p, before, p.logs[p.serving])
        self.says.isr(at + 1, state_of(p, self.epoch))
        return at + 2

    def propagate(self, at: float, partitions: Iterable[Partition]) -> float:
        """Tell everybody of changed ISRs."""
        return self._requests.metadata(at, [state_of(p, self.epoch) for p in partitions])
