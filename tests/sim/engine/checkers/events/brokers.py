"""Events of the simulated network and of the brokers behind it."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from .fields import Fields


class Led(NamedTuple):
    """One partition of a LeaderAndIsr."""

    topic: str
    topic_id: str
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: list[int]
    replicas: list[int]
    is_new: bool


class Stopped(NamedTuple):
    """One replica of a StopReplica."""

    topic: str
    topic_id: str
    partition: int
    leader_epoch: int
    delete: bool


class RequestSent(Fields, frozen=True, kw_only=True):
    """`req.send`: a request leaves for a broker. The same fields as in `req.accept` where they have the same names.

    Attributes:
        broker_epoch: of the request; -1 skips the check.
        what: LeaderAndIsr, UpdateMetadata or StopReplica.
        message: number of the message, unique in the run; a repeated or doubled message has a new one.
    """

    message: int
    broker: int
    broker_epoch: int
    what: str
    controller: int
    controller_epoch: int


class RequestAccepted(Fields, frozen=True, kw_only=True):
    """`req.accept`: a broker's top-level checks accept a request, before any of its partitions is applied.

    Attributes:
        broker_epoch: of the registration that accepts it.
        asked_epoch: broker epoch of the request; -1 skips the check.
        led: partitions of a LeaderAndIsr.
        stopped: replicas of a StopReplica.
    """

    message: int
    broker: int
    broker_epoch: int
    asked_epoch: int
    what: str
    controller: int
    controller_epoch: int
    led: list[Led] = msgspec.field(default_factory=list)
    stopped: list[Stopped] = msgspec.field(default_factory=list)


class RequestRejected(Fields, frozen=True, kw_only=True):
    """`req.reject`: a broker's top-level checks refuse a request.

    Attributes:
        reason: `controller epoch`, `broker epoch`, or another text.
    """

    message: int
    broker: int
    broker_epoch: int
    asked_epoch: int
    what: str
    controller: int
    controller_epoch: int
    reason: str


class RequestReplied(Fields, frozen=True, kw_only=True):
    """`req.reply`: the response reached the controller's connection."""

    message: int


class RequestLost(Fields, frozen=True, kw_only=True):
    """`req.lost`: the controller's connection reports that the broker cannot be reached; it may have the request."""

    message: int


class RoleApplied(Fields, frozen=True, kw_only=True):
    """`role.apply`: a broker applied one partition of a LeaderAndIsr, or refused it.

    Attributes:
        role: `leader` or `follower`.
        outcome: `applied`; `same` if it has this leader epoch already, and nothing changed; `leader epoch`, `topic id`
            or `storage` if it was refused for that.
    """

    message: int
    broker: int
    broker_epoch: int
    topic: str
    topic_id: str
    partition: int
    role: Literal["leader", "follower"]
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: list[int]
    outcome: Literal["applied", "same", "leader epoch", "topic id", "storage"]


class RoleStopped(Fields, frozen=True, kw_only=True):
    """`role.stop`: a broker stopped one replica, or refused to. Outcomes as for `role.apply`; `same` if it has none."""

    message: int
    broker: int
    broker_epoch: int
    topic: str
    topic_id: str
    partition: int
    leader_epoch: int
    delete: bool
    outcome: Literal["applied", "same", "leader epoch", "topic id", "storage"]


class IsrProposed(Fields, frozen=True, kw_only=True):
    """`isr.propose`: a leader sends one proposal."""

    broker: int
    broker_epoch: int
    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: list[int]
    member_epochs: list[int]


class BrokerComplaint(Fields, frozen=True, kw_only=True):
    """`broker.complaint`: a broker received a request that no controller may send; always a violation.

    Attributes:
        invariant: the number that it breaks, such as INV-49.
    """

    broker: int
    broker_epoch: int
    controller_epoch: int
    invariant: str
    text: str


FIELDS: Final[Mapping[str, type[Fields]]] = {
    "req.send": RequestSent,
    "req.accept": RequestAccepted,
    "req.reject": RequestRejected,
    "req.reply": RequestReplied,
    "req.lost": RequestLost,
    "role.apply": RoleApplied,
    "role.stop": RoleStopped,
    "isr.propose": IsrProposed,
    "broker.complaint": BrokerComplaint,
}
