"""KRaft: a quorum of controllers with a metadata log, and brokers that read the log.

Three processes write a controller.log at INFO. The active one writes the metadata log, which is a file of the dump
tool's output. Brokers apply their roles when they read the records, some milliseconds later.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from .brokers import Brokers, Change
from .cluster import NO_BROKER, Cluster, Partition, Topic
from .journal import Journal
from .states import State, ids, state_of
from .truth import Controllership, Recorder

_LOGGER: Final = " (org.apache.kafka.controller.QuorumController)"
_HEARTBEATS: Final = " (org.apache.kafka.controller.BrokerHeartbeatManager)"
_REPLICATION: Final = " (org.apache.kafka.controller.ReplicationControlManager)"
_TURN_MS: Final = 0.02
_READS_MS: Final = 4.0


class QuorumControl:
    """The controllers of a quorum, one of which is active."""

    def __init__(
        self, cluster: Cluster, brokers: Brokers, recorder: Recorder, logs: dict[int, Journal], dump: Journal
    ) -> None:
        self.cluster = cluster
        self.brokers = brokers
        self.recorder = recorder
        self.active = NO_BROKER
        self.epoch = 0
        self.live: set[int] = set()
        self.stopping: set[int] = set()
        self._logs = logs
        self._dump = dump
        self._offset = 0
        self._waits: list[Change] = []
        dump.lines.append((0.0, "Dumping 00000000000000000000.log"))

    # -- controllers ---------------------------------------------------------------------------------------------------

    def take_over(self, time_ms: float, controller: int) -> float:
        """Elects a controller. It sends no requests."""
        self.active = controller
        self.epoch += 1
        self.recorder.truth.controllers.append(Controllership(controller=controller, epoch=self.epoch, time_ms=time_ms))
        for id in self._logs:
            self._append(time_ms - 1, f"In the new epoch {self.epoch}, the leader is {controller}.", by=id)
        self._append(
            time_ms, f"Becoming the active controller at epoch {self.epoch}, next write offset {self._offset}."
        )
        return time_ms + 5

    def resign(self, time_ms: float) -> None:
        self._append(time_ms, "Renouncing the leadership due to a metadata log event.", level="WARN")

    # -- brokers -------------------------------------------------------------------------------------------------------

    def failed(self, time_ms: float, dead: int) -> float:
        """Fences a broker after its session has expired."""
        if dead not in self.live:
            return time_ms
        was_asked = dead in self.stopping
        self.live.discard(dead)
        self.stopping.discard(dead)
        if not was_asked:
            self._append(time_ms, f"Fencing broker {dead} because its session has timed out.", logger=_REPLICATION)
        self._record(time_ms, "BROKER_REGISTRATION_CHANGE", brokerId=dead, brokerEpoch=1000 + dead, fenced=1)
        return self._leaves(time_ms, dead)

    def started(self, time_ms: float, broker: int) -> float:
        """Unfences a broker that has registered and caught up."""
        text = (
            f"The request from broker {broker} to unfence has been granted because it has caught up with the offset of "
            f"its register broker record {self._offset}."
        )
        self._record(time_ms, "REGISTER_BROKER", brokerId=broker, brokerEpoch=1000 + broker, fenced=True)
        time_ms += 20
        self.live.add(broker)
        self._append(time_ms, text, logger=_HEARTBEATS)
        self._record(time_ms, "BROKER_REGISTRATION_CHANGE", brokerId=broker, brokerEpoch=1000 + broker, fenced=-1)
        # The broker reads the metadata log from the beginning.
        for p in self.cluster.hosted[broker]:
            if p.leader_epoch >= 0:
                self._read(time_ms, p, only=broker)
        for p in list(self.cluster.offline):
            if broker in p.isr:
                time_ms = self._change(time_ms, p, leader=broker)
        return self._settle(time_ms)

    def stop(self, time_ms: float, broker: int) -> float:
        """Grants a controlled shutdown."""
        self.stopping.add(broker)
        text = f"Unfenced broker {broker} has requested and been granted a controlled shutdown."
        self._append(time_ms, text, logger=_HEARTBEATS)
        self._record(
            time_ms, "BROKER_REGISTRATION_CHANGE", brokerId=broker, brokerEpoch=1000 + broker, inControlledShutdown=1
        )
        return self._leaves(time_ms, broker)

    def _leaves(self, time_ms: float, broker: int) -> float:
        """Removes a broker from all ISRs of which it is not the last member, and elects other leaders if possible."""
        usable = self.live - self.stopping
        for p in list(self.cluster.hosted[broker]):
            if broker not in p.isr:
                continue
            rest = tuple(id for id in p.isr if id != broker)
            if p.leader != broker:
                if rest:
                    time_ms = self._change(time_ms, p, isr=rest)
                continue
            leader = next((id for id in p.replicas if id in rest and id in usable), None)
            time_ms = (
                self._lose(time_ms, p, usable) if leader is None else self._change(time_ms, p, leader=leader, isr=rest)
            )
        return self._settle(time_ms)

    def _lose(self, time_ms: float, p: Partition, usable: set[int]) -> float:
        """Handles a partition without a live in-sync replica: offline, or an unclean election."""
        alive = [broker for broker in p.replicas if broker in usable]
        if not (p.unclean and alive):
            p.online = False
            self.cluster.offline[p] = None
            return self._change(time_ms, p, leader=NO_BROKER)
        before = (p.isr, p.leader, p.leader_epoch, p.partition_epoch)
        p.recovering = True
        time_ms = self._change(time_ms, p, leader=alive[0], isr=(alive[0],), recovery=1)
        self.recorder.unclean(p, time_ms, p.leader, p.leader_epoch)
        text = (
            f"UNCLEAN partition change for {p.name} with topic ID {p.topic.id}: isr: [{ids(before[0])}] -> "
            f"[{p.leader}], leader: {before[1]} -> {p.leader}, leaderRecoveryState: RECOVERED -> RECOVERING, "
            f"leaderEpoch: {before[2]} -> {p.leader_epoch}, partitionEpoch: {before[3]} -> {p.partition_epoch}"
        )
        self._append(time_ms, text, logger=_REPLICATION)
        return time_ms

    # -- operations ----------------------------------------------------------------------------------------------------

    def prefer(self, time_ms: float, partitions: Sequence[Partition], trigger: str = "AutoTriggered") -> float:
        """Elects the first assigned replica of each partition, if it is in sync."""
        for p in partitions:
            first = p.replicas[0]
            if p.leader not in (NO_BROKER, first) and first in p.isr and first in self.live - self.stopping:
                time_ms = self._change(time_ms, p, leader=first)
        return self._settle(time_ms)

    def proposed(self, time_ms: float, p: Partition, isr: tuple[int, ...]) -> float:
        """Stores a leader's change of its ISR."""
        before = self.cluster.propose(p, time_ms, isr)
        self.recorder.isr(p, len(before), len(isr))
        data: dict[str, Any] = {"isr": isr}
        if p.recovering:
            p.recovering, data["leaderRecoveryState"] = False, 0
        assert p.serving is not None
        self.brokers[p.serving].lines.isr(time_ms, p, before, p.logs[p.serving])
        self._record(time_ms + 1, "PARTITION_CHANGE", partitionId=p.number, topicId=p.topic.id, **data)
        return time_ms + 2

    def propagate(self, time_ms: float, partitions: Iterable[Partition]) -> float:
        """Does nothing, because all brokers read the metadata log."""
        return time_ms

    def create(self, time_ms: float, topic: Topic) -> float:
        """Creates a topic."""
        self._record(time_ms, "TOPIC", name=topic.name, topicId=topic.id)
        for p in topic.partitions:
            p.isr = tuple(broker for broker in p.replicas if broker in self.live)
            p.leader, p.leader_epoch, p.partition_epoch, p.online = p.isr[0], 0, 0, True
            self._record(
                time_ms, "PARTITION", partitionId=p.number, topicId=topic.id, replicas=p.replicas, isr=p.isr,
                removingReplicas=(), addingReplicas=(), leader=p.leader, leaderEpoch=0, partitionEpoch=0,
            )  # fmt: skip
            self._read(time_ms, p)
            time_ms += _TURN_MS
        return self._settle(time_ms)

    def delete(self, time_ms: float, topic: Topic) -> float:
        """Deletes a topic at once, even if brokers are down."""
        topic.deleting = True
        self._record(time_ms, "REMOVE_TOPIC", topicId=topic.id)
        self.recorder.truth.deletions.append((topic.name, time_ms, None))
        for p in topic.partitions:
            self.recorder.gone(p)
        self.recorder.deleted(topic, time_ms)
        self.cluster.remove(topic)
        return time_ms + 1

    def reassign(self, time_ms: float, p: Partition, target: tuple[int, ...]) -> float:
        """Begins a reassignment by adding replicas."""
        origin = p.replicas
        p.adding = tuple(broker for broker in target if broker not in origin)
        p.removing = tuple(broker for broker in origin if broker not in target)
        p.replicas = (*target, *p.removing)
        self.cluster.assign(p)
        time_ms = self._change(time_ms, p, replicas=p.replicas, addingReplicas=p.adding, removingReplicas=p.removing)
        for broker in p.adding:
            self._read(time_ms, p, only=broker)
        return self._settle(time_ms)

    def reassigned(self, time_ms: float, p: Partition) -> float:
        """Completes a reassignment by removing replicas; all target replicas are in sync."""
        target = p.replicas[: len(p.replicas) - len(p.removing)]
        leaving, p.replicas, p.adding, p.removing = p.removing, target, (), ()
        isr = tuple(broker for broker in p.isr if broker in target)
        # A record that removes replicas names the leader even if it stays, to raise the leader epoch.
        stays = p.leader in target
        leader = p.leader if stays else next(broker for broker in target if broker in isr)
        also = () if stays else leaving
        self.cluster.assign(p)
        time_ms = self._change(
            time_ms, p, leader=leader, isr=isr, replicas=target, addingReplicas=(), removingReplicas=(), also=also
        )
        time_ms = self._settle(time_ms)
        for broker in leaving:
            p.fetching.discard(broker)
            p.waiting.discard(broker)
            p.logs.pop(broker, None)
            p.took_part.pop(broker, None)
            self.brokers[broker].roles.pop(p, None)
        return time_ms

    # -- deciding and writing ------------------------------------------------------------------------------------------

    def _change(
        self,
        time_ms: float,
        p: Partition,
        *,
        leader: int | None = None,
        isr: tuple[int, ...] | None = None,
        recovery: int | None = None,
        also: tuple[int, ...] = (),
        **more: Any,
    ) -> float:
        """Writes one record; None leaves a value unchanged. A leader in the record raises the leader epoch."""
        data: dict[str, Any] = {"partitionId": p.number, "topicId": p.topic.id}
        if isr is not None:
            data["isr"] = p.isr = isr
        if leader is not None:
            data["leader"] = p.leader = leader
            p.leader_epoch += 1
            p.online = leader != NO_BROKER
            if p.online:
                self.cluster.offline.pop(p, None)
        if recovery is not None:
            data["leaderRecoveryState"] = recovery
        p.partition_epoch += 1
        self._record(time_ms, "PARTITION_CHANGE", **data, **more)
        if leader is not None:
            self._read(time_ms, p, also=also)
        return time_ms + _TURN_MS

    def _read(self, time_ms: float, p: Partition, *, only: int | None = None, also: tuple[int, ...] = ()) -> None:
        """Schedules that brokers read the partition's state some milliseconds later, at the next `_settle`."""
        state: State = state_of(p, self.epoch)
        for broker in (*p.replicas, *also):
            if (only is None or broker == only) and self.brokers[broker].alive:
                later = time_ms + _READS_MS + self.cluster.chance.random() * _READS_MS
                self._waits.append((later, self.brokers[broker], state, None))

    def _settle(self, time_ms: float) -> float:
        changes, self._waits = self._waits, []
        self.brokers.change(changes)
        return max([time_ms, *(change[0] for change in changes)])

    def _record(self, time_ms: float, kind: str, **data: Any) -> None:
        shown = int(self._dump.clock.shows(time_ms))
        payload = json.dumps({"type": f"{kind}_RECORD", "version": 0, "data": data}, separators=(",", ":"))
        text = (
            f"| offset: {self._offset} CreateTime: {shown} keySize: -1 valueSize: {len(payload)} sequence: -1 "
            f"headerKeys: [] payload: {payload}"
        )
        self._dump.lines.append((time_ms, text))
        self._offset += 1

    def _append(
        self, time_ms: float, text: str, *, level: str = "INFO", by: int | None = None, logger: str = _LOGGER
    ) -> None:
        controller = self.active if by is None else by
        self._logs[controller].lines.append((time_ms, f"{level} [QuorumController id={controller}] {text}{logger}"))
