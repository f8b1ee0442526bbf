"""Types that the requests and responses of the admin API share."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from kactl.decide.messages.log import PartitionStateName as PartitionStateName
from kactl.decide.messages.log import ReplicaStateName as ReplicaStateName

LIMIT_DEFAULT: Final = 500
LIMIT_MAX: Final = 10_000
# Bound for a request that names partitions; `all` is not bounded. A body with this many names fits the body limit.
ELECTION_PARTITIONS_MAX: Final = 50_000
REASON_LENGTH_MAX: Final = 1000
TIMEOUT_MS_MAX: Final = 300_000

BrokerStateName = Literal["live", "fenced", "drained", "shutting_down", "dead"]
HandlerStatusName = Literal["not_ready", "failed", "stuck", "error", "busy", "retrying"]
EventKind = Literal["controller", "broker", "topic", "partition", "replica", "handler", "request", "election"]
ElectionType = Literal["preferred", "unclean"]
Int32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
# No control characters (C0, DEL, C1), no line separators, no marks that change the reading direction.
ONE_LINE: Final = r"^(?![\s\S]*[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069])"
Reason = Annotated[
    str,
    Meta(
        max_length=REASON_LENGTH_MAX,
        pattern=ONE_LINE,
        description="reason for the change, written to the events and to the server's log; one line",
    ),
]

Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="maximum number of items")]
Cursor = Annotated[str, Meta(max_length=2000, description="`next_cursor` of the previous page")]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all responses."""


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all request parts: path, query and body. Unknown fields are rejected."""


class AsOf(Answer, frozen=True):
    """The moment at which a response was current. To stay up to date, read the events after `seq`.

    Attributes:
        epoch: of the controller; 0 if it is not known.
        standby: the response comes from a standby's copy of the cluster.
        age_ms: the time by which that copy may have been behind the store.
    """

    epoch: int
    seq: int
    standby: bool = False
    age_ms: int = 0


class NoData(Question, frozen=True):
    """No parameters."""


class Precondition(Question, frozen=True):
    """Query parameters that every request that changes something accepts."""

    expected_controller_epoch: (
        Annotated[int, Meta(ge=0, le=2**31 - 1, description="412 unless this is the controller's epoch")] | None
    ) = None


class PartitionName(Question, frozen=True):
    """A partition."""

    topic: str
    partition: Int32
