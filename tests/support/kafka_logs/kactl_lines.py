"""Lines of kactl as the controller: one JSON event per line, without requests and without a controller.log."""

import json
from collections.abc import Sequence
from typing import Any, Final

from .cluster import NO_BROKER, Partition, Topic
from .controller_lines import NEW, NONE, OFFLINE, ONLINE
from .journal import Journal
from .states import State

_PARTITION: Final = {NEW: "new", ONLINE: "online", OFFLINE: "offline", NONE: "absent"}
_REPLICA: Final = {
    "NewReplica": "new",
    "OnlineReplica": "online",
    "OfflineReplica": "offline",
    "ReplicaDeletionStarted": "deletion_started",
    "ReplicaDeletionSuccessful": "deletion_successful",
    "ReplicaDeletionIneligible": "deletion_ineligible",
    "NonExistentReplica": "absent",
}


class KactlLines:
    """Writer of one instance's lines, which are numbered in the order of the calls."""

    def __init__(self, instance: int, journal: Journal) -> None:
        self.epoch = 0
        self._instance = instance
        self._journal = journal
        self._seq = 0

    def _append(self, time_ms: float, kind: str, **fields: Any) -> None:
        self._seq += 1
        shown = int(self._journal.clock.shows(time_ms))
        event = {"kind": kind, "seq": self._seq, "time_ms": shown, "controller_epoch": self.epoch, **fields}
        self._journal.lines.append((time_ms, json.dumps(event, separators=(",", ":"))))

    def _partition(self, time_ms: float, before: str, after: str, state: State, refused: str = "") -> None:
        self._append(
            time_ms, "partition", topic=state.partition.topic.name, partition=state.partition.number,
            from_state=_PARTITION[before], to_state=_PARTITION[after], leader=state.leader,
            leader_epoch=state.leader_epoch, isr=state.isr, partition_epoch=state.partition_epoch,
            recovering=state.recovering, refused=refused,
        )  # fmt: skip

    def _stored(self, time_ms: float, before: str, after: str, p: Partition, refused: str = "") -> None:
        state = State(
            p, p.leader, p.leader_epoch, p.isr, p.partition_epoch, p.replicas, (), (), p.recovering, False, self.epoch
        )
        self._partition(time_ms, before, after, state, refused)

    def became(self, time_ms: float, p: Partition) -> None:
        self._stored(time_ms, NONE, NEW, p)

    def online(self, time_ms: float, before: str, state: State) -> None:
        self._partition(time_ms, before, ONLINE, state)

    def moved(self, time_ms: float, p: Partition, before: str, after: str) -> None:
        self._stored(time_ms, before, after, p)

    def failed(self, time_ms: float, p: Partition, before: str, strategy: str) -> None:
        self._stored(time_ms, before, ONLINE, p, "no replica may lead")

    def replica(self, time_ms: float, p: Partition, broker: int, before: str, after: str) -> None:
        self._append(
            time_ms, "replica", topic=p.topic.name, partition=p.number, broker=broker, from_state=_REPLICA[before],
            to_state=_REPLICA[after],
        )  # fmt: skip

    def cut(self, time_ms: float, state: State, broker: int) -> None:
        if state.partition.topic.deleting:
            return  # the topic is no longer stored
        now = OFFLINE if state.leader == NO_BROKER else ONLINE
        self._partition(time_ms, now, now, state)

    def sending(self, time_ms: float, broker: int, states: Sequence[State]) -> None: ...

    def metadata(self, time_ms: float, brokers: Sequence[int], states: Sequence[State]) -> None: ...

    def stopping(self, time_ms: float, broker: int, partitions: Sequence[Partition], delete: bool) -> None: ...

    def answered(self, time_ms: float, request: str, broker: int, correlation: int) -> None: ...

    def isr(self, time_ms: float, state: State) -> None:
        self._partition(time_ms, ONLINE, ONLINE, state)

    def elected(self, time_ms: float, live: Sequence[int]) -> None:
        self._append(time_ms, "controller", what="elected", controller_id=self._instance, cause="")

    def ready(self, time_ms: float) -> None: ...

    def started(self, time_ms: float) -> None: ...

    def resigned(self, time_ms: float) -> None:
        self._append(time_ms, "controller", what="resigned", controller_id=self._instance, cause="the session is over")

    def brokers(self, time_ms: float, added: Sequence[int], removed: Sequence[int], live: Sequence[int]) -> None:
        for change, ids in (("started", added), ("failed", removed)):
            for broker in ids:
                self._broker(time_ms, change, broker)

    def broker_stopping(self, time_ms: float, broker: int) -> None:
        self._broker(time_ms, "shutting-down", broker)

    def broker_stopped(self, time_ms: float, broker: int) -> None: ...

    def _broker(self, time_ms: float, change: str, broker: int) -> None:
        self._append(time_ms, "broker", what=change, broker=broker, broker_epoch=1000 + broker)

    def election(self, time_ms: float, kind: str, partitions: Sequence[Partition], trigger: str) -> None: ...

    def imbalance(self, time_ms: float, broker: int, ratio: float) -> None: ...

    def topic_created(self, time_ms: float, topic: Topic) -> None:
        self._append(time_ms, "topic", what="created", topic=topic.name, cause="")

    def deletion(self, time_ms: float, topic: Topic, step: str, dead: Sequence[tuple[Partition, int]] = ()) -> None:
        change = {"started": "deletion started", "halted": "deletion halted", "done": "deleted"}.get(step)
        if change is not None:
            self._append(
                time_ms, "topic", what=change, topic=topic.name, cause="dead replicas" if step == "halted" else ""
            )

    def reassignment(self, time_ms: float, p: Partition, step: str, target: tuple[int, ...]) -> None:
        if step == "epoch":
            self._stored(time_ms, ONLINE, ONLINE, p)
