"""Interruptions of owners of the partitions of ownership topics, here called shards: INV-71.

The leadership of an owner ends for its own shard, which has another owner, is deleted, or cannot be served, or with its
participant or its lease. Nothing that happens to another shard ends it; so no participant that answers is evicted for
a leadership that it has not been ordered to end.
"""

from typing import Any

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

from .owners import FAILED_MS, Shard, shard_of
from .stored import Stored, is_failure, is_ownership, leadership_writes

# A shard at a broker.
_Replica = tuple[int, Shard]


class Interruptions(Checker):
    """No leadership of an owner ends for another shard."""

    kinds = (
        "store.commit", "lease.begin", "lease.keep", "lease.end", "lease.lapse", "node.crash", "role.apply",
        "handler.report", "phase.end", "req.enqueue", "req.replace", "req.attempt", "req.drop", "fsm.broker",
    )  # fmt: skip
    invariants = ("INV-71",)

    def __init__(self) -> None:
        self._stored = Stored()
        self._leaders: dict[Shard, dict[int, int]] = {}  # of each leader epoch
        # The begin of each leadership that goes on, or the event with which it goes on under a later leader epoch.
        self._acting: dict[_Replica, Event] = {}
        self._ordered: dict[_Replica, int] = {}  # the last leader epoch that a request names
        self._channels: dict[int, int] = {}  # the last one to each broker
        self._waiting: dict[int, set[int]] = {}  # requests without an answer, of each channel
        self._returned: set[_Replica] = set()  # calls of `lead` have ended by themselves
        self._failed_ms: dict[_Replica, float] = {}
        # Begins and ends of leaderships without a reason. The participant may report one until the next begin.
        self._unexplained: dict[_Replica, tuple[Event, Event]] = {}

    def check(self, event: Event) -> Violation | None:
        match event.kind:
            case "store.commit" if event.fields["outcome"] == "ok":
                self._committed(event)
            case "req.enqueue" | "req.replace" | "req.attempt" | "req.drop":
                self._sent(event.kind, event.fields)
            case "fsm.broker" if event.fields["what"] == "evicted":
                return self._evicted(event, event.fields["broker"])
            case "lease.lapse" | "node.crash":
                self._forget(event.node)
            case "lease.begin" | "lease.keep" | "lease.end" | "phase.end" | "role.apply" | "handler.report":
                return self._heard(event, (event.fields["broker"], shard_of(event.fields)))
        return None

    def at_end(self) -> Violation | None:
        for replica, (began, ended) in self._unexplained.items():
            if not self._is_explained(ended, replica, began):
                return _interrupted(ended, began)
        return None

    def _committed(self, event: Event) -> None:
        for topic, partition, _, _, value in leadership_writes(event):
            if value is None:
                self._leaders.pop((topic, int(partition)), None)
            else:
                self._leaders.setdefault((topic, int(partition)), {})[value["leader_epoch"]] = value["leader"]
        self._stored.apply(event)

    def _sent(self, kind: str, fields: dict[str, Any]) -> None:
        channel = fields["channel"]
        waiting = self._waiting.setdefault(channel, set())
        match kind:
            case "req.enqueue":
                self._channels[fields["broker"]] = channel
                waiting.add(fields["request"])
                for name, epoch in zip(fields["partitions"], fields["leader_epochs"], strict=True):
                    topic, _, partition = name.rpartition("-")
                    self._ordered[fields["broker"], (topic, int(partition))] = epoch
            case "req.replace":
                waiting.difference_update(fields["before"])
                waiting.update(after[0] for after in fields["after"])
            case "req.attempt" if fields["outcome"] == "answered":
                waiting.discard(fields["request"])
            case "req.drop":
                del self._waiting[channel]

    def _forget(self, node: str) -> None:
        for known in (self._acting, self._unexplained):
            for replica in [replica for replica in known if node == f"broker {replica[0]}"]:
                del known[replica]

    def _heard(self, event: Event, replica: _Replica) -> Violation | None:
        """A participant has recorded something of a replica."""
        match event.kind:
            case "lease.begin" | "lease.keep" if is_ownership(event.fields["topic_id"]):
                self._acting[replica] = event
                before = self._unexplained.pop(replica, None)
                if before is not None and not self._is_explained(before[1], replica, before[0]):
                    return _interrupted(event, before[1])
                self._returned.discard(replica)
            case "lease.end" if (began := self._acting.pop(replica, None)) is not None:
                if not self._is_explained(event, replica, began):
                    self._unexplained[replica] = began, event
            case "phase.end" if event.fields["phase"] == "lead" and replica in self._acting:
                self._returned.add(replica)
            case "role.apply" | "handler.report" if is_failure(event):
                self._failed_ms[replica] = event.time_ms
                self._unexplained.pop(replica, None)
        return None

    def _is_explained(self, event: Event, replica: _Replica, began: Event) -> bool:
        """Whether a leadership ends for its own shard, or with its participant or its lease."""
        registered = self._stored.value(f"brokers/{replica[0]}")
        return (
            event.fields["late_ms"] > 0
            or registered is None
            or registered["epoch"] != began.fields["life"]
            or replica in self._returned
            or event.time_ms - self._failed_ms.get(replica, -FAILED_MS) < FAILED_MS
            or self._is_away(replica[1], began)
        )

    def _is_away(self, shard: Shard, began: Event) -> bool:
        """Whether a shard has had another owner since a leadership began, or is deleted."""
        fields = began.fields
        is_deleted = self._stored.value(f"deletions/{shard[0]}") is not None
        if is_deleted or self._stored.topic_id(shard[0]) != fields["topic_id"]:
            return True
        later = self._leaders.get(shard, {}).items()
        return any(epoch > fields["present_epoch"] and leader != fields["broker"] for epoch, leader in later)

    def _evicted(self, event: Event, broker: int) -> Violation | None:
        """All leaderships of a participant end, since it has not ended some. One that cannot be reached has to go."""
        if self._waiting.get(self._channels.get(broker, 0)):
            return None
        away = {
            replica: began
            for replica, began in self._acting.items()
            if replica[0] == broker and self._is_away(replica[1], began)
        }
        ordered = {each for each in away if self._ordered.get(each, -1) > away[each].fields["present_epoch"]}
        if ordered or not away:
            return None
        (_, (topic, partition)), began = next(iter(away.items()))
        text = f"broker {broker} is evicted for {topic}-{partition}, which it has no order to end"
        return Violation("INV-71", text, event=event, contradicts=began)


def _interrupted(event: Event, before: Event) -> Violation:
    name = f"{event.fields['topic']}-{event.fields['partition']}"
    text = f"{event.node} interrupts its leadership of {name}, which it owns and can serve"
    return Violation("INV-71", text, event=event, contradicts=before)
