"""Topics as a controller over ZooKeeper creates, moves and deletes them."""

from .brokers import Brokers
from .cluster import NOBODY, Cluster, Partition, Topic
from .controller_lines import NEW, NONE, OFFLINE, ONLINE, Lines
from .leaderships import TURN_MS, Leaderships
from .states import state_of
from .truth import Watch


class Topics(Leaderships):
    """All topics; see `Leaderships` for arguments and attributes."""

    def __init__(self, cluster: Cluster, brokers: Brokers, watch: Watch, lines: dict[int, Lines]) -> None:
        super().__init__(cluster, brokers, watch, lines)
        # To be deleted, once brokers are there that are away.
        self._waiting: dict[str, Topic] = {}

    def create(self, at: float, topic: Topic) -> float:
        """A new topic is found."""
        says = self.says
        says.topic_created(at, topic)
        at += 2
        states = []
        for p in topic.partitions:
            says.became(at, p)
            for broker in p.replicas:
                says.replica(at, p, broker, "NonExistentReplica", "NewReplica")
            at += TURN_MS
        for p in topic.partitions:
            p.isr = tuple(broker for broker in p.replicas if broker in self.live)
            p.leader = p.isr[0] if p.isr else NOBODY
            if p.leader == NOBODY:
                says.failed(at, p, NEW, "offline")
                continue
            p.leader_epoch = p.partition_epoch = 0
            p.online = True
            states.append(state_of(p, self.epoch, is_new=True))
            says.online(at, NEW, states[-1])
            at += TURN_MS
        at += self._write(states)
        for p in topic.partitions:
            for broker in p.replicas:
                says.replica(at, p, broker, "NewReplica", "OnlineReplica")
        return self._requests.tell(at, states)

    def reassign(self, at: float, p: Partition, target: tuple[int, ...]) -> float:
        """Begin to move a partition to other replicas: those that are to come are added."""
        says = self.says
        says.reassignment(at, p, "started", target)
        origin = p.replicas
        p.adding = tuple(broker for broker in target if broker not in origin)
        p.removing = tuple(broker for broker in origin if broker not in target)
        p.replicas = (*target, *p.removing)
        self.cluster.hold(p)
        state = self._stored(p, p.leader, p.isr)
        says.reassignment(at + 1, p, "epoch", target)
        for broker in p.adding:
            says.replica(at + 2, p, broker, "NonExistentReplica", "NewReplica")
        at = self._requests.tell(at + 3, [state])
        says.reassignment(at, p, "waits", p.adding)
        return at + 1

    def reassigned(self, at: float, p: Partition) -> float:
        """All of the target are in sync: the rest goes."""
        says = self.says
        target = p.replicas[: len(p.replicas) - len(p.removing)]
        says.reassignment(at, p, "caught up", target)
        for broker in p.adding:
            says.replica(at + 1, p, broker, "NewReplica", "OnlineReplica")
        leaving, p.replicas, p.adding, p.removing = p.removing, target, (), ()
        at += 2
        if p.leader not in target:
            leader = next(broker for broker in target if broker in p.isr and broker in self.live)
            state = self._stored(p, leader, p.isr)
            says.online(at, ONLINE, state)
        else:
            state = self._stored(p, p.leader, p.isr)
            says.reassignment(at, p, "epoch", target)
        at = self._requests.tell(at + self._write([state]), [state], also=leaving)
        for broker in leaving:
            at = self._offline(at, broker, "OnlineReplica", only=[p], stop=True)
            self._requests.stop(at, broker, [p], delete=True)
            for before, after in (
                ("OfflineReplica", "ReplicaDeletionStarted"),
                ("ReplicaDeletionStarted", "ReplicaDeletionSuccessful"),
                ("ReplicaDeletionSuccessful", "NonExistentReplica"),
            ):
                says.replica(at, p, broker, before, after)
                at += 3
            p.fetching.discard(broker)
            p.logs.pop(broker, None)
            p.took_part.pop(broker, None)
            self.brokers[broker].roles.pop(p, None)
        self.cluster.hold(p)
        return self._requests.metadata(at, [state_of(p, self.epoch)])

    def delete(self, at: float, topic: Topic) -> float:
        """A topic is to be deleted; it waits for brokers that are away."""
        topic.deleting = True
        self.says.deletion(at, topic, "asked")
        self._waiting[topic.name] = topic
        self.watch.truth.deletions.append((topic.name, at, None))
        at += 1
        for p in topic.partitions:
            self.cluster.offline.pop(p, None)
            self.watch.gone(p)
            if p.online:
                self.says.moved(at, p, ONLINE, OFFLINE)
                p.online = False
            self.says.moved(at + TURN_MS, p, OFFLINE, NONE)
            at += 2 * TURN_MS
        gone = [state_of(p, self.epoch)._replace(leader=-2) for p in topic.partitions]
        at = self._requests.metadata(at, gone)
        return self._delete(at, topic)

    def _delete(self, at: float, topic: Topic) -> float:
        """Delete what replicas can be reached; all of a topic once it is all of them."""
        says = self.says
        says.deletion(at, topic, "started")
        dead = [(p, broker) for p in topic.partitions for broker in p.replicas if broker not in self.live]
        if dead:
            says.deletion(at + 1, topic, "dead", dead)
            says.deletion(at + 1.5, topic, "halted")
            for p, broker in dead:
                says.replica(at + 2, p, broker, "OfflineReplica", "ReplicaDeletionIneligible")
        brokers = sorted({broker for p in topic.partitions for broker in p.replicas if broker in self.live})
        for broker in brokers:
            held = [p for p in topic.partitions if broker in p.replicas and p.logs.pop(broker, None) is not None]
            if not held:
                continue
            for p in held:
                at += TURN_MS
                if broker in p.isr:
                    isr = p.isr if len(p.isr) == 1 else tuple(each for each in p.isr if each != broker)
                    says.cut(at, self._stored(p, NOBODY if p.leader == broker else p.leader, isr), broker)
                says.replica(at, p, broker, "OnlineReplica", "OfflineReplica")
                says.replica(at + 0.01, p, broker, "OfflineReplica", "ReplicaDeletionStarted")
            at = self._requests.stop(at, broker, held, delete=True)
            for p in held:
                says.replica(at, p, broker, "ReplicaDeletionStarted", "ReplicaDeletionSuccessful")
                self.brokers[broker].roles.pop(p, None)
        if dead:
            return at
        for p in topic.partitions:
            for broker in p.replicas:
                says.replica(at, p, broker, "ReplicaDeletionSuccessful", "NonExistentReplica")
        says.deletion(at + 1, topic, "done")
        del self._waiting[topic.name]
        self.watch.deleted(topic, at + 1)
        self.cluster.remove(topic)
        return at + 2
