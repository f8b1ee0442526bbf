"""The words that questions and answers have in common."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from kactl.messages.log import PartitionStateName as PartitionStateName
from kactl.messages.log import ReplicaStateName as ReplicaStateName

LIMIT_DEFAULT: Final = 500
LIMIT_MAX: Final = 10_000
# What one election may name; `all` has no such bound. A body of that many names fits the server's limit for bodies.
ELECTION_PARTITIONS_MAX: Final = 50_000
REASON_LENGTH_MAX: Final = 1000
TIMEOUT_MS_MAX: Final = 300_000

BrokerStateName = Literal["live", "shutting_down", "dead"]
EventKind = Literal["controller", "broker", "topic", "partition", "replica", "request"]
ElectionType = Literal["preferred", "unclean"]
Int32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
# No control characters (C0, DEL, C1), no line separators and no marks that change the reading direction.
ONE_LINE: Final = r"^(?![\s\S]*[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069])"
Reason = Annotated[
    str,
    Meta(
        max_length=REASON_LENGTH_MAX,
        pattern=ONE_LINE,
        description="why; kept in the events and in the log of the server; one line",
    ),
]

Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="how many at the most")]
Cursor = Annotated[str, Meta(max_length=2000, description="`next_cursor` of the page before")]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Common to all that is answered."""


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Common to all that is asked."""


class AsOf(Answer, frozen=True):
    """The moment of which an answer speaks: follow the events behind `seq` to stay up to date.

    Attributes:
        epoch: of the controller; 0 if it is not known.
        standby: the answer comes from the copy of an instance that stands by.
        age_ms: for how long that copy may have been behind the store.
    """

    epoch: int
    seq: int
    standby: bool = False
    age_ms: int = 0


class NoQuestion(Question, frozen=True):
    """Nothing can be asked here."""


class Precondition(Question, frozen=True):
    """What every request that changes something may add to its query."""

    expected_controller_epoch: (
        Annotated[int, Meta(ge=0, le=2**31 - 1, description="412 unless the controller acts under this epoch")] | None
    ) = None


class PartitionName(Question, frozen=True):
    """A partition."""

    topic: str
    partition: Int32
