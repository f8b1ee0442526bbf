"""Events of a participant's lease, for its log, its metrics, and an application that subscribes."""

import enum

import msgspec


class RiskCause(enum.Enum):
    """Why a lease was not renewed for so long."""

    STORE_SILENT = "no renewal was confirmed"
    LOOP_BLOCKED = "the event loop was blocked"
    CLOCK_JUMP = "the process or the machine was suspended"


class LeaseAtRisk(msgspec.Struct, frozen=True):
    """Less than twice the margin remains of the lease. Reported at most once per session timeout.

    Attributes:
        remaining_ms: until the lease ends; negative if it has ended already.
        blocked_ms: how late the event loop found that out.
    """

    broker: int
    cause: RiskCause
    remaining_ms: float
    blocked_ms: float


class LeaseLapsed(msgspec.Struct, frozen=True):
    """The lease has ended: no leadership of this participant may act.

    Attributes:
        late_ms: for how long it had ended when the event loop found that out.
    """

    broker: int
    late_ms: float


class LeaseResumed(msgspec.Struct, frozen=True):
    """A renewal succeeded after the lease had lapsed, and the session never ended: leaderships begin again, under the
    same tokens."""

    broker: int


LeaseEvent = LeaseAtRisk | LeaseLapsed | LeaseResumed
