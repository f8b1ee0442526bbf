"""Errors: the cause, the party at fault, and the remedy.

All errors derive from `KactlError`. `remedy` is the action for the code that catches it, `code` is Kafka's error code,
for Kafka's clients, and `http_status` is for the admin API. Facts are attributes, and the message is built from them.

A rejection that is normal in operation (a lost race for one row, no live replica) is a value, not an exception.
"""

import enum
from collections.abc import Mapping
from typing import ClassVar


class ErrorCode(enum.IntEnum):
    """Kafka's protocol error codes, as far as a controller uses them.

    Source: the error table of the protocol.
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    STALE_CONTROLLER_EPOCH = 11
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    REASSIGNMENT_IN_PROGRESS = 60
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    STALE_BROKER_EPOCH = 77
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    THROTTLING_QUOTA_EXCEEDED = 89
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    UNKNOWN_TOPIC_ID = 100
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108


class Remedy(enum.Enum):
    """Action for the code that catches an error."""

    REPORT = "report"  # report to the caller; nothing was changed, and a retry does not help
    RETRY = "retry"  # nothing was changed; the same call may succeed later
    READ_BACK = "read back"  # the outcome is unknown; read it back before acting on it
    RESIGN = "resign"  # another instance is the controller now


class KactlError(Exception):
    """Base class of all errors that kactl raises."""

    remedy: ClassVar[Remedy] = Remedy.REPORT
    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    http_status: ClassVar[int] = 500
    ends_start = False  # it has ended the start of a controller or a participant: the message says all

    def __str__(self) -> str:
        # Messages name topics, hosts, principals and files, and reach terminals by tracebacks, too.
        text = super().__str__()
        if text.isprintable():
            return text
        return "".join(c if c.isprintable() or c in "\n\t" else f"\\u{ord(c):04x}" for c in text)


# -- internal errors ------------------------------------------------------------------------------------------------


class IllegalState(KactlError):
    """A state that only a bug can cause, such as a request batch that was filled and never sent."""


class ProcessForked(KactlError):
    """The object belongs to the process that this one was forked from, and cannot be used here.

    Args:
        owner: the object.
        pid: of the process that it belongs to.
    """

    def __init__(self, owner: str, pid: int) -> None:
        super().__init__(
            f"{owner} belongs to process {pid}, from which this one was forked: use it there, and create and enter "
            "another one here, or start this process by spawn or exec"
        )
        self.owner = owner
        self.pid = pid


class InternalError(KactlError):
    """A bug has ended the handling of a request, which may have been carried out in part.

    Args:
        error_id: of the line in the controller's log that has the details; see `kactl.runtime.error_id`.
    """

    remedy = Remedy.READ_BACK

    def __init__(self, error_id: str) -> None:
        super().__init__(f"internal error in the controller: its log has the details under {error_id}")
        self.error_id = error_id


class ControllerFailed(KactlError):
    """A bug has ended a part of the controller, and with it the block of the instance. The cause is `__cause__`."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the controller has failed: {type(cause).__name__}: {cause}")


# -- invalid requests -----------------------------------------------------------------------------------------------


class BadRequest(KactlError):
    """The request is invalid; nothing was changed.

    Args:
        field: the position in the request, as a path such as `partitions[0].topic` or a configuration key.
        reason: the problem, and a valid alternative.
    """

    code = ErrorCode.INVALID_REQUEST
    http_status = 400

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class BadConfig(BadRequest):
    """A configuration key is unknown, or its value is invalid."""

    code = ErrorCode.INVALID_CONFIG


class StaleEpoch(BadRequest):
    """The request names a controller epoch that is not the current one; nothing was changed."""

    code = ErrorCode.STALE_CONTROLLER_EPOCH
    http_status = 412

    def __init__(self, field: str, *, expected: int, present: int) -> None:
        super().__init__(
            field,
            f"{expected} is not the present controller epoch, which is {present}: read it again, and retry",
        )
        self.expected = expected
        self.present = present


class InvalidReplicaAssignment(BadRequest):
    """A manual assignment names a broker twice, no broker, or unknown brokers."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidReplicationFactor(BadRequest):
    """More replicas were requested than there are brokers, or fewer than one."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidPartitions(BadRequest):
    """A topic was requested with fewer than one partition, or with too many."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidTopic(BadRequest):
    """The topic name is invalid, or the topic is being deleted."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicExists(KactlError):
    """A topic of that name exists already; it was not changed.

    Args:
        difference: from the requested one, and the remedy.
    """

    code = ErrorCode.TOPIC_ALREADY_EXISTS
    http_status = 409

    def __init__(self, topic: str, difference: str = "") -> None:
        # Users' scripts search for "Topic 'a' already exists."
        rest = difference or "Choose another name, or describe the one that is there"
        super().__init__(f"Topic {topic!r} already exists. {rest}")
        self.topic = topic


class TopicBeingDeleted(TopicExists):
    """A topic of that name still exists and is queued for deletion."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.args = (
            f"Topic {topic!r} already exists and is being deleted. Wait until it is gone, then create it again; "
            f"`kactl explain {topic}` states what its deletion waits for",
        )


class NotFound(KactlError):
    """The requested object does not exist.

    Args:
        kind: "topic", "partition", "broker" ...
        name: as in the request.
    """

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    http_status = 404

    def __init__(self, kind: str, name: object) -> None:
        super().__init__(f"there is no {kind} {name}")
        self.kind = kind
        self.name = name


class NoSuchPartition(NotFound):
    """The topic exists but has no such partition.

    Args:
        count: the number of its partitions.
    """

    def __init__(self, topic: str, partition: int, *, count: int) -> None:
        super().__init__("partition", f"{topic}-{partition}")
        has = f"has {count}, numbered from 0" if count else "has none yet"
        self.args = (f"topic {topic} has no partition {partition}: it {has}",)
        self.topic = topic
        self.count = count


class BeingDeleted(KactlError):
    """The topic is queued for deletion and cannot be changed."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION
    http_status = 409

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} is being deleted: wait until it is gone")
        self.topic = topic


class TopicDeletionDisabled(KactlError):
    """Topic deletion is disabled in the configuration of this controller."""

    code = ErrorCode.TOPIC_DELETION_DISABLED
    http_status = 403

    def __init__(self) -> None:
        super().__init__("deleting topics is switched off: set delete-topics = true in [controller] on every instance")


class RequestWaits(KactlError):
    """A request of this kind is already stored, and the store holds only one."""

    remedy = Remedy.RETRY
    http_status = 409

    def __init__(self, what: str) -> None:
        super().__init__(f"a request for {what} waits already: wait until it has been carried out")
        self.what = what


class ReassignmentRunning(KactlError):
    """The topic cannot be changed while its partitions are being reassigned."""

    remedy = Remedy.RETRY
    code = ErrorCode.REASSIGNMENT_IN_PROGRESS
    http_status = 409

    def __init__(self, topic: str) -> None:
        super().__init__(f"partitions of topic {topic!r} are being reassigned: wait for it, or cancel it")
        self.topic = topic


class StaleBrokerEpoch(KactlError):
    """A broker sent a request under another registration than the known one."""

    remedy = Remedy.RETRY
    code = ErrorCode.STALE_BROKER_EPOCH
    http_status = 409

    def __init__(self, broker: int, theirs: int, known: int | None) -> None:
        of_ours = "it is not registered" if known is None else f"it is registered under epoch {known}"
        super().__init__(f"broker {broker} used epoch {theirs}, and {of_ours}: retry once both agree")
        self.broker = broker


class UnknownRecoveryState(KactlError):
    """A leader sent an undefined recovery state. As in Kafka, the response carries no details."""

    http_status = 400

    def __init__(self, number: int) -> None:
        super().__init__(f"there is no leader recovery state {number}: 0 has recovered, 1 recovers")
        self.number = number


class BrokerNotAvailable(KactlError):
    """The broker is not registered."""

    code = ErrorCode.BROKER_NOT_AVAILABLE
    http_status = 404

    def __init__(self, broker: int) -> None:
        super().__init__(f"broker {broker} is not registered: start it, or name another")
        self.broker = broker


class NothingToReset(KactlError):
    """A replica has no failure that a reset of its handler ends.

    Args:
        reason: its present state, and the remedy if it has another failure.
    """

    code = ErrorCode.INVALID_REQUEST
    http_status = 409

    def __init__(self, replica: str, reason: str) -> None:
        super().__init__(f"{replica} is not reset: {reason}")
        self.replica = replica
        self.reason = reason


class BrokerNotRegistered(BrokerNotAvailable):
    """The same, with the error code for brokers that request producer ids."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class ProducerIdsExhausted(KactlError):
    """No block of producer ids is left below 2^63."""

    def __init__(self, last: int) -> None:
        super().__init__(f"the last producer id given away is {last}: no block is left above it")
        self.last = last


# -- transient errors -----------------------------------------------------------------------------------------------


class NotController(KactlError):
    """This instance is not the active controller. Send the request to the active one.

    Attributes:
        address: where the active controller listens for participants and spectators; empty if it is not known.
    """

    remedy = Remedy.RETRY
    code = ErrorCode.NOT_CONTROLLER
    http_status = 503

    def __init__(self, active_id: int | None = None, address: str = "") -> None:
        who = "unknown" if active_id is None else f"{active_id}"
        super().__init__(f"this instance is not the controller; the controller is {who}")
        self.active_id = active_id
        self.address = address


class StaleController(NotController):
    """The same, with the error code for brokers that request a controlled shutdown."""

    code = ErrorCode.STALE_CONTROLLER_EPOCH


class ControllerMoved(KactlError):
    """A later controller was elected; this instance must resign.

    Args:
        ours: the controller epoch of this instance; 0 if it was only a candidate.
        theirs: the later epoch, if known.
    """

    remedy = Remedy.RESIGN
    code = ErrorCode.STALE_CONTROLLER_EPOCH
    http_status = 409

    def __init__(self, *, ours: int, theirs: int | None = None) -> None:
        behind = "a later one" if theirs is None else f"epoch {theirs}"
        super().__init__(f"controller epoch {ours} has been followed by {behind}")
        self.ours = ours
        self.theirs = theirs


class StoreError(KactlError):
    """The store rejected or failed a whole call. Nothing was stored unless the remedy says otherwise."""

    remedy = Remedy.RETRY
    http_status = 503


class StoreUnavailable(StoreError):
    """The store did not respond in time, or the connection broke. The outcome of a write is unknown."""

    remedy = Remedy.READ_BACK


class SessionExpired(StoreError):
    """The store ended the session of this instance, and with it registrations and the controllership."""

    remedy = Remedy.RESIGN


class StoreReplaced(SessionExpired):
    """The file of the store was removed or replaced while it was open, or overwritten. The store stays unusable.

    Args:
        path: the database.
        reason: the file, and what happened to it.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.remedy_text = (
            "stop every program that uses the store, let one complete database stand at this place, without the -wal "
            "and -shm of another one, and start them again; change nothing there while one of them runs"
        )
        super().__init__(f"{path}: {reason}: the session with the store has ended; {self.remedy_text}")
        self.path = path
        self.reason = reason


class StoreDamaged(StoreError):
    """A file has unexpected content. It was not changed.

    Args:
        path: the file.
        reason: the problem.
        remedy_text: the action for an operator.
    """

    remedy = Remedy.REPORT

    def __init__(self, path: str, reason: str, remedy_text: str) -> None:
        super().__init__(f"{path}: {reason}; {remedy_text}")
        self.path = path
        self.reason = reason
        self.remedy_text = remedy_text


class BrokerIdTaken(StoreError):
    """Another live session has registered this broker id.

    Attributes:
        renewed_ms: how long ago that session was renewed.
        ends_ms: how long it lasts if it is not renewed. None, as of the other: not known.
        is_alive: whether its process has renewed it while this one waited.
        name: of the participant that has the id, if it has a name.
    """

    remedy = Remedy.RETRY
    http_status = 409

    def __init__(
        self,
        broker: int,
        *,
        renewed_ms: int | None = None,
        ends_ms: int | None = None,
        is_alive: bool = False,
        name: str = "",
    ) -> None:
        if is_alive:
            own = "a name of its own, or none" if name else "an id of its own"
            reason = f"is used by a process that is alive: give each process {own}, or stop that process"
        else:
            reason = "is registered by another session: stop that process, or wait until its session ends"
            reason += "" if ends_ms is None else f", in {ends_ms / 1000:.1f} s if nothing renews it"
        super().__init__(f"broker id {broker} {f'of participant {name} ' if name else ''}{reason}")
        self.broker = broker
        self.renewed_ms = renewed_ms
        self.ends_ms = ends_ms
        self.is_alive = is_alive
        self.name = name


class NoFreeId(StoreError):
    """No broker id is left for a participant that has not chosen one."""

    remedy = Remedy.RETRY
    http_status = 503

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}: stop participants, or give some of them an id of their own")


class BrokerUnreachable(KactlError):
    """A request or its response was lost. The broker may have acted on the request.

    Attributes:
        retry_after_ms: when trying again can first succeed, as far as that is known.
    """

    remedy = Remedy.RETRY
    code = ErrorCode.BROKER_NOT_AVAILABLE
    http_status = 503

    def __init__(self, broker: int, reason: str, *, retry_after_ms: float = 0) -> None:
        super().__init__(f"broker {broker}: {reason}")
        self.broker = broker
        self.reason = reason
        self.retry_after_ms = retry_after_ms


class ControllerUnreachable(KactlError):
    """A broker found no controller, or received no response. The controller may have acted on the request."""

    remedy = Remedy.RETRY
    code = ErrorCode.BROKER_NOT_AVAILABLE
    http_status = 503

    def __init__(self, reason: str) -> None:
        super().__init__(f"the controller cannot be reached: {reason}; check that it runs, and try again")
        self.reason = reason


class NotAuthorized(KactlError):
    """The peer has not proved its identity, or this identity does not have the right."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    http_status = 403


class ProtocolMismatch(KactlError):
    """Two programs have no version of the protocol in common, or belong to different clusters."""

    code = ErrorCode.UNSUPPORTED_VERSION


class EndpointUnreachable(KactlError):
    """An advertised address does not lead to the program that advertises it.

    Args:
        reason: the problem, and what to change.
    """

    remedy = Remedy.RETRY
    http_status = 409

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"{host}:{port}: {reason}")
        self.host = host
        self.port = port
        self.reason = reason


class NotReady(KactlError):
    """Raised by an application's handler: the replica cannot lead now, and another one should.

        raise kactl.NotReady(retry_after_ms=5_000, reason="the cache is cold")

    Args:
        retry_after_ms: the time after which this replica may be elected again; 100 ms at least.
        reason: for log lines and reports.
        hold_ms: the time for which the controller does not return the leadership to this replica by itself.
    """

    remedy = Remedy.RETRY
    http_status = 503

    def __init__(self, retry_after_ms: int = 1_000, reason: str = "", *, hold_ms: int = 0) -> None:
        super().__init__(reason or "it gives no reason")
        self.retry_after_ms = retry_after_ms
        self.reason = reason
        self.hold_ms = hold_ms


class LeadershipLost(KactlError):
    """The leadership has ended, or its lease has: the caller may not act as the leader any more.

    Args:
        partition: as topic-0.
        token: the fencing token of the leadership.
        forked: the caller is a process that was forked from the leader's.
    """

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    http_status = 409

    def __init__(self, partition: str, token: str, *, forked: bool = False) -> None:
        reason = "stop acting as its leader"
        if forked:
            reason = "this process was forked from the one that leads, and no forked process may act"
        super().__init__(f"the leadership of {partition} under token {token} has ended: {reason}")
        self.partition = partition
        self.token = token


class StaleToken(KactlError):
    """A resource has been written to under a higher fencing token: the caller does not lead any more.

    Args:
        resource: the protected resource.
        ours: the token of the rejected write.
        highest: the highest token that the resource has seen.
    """

    code = ErrorCode.FENCED_LEADER_EPOCH
    http_status = 409

    def __init__(self, resource: str, *, ours: str, highest: str) -> None:
        super().__init__(
            f"{resource}: token {ours} is behind {highest}: a later leader has written; stop acting as its leader"
        )
        self.resource = resource
        self.ours = ours
        self.highest = highest


class RoutesStale(KactlError):
    """A spectator's routes are older than the caller accepts: it has lost the controller, or never found one.

    Args:
        age_ms: of the routes; infinite if there are none.
        max_age_ms: the accepted age.
    """

    remedy = Remedy.RETRY
    http_status = 503

    def __init__(self, age_ms: float, max_age_ms: float) -> None:
        super().__init__(
            f"the routes are {age_ms:.0f} ms old, and at most {max_age_ms:g} ms are accepted: no controller has sent "
            "newer ones; retry later"
        )
        self.age_ms = age_ms
        self.max_age_ms = max_age_ms


class MalformedMessage(KactlError):
    """A peer sent bytes that are not a protocol message; the connection is closed."""

    code = ErrorCode.INVALID_REQUEST


class ActionTimedOut(KactlError):
    """An action did not finish in time; it may still do so.

    Args:
        reason: what it waits for, and the remedy; may be empty.
        partitions: of a topic: what each partition waits for that is not as requested. The others are.
    """

    remedy = Remedy.READ_BACK
    code = ErrorCode.REQUEST_TIMED_OUT
    http_status = 504

    def __init__(
        self, what: str, timeout_ms: float, reason: str = "", partitions: Mapping[int, str] | None = None
    ) -> None:
        rest = f": {reason}" if reason else "; look again, or give it more time"
        super().__init__(f"{what} has taken more than {timeout_ms:g} ms{rest}")
        self.what = what
        self.timeout_ms = timeout_ms
        self.reason = reason
        self.partitions: dict[int, str] = dict(partitions or {})
