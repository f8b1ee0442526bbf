"""Events of controllers, recorded by `observe`."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from .fields import Fields


class ControllerElected(Fields, frozen=True, kw_only=True):
    """`ctl.elected`: an instance has received its fence, before it takes over."""

    controller: int
    incarnation: int
    controller_epoch: int


class ControllerReady(Fields, frozen=True, kw_only=True):
    """`ctl.ready`: the takeover is complete."""

    controller: int
    incarnation: int
    controller_epoch: int


class ControllerResigned(Fields, frozen=True, kw_only=True):
    """`ctl.resigned`: an instance has dropped its state; the store may name it still.

    Attributes:
        handler: label of the event that was being handled; empty if there was none.
    """

    controller: int
    incarnation: int
    controller_epoch: int
    cause: str
    handler: str


class SendGateMoved(Fields, frozen=True, kw_only=True):
    """`ctl.gate`: an instance stops sending, or goes on, because its session with the store may have ended, or has not.

    Attributes:
        open: whether it may send.
    """

    open: bool


class ControllerView(Fields, frozen=True, kw_only=True):
    """`ctl.brokers`: the brokers as the active controller knows them, after each change.

    Attributes:
        brokers: id and broker epoch of each.
        shutting_down: those that are leaving.
    """

    controller_epoch: int
    brokers: list[tuple[int, int]]
    shutting_down: list[int]


class ParticipantsKnown(Fields, frozen=True, kw_only=True):
    """`ctl.participants`: after each `ctl.brokers`, the participants among them.

    Attributes:
        brokers: id of each, and the incarnation of its registration in hex.
    """

    controller_epoch: int
    brokers: list[tuple[int, str]]


class SessionsBegan(Fields, frozen=True, kw_only=True):
    """`session.term`: a controller begins to serve sessions, right after its election.

    Attributes:
        at_ns: now. Like all times of these events a reading of the node's clock for leases.
    """

    controller_epoch: int
    at_ns: int


class Confirmed(Fields, frozen=True, kw_only=True):
    """`session.confirmed`: the store has accepted the fence of the controller.

    Attributes:
        sent_ns: when the operation was sent.
    """

    controller_epoch: int
    sent_ns: int


class HeartbeatAnswered(Fields, frozen=True, kw_only=True):
    """`session.heartbeat`: a controller answers a heartbeat.

    Attributes:
        life: broker epoch of the registration.
        received_ns: when the heartbeat arrived.
        at_ns: now.
        timeout_ms: of the session, if the heartbeat is granted; otherwise 0.
    """

    controller_epoch: int
    broker: int
    life: int
    verdict: Literal["granted", "unconfirmed", "refused"]
    received_ns: int
    at_ns: int
    timeout_ms: int


class SessionEnds(Fields, frozen=True, kw_only=True):
    """`session.end`: a controller begins to end a session.

    Attributes:
        cause: expired, goodbye or next life.
    """

    controller_epoch: int
    broker: int
    life: int
    cause: str
    at_ns: int
    timeout_ms: int


class PartitionMoved(Fields, frozen=True, kw_only=True):
    """`fsm.partition`: as in the event log of the controller; `refused` is empty unless nothing changed."""

    controller_epoch: int
    topic: str
    partition: int
    from_state: str
    to_state: str
    leader: int
    leader_epoch: int
    isr: list[int]
    partition_epoch: int
    refused: str


class ReplicaMoved(Fields, frozen=True, kw_only=True):
    """`fsm.replica`: as in the event log of the controller."""

    controller_epoch: int
    topic: str
    partition: int
    broker: int
    from_state: str
    to_state: str


class BrokerChanged(Fields, frozen=True, kw_only=True):
    """`fsm.broker`: as in the event log of the controller; `what` is started, bounced, failed, modified,
    directory-failed, shutting-down or restored."""

    controller_epoch: int
    broker: int
    what: str


class TopicChanged(Fields, frozen=True, kw_only=True):
    """`fsm.topic`: as in the event log of the controller; `what` is created, grown, vanished, deletion started,
    deletion halted or deleted."""

    controller_epoch: int
    topic: str
    what: str


class RequestEnqueued(Fields, frozen=True, kw_only=True):
    """`req.enqueue`: a channel of a controller accepted a request.

    Attributes:
        channel: number of the channel, unique in the run: one for each registration of a broker, and another one
            after its queue was dropped.
        request: number of the request, unique in the run.
        what: LeaderAndIsr, UpdateMetadata or StopReplica.
        partitions: names such as t1-0; empty for UpdateMetadata.
        leader_epochs, topic_ids: of the partitions, in the same order.
    """

    channel: int
    broker: int
    broker_epoch: int
    request: int
    what: str
    controller_epoch: int
    partitions: list[str]
    leader_epochs: list[int] = msgspec.field(default_factory=list)
    topic_ids: list[str] = msgspec.field(default_factory=list)


class RequestsReplaced(Fields, frozen=True, kw_only=True):
    """`req.replace`: waiting requests of a channel were coalesced.

    Attributes:
        before: numbers of the waiting requests, in order.
        after: those that wait now: number, type and partitions, as in `req.enqueue`.
    """

    channel: int
    before: list[int]
    after: list[tuple[int, str, list[str]]]


class ChannelDropped(Fields, frozen=True, kw_only=True):
    """`req.drop`: a channel was closed; its waiting requests are gone."""

    channel: int


class RequestAttempted(Fields, frozen=True, kw_only=True):
    """`req.attempt`: a channel passes a request to its connection, for the first time or again.

    Attributes:
        outcome: `begin` before, then `answered` or `failed`.
    """

    channel: int
    request: int
    outcome: Literal["begin", "answered", "failed"]


class IsrDecided(Fields, frozen=True, kw_only=True):
    """`isr.decide`: the controller answers one proposal of a leader.

    Attributes:
        error: name of the error code, NONE if the proposal was accepted; or the class of the error that refused the
            whole request.
        leadership: leader, leader epoch, ISR, partition epoch and recovering mark of the answer; None with an error.
    """

    controller_epoch: int
    broker: int
    broker_epoch: int
    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: list[int]
    member_epochs: list[int]
    recovering: bool
    error: str
    leadership: tuple[int, int, list[int], int, bool] | None


FIELDS: Final[Mapping[str, type[Fields]]] = {
    "ctl.elected": ControllerElected,
    "ctl.ready": ControllerReady,
    "ctl.resigned": ControllerResigned,
    "ctl.gate": SendGateMoved,
    "ctl.brokers": ControllerView,
    "ctl.participants": ParticipantsKnown,
    "session.term": SessionsBegan,
    "session.confirmed": Confirmed,
    "session.heartbeat": HeartbeatAnswered,
    "session.end": SessionEnds,
    "fsm.partition": PartitionMoved,
    "fsm.replica": ReplicaMoved,
    "fsm.broker": BrokerChanged,
    "fsm.topic": TopicChanged,
    "req.enqueue": RequestEnqueued,
    "req.replace": RequestsReplaced,
    "req.drop": ChannelDropped,
    "req.attempt": RequestAttempted,
    "isr.decide": IsrDecided,
}
