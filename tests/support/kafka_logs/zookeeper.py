"""ZooKeeper controller: reactions to events, in the order of the classic controller.

Elections come first, then stopped replicas are removed from ISRs; each step is followed by its requests. The format of
the lines, Kafka's or kactl's, is decided by the writer.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from .brokers import Brokers
from .cluster import Cluster, Partition
from .controller_lines import OFFLINE, ONLINE, Lines
from .leaderships import TURN_MS
from .states import State, state_of
from .topics import Topics
from .truth import Recorder

# Time to read the state from ZooKeeper after a takeover.
_READ_MS: Final = 25.0


class ZooKeeperControl(Topics):
    """The controllers of a cluster, one of which is active; arguments and attributes as in `Leaderships`."""

    def __init__(self, cluster: Cluster, brokers: Brokers, recorder: Recorder, lines: dict[int, Lines]) -> None:
        super().__init__(cluster, brokers, recorder, lines)
        # Replicas that were taken offline by a broker's controlled shutdown.
        self._left: dict[int, frozenset[Partition]] = {}

    # -- controllers ---------------------------------------------------------------------------------------------------

    def take_over(self, time_ms: float, controller: int) -> float:
        """Elects a controller; like all operations, returns the time of its end."""
        self._begin(time_ms, controller)
        writer = self.writer
        writer.elected(time_ms, sorted(self.live))
        time_ms += _READ_MS
        partitions = [p for topic in self.cluster.topics.values() for p in topic.partitions if not topic.deleting]
        time_ms = self._requests.metadata(time_ms, [state_of(p, self.epoch) for p in partitions if p.leader_epoch >= 0])
        states: list[State] = []
        for p in partitions:
            for broker in p.replicas:
                if broker in self.live:
                    writer.replica(time_ms, p, broker, "OnlineReplica", "OnlineReplica")
                    time_ms += TURN_MS
            states.append(state_of(p, self.epoch))
        time_ms = self._requests.send_leaderships(time_ms, states)
        dead = [broker for broker in sorted(self.cluster.hosted) if broker not in self.live]
        for broker in dead:
            time_ms = self._offline(time_ms, broker, "ReplicaDeletionIneligible")
        for p in partitions:
            p.online = p.leader in self.live
            if not p.online:
                self.cluster.offline[p] = None
        time_ms = self._elect_offline(time_ms)
        writer.ready(time_ms)
        for topic in list(self._waiting.values()):
            time_ms = self._delete(time_ms + 1, topic)
        writer.started(time_ms + 2)
        return time_ms + 2

    def resign(self, time_ms: float) -> None:
        """Resigns after the end of the controller's session."""
        self.writer.resigned(time_ms)

    # -- brokers -------------------------------------------------------------------------------------------------------

    def failed(self, time_ms: float, dead: int) -> float:
        """Handles the end of a broker's session."""
        if dead not in self.live:
            return time_ms
        self.live.discard(dead)
        writer = self.writer
        writer.brokers(time_ms, [], [dead], sorted(self.live))
        time_ms += 1
        if dead in self.stopping:
            writer.broker_stopped(time_ms, dead)
            self.stopping.discard(dead)
        self._requests.disconnect(dead)
        for p in self.cluster.hosted[dead]:
            if p.leader == dead and p.online:
                writer.moved(time_ms, p, ONLINE, OFFLINE)
                p.online = False
                self.cluster.offline[p] = None
                time_ms += TURN_MS
        time_ms = self._elect_offline(time_ms)
        time_ms = self._offline(time_ms, dead, "OnlineReplica", left=self._left.pop(dead, frozenset()))
        return self._requests.metadata(time_ms, [])

    def started(self, time_ms: float, broker: int) -> float:
        """Handles a broker's registration."""
        self.live.add(broker)
        writer = self.writer
        writer.brokers(time_ms, [broker], [], sorted(self.live))
        time_ms += 1
        hosted = [p for p in self.cluster.hosted[broker] if not p.topic.deleting]
        for p in self.cluster.hosted[broker]:
            if p.topic.deleting:
                writer.replica(time_ms, p, broker, "ReplicaDeletionIneligible", "OnlineReplica")
        time_ms = self._requests.metadata(time_ms, [])
        for p in hosted:
            writer.replica(time_ms, p, broker, "OfflineReplica", "OnlineReplica")
            time_ms += TURN_MS
        time_ms = self._requests.send_leaderships(time_ms, [state_of(p, self.epoch) for p in hosted], only={broker})
        time_ms = self._elect_offline(time_ms)
        for topic in list(self._waiting.values()):
            time_ms = self._delete(time_ms, topic)
        return time_ms

    def stop(self, time_ms: float, broker: int) -> float:
        """Grants a controlled shutdown: leaderships move to other brokers, and the broker leaves all ISRs."""
        self.stopping.add(broker)
        writer = self.writer
        writer.broker_stopping(time_ms, broker)
        time_ms += 1
        states = []
        for p in [p for p in self.cluster.hosted[broker] if p.leader == broker and not p.topic.deleting]:
            isr = tuple(id for id in p.isr if id in self.live and id not in self.stopping)
            leader = next((id for id in p.replicas if id in isr), None)
            if leader is None:
                if len(p.replicas) > 1:
                    writer.failed(time_ms, p, ONLINE, "controlled-shutdown")
                continue
            states.append(self._stored(p, leader, isr))
            writer.online(time_ms, ONLINE, states[-1])
            time_ms += TURN_MS
        time_ms = self._requests.send_leaderships(time_ms + self._write(states), states)
        followed = [p for p in self.cluster.hosted[broker] if p.leader != broker and not p.topic.deleting]
        self._left[broker] = frozenset(followed)
        return self._offline(time_ms, broker, "OnlineReplica", only=followed, stop=True)

    # -- requests to the controller ------------------------------------------------------------------------------------

    def prefer(self, time_ms: float, partitions: Sequence[Partition], trigger: str = "AutoTriggered") -> float:
        """Elects preferred leaders that are in sync."""
        due = [p for p in partitions if p.online and p.leader != p.replicas[0] and p.replicas[0] in p.isr]
        due = [p for p in due if p.replicas[0] in self.live - self.stopping]
        self.writer.election(time_ms, "PREFERRED", due, trigger)
        time_ms += 1
        states = []
        for p in due:
            states.append(self._stored(p, p.replicas[0], p.isr))
            self.writer.online(time_ms, ONLINE, states[-1])
            time_ms += TURN_MS
        return self._requests.send_leaderships(time_ms + self._write(states), states)

    def proposed(self, time_ms: float, p: Partition, isr: tuple[int, ...]) -> float:
        """Stores a leader's change of its ISR."""
        before = self.cluster.propose(p, time_ms, isr)
        p.recovering = False
        self.recorder.isr(p, len(before), len(isr))
        assert p.serving is not None
        self.brokers[p.serving].lines.isr(time_ms, p, before, p.logs[p.serving])
        self.writer.isr(time_ms + 1, state_of(p, self.epoch))
        return time_ms + 2

    def propagate(self, time_ms: float, partitions: Iterable[Partition]) -> float:
        """Sends changed ISRs to all brokers."""
        return self._requests.metadata(time_ms, [state_of(p, self.epoch) for p in partitions])
