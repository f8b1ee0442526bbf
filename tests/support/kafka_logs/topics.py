"""Creation, reassignment and deletion of topics by a ZooKeeper controller."""

from .brokers import Brokers
from .cluster import NO_BROKER, Cluster, Partition, Topic
from .controller_lines import NEW, NONE, OFFLINE, ONLINE, Lines
from .leaderships import TURN_MS, Leaderships
from .states import state_of
from .truth import Recorder


class Topics(Leaderships):
    """Topic operations; arguments and attributes as in `Leaderships`."""

    def __init__(self, cluster: Cluster, brokers: Brokers, recorder: Recorder, lines: dict[int, Lines]) -> None:
        super().__init__(cluster, brokers, recorder, lines)
        # Topics with a deletion that waits for stopped brokers.
        self._waiting: dict[str, Topic] = {}

    def create(self, time_ms: float, topic: Topic) -> float:
        """Creates a topic."""
        writer = self.writer
        writer.topic_created(time_ms, topic)
        time_ms += 2
        states = []
        for p in topic.partitions:
            writer.became(time_ms, p)
            for broker in p.replicas:
                writer.replica(time_ms, p, broker, "NonExistentReplica", "NewReplica")
            time_ms += TURN_MS
        for p in topic.partitions:
            p.isr = tuple(broker for broker in p.replicas if broker in self.live)
            p.leader = p.isr[0] if p.isr else NO_BROKER
            if p.leader == NO_BROKER:
                writer.failed(time_ms, p, NEW, "offline")
                continue
            p.leader_epoch = p.partition_epoch = 0
            p.online = True
            states.append(state_of(p, self.epoch, is_new=True))
            writer.online(time_ms, NEW, states[-1])
            time_ms += TURN_MS
        time_ms += self._write(states)
        for p in topic.partitions:
            for broker in p.replicas:
                writer.replica(time_ms, p, broker, "NewReplica", "OnlineReplica")
        return self._requests.send_leaderships(time_ms, states)

    def reassign(self, time_ms: float, p: Partition, target: tuple[int, ...]) -> float:
        """Begins a reassignment by adding replicas."""
        writer = self.writer
        writer.reassignment(time_ms, p, "started", target)
        origin = p.replicas
        p.adding = tuple(broker for broker in target if broker not in origin)
        p.removing = tuple(broker for broker in origin if broker not in target)
        p.replicas = (*target, *p.removing)
        self.cluster.assign(p)
        state = self._stored(p, p.leader, p.isr)
        writer.reassignment(time_ms + 1, p, "epoch", target)
        for broker in p.adding:
            writer.replica(time_ms + 2, p, broker, "NonExistentReplica", "NewReplica")
        time_ms = self._requests.send_leaderships(time_ms + 3, [state])
        writer.reassignment(time_ms, p, "waits", p.adding)
        return time_ms + 1

    def reassigned(self, time_ms: float, p: Partition) -> float:
        """Completes a reassignment by removing replicas; all target replicas are in sync."""
        writer = self.writer
        target = p.replicas[: len(p.replicas) - len(p.removing)]
        writer.reassignment(time_ms, p, "caught up", target)
        for broker in p.adding:
            writer.replica(time_ms + 1, p, broker, "NewReplica", "OnlineReplica")
        leaving, p.replicas, p.adding, p.removing = p.removing, target, (), ()
        time_ms += 2
        if p.leader not in target:
            leader = next(broker for broker in target if broker in p.isr and broker in self.live)
            state = self._stored(p, leader, p.isr)
            writer.online(time_ms, ONLINE, state)
        else:
            state = self._stored(p, p.leader, p.isr)
            writer.reassignment(time_ms, p, "epoch", target)
        time_ms = self._requests.send_leaderships(time_ms + self._write([state]), [state], also=leaving)
        for broker in leaving:
            time_ms = self._offline(time_ms, broker, "OnlineReplica", only=[p], stop=True)
            self._requests.stop(time_ms, broker, [p], delete=True)
            for before, after in (
                ("OfflineReplica", "ReplicaDeletionStarted"),
                ("ReplicaDeletionStarted", "ReplicaDeletionSuccessful"),
                ("ReplicaDeletionSuccessful", "NonExistentReplica"),
            ):
                writer.replica(time_ms, p, broker, before, after)
                time_ms += 3
            p.fetching.discard(broker)
            p.logs.pop(broker, None)
            p.took_part.pop(broker, None)
            self.brokers[broker].roles.pop(p, None)
        self.cluster.assign(p)
        return self._requests.metadata(time_ms, [state_of(p, self.epoch)])

    def delete(self, time_ms: float, topic: Topic) -> float:
        """Begins to delete a topic; the deletion waits for stopped brokers."""
        topic.deleting = True
        self.writer.deletion(time_ms, topic, "asked")
        self._waiting[topic.name] = topic
        self.recorder.truth.deletions.append((topic.name, time_ms, None))
        time_ms += 1
        for p in topic.partitions:
            self.cluster.offline.pop(p, None)
            self.recorder.gone(p)
            if p.online:
                self.writer.moved(time_ms, p, ONLINE, OFFLINE)
                p.online = False
            self.writer.moved(time_ms + TURN_MS, p, OFFLINE, NONE)
            time_ms += 2 * TURN_MS
        gone = [state_of(p, self.epoch)._replace(leader=-2) for p in topic.partitions]
        time_ms = self._requests.metadata(time_ms, gone)
        return self._delete(time_ms, topic)

    def _delete(self, time_ms: float, topic: Topic) -> float:
        """Deletes the replicas on live brokers, and the topic once all replicas are deleted."""
        writer = self.writer
        writer.deletion(time_ms, topic, "started")
        dead = [(p, broker) for p in topic.partitions for broker in p.replicas if broker not in self.live]
        if dead:
            writer.deletion(time_ms + 1, topic, "dead", dead)
            writer.deletion(time_ms + 1.5, topic, "halted")
            for p, broker in dead:
                writer.replica(time_ms + 2, p, broker, "OfflineReplica", "ReplicaDeletionIneligible")
        brokers = sorted({broker for p in topic.partitions for broker in p.replicas if broker in self.live})
        for broker in brokers:
            hosted = [p for p in topic.partitions if broker in p.replicas and p.logs.pop(broker, None) is not None]
            if not hosted:
                continue
            for p in hosted:
                time_ms += TURN_MS
                if broker in p.isr:
                    isr = p.isr if len(p.isr) == 1 else tuple(id for id in p.isr if id != broker)
                    writer.cut(time_ms, self._stored(p, NO_BROKER if p.leader == broker else p.leader, isr), broker)
                writer.replica(time_ms, p, broker, "OnlineReplica", "OfflineReplica")
                writer.replica(time_ms + 0.01, p, broker, "OfflineReplica", "ReplicaDeletionStarted")
            time_ms = self._requests.stop(time_ms, broker, hosted, delete=True)
            for p in hosted:
                writer.replica(time_ms, p, broker, "ReplicaDeletionStarted", "ReplicaDeletionSuccessful")
                self.brokers[broker].roles.pop(p, None)
        if dead:
            return time_ms
        for p in topic.partitions:
            for broker in p.replicas:
                writer.replica(time_ms, p, broker, "ReplicaDeletionSuccessful", "NonExistentReplica")
        writer.deletion(time_ms + 1, topic, "done")
        del self._waiting[topic.name]
        self.recorder.deleted(topic, time_ms + 1)
        self.cluster.remove(topic)
        return time_ms + 2
