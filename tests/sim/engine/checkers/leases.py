"""Leaderships of participants: INV-56 and INV-58.

Without ids, topics of one name cannot be told apart. No two leaderships of them overlap either, since a topic is
removed after its leaderships have ended. Leader epochs begin again.
"""

from typing import Any

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

from . import cut_short
from .cut_short import CutShort
from .stored import is_zero, topic_writes

# A registration: its node and its broker epoch.
_Life = tuple[str, int]
# A partition: topic name, topic id, index.
_Partition = tuple[str, str, int]


class Leases(Checker):
    """No leadership begins while another registration acts, nor under an earlier leader epoch."""

    kinds = ("lease.begin", "lease.keep", "lease.end", "lease.lapse", "node.crash", *cut_short.KINDS)
    invariants = ("INV-56", "INV-58")

    def __init__(self) -> None:
        self._acting: dict[_Partition, dict[_Life, Event]] = {}
        self._last: dict[_Partition, Event] = {}
        self._cut_short = CutShort()

    def check(self, event: Event) -> Violation | None:
        if event.kind in cut_short.KINDS:
            self._cut_short.add(event)
            if event.kind == "store.commit":
                self._topics_written(event)
            return None
        fields = event.fields
        if event.kind == "lease.begin":
            return self._begins(event, fields)
        if event.kind == "lease.keep":
            if (fields["broker"], fields["life"]) not in self._cut_short.lives:
                self._last[_partition(fields)] = event
            return None
        for partition, lives in self._acting.items():
            if event.kind == "lease.end" and (partition[0], partition[2]) != (fields["topic"], fields["partition"]):
                continue
            for life in [life for life in lives if life[0] == event.node]:
                if event.kind == "node.crash" or life[1] == fields["life"]:
                    del lives[life]
        return None

    def _topics_written(self, event: Event) -> None:
        """Forget the leader epochs of topics without ids that were removed: those of the next topics begin again."""
        removed = {topic for topic, value in topic_writes(event) if value is None}
        for partition in [partition for partition in self._last if partition[0] in removed and is_zero(partition[1])]:
            del self._last[partition]

    def _begins(self, event: Event, fields: dict[str, Any]) -> Violation | None:
        partition = _partition(fields)
        if (fields["broker"], fields["life"]) in self._cut_short.lives:
            return None
        life, valid = (event.node, fields["life"]), {tuple(other) for other in fields["valid"]}
        lives, last = self._acting.setdefault(partition, {}), self._last.get(partition)
        for other, began in lives.items():
            is_protected = (began.fields["broker"], other[1]) not in self._cut_short.lives
            if other != life and other in valid and is_protected:
                text = f"{event.node} begins to lead {partition[0]}-{partition[2]} while {other[0]} acts as its leader"
                return Violation("INV-56", text, event=event, contradicts=began)
        lives[life] = event
        self._last[partition] = event
        if last is not None and any(last.fields[name] > fields[name] for name in ("leader_epoch", "present_epoch")):
            text = f"{event.node} leads {partition[0]}-{partition[2]} under an earlier leader epoch than before"
            return Violation("INV-58", text, event=event, contradicts=last)
        return None


def _partition(fields: dict[str, Any]) -> _Partition:
    return fields["topic"], fields["topic_id"], fields["partition"]
