"""What people and their tools ask of the controller, and what it answers.

Each of these is an event like any other: it waits its turn, and is handled to its end before the next. One that had
to make way for a resignation is answered with NotController.
"""

import enum
from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from kactl.errors import ErrorCode, NotController
from kactl.model import NO_LEADER, Assignment, TopicPartition

from .events import BRIEF_PARTITIONS_MAX, ControllerState, Event, Priority

# How many partitions one topic may be asked for; a topic's stored entry has to fit ZooKeeper's limit for one node.
PARTITIONS_OF_A_TOPIC_MAX: Final = 50_000


class ControllerRequest(Event, frozen=True):
    """The root of all requests."""

    asked = True
    # How one is refused that asks somebody who is not the controller.
    not_controller: ClassVar[type[NotController]] = NotController


# -- the instance ------------------------------------------------------------------------------------------------------


class ResignRequested(ControllerRequest, frozen=True):
    """Give the controllership up. Answer: None.

    Attributes:
        stop: the instance is stopping, and does not contest again.
        expected_epoch: nothing is given up unless this is our epoch (StaleEpoch); None for whichever it is.
    """

    state = ControllerState.CONTROLLER_SHUTDOWN
    on_standby = True
    stop: bool = False
    expected_epoch: int | None = None


class UncleanElectionsEnabled(ControllerRequest, frozen=True):
    """This instance's own setting: topics that say nothing of it allow unclean elections from now on, or no longer.

    What the store says for all brokers wins over it. Answer: None.
    """

    state = ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE
    on_standby = True
    enabled: bool = True


# -- brokers -----------------------------------------------------------------------------------------------------------


class UndrainRequested(ControllerRequest, frozen=True):
    """A broker that was to be shut down stays: count on it again. Answer: whether it was marked as shutting down.

    It follows again what it was told to stop, and leads what nobody else can; it gets nothing back from those who lead
    now. Draining a broker is a `kactl.messages.broker.ControlledShutdownRequested` without a broker epoch.

    Refused with NotController or BrokerNotAvailable.

    Attributes:
        dry_run: say it, and change nothing.
    """

    state = ControllerState.CONTROLLED_SHUTDOWN
    broker: int
    dry_run: bool = False


# -- elections ---------------------------------------------------------------------------------------------------------


class ElectionKind(enum.Enum):
    """What a person can ask for."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class ElectionRequested(ControllerRequest, frozen=True):
    """Elect leaders. Answer: a list of ElectionResult, one for each partition that was asked for.

    Attributes:
        partitions: None for all; those that need no election are left out of the answer then.
        dry_run: say what would be, and change nothing.
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
    """What became of one partition.

    Attributes:
        outcome: "ok", "not_needed" or "failed"; of a dry run, what it would be.
        error: Kafka's number; NONE if ok.
        leader: now, or of a dry run what it would be; NO_LEADER if there is none.
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


class TopicCreationRequested(ControllerRequest, frozen=True):
    """Create a topic. Answer: its TopicRef; its partitions come to life with the TopicsChanged that follows.

    Attributes:
        partitions, replication_factor: both, or neither and an assignment.
        assignment: replicas by partition, numbered from 0 without a gap.
        config: overrides, e.g. {"unclean.leader.election.enable": "true"}.
        dry_run: check it, and change nothing.
    """

    state = ControllerState.TOPIC_CHANGE
    topic: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Mapping[int, Assignment] | None = None
    config: Mapping[str, str] = {}
    dry_run: bool = False


class TopicDeletionRequested(ControllerRequest, frozen=True):
    """Mark a topic for deletion. Answer: its TopicRef; the deletion begins with the DeletionsChanged that follows.

    Refused with NotFound, BeingDeleted or TopicDeletionDisabled.
    """

    state = ControllerState.TOPIC_DELETION
    topic: str
    dry_run: bool = False


class PartitionsRequested(ControllerRequest, frozen=True):
    """Add partitions to a topic. Answer: None; they come to life with the TopicModified that follows.

    Refused with NotFound, InvalidPartitions (not more than there are), InvalidReplicaAssignment, BeingDeleted, or
    ReassignmentRunning.

    Attributes:
        count: how many it is to have then.
        assignment: replicas of each new partition, in order; None to have them placed.
        dry_run: check it, and change nothing.
    """

    state = ControllerState.TOPIC_CHANGE
    topic: str
    count: int
    assignment: tuple[tuple[int, ...], ...] | None = None
    dry_run: bool = False


# -- reassignments -----------------------------------------------------------------------------------------------------


class ReassignmentRequested(ControllerRequest, frozen=True):
    """Move partitions to other replicas, or cancel such a move. Answer: a list of ReassignmentResult, in order.

    Attributes:
        targets: the replicas that each partition is to have; None cancels the move that is going on.
        dry_run: check it, and change nothing.
    """

    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    targets: Mapping[TopicPartition, tuple[int, ...] | None]
    dry_run: bool = False


class ReassignmentResult(msgspec.Struct, frozen=True):
    """What became of one partition. NONE says that it was accepted, not that it is complete.

    Attributes:
        assignment: with which the move begins, or would begin; None if it was refused.
    """

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    assignment: Assignment | None = None


class ReassignmentsListed(ControllerRequest, frozen=True):
    """Which partitions are being reassigned. Answer: dict[TopicPartition, Assignment], by name; others are left out.

    Attributes:
        partitions: of these; None for all.
    """

    state = ControllerState.LIST_PARTITION_REASSIGNMENT
    partitions: tuple[TopicPartition, ...] | None = None


# -- features ----------------------------------------------------------------------------------------------------------


class UpgradeType(enum.IntEnum):
    """In which direction a feature may be moved. Numbers as in the protocol."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(msgspec.Struct, frozen=True):
    """Bring one feature to a level; a level below 1 takes it away."""

    feature: str
    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class FeatureUpdatesRequested(ControllerRequest, frozen=True):
    """Finalize levels of features. Answer: a list of FeatureResult, in order."""

    state = ControllerState.UPDATE_FEATURES
    updates: tuple[FeatureUpdate, ...]
    dry_run: bool = False


class FeatureResult(msgspec.Struct, frozen=True):
    """What became of one update."""

    feature: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
