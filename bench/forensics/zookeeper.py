"""A controller over ZooKeeper: what it decides, in which order it says so, and whom it tells.

It follows the classic controller: elections first, then the replicas that are gone are taken out of ISRs, and requests
behind each. Whether its lines are Kafka's or kactl's is not its business.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from .brokers import Broker, Brokers, Change, Origin
from .cluster import NOBODY, Cluster, Partition, Topic
from .controller_lines import NEW, NONE, OFFLINE, ONLINE, Lines
from .states import State, state_of
from .truth import Controllership, Watch

# A partition's turn in memory, a write of a batch, and a network's way.
_TURN_MS: Final = 0.02
_WRITE_MS: Final = 1.5
_BATCH: Final = 100
_NET_MS: Final = 0.8
_READ_MS: Final = 25.0


@dataclasses.dataclass(slots=True)
class _Channel:
    """A controller's connection to one broker: one request at a time, numbered from 0 on."""

    next: int = 0
    free: float = 0.0


class ZooKeeperControl:
    """The controllers of a cluster, of which one is in charge.

    Args:
        lines: what each broker, or instance, writes as the controller.

    Attributes:
        now: who is in charge.
        live: brokers as it knows them.
        stopping: those that it was asked to let go.
    """

    def __init__(self, cluster: Cluster, brokers: Brokers, watch: Watch, lines: dict[int, Lines]) -> None:
        self.cluster = cluster
        self.brokers = brokers
        self.watch = watch
        self.lines = lines
        self.now = NOBODY
        self.epoch = 0
        self.live: set[int] = set()
        self.stopping: set[int] = set()
        self._channels: dict[int, _Channel] = {}
        self._waiting: dict[str, Topic] = {}
        # What brokers had let go of before they went.
        self._left: dict[int, frozenset[Partition]] = {}

    @property
    def says(self) -> Lines:
        return self.lines[self.now]

    # -- who is in charge ----------------------------------------------------------------------------------------------

    def take_over(self, at: float, who: int) -> float:
        """Another one, or the same anew, is elected. All that follow return when they are done."""
        self.now = who
        self.epoch += 1
        self._channels.clear()
        self.stopping.clear()
        self.live = set(self.brokers.alive())
        says = self.says
        says.epoch = self.epoch
        self.watch.truth.controllers.append(Controllership(controller=who, epoch=self.epoch, at=at))
        says.elected(at, sorted(self.live))
        at += _READ_MS
        everything = [p for topic in self.cluster.topics.values() for p in topic.partitions if not topic.deleting]
        at = self._metadata(at, [state_of(p, self.epoch) for p in everything if p.leader_epoch >= 0])
        states: list[State] = []
        for p in everything:
            for broker in p.replicas:
                if broker in self.live:
                    says.replica(at, p, broker, "OnlineReplica", "OnlineReplica")
                    at += _TURN_MS
            states.append(state_of(p, self.epoch))
        at = self._tell(at, states)
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
        self._channels.pop(dead, None)
        for p in self.cluster.held[dead]:
            if p.leader == dead and p.online:
                says.moved(at, p, ONLINE, OFFLINE)
                p.online = False
                self.cluster.offline[p] = None
                at += _TURN_MS
        at = self._elect_offline(at)
        at = self._offline(at, dead, "OnlineReplica", left=self._left.pop(dead, frozenset()))
        return self._metadata(at, [])

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
        at = self._metadata(at, [])
        for p in held:
            says.replica(at, p, broker, "OfflineReplica", "OnlineReplica")
            at += _TURN_MS
        at = self._tell(at, [state_of(p, self.epoch) for p in held], only={broker})
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
            at += _TURN_MS
        at = self._tell(at + self._write(states), states)
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
            at += _TURN_MS
        return self._tell(at + self._write(states), states)

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
        return self._metadata(at, [state_of(p, self.epoch) for p in partitions])

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
            at += _TURN_MS
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
            at += _TURN_MS
        at += self._write(states)
        for p in topic.partitions:
            for broker in p.replicas:
                says.replica(at, p, broker, "NewReplica", "OnlineReplica")
        return self._tell(at, states)

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
            self.says.moved(at + _TURN_MS, p, OFFLINE, NONE)
            at += 2 * _TURN_MS
        gone = [state_of(p, self.epoch)._replace(leader=-2) for p in topic.partitions]
        at = self._metadata(at, gone)
        return self._delete(at, topic)

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
        at = self._tell(at + 3, [state])
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
        at = self._tell(at + self._write([state]), [state], also=leaving)
        for broker in leaving:
            at = self._offline(at, broker, "OnlineReplica", only=[p], stop=True)
            self._stop(at, broker, [p], delete=True)
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
        return self._metadata(at, [state_of(p, self.epoch)])

    # -- deciding ------------------------------------------------------------------------------------------------------

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
            at += _TURN_MS
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
        return self._tell(at + self._write(states), states)

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
            at = self._stop(at, broker, held, delete=False)
        for p in held:
            at += _TURN_MS
            if broker in p.isr:
                leader = NOBODY if p.leader == broker else p.leader
                isr = p.isr if len(p.isr) == 1 else tuple(each for each in p.isr if each != broker)
                states.append(self._stored(p, leader, isr))
                self.says.cut(at, states[-1], broker)
            self.says.replica(at, p, broker, "OfflineReplica" if p in left else before, "OfflineReplica")
        return self._tell(at + self._write(states), states, but=broker)

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
                at += _TURN_MS
                if broker in p.isr:
                    isr = p.isr if len(p.isr) == 1 else tuple(each for each in p.isr if each != broker)
                    says.cut(at, self._stored(p, NOBODY if p.leader == broker else p.leader, isr), broker)
                says.replica(at, p, broker, "OnlineReplica", "OfflineReplica")
                says.replica(at + 0.01, p, broker, "OfflineReplica", "ReplicaDeletionStarted")
            at = self._stop(at, broker, held, delete=True)
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

    def _write(self, states: Sequence[State]) -> float:
        """What it takes to store these."""
        return (len(states) + _BATCH - 1) // _BATCH * _WRITE_MS

    # -- telling -------------------------------------------------------------------------------------------------------

    def _tell(
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
                if broker in self.live and broker != but and (only is None or broker in only):
                    told.setdefault(broker, []).append(state)
        changes: list[Change] = []
        for broker, theirs in sorted(told.items()):
            self.says.sending(at, broker, theirs)
            at += 0.05
        for broker, theirs in sorted(told.items()):
            changes += self._deliver(at, broker, theirs)
        self.brokers.change(changes)
        return self._metadata(at, states)

    def _deliver(self, at: float, broker: int, states: list[State]) -> list[Change]:
        target = self.brokers[broker]
        changes: list[Change] = []

        def receive(begin: float, origin: Origin) -> float:
            done, found = self.brokers.receive(target, begin, states, origin)
            changes.extend(found)
            return done

        self._request(at, broker, "LEADER_AND_ISR", receive)
        return changes

    def _metadata(self, at: float, states: Sequence[State]) -> float:
        """Tell everybody alive who leads; of no partitions if only brokers changed."""
        known = [state for state in states if state.leader_epoch >= 0]
        self.says.metadata(at, sorted(self.live), known)
        for broker in sorted(self.live):
            target = self.brokers[broker]

            def receive(begin: float, origin: Origin, target: Broker = target) -> float:
                self.brokers.cached(begin + 0.4, target, known, origin)
                return begin + 0.4 + 0.002 * len(known)

            self._request(at + 0.1, broker, "UPDATE_METADATA", receive)
        return at + 0.2

    def _stop(self, at: float, broker: int, partitions: Sequence[Partition], *, delete: bool) -> float:
        if broker not in self.live or not partitions:
            return at
        self.says.stopping(at, broker, partitions, delete)

        def receive(begin: float, origin: Origin) -> float:
            self.brokers.stopped(begin, self.brokers[broker], list(partitions), origin, delete=delete)
            return begin + 1

        self._request(at, broker, "STOP_REPLICA", receive)
        return at + 2

    def _request(self, at: float, broker: int, request: str, receive: Callable[[float, Origin], float]) -> None:
        """One request, after those before it; nothing comes of it if nobody is there."""
        channel = self._channels.setdefault(broker, _Channel())
        origin = Origin(self.now, self.epoch, channel.next)
        channel.next += 1
        if not self.brokers[broker].alive:
            return
        done = receive(max(at, channel.free) + _NET_MS, origin)
        channel.free = done + _NET_MS
        self.says.answered(channel.free, request, broker, origin.correlation)
