"""What kactl writes as the controller: one event to a line, in JSON. It has no requests and no controller.log."""

import json
from collections.abc import Sequence
from typing import Any, Final

from .cluster import NOBODY, Partition, Topic
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
    """Those of one instance. The number of an event rises from line to line, whatever is written in which order."""

    def __init__(self, instance: int, journal: Journal) -> None:
        self.epoch = 0
        self._instance = instance
        self._journal = journal
        self._seq = 0

    def _say(self, at: float, kind: str, **said: Any) -> None:
        self._seq += 1
        shown = int(self._journal.clock.shows(at))
        event = {"kind": kind, "seq": self._seq, "time_ms": shown, "controller_epoch": self.epoch, **said}
        self._journal.lines.append((at, json.dumps(event, separators=(",", ":"))))

    def _partition(self, at: float, before: str, after: str, state: State, refused: str = "") -> None:
        self._say(
            at, "partition", topic=state.partition.topic.name, partition=state.partition.number,
            from_state=_PARTITION[before], to_state=_PARTITION[after], leader=state.leader,
            leader_epoch=state.leader_epoch, isr=state.isr, partition_epoch=state.partition_epoch,
            recovering=state.recovering, refused=refused,
        )  # fmt: skip

    def _stored(self, at: float, before: str, after: str, p: Partition, refused: str = "") -> None:
        state = State(
            p, p.leader, p.leader_epoch, p.isr, p.partition_epoch, p.replicas, (), (), p.recovering, False, self.epoch
        )
        self._partition(at, before, after, state, refused)

    def became(self, at: float, p: Partition) -> None:
        self._stored(at, NONE, NEW, p)

    def online(self, at: float, before: str, state: State) -> None:
        self._partition(at, before, ONLINE, state)

    def moved(self, at: float, p: Partition, before: str, after: str) -> None:
        self._stored(at, before, after, p)

    def failed(self, at: float, p: Partition, before: str, strategy: str) -> None:
        self._stored(at, before, ONLINE, p, "no replica may lead")

    def replica(self, at: float, p: Partition, broker: int, before: str, after: str) -> None:
        self._say(
            at, "replica", topic=p.topic.name, partition=p.number, broker=broker, from_state=_REPLICA[before],
            to_state=_REPLICA[after],
        )  # fmt: skip

    def cut(self, at: float, state: State, broker: int) -> None:
        if state.partition.topic.deleting:
            return  # nothing is stored of it any more, and so nothing changes
        now = OFFLINE if state.leader == NOBODY else ONLINE
        self._partition(at, now, now, state)

    def sending(self, at: float, broker: int, states: Sequence[State]) -> None: ...

    def metadata(self, at: float, brokers: Sequence[int], states: Sequence[State]) -> None: ...

    def stopping(self, at: float, broker: int, partitions: Sequence[Partition], delete: bool) -> None: ...

    def answered(self, at: float, request: str, broker: int, correlation: int) -> None: ...

    def isr(self, at: float, state: State) -> None:
        self._partition(at, ONLINE, ONLINE, state)

    def elected(self, at: float, live: Sequence[int]) -> None:
        self._say(at, "controller", what="elected", controller_id=self._instance, cause="")

    def ready(self, at: float) -> None: ...

    def started(self, at: float) -> None: ...

    def resigned(self, at: float) -> None:
        self._say(at, "controller", what="resigned", controller_id=self._instance, cause="the session is over")

    def brokers(self, at: float, added: Sequence[int], removed: Sequence[int], live: Sequence[int]) -> None:
        for what, which in (("started", added), ("failed", removed)):
            for broker in which:
                self._broker(at, what, broker)

    def broker_stopping(self, at: float, broker: int) -> None:
        self._broker(at, "shutting-down", broker)

    def broker_stopped(self, at: float, broker: int) -> None: ...

    def _broker(self, at: float, what: str, broker: int) -> None:
        self._say(at, "broker", what=what, broker=broker, broker_epoch=1000 + broker)

    def election(self, at: float, kind: str, partitions: Sequence[Partition], trigger: str) -> None: ...

    def imbalance(self, at: float, broker: int, ratio: float) -> None: ...

    def topic_created(self, at: float, topic: Topic) -> None:
        self._say(at, "topic", what="created", topic=topic.name, cause="")

    def deletion(self, at: float, topic: Topic, step: str, dead: Sequence[tuple[Partition, int]] = ()) -> None:
        what = {"started": "deletion started", "halted": "deletion halted", "done": "deleted"}.get(step)
        if what is not None:
            self._say(at, "topic", what=what, topic=topic.name, cause="dead replicas" if step == "halted" else "")

    def reassignment(self, at: float, p: Partition, step: str, target: tuple[int, ...]) -> None:
        if step == "epoch":
            self._stored(at, ONLINE, ONLINE, p)
