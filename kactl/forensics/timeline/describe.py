"""Descriptions of events, shorter than the log line and independent of Kafka's version."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kactl.forensics.event_types import EventType, Role

Row = Mapping[str, Any]
# Length limit of reasons and unparsed lines, in characters.
_TEXT_MAX: Final = 300


def writer(row: Row) -> str:
    """Returns the writer of the line."""
    if row["role"] == Role.CONTROLLER:
        controller = row["controller"] if row["controller"] is not None else row["speaker"]
        epoch = "" if row["controller_epoch"] is None else f" epoch {row['controller_epoch']}"
        return f"controller {_shown(controller)}{epoch}"
    return "?" if row["speaker"] is None else f"broker {row['speaker']}"


def describe(row: Row) -> str:
    """Returns the description of the line."""
    text = _TEMPLATES.get(row["type"], "{type_name}{state}").format_map(_Phrases(row))
    reason = row["reason"]
    return f"{text}: {reason[:_TEXT_MAX]}" if reason and reason not in text else text


# Names in braces are those of `_PHRASES`, or of columns. A phrase with its own comma is empty if the line lacks it.
_TEMPLATES: Final[dict[str, str]] = {
    EventType.PARTITION: "{from} -> {to}{state}",
    EventType.PARTITION_FAILED: "{failure}",
    EventType.ELECTING: "an election begins",
    EventType.ELECTED: "{new_leader} was elected{uncleanly}",
    EventType.REPLICA: "replica {broker}: {from} -> {to}",
    EventType.REPLICA_FAILED: "transition {from} -> {to} of replica {broker} failed",
    EventType.ISR_CUT: "replica {broker} was removed from the ISR{state}",
    EventType.LEADERSHIP: "{leadership_change}",
    EventType.PARTITION_CREATED: "created{state}",
    EventType.SENT_PARTITION: "{request_name} sent to {receivers}{state}",
    EventType.ASSIGNED: "assigned to {replica_ids}{moves}",
    EventType.ANSWER_FAILED: "broker {broker} rejected {request_name}",
    EventType.RECEIVED_PARTITION: "{request_name} received{correlation}{state}",
    EventType.TRANSITION_BEGUN: "begins to become {to}{correlation}",
    EventType.TRANSITION_DONE: "is {to} now{correlation}",
    EventType.LEADS: "leads{epochs}{offsets}{in_sync}{previous}",
    EventType.FOLLOWS: "follows{followed}{epochs}{offsets}{previous}",
    EventType.IGNORED: "{request_name} rejected",
    EventType.STOPPING: "replica is stopped{deleted}",
    EventType.METADATA_PARTITION: "metadata from UPDATE_METADATA{state}",
    EventType.REASSIGNMENT_STARTED: "reassignment begins{target}",
    EventType.REASSIGNMENT_WAITS: "reassignment waits: {count} of {count_also} replicas have caught up",
    EventType.REASSIGNMENT_CAUGHT_UP: "the new replicas of the reassignment have caught up: {replica_ids}",
    EventType.REASSIGNMENT_SENT: "sent for the reassignment{state}",
    EventType.EPOCH_RAISED: "leader epoch raised to {leader_epoch}",
    EventType.ISR_SHRUNK: "ISR shrinks, {prev_isr} -> {isr}{offsets}",
    EventType.ISR_EXPANDED: "ISR grows, {prev_isr} -> {isr}",
    EventType.ISR_UPDATED: "ISR is {isr}, version {partition_epoch}",
    EventType.ISR_REFUSED: "ISR update rejected{outdated}",
    EventType.TRUNCATED: "log truncated to offset {log_end}",
    EventType.ROLE_FAILED: "cannot {role_verb}: {reason}",
    EventType.ELECTION_ASKED: "{strategy_name} election requested{by_trigger}",
    EventType.UNPARSED: "not parsed: {beginning}",
}


class _Phrases(dict[str, str]):
    """Phrases of a row, by their names in templates."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self._row = row

    def __missing__(self, name: str) -> str:
        phrase = _PHRASES.get(name)
        return phrase(self._row) if phrase is not None else _shown(self._row[name])


def _state(row: Row) -> str:
    """Leader, epoch, ISR, and version, as far as the line has them."""
    parts = (
        None if row["leader"] is None else f"leader {_leader(row['leader'])}",
        None if row["leader_epoch"] is None else f"epoch {row['leader_epoch']}",
        None if row["isr"] is None else f"ISR {_shown(row['isr'])}",
        f"replicas {_shown(row['replicas'])}" if row["replicas"] else None,
        None if row["partition_epoch"] is None else f"version {row['partition_epoch']}",
        "recovering" if row["recovery"] == "RECOVERING" else None,
    )
    return "".join(f", {part}" for part in parts if part)


def _failure(row: Row) -> str:
    """The controller's lines about failed elections and reassignments have no state before."""
    if row["from_state"] is None and row["strategy"]:
        return "reassignment failed" if row["strategy"] == "reassign" else f"{row['strategy']} election failed"
    by_strategy = f" ({row['strategy']} election)" if row["strategy"] else ""
    return f"transition {_state_name(row['from_state'])} -> {_state_name(row['to_state'])} failed{by_strategy}"


def _moves(row: Row) -> str:
    parts = [f"{name} {_shown(row[name])}" for name in ("adding", "removing") if row[name]]
    return "".join(f", {part}" for part in parts)


def _leadership_change(row: Row) -> str:
    change = "unclean change" if row["unclean"] else "change"
    parts = [
        f"{name} {_shown(row[f'prev_{column}'])} -> {_shown(row[column])}"
        for name, column in (("leader", "leader"), ("ISR", "isr"))
        if row[f"prev_{column}"] is not None and row[column] is not None
    ]
    return f"{change}: {', '.join(parts)}{_epochs(row)}" if parts else f"{change}{_state(row)}"


def _epochs(row: Row) -> str:
    return _if_known(row, ", epoch ", "leader_epoch") + _if_known(row, ", version ", "partition_epoch")


def _offsets(row: Row) -> str:
    return _if_known(row, ", log end ", "log_end") + _if_known(row, ", high watermark ", "high_watermark")


def _previous(row: Row) -> str:
    parts = [] if row["prev_leader"] is None else [f"leader {_leader(row['prev_leader'])}"]
    parts += [] if row["prev_leader_epoch"] is None else [f"epoch {row['prev_leader_epoch']}"]
    return f"; before: {', '.join(parts)}" if parts else ""


_PHRASES: Final[dict[str, Callable[[Row], str]]] = {
    "beginning": lambda row: (row["text"] or "")[:_TEXT_MAX],
    "by_trigger": lambda row: _if_known(row, ", ", "trigger") if row["trigger"] else "",
    "correlation": lambda row: "" if row["correlation_id"] is None else f" (request {row['correlation_id']})",
    "deleted": lambda row: " and deleted" if row["delete"] else "",
    "epochs": _epochs,
    "failure": _failure,
    "followed": lambda row: "" if row["leader"] is None else f" {_leader(row['leader'])}",
    "from": lambda row: _state_name(row["from_state"]),
    "in_sync": lambda row: _if_known(row, ", ISR ", "isr"),
    "leadership_change": _leadership_change,
    "moves": _moves,
    "new_leader": lambda row: _leader(row["leader"]),
    "offsets": _offsets,
    "outdated": lambda row: "" if row["partition_epoch"] is None else f": version {row['partition_epoch']} is outdated",
    "previous": _previous,
    "reason": lambda row: row["reason"] or "?",
    "receivers": lambda row: _shown(row["brokers"] or [row["broker"]]),
    "replica_ids": lambda row: _shown(row["replicas"]),
    "request_name": lambda row: row["request"] or "request",
    "role_verb": lambda row: {"leader": "lead", "follower": "follow"}.get(row["to_state"], "take its role"),
    "state": _state,
    "strategy_name": lambda row: row["strategy"] or "an",
    "target": lambda row: f", to {_shown(row['replicas'])}" if row["replicas"] else "",
    "to": lambda row: _state_name(row["to_state"]),
    "type_name": lambda row: str(row["type"]).replace("-", " "),
    "uncleanly": lambda row: ", uncleanly" if row["unclean"] else "",
}


def _if_known(row: Row, before: str, column: str) -> str:
    return "" if row[column] is None else f"{before}{_shown(row[column])}"


def _state_name(state: str | None) -> str:
    """Returns `OfflinePartition` as "offline"."""
    return (state or "?").removesuffix("Partition").removesuffix("Replica").lower() or "?"


def _leader(leader: int | None) -> str:
    return {None: "?", -1: "none", -2: "none (being deleted)"}.get(leader, str(leader))


def _shown(value: int | str | Sequence[int | None] | None) -> str:
    """Returns a number, or a list of numbers, as text."""
    if isinstance(value, list | tuple):
        return ",".join(map(_shown, value)) or "none"
    return "?" if value is None else str(value)
