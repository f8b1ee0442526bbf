"""KRaft: a quorum of controllers, whose metadata log is the whole truth, and brokers that read it.

Three processes write a controller.log, at INFO; the one in charge writes the metadata log, which is printed by the dump
tool into one file. Brokers take their roles when they read the records, some milliseconds later.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from .brokers import Brokers, Change
from .cluster import NOBODY, Cluster, Partition, Topic
from .journal import Journal
from .states import State, ids, state_of
from .truth import Controllership, Watch

_LOGGER: Final = " (org.apache.kafka.controller.QuorumController)"
_HEARTBEATS: Final = " (org.apache.kafka.controller.BrokerHeartbeatManager)"
_REPLICATION: Final = " (org.apache.kafka.controller.ReplicationControlManager)"
_TURN_MS: Final = 0.02
_READS_MS: Final = 4.0


class QuorumControl:
    """The quorum's controllers, of which one is in charge."""

    def __init__(
        self, cluster: Cluster, brokers: Brokers, watch: Watch, logs: dict[int, Journal], dump: Journal
    ) -> None:
        self.cluster = cluster
        self.brokers = brokers
        self.watch = watch
        self.now = NOBODY
        self.epoch = 0
        self.live: set[int] = set()
        self.stopping: set[int] = set()
        self._logs = logs
        self._dump = dump
        self._offset = 0
        self._waits: list[Change] = []
        dump.lines.append((0.0, "Dumping 00000000000000000000.log"))

    # -- who is in charge ----------------------------------------------------------------------------------------------

    def take_over(self, at: float, who: int) -> float:
        """Another one is elected by the quorum; nothing that it has to tell anybody."""
        self.now = who
        self.epoch += 1
        self.watch.truth.controllers.append(Controllership(controller=who, epoch=self.epoch, at=at))
        for controller in self._logs:
            text = f"In the new epoch {self.epoch}, the leader is {who}."
            self._say(at - 1, text, by=controller)
        self._say(at, f"Becoming the active controller at epoch {self.epoch}, next write offset {self._offset}.")
        return at + 5

    def resign(self, at: float) -> None:
        self._say(at, "Renouncing the leadership due to a metadata log event.", level="WARN")

    # -- brokers -------------------------------------------------------------------------------------------------------

    def failed(self, at: float, dead: int) -> float:
        """A broker is silent for too long."""
        if dead not in self.live:
            return at
        was_asked = dead in self.stopping
        self.live.discard(dead)
        self.stopping.discard(dead)
        if not was_asked:
            self._say(at, f"Fencing broker {dead} because its session has timed out.", logger=_REPLICATION)
        self._record(at, "BROKER_REGISTRATION_CHANGE", brokerId=dead, brokerEpoch=1000 + dead, fenced=1)
        return self._leaves(at, dead)

    def started(self, at: float, broker: int) -> float:
        """A broker has registered and caught up."""
        text = (
            f"The request from broker {broker} to unfence has been granted because it has caught up with the offset of "
            f"its register broker record {self._offset}."
        )
        self._record(at, "REGISTER_BROKER", brokerId=broker, brokerEpoch=1000 + broker, fenced=True)
        at += 20
        self.live.add(broker)
        self._say(at, text, logger=_HEARTBEATS)
        self._record(at, "BROKER_REGISTRATION_CHANGE", brokerId=broker, brokerEpoch=1000 + broker, fenced=-1)
        # What it held it reads from the beginning.
        for p in self.cluster.held[broker]:
            if p.leader_epoch >= 0:
                self._read(at, p, only=broker)
        for p in list(self.cluster.offline):
            if broker in p.isr:
                at = self._change(at, p, leader=broker)
        return self._settle(at)

    def stop(self, at: float, broker: int) -> float:
        """A broker asks to be let go."""
        self.stopping.add(broker)
        text = f"Unfenced broker {broker} has requested and been granted a controlled shutdown."
        self._say(at, text, logger=_HEARTBEATS)
        self._record(
            at, "BROKER_REGISTRATION_CHANGE", brokerId=broker, brokerEpoch=1000 + broker, inControlledShutdown=1
        )
        return self._leaves(at, broker)

    def _leaves(self, at: float, broker: int) -> float:
        """It leaves all ISRs that it is not the last of, and others lead what it led, or nobody."""
        usable = self.live - self.stopping
        for p in list(self.cluster.held[broker]):
            if broker not in p.isr:
                continue
            rest = tuple(each for each in p.isr if each != broker)
            if p.leader != broker:
                if rest:
                    at = self._change(at, p, isr=rest)
                continue
            leader = next((each for each in p.replicas if each in rest and each in usable), None)
            at = self._lose(at, p, usable) if leader is None else self._change(at, p, leader=leader, isr=rest)
        return self._settle(at)

    def _lose(self, at: float, p: Partition, usable: set[int]) -> float:
        """Nobody in sync is there."""
        alive = [broker for broker in p.replicas if broker in usable]
        if not (p.unclean and alive):
            p.online = False
            self.cluster.offline[p] = None
            return self._change(at, p, leader=NOBODY)
        before = (p.isr, p.leader, p.leader_epoch, p.partition_epoch)
        p.recovering = True
        at = self._change(at, p, leader=alive[0], isr=(alive[0],), recovery=1)
        self.watch.unclean(p, at, p.leader, p.leader_epoch)
        text = (
            f"UNCLEAN partition change for {p.name} with topic ID {p.topic.id}: isr: [{ids(before[0])}] -> "
            f"[{p.leader}], leader: {before[1]} -> {p.leader}, leaderRecoveryState: RECOVERED -> RECOVERING, "
            f"leaderEpoch: {before[2]} -> {p.leader_epoch}, partitionEpoch: {before[3]} -> {p.partition_epoch}"
        )
        self._say(at, text, logger=_REPLICATION)
        return at

    # -- what is asked of it -------------------------------------------------------------------------------------------

    def prefer(self, at: float, partitions: Sequence[Partition], trigger: str = "AutoTriggered") -> float:
        """The first of the assignment is to lead again, where it is in sync."""
        for p in partitions:
            first = p.replicas[0]
            if p.leader not in (NOBODY, first) and first in p.isr and first in self.live - self.stopping:
                at = self._change(at, p, leader=first)
        return self._settle(at)

    def proposed(self, at: float, p: Partition, isr: tuple[int, ...]) -> float:
        """A leader has changed its ISR."""
        before = self.cluster.propose(p, at, isr)
        self.watch.isr(p, len(before), len(isr))
        data: dict[str, Any] = {"isr": isr}
        if p.recovering:
            p.recovering, data["leaderRecoveryState"] = False, 0
        assert p.serving is not None
        self.brokers[p.serving].lines.isr(at, p, before, p.logs[p.serving])
        self._record(at + 1, "PARTITION_CHANGE", partitionId=p.number, topicId=p.topic.id, **data)
        return at + 2

    def propagate(self, at: float, partitions: Iterable[Partition]) -> float:
        """Everybody reads the metadata log anyway."""
        return at

    def create(self, at: float, topic: Topic) -> float:
        """A new topic."""
        self._record(at, "TOPIC", name=topic.name, topicId=topic.id)
        for p in topic.partitions:
            p.isr = tuple(broker for broker in p.replicas if broker in self.live)
            p.leader, p.leader_epoch, p.partition_epoch, p.online = p.isr[0], 0, 0, True
            self._record(
                at, "PARTITION", partitionId=p.number, topicId=topic.id, replicas=p.replicas, isr=p.isr,
                removingReplicas=(), addingReplicas=(), leader=p.leader, leaderEpoch=0, partitionEpoch=0,
            )  # fmt: skip
            self._read(at, p)
            at += _TURN_MS
        return self._settle(at)

    def delete(self, at: float, topic: Topic) -> float:
        """A topic is gone at once, whoever is away."""
        topic.deleting = True
        self._record(at, "REMOVE_TOPIC", topicId=topic.id)
        self.watch.truth.deletions.append((topic.name, at, None))
        for p in topic.partitions:
            self.watch.gone(p)
        self.watch.deleted(topic, at)
        self.cluster.remove(topic)
        return at + 1

    def reassign(self, at: float, p: Partition, target: tuple[int, ...]) -> float:
        """Begin to move a partition: replicas are added."""
        origin = p.replicas
        p.adding = tuple(broker for broker in target if broker not in origin)
        p.removing = tuple(broker for broker in origin if broker not in target)
        p.replicas = (*target, *p.removing)
        self.cluster.hold(p)
        at = self._change(at, p, replicas=p.replicas, addingReplicas=p.adding, removingReplicas=p.removing)
        for broker in p.adding:
            self._read(at, p, only=broker)
        return self._settle(at)

    def reassigned(self, at: float, p: Partition) -> float:
        """All of the target are in sync: the rest goes."""
        target = p.replicas[: len(p.replicas) - len(p.removing)]
        leaving, p.replicas, p.adding, p.removing = p.removing, target, (), ()
        isr = tuple(broker for broker in p.isr if broker in target)
        # Where replicas go, the record names the leader also if it stays, for the epoch's sake.
        stays = p.leader in target
        leader = p.leader if stays else next(broker for broker in target if broker in isr)
        also = () if stays else leaving
        self.cluster.hold(p)
        at = self._change(
            at, p, leader=leader, isr=isr, replicas=target, addingReplicas=(), removingReplicas=(), also=also
        )
        at = self._settle(at)
        for broker in leaving:
            p.fetching.discard(broker)
            p.waiting.discard(broker)
            p.logs.pop(broker, None)
            p.took_part.pop(broker, None)
            self.brokers[broker].roles.pop(p, None)
        return at

    # -- deciding and writing ------------------------------------------------------------------------------------------

    def _change(
        self,
        at: float,
        p: Partition,
        *,
        leader: int | None = None,
        isr: tuple[int, ...] | None = None,
        recovery: int | None = None,
        also: tuple[int, ...] = (),
        **more: Any,
    ) -> float:
        """One record: what is None stays as it is. A leader in it raises the leader epoch."""
        data: dict[str, Any] = {"partitionId": p.number, "topicId": p.topic.id}
        if isr is not None:
            data["isr"] = p.isr = isr
        if leader is not None:
            data["leader"] = p.leader = leader
            p.leader_epoch += 1
            p.online = leader != NOBODY
            if p.online:
                self.cluster.offline.pop(p, None)
        if recovery is not None:
            data["leaderRecoveryState"] = recovery
        p.partition_epoch += 1
        self._record(at, "PARTITION_CHANGE", **data, **more)
        if leader is not None:
            self._read(at, p, also=also)
        return at + _TURN_MS

    def _read(self, at: float, p: Partition, *, only: int | None = None, also: tuple[int, ...] = ()) -> None:
        """Let brokers read of it, somewhat later; at the next `_settle`."""
        state: State = state_of(p, self.epoch)
        for broker in (*p.replicas, *also):
            if (only is None or broker == only) and self.brokers[broker].alive:
                later = at + _READS_MS + self.cluster.chance.random() * _READS_MS
                self._waits.append((later, self.brokers[broker], state, None))

    def _settle(self, at: float) -> float:
        changes, self._waits = self._waits, []
        self.brokers.change(changes)
        return max([at, *(change[0] for change in changes)])

    def _record(self, at: float, kind: str, **data: Any) -> None:
        shown = int(self._dump.clock.shows(at))
        payload = json.dumps({"type": f"{kind}_RECORD", "version": 0, "data": data}, separators=(",", ":"))
        text = (
            f"| offset: {self._offset} CreateTime: {shown} keySize: -1 valueSize: {len(payload)} sequence: -1 "
            f"headerKeys: [] payload: {payload}"
        )
        self._dump.lines.append((at, text))
        self._offset += 1

    def _say(self, at: float, text: str, *, level: str = "INFO", by: int | None = None, logger: str = _LOGGER) -> None:
        who = self.now if by is None else by
        self._logs[who].lines.append((at, f"{level} [QuorumController id={who}] {text}{logger}"))
