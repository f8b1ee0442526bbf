"""Leaderships that go on while the ISR changes: INV-67 and INV-68.

Each leader epoch has one leader, in one life of a topic. The store shows which.
"""

from typing import Any, Final

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

from .stored import is_zero, leadership_writes, topic_writes

# A partition on a node: node, topic, index.
_Replica = tuple[str, str, int]
_NOT_ORDERED: Final = -1


class Continuity(Checker):
    """A leadership goes on if, and only if, no other broker has led in between."""

    kinds = ("store.commit", "lease.begin", "lease.keep", "lease.end", "lease.lapse", "node.crash")
    invariants = ("INV-67", "INV-68")

    def __init__(self) -> None:
        # By topic and index: the leader of each epoch, and the epoch of the controller that has written it first.
        self._leaders: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
        self._ids: dict[str, str] = {}
        self._acting: dict[_Replica, Event] = {}  # the last begin or change of each

    def check(self, event: Event) -> Violation | None:
        match event.kind:
            case "store.commit":
                self._written(event)
            case "lease.begin" | "lease.keep":
                return self._goes_on(event, event.fields)
            case "lease.end":
                return self._ended(event, event.fields)
            case _:  # of a node, with all its leaderships
                for replica in [replica for replica in self._acting if replica[0] == event.node]:
                    del self._acting[replica]
        return None

    def _written(self, event: Event) -> None:
        for topic, value in topic_writes(event):
            if value is None or self._ids.get(topic, value["id"]) != value["id"]:
                self._leaders = {key: epochs for key, epochs in self._leaders.items() if key[0] != topic}
            if value is None:
                self._ids.pop(topic, None)
            else:
                self._ids[topic] = value["id"]
        for topic, partition, _, _, value in leadership_writes(event):
            if value is not None:
                epochs = self._leaders.setdefault((topic, int(partition)), {})
                epochs.setdefault(value["leader_epoch"], (value["leader"], value["controller_epoch"]))

    def _goes_on(self, event: Event, fields: dict[str, Any]) -> Violation | None:
        self._acting[_replica(event)] = event
        for epoch in range(fields["leader_epoch"] + 1, _present(event) + 1):
            leader = self._leader(fields, epoch)
            if leader is not None and leader[0] != fields["broker"]:
                name = f"{fields['topic']}-{fields['partition']}"
                text = (
                    f"{event.node} leads {name} under epoch {_present(event)} with the token of epoch "
                    f"{fields['leader_epoch']}, though broker {leader[0]} led under epoch {epoch}"
                )
                return Violation("INV-67", text, event=event)
        return None

    def _ended(self, event: Event, fields: dict[str, Any]) -> Violation | None:
        began = self._acting.pop(_replica(event), None)
        ordered = fields.get("ordered", _NOT_ORDERED)
        if began is None or ordered == _NOT_ORDERED:
            return None
        first = _present(began) + 1
        leaders = [self._leader(began.fields, epoch) for epoch in range(first, ordered + 1)]
        known = [leader for leader in leaders if leader is not None and leader[0] == fields["broker"]]
        if not leaders or len(known) < len(leaders):
            return None
        # A controller that has not seen the epoch after the last order cannot know its leader.
        if len(known) > 1 and known[1][1] != fields["controller_epoch"]:
            return None
        text = (
            f"{event.node} ends its leadership of {fields['topic']}-{fields['partition']} for a change of the ISR only"
        )
        return Violation("INV-68", text, event=event, contradicts=began)

    def _leader(self, fields: dict[str, Any], epoch: int) -> tuple[int, int] | None:
        """Returns the leader of an epoch and its controller; None if it is not known, or of another topic."""
        stored = self._ids.get(fields["topic"], "")
        if not is_zero(fields["topic_id"]) and stored != fields["topic_id"]:
            return None
        return self._leaders.get((fields["topic"], fields["partition"]), {}).get(epoch)


def _present(event: Event) -> int:
    """Returns the leader epoch under which a leadership goes on."""
    epoch: int = event.fields["present_epoch"]
    return epoch


def _replica(event: Event) -> _Replica:
    return event.node, event.fields["topic"], event.fields["partition"]
