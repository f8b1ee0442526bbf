"""Descriptions of events, shorter than the log line and independent of Kafka's version."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kactl.forensics.event_types import EventType, Role

Row = Mapping[str, Any]
# Length limit of reasons and unparsed lines, in characters.
_TEXT_MAX: Final = 300


def writer(row: Row) -> str:
    """Return the writer of the line."""
    if row["role"] == Role.CONTROLLER:
        speaker = row["controller"] if row["controller"] is not None else row["speaker"]
        epoch = "" if row["controller_epoch"] is None else f" epoch {row['controller_epoch']}"
        return f"controller {_id(speaker)}{epoch}"
    return "?" if row["speaker"] is None else f"broker {row['speaker']}"


def describe(row: Row) -> str:
    """Return the description of the line."""
    describe_event = _DESCRIBERS.get(row["type"])
    text = describe_event(row) if describe_event is not None else _plainly(row)
    reason = row["reason"]
    return f"{text}: {reason[:_TEXT_MAX]}" if reason and reason not in text else text


def _partition(row: Row) -> str:
    return f"{_word(row['from_state'])} -> {_word(row['to_state'])}{_state(row)}"


def _failed(row: Row) -> str:
    by = f" by {row['strategy']} election" if row["strategy"] else ""
    return f"could not go {_word(row['from_state'])} -> {_word(row['to_state'])}{by}"


def _replica(row: Row) -> str:
    return f"replica {_id(row['broker'])}: {_word(row['from_state'])} -> {_word(row['to_state'])}"


def _replica_failed(row: Row) -> str:
    return f"replica {_id(row['broker'])} could not go {_word(row['from_state'])} -> {_word(row['to_state'])}"


def _elected(row: Row) -> str:
    unclean = ", uncleanly" if row["unclean"] else ""
    return f"{_leader(row['leader'])} was elected{unclean}"


def _isr_cut(row: Row) -> str:
    return f"replica {_id(row['broker'])} was taken out of the ISR{_state(row)}"


def _leadership(row: Row) -> str:
    unclean = "unclean change" if row["unclean"] else "change"
    before = [
        f"{name} {_shown(row[f'prev_{column}'])} -> {_shown(row[column])}"
        for name, column in (("leader", "leader"), ("ISR", "isr"))
        if row[f"prev_{column}"] is not None and row[column] is not None
    ]
    return f"{unclean}: {', '.join(before)}{_epochs(row)}" if before else f"{unclean}{_state(row)}"


def _created(row: Row) -> str:
    return f"created{_state(row)}"


def _sent(row: Row) -> str:
    to = row["brokers"] if row["brokers"] else [row["broker"]]
    return f"{_request(row)} sent to {_ids(to)}{_state(row)}"


def _answer_failed(row: Row) -> str:
    return f"broker {_id(row['broker'])} refused {_request(row)}"


def _received(row: Row) -> str:
    return f"{_request(row)} received{_correlation(row)}{_state(row)}"


def _begun(row: Row) -> str:
    return f"begins to be {_word(row['to_state'])}{_correlation(row)}"


def _done(row: Row) -> str:
    return f"is {_word(row['to_state'])} now{_correlation(row)}"


def _leads(row: Row) -> str:
    return f"leads{_epochs(row)}{_offsets(row)}{_isr(row)}{_before(row)}"


def _follows(row: Row) -> str:
    whom = "" if row["leader"] is None else f" {_leader(row['leader'])}"
    return f"follows{whom}{_epochs(row)}{_offsets(row)}{_before(row)}"


def _ignored(row: Row) -> str:
    return f"{_request(row)} refused"


def _stopping(row: Row) -> str:
    return "replica is stopped" + (" and deleted" if row["delete"] else "")


def _metadata(row: Row) -> str:
    return f"told by UPDATE_METADATA{_state(row)}"


def _reassigned(row: Row) -> str:
    return f"is to move to {_ids(row['replicas'])}" if row["replicas"] else "is to move"


def _waits(row: Row) -> str:
    return f"the move waits: {_shown(row['count'])} of {_shown(row['count_also'])} replicas have caught up"


def _caught_up(row: Row) -> str:
    return f"the move's replicas have caught up: {_ids(row['replicas'])}"


def _reassignment_sent(row: Row) -> str:
    return f"sent for the move{_state(row)}"


def _epoch_raised(row: Row) -> str:
    return f"leader epoch raised to {_shown(row['leader_epoch'])}"


def _shrunk(row: Row) -> str:
    return f"ISR shrinks, {_ids(row['prev_isr'])} -> {_ids(row['isr'])}{_offsets(row)}"


def _expanded(row: Row) -> str:
    return f"ISR grows, {_ids(row['prev_isr'])} -> {_ids(row['isr'])}"


def _updated(row: Row) -> str:
    return f"ISR is {_ids(row['isr'])}, version {_shown(row['partition_epoch'])}"


def _refused(row: Row) -> str:
    return f"ISR not written: its version is no more {_shown(row['partition_epoch'])}"


def _truncated(row: Row) -> str:
    return f"log cut to offset {_shown(row['log_end'])}"


def _role_failed(row: Row) -> str:
    return f"cannot {'lead' if row['to_state'] == 'leader' else 'follow'}: {row['reason'] or '?'}"


def _asked(row: Row) -> str:
    by = f", {row['trigger']}" if row["trigger"] else ""
    return f"{row['strategy'] or 'an'} election asked for{by}"


def _unparsed(row: Row) -> str:
    return f"not understood: {(row['text'] or '')[:_TEXT_MAX]}"


def _plainly(row: Row) -> str:
    return f"{str(row['type']).replace('-', ' ')}{_state(row)}"


_DESCRIBERS: Final[dict[str, Callable[[Row], str]]] = {
    EventType.PARTITION: _partition,
    EventType.PARTITION_FAILED: _failed,
    EventType.ELECTING: lambda _: "an election begins",
    EventType.ELECTED: _elected,
    EventType.REPLICA: _replica,
    EventType.REPLICA_FAILED: _replica_failed,
    EventType.ISR_CUT: _isr_cut,
    EventType.LEADERSHIP: _leadership,
    EventType.PARTITION_CREATED: _created,
    EventType.SENT_PARTITION: _sent,
    EventType.ANSWER_FAILED: _answer_failed,
    EventType.RECEIVED_PARTITION: _received,
    EventType.TRANSITION_BEGUN: _begun,
    EventType.TRANSITION_DONE: _done,
    EventType.LEADS: _leads,
    EventType.FOLLOWS: _follows,
    EventType.IGNORED: _ignored,
    EventType.STOPPING: _stopping,
    EventType.METADATA_PARTITION: _metadata,
    EventType.REASSIGNMENT_STARTED: _reassigned,
    EventType.REASSIGNMENT_WAITS: _waits,
    EventType.REASSIGNMENT_CAUGHT_UP: _caught_up,
    EventType.REASSIGNMENT_SENT: _reassignment_sent,
    EventType.EPOCH_RAISED: _epoch_raised,
    EventType.ISR_SHRUNK: _shrunk,
    EventType.ISR_EXPANDED: _expanded,
    EventType.ISR_UPDATED: _updated,
    EventType.ISR_REFUSED: _refused,
    EventType.TRUNCATED: _truncated,
    EventType.ROLE_FAILED: _role_failed,
    EventType.ELECTION_ASKED: _asked,
    EventType.UNPARSED: _unparsed,
}

# -- parts of sentences ------------------------------------------------------------------------------------------------


def _state(row: Row) -> str:
    """Who leads, in which epoch, who is in sync: as far as the line says it."""
    said = []
    if row["leader"] is not None:
        said.append(f"leader {_leader(row['leader'])}")
    if row["leader_epoch"] is not None:
        said.append(f"epoch {row['leader_epoch']}")
    if row["isr"] is not None:
        said.append(f"ISR {_ids(row['isr'])}")
    if row["replicas"]:
        said.append(f"replicas {_ids(row['replicas'])}")
    if row["partition_epoch"] is not None:
        said.append(f"version {row['partition_epoch']}")
    if row["recovery"] == "RECOVERING":
        said.append("recovering")
    return f", {', '.join(said)}" if said else ""


def _epochs(row: Row) -> str:
    epoch = "" if row["leader_epoch"] is None else f", epoch {row['leader_epoch']}"
    return epoch + ("" if row["partition_epoch"] is None else f", version {row['partition_epoch']}")


def _offsets(row: Row) -> str:
    end = "" if row["log_end"] is None else f", log end {row['log_end']}"
    return end + ("" if row["high_watermark"] is None else f", high watermark {row['high_watermark']}")


def _isr(row: Row) -> str:
    return "" if row["isr"] is None else f", ISR {_ids(row['isr'])}"


def _before(row: Row) -> str:
    said = [] if row["prev_leader"] is None else [f"leader {_leader(row['prev_leader'])}"]
    said += [] if row["prev_leader_epoch"] is None else [f"epoch {row['prev_leader_epoch']}"]
    return f"; before: {', '.join(said)}" if said else ""


def _correlation(row: Row) -> str:
    return "" if row["correlation_id"] is None else f" (request {row['correlation_id']})"


def _request(row: Row) -> str:
    return row["request"] or "request"


def _word(state: str | None) -> str:
    """`OfflinePartition` -> offline."""
    plain = (state or "?").removesuffix("Partition").removesuffix("Replica")
    return plain.lower() or "?"


def _leader(leader: int | None) -> str:
    return {None: "?", -1: "nobody", -2: "nobody (being deleted)"}.get(leader, str(leader))


def _ids(ids: Sequence[int | None] | None) -> str:
    return "?" if ids is None else ",".join(map(_id, ids)) or "nobody"


def _id(number: int | None) -> str:
    return "?" if number is None else str(number)


def _shown(value: Any) -> str:
    return _ids(value) if isinstance(value, list | tuple) else _id(value)
