"""Events of simulated participants and spectators, and of their links."""

from collections.abc import Mapping
from typing import Final, Literal

from .fields import Fields


class LinkChanged(Fields, frozen=True, kw_only=True):
    """`link.open` and `link.close`, on the node of the controller.

    Attributes:
        incarnation: of the registration, in hex.
    """

    broker: int
    incarnation: str


class LeaseBegan(Fields, frozen=True, kw_only=True):
    """`lease.begin`: the application of a participant acts as a leader from now on. Recorded on its node.

    Attributes:
        life: broker epoch of the registration.
        leader_epoch: of the token; `present_epoch`: under which the partition is led now, after changes of the ISR.
        valid: node and life of each other registration whose lease has not ended yet, by its node's clock.
        margin_ms: for its calls to end.
    """

    broker: int
    life: int
    topic: str
    topic_id: str
    partition: int
    controller_epoch: int
    leader_epoch: int
    present_epoch: int
    valid: list[tuple[str, int]]
    margin_ms: float = 0.0


class LeaseKept(Fields, frozen=True, kw_only=True):
    """`lease.keep`: a leadership goes on under another leader epoch, since only the ISR or the replicas have changed.

    Attributes:
        leader_epoch, present_epoch: as in `lease.begin`.
    """

    broker: int
    life: int
    topic: str
    topic_id: str
    partition: int
    leader_epoch: int
    present_epoch: int


class LeaseEnded(Fields, frozen=True, kw_only=True):
    """`lease.end`: a leadership of a participant has ended. Recorded on its node.

    Attributes:
        late_ms: as for a lapse: a process that was paused may handle an order before it notices that its lease ended.
        ordered: the leader epoch of the order to lead that has ended it; -1 if something else has.
        controller_epoch: of the controller that has sent the order.
    """

    broker: int
    life: int
    topic: str
    partition: int
    late_ms: float = 0.0
    ordered: int = -1
    controller_epoch: int = -1


class LeaseLapsed(Fields, frozen=True, kw_only=True):
    """`lease.lapse`: a participant has ended all leaderships, since its lease has ended. Recorded on its node.

    Attributes:
        late_ms: how long ago the lease ended, by the node's clock. A process that is slow, or was paused, is late.
    """

    broker: int
    life: int
    late_ms: float = 0.0


class LeaseLate(Fields, frozen=True, kw_only=True):
    """`lease.late`: something goes on although the lease that its renewals give has ended.

    Attributes:
        what: a check that has succeeded, a deadline that is too late, or a call that runs after the margin.
    """

    broker: int
    life: int
    what: str


class LateAnswer(Fields, frozen=True, kw_only=True):
    """`lease.late_answer`: a renewal has succeeded, and its answer has arrived after the end of the lease."""

    broker: int
    life: int


class PhaseBegan(Fields, frozen=True, kw_only=True):
    """`phase.begin`: a handler is called. Recorded on its node.

    Attributes:
        number: of the call, unique in its process.
        leader_epoch: -1 for `stop`.
        topic_id: of `prepare` and `lead`; empty for others.
    """

    broker: int
    number: int
    topic: str
    partition: int
    phase: Literal["prepare", "lead", "follow", "stop"]
    leader_epoch: int
    topic_id: str


class PhaseEnded(Fields, frozen=True, kw_only=True):
    """`phase.end`: the call has ended."""

    broker: int
    number: int
    topic: str
    partition: int
    phase: str


class HandlerReported(Fields, frozen=True, kw_only=True):
    """`handler.report`: a participant reports the state of a replica.

    Attributes:
        status: name of a `ReplicaStatus`.
    """

    broker: int
    topic: str
    partition: int
    status: str


class RoutesSeen(Fields, frozen=True, kw_only=True):
    """`routes.seen`, on the node of the spectator.

    Attributes:
        controller_epoch, seq_number: version of its table.
        age_ms: of the table, by the spectator.
    """

    controller_epoch: int
    seq_number: int
    age_ms: float


FIELDS: Final[Mapping[str, type[Fields]]] = {
    "link.open": LinkChanged,
    "link.close": LinkChanged,
    "lease.begin": LeaseBegan,
    "lease.keep": LeaseKept,
    "lease.end": LeaseEnded,
    "lease.lapse": LeaseLapsed,
    "lease.late": LeaseLate,
    "lease.late_answer": LateAnswer,
    "phase.begin": PhaseBegan,
    "phase.end": PhaseEnded,
    "handler.report": HandlerReported,
    "routes.seen": RoutesSeen,
}
