"""Requests of administrators and their tools to the controller, and the results.

A request is an event: it is queued, and handled completely before the next event. If the controller resigns first, the
request fails with NotController. "Answer" in the docstrings below is the result that the caller receives.
"""

import enum
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from kactl.model import NO_LEADER, Assignment, TopicKind, TopicPartition
from kactl.model.errors import ErrorCode, NotController

from .events import BRIEF_PARTITIONS_MAX, ControllerState, Event, Priority


class ControllerRequest(Event, frozen=True):
    """Base class of all requests."""

    asked = True
    # The error of a request to an instance that is not the controller.
    not_controller: ClassVar[type[NotController]] = NotController


# -- the instance ------------------------------------------------------------------------------------------------------


class ResignController(ControllerRequest, frozen=True):
    """Give up the controllership. Answer: None.

    Attributes:
        stop: the instance is stopping, and does not take part in the next election.
        expected_epoch: raise StaleEpoch unless this is the current controller epoch; None skips the check.
        hold: the instance leaves the controllership to others, until `until_ms` or its release.
        until_ms: a Unix time; None for no limit.
        by, reason: of the hold, for operators.
    """

    state = ControllerState.CONTROLLER_SHUTDOWN
    on_standby = True
    stop: bool = False
    expected_epoch: int | None = None
    hold: bool = False
    until_ms: int | None = None
    by: str = ""
    reason: str = ""


class ReleaseController(ControllerRequest, frozen=True):
    """End the hold of an instance. Answer: whether it was held. Raises NotController."""

    state = ControllerState.CONTROLLER_SHUTDOWN
    controller_id: int
    dry_run: bool = False


class EnableUncleanElections(ControllerRequest, frozen=True):
    """Change this instance's default: topics without a setting of their own allow unclean elections, or do not.

    The default for all brokers in the store takes precedence. Answer: None.
    """

    state = ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE
    on_standby = True
    enabled: bool = True


class AwaitEvents(ControllerRequest, frozen=True):
    """Wait until the controller has handled the events that were queued before. Answer: None."""

    priority = Priority.LOW


# -- brokers -----------------------------------------------------------------------------------------------------------


class UndrainBroker(ControllerRequest, frozen=True):
    """End the drain of a broker, and cancel its shutdown. Answer: whether it was drained or shutting down.

    The broker follows again where its replicas were stopped, and leads partitions that no other broker can lead. Other
    leaders do not change. A `ControlledShutdown` without a broker epoch drains a broker.

    Raises NotController, or BrokerNotAvailable for a broker that is neither registered nor drained.

    Attributes:
        dry_run: return the answer without a change.
        by: the user, for operators.
    """

    state = ControllerState.CONTROLLED_SHUTDOWN
    broker: int
    dry_run: bool = False
    by: str = ""


class AllocateBrokerId(ControllerRequest, frozen=True):
    """Give an id to a participant that has not chosen one; see `kactl.decide.messages.sessions.Identify`. Answer: the
    id.

    Raises NotController, NoFreeId, or StoreError if the id could not be stored.
    """

    state = ControllerState.IDLE
    priority = Priority.HIGH
    broker: int
    name: str
    start: bytes


class ResetReplica(ControllerRequest, frozen=True):
    """Let a participant call a handler again now that has failed, without the rest of its pause. Answer: the last
    `kactl.decide.state.replica_reports.ReplicaReport` of the replica.

    Raises NotController, NotFound, BrokerNotAvailable, BadRequest or NothingToReset.
    """

    state = ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED
    priority = Priority.HIGH
    partition: TopicPartition
    broker: int
    dry_run: bool = False


# -- elections ---------------------------------------------------------------------------------------------------------


class ElectionKind(enum.Enum):
    """Type of election that a client can request."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class ReplicaLeaderElection(ControllerRequest, frozen=True):
    """Elect leaders. Answer: a list of ElectionResult, one for each requested partition.

    Attributes:
        partitions: None for all; the answer then leaves out those that need no election.
        dry_run: return the expected results without a change.
    """

    state = ControllerState.MANUAL_LEADER_BALANCE
    election: ElectionKind
    partitions: tuple[TopicPartition, ...] | None = None
    dry_run: bool = False

    @property
    def priority(self) -> Priority:
        few = self.partitions is not None and len(self.partitions) <= BRIEF_PARTITIONS_MAX
        return Priority.HIGH if few else Priority.EXCLUSIVE


class ElectionResult(msgspec.Struct, frozen=True):
    """Result of one partition.

    Attributes:
        outcome: "ok", "not_needed" or "failed"; the expected one in a dry run.
        error: Kafka's error code; NONE if ok.
        leader: the leader afterwards, or the expected one in a dry run; NO_LEADER if there is none.
        previous: the leader before.
    """

    topic: str
    partition: int
    outcome: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    leader: int = NO_LEADER
    previous: int = NO_LEADER


# -- topics ------------------------------------------------------------------------------------------------------------


class CreateTopic(ControllerRequest, frozen=True):
    """Create a topic. Answer: its TopicRef; the TopicChange that follows brings its partitions online.

    Attributes:
        partitions, replication_factor: both, or neither and an assignment.
        assignment: replicas by partition, numbered from 0 without a gap.
        config: overrides, e.g. {"unclean.leader.election.enable": "true"}.
        dry_run: validate the request without a change.
        kind: an ownership topic has partitions, and neither of the other two.
    """

    state = ControllerState.TOPIC_CHANGE
    topic: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Mapping[int, Assignment] | None = None
    config: Mapping[str, str] = {}
    dry_run: bool = False
    kind: TopicKind = "replicated"


class TopicProgress(msgspec.Struct, frozen=True):
    """Progress of a topic towards leaders that have acknowledged their orders, and brokers that know of them.

    Attributes:
        created: the request has created the topic.
        waiting: number of partitions without such a leader, and of brokers that do not know of it.
        reasons: what the first of them wait for.
        partitions: what each partition waits for, if the request is `explained`.
    """

    created: bool
    waiting: int
    reasons: tuple[str, ...] = ()
    partitions: Mapping[int, str] = {}


class EnsureTopic(ControllerRequest, frozen=True):
    """Create a topic unless it exists, and look at its leaders. Answer: TopicProgress.

    To be repeated until no partition waits. The attributes are those of CreateTopic. Raises TopicExists if
    the topic is of another kind, or has another number of partitions. An ownership topic grows, and is never shrunk.

    Attributes:
        ready: leaders with handlers have to lead, too.
        led: leaders are waited for; otherwise the controller only has to know the topic.
        explained: the answer has a reason for each partition.
    """

    state = ControllerState.TOPIC_CHANGE
    topic: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Mapping[int, Assignment] | None = None
    config: Mapping[str, str] = {}
    ready: bool = False
    led: bool = True
    explained: bool = False
    kind: TopicKind = "replicated"

    @property
    def count(self) -> int:
        """The number of partitions that the topic is to have."""
        if self.assignment is not None:
            return len(self.assignment)
        return 1 if self.partitions is None else self.partitions


class DeleteTopic(ControllerRequest, frozen=True):
    """Mark a topic for deletion. Answer: its TopicRef; the TopicDeletion that follows starts the deletion.

    Raises NotFound, BeingDeleted or TopicDeletionDisabled.
    """

    state = ControllerState.TOPIC_DELETION
    topic: str
    dry_run: bool = False


class AddPartitions(ControllerRequest, frozen=True):
    """Add partitions to a topic. Answer: None; the PartitionModifications that follows brings them online.

    Raises NotFound, InvalidPartitions (not more than there are), InvalidReplicaAssignment, BeingDeleted, or
    ReassignmentRunning.

    Attributes:
        count: the number of partitions afterwards.
        assignment: replicas of each new partition, in order; None to have them placed.
        dry_run: validate the request without a change.
    """

    state = ControllerState.TOPIC_CHANGE
    topic: str
    count: int
    assignment: tuple[tuple[int, ...], ...] | None = None
    dry_run: bool = False


# -- reassignments -----------------------------------------------------------------------------------------------------


class ApiPartitionReassignment(ControllerRequest, frozen=True):
    """Move partitions to other replicas, or cancel a reassignment. Answer: a list of ReassignmentResult, in order.

    Attributes:
        targets: the target replicas of each partition; None cancels its reassignment.
        dry_run: validate the request without a change.
    """

    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    targets: Mapping[TopicPartition, tuple[int, ...] | None]
    dry_run: bool = False


class ReassignmentResult(msgspec.Struct, frozen=True):
    """Result of one partition. NONE means that the reassignment was accepted, not that it is complete.

    Attributes:
        assignment: the assignment during the reassignment; None if it was rejected.
    """

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    assignment: Assignment | None = None


class ListPartitionReassignments(ControllerRequest, frozen=True):
    """List reassignments. Answer: dict[TopicPartition, Assignment], by name, of those in progress.

    Attributes:
        partitions: of these only; None for all.
    """

    state = ControllerState.LIST_PARTITION_REASSIGNMENT
    partitions: tuple[TopicPartition, ...] | None = None


# -- features ----------------------------------------------------------------------------------------------------------


class UpgradeType(enum.IntEnum):
    """Direction in which a feature level may change. Numbers as in the protocol."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(msgspec.Struct, frozen=True):
    """Set a feature to a level; a level below 1 removes it."""

    feature: str
    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class UpdateFeatures(ControllerRequest, frozen=True):
    """Finalize levels of features. Answer: a list of FeatureResult, in order."""

    state = ControllerState.UPDATE_FEATURES
    updates: tuple[FeatureUpdate, ...]
    dry_run: bool = False


class FeatureResult(msgspec.Struct, frozen=True):
    """Result of one update."""

    feature: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
