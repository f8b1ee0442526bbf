"""Events that checkers read: their kinds, fields, and who records them.

A producer calls `history.record(kind, **fields)` with exactly the fields of the kind's class below, as plain values:
ints, strings, lists, dicts with string keys, and tuples in the order of the named tuples below. `validate` compares an
event with its class; tests of producers call it for each event. Events of other kinds may be recorded freely, for
timelines and tests.

| Kind | Recorded by | When |
|---|---|---|
| `store.commit` | server of the simulated store | each operation that may write, in commit order, also a refused one |
| `store.unknown` | link of the simulated store | the answer of a writing operation is lost, or arrives too late |
| `store.answered` | link of the simulated store | the answer "ok" of a writing operation reaches its client |
| `store.session` | server of the simulated store | a session of a controller instance or a broker begins or ends |
| `store.reopened` | world of a store with files | its files were read again after a crash |
| `ctl.*`, `fsm.*`, `isr.decide` | `observe` | see the classes |
| `req.enqueue`, `req.replace`, `req.attempt`, `req.drop` | `observe` | see the classes |
| `req.send`, `req.accept`, `req.reject`, `req.reply`, `req.lost` | simulated network and brokers | see the classes |
| `role.apply`, `role.stop`, `isr.propose`, `broker.complaint` | simulated brokers | see the classes |
| `admin.call`, `admin.reply` | workload | a client calls a method of a controller, and receives the result |
| `reassign.asked`, `reassign.answered` | workload | see the classes |
| `node.start`, `node.crash`, `fault.begin`, `fault.end`, `task.failed` | runner | see the classes |

Nodes of controller instances are named `controller 100`, of brokers `broker 1`; other names are free. A node's name
stays the same over restarts; `incarnation` counts its processes from 1.

A store key names one entry of the store, the same for all kinds of stores:

| Key | Value |
|---|---|
| `epoch` | `{"epoch": controller epoch}` |
| `controller` | `{"id": controller id, "epoch": its epoch}` |
| `brokers/ID` | `{"epoch": broker epoch}` |
| `topics/NAME` | `{"id": topic id in hex, "partitions": {"0": [replicas, adding, removing], ...}}` |
| `leadership/NAME/INDEX` | `{"leader", "leader_epoch", "isr", "recovering", "controller_epoch"}` |
| `deletions/NAME`, `configs/NAME`, `config` | `{}` for a mark; the settings |
| `requests/reassignment`, `requests/preferred`, `features`, `producer ids`, `notifications/...` | any object |
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from kactl.testing.history import Event


class Op(NamedTuple):
    """One entry that a commit wrote.

    Attributes:
        old: version before; -1 if the entry did not exist.
        new: version after; -1 if the entry was removed. Entries without versions of their own use 0.
        value: the stored record afterwards; None if the entry was removed.
    """

    key: str
    old: int
    new: int
    value: dict[str, Any] | None


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


class _Fields(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


# -- store -------------------------------------------------------------------------------------------------------------


class StoreCommit(_Fields, frozen=True, kw_only=True):
    """An operation that may write, at its position in the commit order.

    Attributes:
        txn: number of the operation, unique in the run.
        client: name of the node that sent it; empty if the server itself acts, as when a session expires.
        operation: method of `Store` or `Session`, or `expire` for the end of a session.
        sent: `len(history.events)` when the client sent the operation.
        fence: controller epoch of the presented fence; None if the operation has none.
        ops: entries that were written; empty unless the outcome is "ok".
        conflicts: keys that were not written because another version is stored.
        outcome: the effect on the server. A commit of many partitions is "ok" if at least one was written or there was
            no conflict, and "conflict" if all of them conflicted.
    """

    txn: int
    client: str
    operation: str
    sent: int
    fence: int | None
    ops: list[Op]
    conflicts: list[str] = []
    outcome: Literal["ok", "conflict", "fenced", "error"]


class StoreUnknown(_Fields, frozen=True, kw_only=True):
    """The client does not learn the outcome of a writing operation.

    Attributes:
        done: whether the server carries it out.
    """

    txn: int
    client: str
    done: bool


class StoreAnswered(_Fields, frozen=True, kw_only=True):
    txn: int
    client: str


class StoreSession(_Fields, frozen=True, kw_only=True):
    """A session at the server.

    Attributes:
        client: name of the node that it belongs to.
        broker: id of the broker; -1 for the session of a controller instance.
    """

    session: int
    client: str
    broker: int = -1
    what: Literal["opened", "expired", "closed"]


class StoreReopened(_Fields, frozen=True, kw_only=True):
    """Content of a store's files after a crash, as another program reads it.

    Attributes:
        content: value by key, for the kinds of keys that the store's `store.commit` events have.
    """

    content: dict[str, dict[str, Any]]


# -- controller, by `observe` ------------------------------------------------------------------------------------------


class ControllerElected(_Fields, frozen=True, kw_only=True):
    """`ctl.elected`: an instance has received its fence, before it takes over."""

    controller: int
    incarnation: int
    controller_epoch: int


class ControllerReady(_Fields, frozen=True, kw_only=True):
    """`ctl.ready`: the takeover is complete."""

    controller: int
    incarnation: int
    controller_epoch: int


class ControllerResigned(_Fields, frozen=True, kw_only=True):
    """`ctl.resigned`: an instance has dropped its state; the store may name it still.

    Attributes:
        handler: label of the event that was being handled; empty if there was none.
    """

    controller: int
    incarnation: int
    controller_epoch: int
    cause: str
    handler: str


class SendGateMoved(_Fields, frozen=True, kw_only=True):
    """`ctl.gate`: an instance stops sending, or goes on, because its session with the store may have ended, or has not.

    Attributes:
        open: whether it may send.
    """

    open: bool


class ControllerView(_Fields, frozen=True, kw_only=True):
    """`ctl.brokers`: the brokers as the active controller knows them, after each change.

    Attributes:
        brokers: id and broker epoch of each.
        shutting_down: those that are leaving.
    """

    controller_epoch: int
    brokers: list[tuple[int, int]]
    shutting_down: list[int]


class PartitionMoved(_Fields, frozen=True, kw_only=True):
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


class ReplicaMoved(_Fields, frozen=True, kw_only=True):
    """`fsm.replica`: as in the event log of the controller."""

    controller_epoch: int
    topic: str
    partition: int
    broker: int
    from_state: str
    to_state: str


class BrokerChanged(_Fields, frozen=True, kw_only=True):
    """`fsm.broker`: as in the event log of the controller; `what` is started, bounced, failed, modified,
    directory-failed, shutting-down or restored."""

    controller_epoch: int
    broker: int
    what: str


class TopicChanged(_Fields, frozen=True, kw_only=True):
    """`fsm.topic`: as in the event log of the controller; `what` is created, grown, vanished, deletion started,
    deletion halted or deleted."""

    controller_epoch: int
    topic: str
    what: str


class RequestEnqueued(_Fields, frozen=True, kw_only=True):
    """`req.enqueue`: a channel of a controller accepted a request.

    Attributes:
        channel: number of the channel, unique in the run: one for each registration of a broker, and another one
            after its queue was dropped.
        request: number of the request, unique in the run.
        what: LeaderAndIsr, UpdateMetadata or StopReplica.
        partitions: names such as t1-0; empty for UpdateMetadata.
        leader_epochs: of the partitions, in the same order.
    """

    channel: int
    broker: int
    broker_epoch: int
    request: int
    what: str
    controller_epoch: int
    partitions: list[str]
    leader_epochs: list[int] = []


class RequestsReplaced(_Fields, frozen=True, kw_only=True):
    """`req.replace`: waiting requests of a channel were coalesced.

    Attributes:
        before: numbers of the waiting requests, in order.
        after: those that wait now: number, type and partitions, as in `req.enqueue`.
    """

    channel: int
    before: list[int]
    after: list[tuple[int, str, list[str]]]


class ChannelDropped(_Fields, frozen=True, kw_only=True):
    """`req.drop`: a channel was closed; its waiting requests are gone."""

    channel: int


class RequestAttempted(_Fields, frozen=True, kw_only=True):
    """`req.attempt`: a channel passes a request to its connection, for the first time or again.

    Attributes:
        outcome: `begin` before, then `answered` or `failed`.
    """

    channel: int
    request: int
    outcome: Literal["begin", "answered", "failed"]


class IsrDecided(_Fields, frozen=True, kw_only=True):
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


# -- network and brokers -----------------------------------------------------------------------------------------------


class RequestSent(_Fields, frozen=True, kw_only=True):
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


class RequestAccepted(_Fields, frozen=True, kw_only=True):
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
    led: list[Led] = []
    stopped: list[Stopped] = []


class RequestRejected(_Fields, frozen=True, kw_only=True):
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


class RequestReplied(_Fields, frozen=True, kw_only=True):
    """`req.reply`: the response reached the controller's connection."""

    message: int


class RequestLost(_Fields, frozen=True, kw_only=True):
    """`req.lost`: the controller's connection reports that the broker cannot be reached; it may have the request."""

    message: int


class RoleApplied(_Fields, frozen=True, kw_only=True):
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


class RoleStopped(_Fields, frozen=True, kw_only=True):
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


class IsrProposed(_Fields, frozen=True, kw_only=True):
    """`isr.propose`: a leader sends one proposal."""

    broker: int
    broker_epoch: int
    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: list[int]
    member_epochs: list[int]


class BrokerComplaint(_Fields, frozen=True, kw_only=True):
    """`broker.complaint`: a broker received a request that no controller may send; always a violation.

    Attributes:
        invariant: the number that it breaks, such as INV-49.
    """

    broker: int
    broker_epoch: int
    controller_epoch: int
    invariant: str
    text: str


# -- clients and the runner --------------------------------------------------------------------------------------------


class AdminCall(_Fields, frozen=True, kw_only=True):
    """`admin.call`: a client calls a controller instance.

    Attributes:
        call: number of the call, unique in the run.
        controller: name of the node that is called.
        operation: the requested operation; elections are `elect preferred` and `elect unclean`.
        target: the names of partitions or topics, joined by ", "; empty for all.
        limit_ms: time within which it must be answered while the node runs; 0 for no limit.
    """

    call: int
    controller: str
    operation: str
    target: str = ""
    limit_ms: float = 0.0


class AdminReply(_Fields, frozen=True, kw_only=True):
    """`admin.reply`: the result of a call, or its end.

    Attributes:
        outcome: `done`, the class of the error, or `killed` if the node of the instance or of the client ended.
    """

    call: int
    outcome: str


class ReassignmentAsked(_Fields, frozen=True, kw_only=True):
    """`reassign.asked`: an administrator requests reassignments, or leaves the request in the store.

    Attributes:
        request: number of the request, unique in the run.
        targets: replicas by partition, such as t1-0; None cancels.
    """

    request: int
    targets: dict[str, list[int] | None]


class ReassignmentAnswered(_Fields, frozen=True, kw_only=True):
    """`reassign.answered`: the controller has answered a request. One that is left in the store has no answer.

    Attributes:
        errors: name of the error code by partition, NONE if the controller has accepted the target.
    """

    request: int
    errors: dict[str, str]


class NodeStarted(_Fields, frozen=True, kw_only=True):
    """`node.start`: recorded on the node itself."""

    incarnation: int


class NodeCrashed(_Fields, frozen=True, kw_only=True):
    """`node.crash`: recorded on the node itself.

    Attributes:
        clean: it was stopped, not killed.
        lossy: unforced writes of its disk are lost.
    """

    incarnation: int
    clean: bool
    lossy: bool = False


class FaultBegan(_Fields, frozen=True, kw_only=True):
    """`fault.begin`.

    Attributes:
        fault: verb of the script, such as `kill`.
        target: node, link or file.
    """

    fault: str
    target: str


class FaultEnded(_Fields, frozen=True, kw_only=True):
    """`fault.end`."""

    fault: str
    target: str


class TaskFailed(_Fields, frozen=True, kw_only=True):
    """`task.failed`: the loop's exception handler was called: a task of the node ended by an error that no code
    received."""

    task: str
    error: str


FIELDS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "store.commit": StoreCommit,
    "store.unknown": StoreUnknown,
    "store.answered": StoreAnswered,
    "store.session": StoreSession,
    "store.reopened": StoreReopened,
    "ctl.elected": ControllerElected,
    "ctl.ready": ControllerReady,
    "ctl.resigned": ControllerResigned,
    "ctl.gate": SendGateMoved,
    "ctl.brokers": ControllerView,
    "fsm.partition": PartitionMoved,
    "fsm.replica": ReplicaMoved,
    "fsm.broker": BrokerChanged,
    "fsm.topic": TopicChanged,
    "req.enqueue": RequestEnqueued,
    "req.replace": RequestsReplaced,
    "req.drop": ChannelDropped,
    "req.attempt": RequestAttempted,
    "isr.decide": IsrDecided,
    "req.send": RequestSent,
    "req.accept": RequestAccepted,
    "req.reject": RequestRejected,
    "req.reply": RequestReplied,
    "req.lost": RequestLost,
    "role.apply": RoleApplied,
    "role.stop": RoleStopped,
    "isr.propose": IsrProposed,
    "broker.complaint": BrokerComplaint,
    "admin.call": AdminCall,
    "admin.reply": AdminReply,
    "reassign.asked": ReassignmentAsked,
    "reassign.answered": ReassignmentAnswered,
    "node.start": NodeStarted,
    "node.crash": NodeCrashed,
    "fault.begin": FaultBegan,
    "fault.end": FaultEnded,
    "task.failed": TaskFailed,
}


def validate(event: Event) -> None:
    """Compare an event with the class of its kind. Kinds that are not listed are not checked.

    Raises:
        ValueError: a field is missing, unknown, or of another type. The text names the event.
    """
    fields = FIELDS.get(event.kind)
    if fields is None:
        return
    try:
        msgspec.json.decode(msgspec.json.encode(event.fields), type=fields)
    except (msgspec.MsgspecError, TypeError) as error:
        raise ValueError(f"event {event.seq}, {event.kind}: {error}: {event.fields}") from error
