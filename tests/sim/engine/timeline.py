"""Timeline of a run: one column per node, one row per moment, as text.

    time, s   store             controller 100      controller 101      broker 1
       30.000 commit ...        ACTIVE epoch 7      standby             accepts LeaderAndIsr #12, sent 29.998

Roles of nodes are written in capitals when they change: ACTIVE, ZOMBIE (believes to be the controller although a later
one was elected), PAUSED and DEAD.
"""

import logging
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from kactl.testing.history import Event
from kactl.testing.violations import Violation

from . import wording
from .log_records import LogRecord

# Width of text output where the terminal does not tell it.
WIDTH: Final = 160
_COLUMN_MIN: Final = 16
_TIME_WIDTH: Final = 10
_OUTSIDE: Final = "run"


class Row(NamedTuple):
    """Something on one node at one moment.

    Attributes:
        role: new role of the node; empty if it is unchanged.
        kind: kind of the event, or `log`, or `violation`.
    """

    time_ms: float
    node: str
    text: str
    kind: str
    role: str = ""


class Link(NamedTuple):
    """A request on its way from one node to another.

    Attributes:
        outcome: `accepted`, `rejected` or `lost`.
    """

    sent_ms: float
    sender: str
    received_ms: float
    receiver: str
    what: str
    outcome: str


def rows(
    events: Sequence[Event], records: Iterable[LogRecord] = (), *, violation: Violation | None = None
) -> list[Row]:
    """Returns the rows of a history and its log records, by time. Events that say nothing new are left out."""
    roles = _Roles()
    sent = {event.fields.get("message"): event for event in events if event.kind == "req.send"}
    made: list[Row] = []
    for event in events:
        role = roles.after(event)
        if event.kind in wording.HIDDEN and not role:
            continue
        node = role[0] if role else event.node or _OUTSIDE
        made.append(Row(event.time_ms, node, _text(event, sent), event.kind, role[1] if role else ""))
        made += [Row(event.time_ms, zombie, "", "role", "ZOMBIE") for zombie in roles.take_zombies()]
    made += [_of_record(record) for record in records]
    if violation is not None:
        time_ms = violation.event.time_ms if violation.event is not None else max([row.time_ms for row in made] or [0])
        node = violation.event.node if violation.event is not None else ""
        made.append(Row(time_ms, node or _OUTSIDE, str(violation), "violation"))
    # Stable: events of one moment keep their order, and log records follow them.
    return sorted(made, key=lambda row: row.time_ms)


def _text(event: Event, sent: dict[Any, Event]) -> str:
    text = wording.describe(event)
    sending = sent.get(event.fields.get("message")) if event.kind in ("req.accept", "req.reject") else None
    return text if sending is None else f"{text}, sent {sending.time_ms / 1000:.3f}"


def _of_record(record: LogRecord) -> Row:
    error = f": {record.error}" if record.error else ""
    text = f"{logging.getLevelName(record.level)} {record.text}{error}"
    return Row(record.time_ms, record.node or _OUTSIDE, text, "log")


def columns(shown: Iterable[Row]) -> list[str]:
    """Returns the nodes of some rows: the store, controllers, brokers, then others."""
    return sorted({row.node for row in shown}, key=_place)


def _place(node: str) -> tuple[int, int, str]:
    kind, _, number = node.partition(" ")
    order = {"store": 0, "controller": 1, "broker": 2}.get(kind, 3)
    return order, int(number) if number.isdecimal() else -1, node


def links(events: Iterable[Event]) -> list[Link]:
    """Returns the requests of a history with the times at which they were sent and received."""
    sent: dict[int, Event] = {}
    found = []
    for event in events:
        message = event.fields.get("message")
        if event.kind == "req.send" and message is not None:
            sent[message] = event
        elif event.kind in _OUTCOMES and message in sent:
            begin = sent[message]
            receiver = f"broker {begin.fields['broker']}" if event.kind == "req.lost" else event.node
            what = f"{begin.fields['what']} #{message}"
            found.append(Link(begin.time_ms, begin.node, event.time_ms, receiver, what, _OUTCOMES[event.kind]))
    return found


_OUTCOMES: Final = {"req.accept": "accepted", "req.reject": "rejected", "req.lost": "lost"}


def concerned(events: Sequence[Event], violation: Violation | None, *, limit: int) -> list[Event]:
    """Returns the last events of the nodes and partitions that a violation names; of all nodes if it names none."""
    shown = [event for event in events if event.kind not in wording.HIDDEN]
    named = [event for event in (violation.event, violation.contradicts) if event is not None] if violation else []
    nodes = {event.node for event in named if event.node}
    partitions = {name for event in named for name in _partitions(event.fields)}
    if nodes or partitions:
        shown = [event for event in shown if event.node in nodes or partitions & set(_partitions(event.fields))]
    return shown[-limit:]


def _partitions(fields: Any) -> Iterator[str]:
    if isinstance(fields, dict) and "topic" in fields and "partition" in fields:
        yield f"{fields['topic']}-{fields['partition']}"


def text(shown: Sequence[Row], *, width: int | None = None) -> list[str]:
    """Returns the lines of a timeline.

    Args:
        width: of a line; by default that of the terminal. Columns have a least width, so that lines may be longer.
    """
    if not shown:
        return ["The run has no events."]
    nodes = columns(shown)
    width = width or shutil.get_terminal_size((WIDTH, 24)).columns
    each = max(_COLUMN_MIN, (width - _TIME_WIDTH) // len(nodes) - 1)
    header = " ".join([f"{'time, s':>{_TIME_WIDTH}}", *(node.ljust(each) for node in nodes)])
    lines = [header.rstrip(), "-" * len(header)]
    last = ""
    for row in shown:
        time = f"{row.time_ms / 1000:{_TIME_WIDTH}.3f}"
        said = f"{row.role} {row.text}".strip()
        for index, part in enumerate(textwrap.wrap(said, each) or [""]):
            cells = [(part if node == row.node else "").ljust(each) for node in nodes]
            shown_time = time if index == 0 and time != last else " " * _TIME_WIDTH
            lines.append(" ".join([shown_time, *cells]).rstrip())
        last = time
    return lines


class _Roles:
    """Roles of the nodes, event by event."""

    def __init__(self) -> None:
        self._active: dict[str, int] = {}  # epoch of each instance that believes to be the controller
        self._zombies: list[str] = []

    def after(self, event: Event) -> tuple[str, str] | None:
        """Returns the node whose role an event changes, and the new role."""
        fields = event.fields
        match event.kind:
            case "ctl.elected":
                self._zombies += [node for node in self._active if node != event.node]
                self._active[event.node] = fields.get("controller_epoch", 0)
                return event.node, "ACTIVE"
            case "ctl.resigned":
                self._active.pop(event.node, None)
                return event.node, "STANDBY"
            case "node.crash":
                self._active.pop(event.node, None)
                return event.node, "STOPPED" if fields.get("clean") else "DEAD"
            case "node.start":
                return event.node, "UP"
            case "fault.begin" if fields.get("fault") == "pause":
                return str(fields.get("target", "")), "PAUSED"
            case "fault.end" if fields.get("fault") == "pause":
                return str(fields.get("target", "")), "RESUMED"
        return None

    def take_zombies(self) -> list[str]:
        """Returns the instances that became zombies by the last event."""
        zombies, self._zombies = self._zombies, []
        return zombies
