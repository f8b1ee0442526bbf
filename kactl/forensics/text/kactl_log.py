"""kactl's own state-change log: one event to a line, in JSON, as `kactl watch -o jsonl` prints them. Times are UTC."""

from typing import Any, Final

import msgspec

from kactl.forensics.event_types import EventType
from kactl.model import NO_LEADER, PartitionState, ReplicaState

# The words of the log -> Kafka's.
PARTITION_WORDS: Final = {
    PartitionState.NEW.name.lower(): "NewPartition",
    PartitionState.ONLINE.name.lower(): "OnlinePartition",
    PartitionState.OFFLINE.name.lower(): "OfflinePartition",
    PartitionState.ABSENT.name.lower(): "NonExistentPartition",
}
REPLICA_WORDS: Final = {
    ReplicaState.NEW.name.lower(): "NewReplica",
    ReplicaState.ONLINE.name.lower(): "OnlineReplica",
    ReplicaState.OFFLINE.name.lower(): "OfflineReplica",
    ReplicaState.DELETION_STARTED.name.lower(): "ReplicaDeletionStarted",
    ReplicaState.DELETION_SUCCESSFUL.name.lower(): "ReplicaDeletionSuccessful",
    ReplicaState.DELETION_INELIGIBLE.name.lower(): "ReplicaDeletionIneligible",
    ReplicaState.ABSENT.name.lower(): "NonExistentReplica",
}
_TYPES: Final = {
    ("controller", "elected"): EventType.CONTROLLER_ELECTED,
    ("controller", "resigned"): EventType.CONTROLLER_RESIGNED,
    ("broker", "started"): EventType.BROKER_STARTED,
    ("broker", "bounced"): EventType.BROKERS_CHANGED,
    ("broker", "failed"): EventType.BROKER_FAILED,
    ("broker", "directory-failed"): EventType.REPLICAS_OFFLINE,
    ("broker", "shutting-down"): EventType.BROKER_STOPPING,
    ("broker", "restored"): EventType.BROKER_STOPPED_COUNTING,
    ("topic", "created"): EventType.TOPIC_CREATED,
    ("topic", "deletion started"): EventType.DELETION_STARTED,
    ("topic", "deletion halted"): EventType.DELETION_HALTED,
    ("topic", "deleted"): EventType.DELETION_DONE,
}
# Which list of brokers an event of one broker adds it to.
_LISTS: Final = {"started": "brokers_added", "failed": "brokers_removed", "bounced": "brokers_bounced"}


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    time_ms: int
    controller_epoch: int = 0
    what: str = ""
    cause: str = ""
    controller_id: int | None = None
    broker: int | None = None
    broker_epoch: int | None = None
    topic: str | None = None
    partition: int | None = None
    from_state: str = ""
    to_state: str = ""
    leader: int = NO_LEADER
    leader_epoch: int = -1
    isr: list[int] = []
    partition_epoch: int = -1
    recovering: bool = False
    refused: str = ""


_DECODER: Final = msgspec.json.Decoder(_Event)


def read(line: bytes) -> tuple[int, str, dict[str, Any]] | None:
    """What a line says.

    Returns:
        ms since 1970, the kind of event, and the columns that it fills; None for a line of another form, and no columns
        for what is about something else.
    """
    try:
        event = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if event.kind == "partition":
        columns = _partition(event)
    elif event.kind == "replica":
        columns = {
            "type": EventType.REPLICA,
            "broker": event.broker,
            "from_state": REPLICA_WORDS.get(event.from_state, event.from_state),
            "to_state": REPLICA_WORDS.get(event.to_state, event.to_state),
        }
    else:
        columns = _single(event)
    if columns:
        columns |= {"topic": event.topic, "partition": event.partition, "controller_epoch": event.controller_epoch}
    return event.time_ms, event.kind, {name: value for name, value in columns.items() if value is not None}


def _partition(event: _Event) -> dict[str, Any]:
    return {
        "type": EventType.PARTITION_FAILED if event.refused else EventType.PARTITION,
        "from_state": PARTITION_WORDS.get(event.from_state, event.from_state),
        "to_state": PARTITION_WORDS.get(event.to_state, event.to_state),
        "leader": event.leader,
        "leader_epoch": event.leader_epoch,
        "isr": event.isr,
        "partition_epoch": event.partition_epoch,
        "recovery": "RECOVERING" if event.recovering else "RECOVERED",
        "reason": event.refused or None,
    }


def _single(event: _Event) -> dict[str, Any]:
    """What happened to a controller, broker or topic; nothing for what no Kafka log has either."""
    said = _TYPES.get((event.kind, event.what))
    if said is None:
        return {}
    columns: dict[str, Any] = {"type": said, "controller": event.controller_id, "reason": event.cause or None}
    if event.broker is not None:
        columns |= {"broker": event.broker, "broker_epoch": event.broker_epoch}
        if event.what in _LISTS:
            columns[_LISTS[event.what]] = [event.broker]
    return columns
