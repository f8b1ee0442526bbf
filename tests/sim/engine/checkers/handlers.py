"""Calls of handlers: INV-57 and INV-61."""

from typing import Any, Final

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

from . import cut_short
from .cut_short import CutShort
from .stored import topic_writes

# A partition on a node: node, topic, index.
_Replica = tuple[str, str, int]
# Clocks of nodes differ from that of the run by no more than this.
_MARGIN_SHARE: Final = 0.85


class Handlers(Checker):
    """Handlers are called one at a time, and nothing leads any more after the margin of its lease."""

    kinds = (
        "phase.begin", "phase.end", "lease.begin", "lease.end", "lease.lapse", "lease.late", "node.crash",
        *cut_short.KINDS,
    )  # fmt: skip
    invariants = ("INV-57", "INV-61")

    def __init__(self) -> None:
        self._running: dict[_Replica, Event] = {}
        self._epochs: dict[_Replica, Event] = {}  # the call with the highest leader epoch since the last stop
        self._leads: dict[_Replica, Event] = {}  # the last beginning of each leadership
        self._ended: dict[_Replica, Event] = {}  # its end or lapse
        self._removed: dict[str, int] = {}  # when each topic was removed, by the number of the commit
        self._cut_short = CutShort()

    def check(self, event: Event) -> Violation | None:
        fields = event.fields
        match event.kind:
            case "phase.begin":
                return self._begins(event, fields)
            case "phase.end":
                self._ends(event, fields)
            case "lease.begin":
                return self._leads_now(event, fields)
            case "lease.end":
                self._ended[_replica(event)] = event
            case "lease.lapse":
                for replica, began in self._leads.items():
                    if replica[0] == event.node and began.fields["life"] == fields["life"]:
                        self._ended.setdefault(replica, event)
            case "lease.late":
                text = (
                    f"{event.node} goes on too long under the lease of broker epoch {fields['life']}: {fields['what']}"
                )
                return Violation("INV-57", text, event=event)
            case "node.crash":
                for known in (self._running, self._epochs, self._leads, self._ended):
                    for replica in [replica for replica in known if replica[0] == event.node]:
                        del known[replica]
            case _:
                self._cut_short.add(event)
                if event.kind == "store.commit":
                    self._removed |= {topic: event.seq for topic, value in topic_writes(event) if value is None}
        return None

    def _begins(self, event: Event, fields: dict[str, Any]) -> Violation | None:
        replica = _replica(event)
        running, last = self._running.get(replica), self._epochs.get(replica)
        self._running[replica] = event
        what = f"{fields['phase']} of {replica[1]}-{replica[2]} begins on {event.node}"
        if running is not None:
            text = f"{what} while {running.fields['phase']} runs"
            return Violation("INV-61", text, event=event, contradicts=running)
        if fields["phase"] == "stop":
            self._epochs.pop(replica, None)
        elif last is not None and last.fields["leader_epoch"] > fields["leader_epoch"]:
            return Violation("INV-61", f"{what} under an earlier leader epoch", event=event, contradicts=last)
        else:
            self._epochs[replica] = event
        return None

    def _ends(self, event: Event, fields: dict[str, Any]) -> None:
        replica = _replica(event)
        running = self._running.get(replica)
        if running is not None and running.fields["number"] == fields["number"]:
            del self._running[replica]

    def _leads_now(self, event: Event, fields: dict[str, Any]) -> Violation | None:
        replica = _replica(event)
        self._leads[replica] = event
        self._ended.pop(replica, None)
        for other, running in self._running.items():
            if other[1:] != replica[1:] or other[0] == event.node or running.fields["phase"] != "lead":
                continue
            began, ended = self._leads.get(other), self._ended.get(other)
            if began is None or ended is None or self._is_of_another_topic(began, fields):
                continue
            is_protected = (began.fields["broker"], began.fields["life"]) not in self._cut_short.lives
            ended_ms = ended.time_ms - ended.fields.get("late_ms", 0.0)
            if is_protected and event.time_ms - ended_ms < _MARGIN_SHARE * began.fields["margin_ms"]:
                text = (
                    f"{event.node} begins to lead {replica[1]}-{replica[2]} while the handler on {other[0]} still runs"
                )
                return Violation("INV-57", text, event=event, contradicts=ended)
        return None

    def _is_of_another_topic(self, began: Event, fields: dict[str, Any]) -> bool:
        """Whether the topic of a leadership is not the one of that name which is led now.

        The id shows it. A topic without one is another if the name was removed since: the request to delete it ends its
        leaderships, but a participant does not respond later because a call takes its time to end.
        """
        removed = self._removed.get(fields["topic"], -1)
        return began.fields["topic_id"] != fields["topic_id"] or began.seq < removed


def _replica(event: Event) -> _Replica:
    return event.node, event.fields["topic"], event.fields["partition"]
