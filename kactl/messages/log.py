"""What can have happened, as those hear of it who watch: one kind of event for each kind of thing."""

from typing import Final

import msgspec

from kactl.model import PartitionState, ReplicaState


class Event(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True):
    """Common to all: `seq` rises by one from event to event, and never goes back."""

    seq: int = 0
    time_ms: int = 0
    controller_epoch: int = 0


class ControllerEvent(Event, frozen=True, tag="controller"):
    """The controllership came or went. `what`: elected, resigned."""

    what: str
    controller_id: int
    cause: str = ""


class BrokerEvent(Event, frozen=True, tag="broker"):
    """A broker came or went. `what`: started, bounced, failed, modified, directory-failed,
    shutting-down, restored."""

    what: str
    broker: int
    broker_epoch: int


class TopicEvent(Event, frozen=True, tag="topic"):
    """A topic came, grew or went. `what`: created, grown, vanished, deletion started, deletion halted, deleted.

    Attributes:
        cause: why a deletion does not go on; empty otherwise.
    """

    what: str
    topic: str
    cause: str = ""


class PartitionEvent(Event, frozen=True, tag="partition"):
    """A partition moved, got a leader, or could not. `refused` is empty unless it could not."""

    topic: str
    partition: int
    from_state: PartitionState
    to_state: PartitionState
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    recovering: bool = False
    refused: str = ""


class ReplicaEvent(Event, frozen=True, tag="replica"):
    """A replica moved."""

    topic: str
    partition: int
    broker: int
    from_state: ReplicaState
    to_state: ReplicaState


class RequestEvent(Event, frozen=True, tag="request"):
    """A request over the admin API changed something, or may have.

    Attributes:
        action: such as "delete topic".
        target: what the action was applied to.
        outcome: done, partly, unfinished, unknown; see `kactl.admin.audit`.
        detail: on the outcome; may be empty.
        reason: as the client gave it; may be empty.
    """

    action: str
    target: str
    outcome: str
    detail: str = ""
    reason: str = ""


class Reset(Event, frozen=True, tag="reset"):
    """Events before `seq` + 1 are lost to this reader: read the present state, then go on."""


AnyEvent = ControllerEvent | BrokerEvent | TopicEvent | PartitionEvent | ReplicaEvent | RequestEvent | Reset
KINDS: Final = ("controller", "broker", "topic", "partition", "replica", "request")
