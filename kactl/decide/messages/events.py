"""Controller events. The controller handles one event completely before the next.

Events bear the names of Kafka's events; docs/architecture.md has the table. Others are named alike:
a change by a noun, a request by an imperative.

Each type has a `state`, which the controller reports while it handles the event, numbered as in Kafka's metric
ControllerState. Requests to the controller are in `kactl.decide.messages.admin` and `kactl.decide.messages.broker`.
"""

import enum
from typing import ClassVar, Final

import msgspec

from kactl.model import TopicPartition
from kactl.model.errors import ErrorCode

from .control import LeaderAndIsr, LeaderAndIsrResponse, StopReplica, StopReplicaResponse, UpdateMetadataResponse


class ControllerState(enum.IntEnum):
    """Activity of the controller. Numbers and names as in Kafka."""

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10
    LOG_DIR_CHANGE = 11
    CONTROLLER_SHUTDOWN = 12
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14
    LIST_PARTITION_REASSIGNMENT = 15
    UPDATE_METADATA_RESPONSE_RECEIVED = 16
    UPDATE_FEATURES = 17

    @property
    def label(self) -> str:
        """Kafka's name, such as BrokerChange."""
        return self.name.title().replace("_", "")

    @property
    def is_timed(self) -> bool:
        """Whether Kafka has a timer for it. LeaderElectionRateAndTimeMs is the one of BROKER_CHANGE."""
        return self not in (ControllerState.IDLE, ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED)


class Priority(enum.IntEnum):
    """Preemption of a large event in progress by another event. See `kactl.actors.priority_inbox`."""

    EXCLUSIVE = 0  # handled after the large event
    LOW = 1  # handled between two of its chunks, if this does not delay it or if it has taken long already
    HIGH = 2  # handled after its current chunk, because a caller waits


# An event with more partitions is not small: it takes milliseconds itself.
BRIEF_PARTITIONS_MAX: Final = 100


class Event(msgspec.Struct, frozen=True):
    """Base class of all events."""

    state: ClassVar[ControllerState] = ControllerState.IDLE
    # Also handled by an instance that is not the controller.
    on_standby: ClassVar[bool] = False
    # The event only triggers a read. If handling fails, it is retried, so that the change is not missed.
    retry_later: ClassVar[bool] = False
    # A caller waits for the result; see `kactl.decide.messages.admin`.
    asked: ClassVar[bool] = False

    @property
    def label(self) -> str:
        return type(self).__name__

    @property
    def priority(self) -> Priority:
        """Whether this event may preempt a large one. Only events that concern the partitions that they name, or none,
        may do so; not events that add or remove topics, brokers or partitions, or change which brokers are live.
        """
        return Priority.EXCLUSIVE


# -- the controllership ------------------------------------------------------------------------------------------------


class Startup(Event, frozen=True):
    """The instance has started and takes part in its first election."""

    state = ControllerState.CONTROLLER_CHANGE
    on_standby = True
    retry_later = True


class ControllerChange(Event, frozen=True):
    """The controllership was acquired or changed hands; it may not be this instance's any more."""

    state = ControllerState.CONTROLLER_CHANGE
    on_standby = True
    retry_later = True


class Reelect(Event, frozen=True):
    """The controllership is vacant; start an election."""

    state = ControllerState.CONTROLLER_CHANGE
    on_standby = True
    retry_later = True


class Expire(Event, frozen=True):
    """The store session of this instance ended. All events queued before are void."""

    state = ControllerState.CONTROLLER_CHANGE
    on_standby = True


class RegisterBrokerAndReelect(Event, frozen=True):
    """A new session was opened after a loss; start an election."""

    state = ControllerState.CONTROLLER_CHANGE
    on_standby = True
    retry_later = True


class StandbyUpdate(Event, frozen=True):
    """Another instance is the controller: read the changes, so that a takeover has little left to read."""

    on_standby = True


# -- changes in the store ------------------------------------------------------------------------------------------


class BrokerChange(Event, frozen=True):
    """Brokers were registered, or registrations ended."""

    state = ControllerState.BROKER_CHANGE
    retry_later = True


class BrokerModifications(Event, frozen=True):
    """The data of one registration changed."""

    state = ControllerState.BROKER_CHANGE
    retry_later = True
    broker: int


class LinkChange(Event, frozen=True):
    """A participant that was fenced can be reached now."""

    state = ControllerState.BROKER_CHANGE
    retry_later = True


class BrokerLag(Event, frozen=True):
    """A channel dropped a queue that exceeded its bound; the broker must receive the complete state again."""

    state = ControllerState.BROKER_CHANGE
    retry_later = True
    broker: int


class WriteFailure(Event, frozen=True):
    """The store failed to write some partitions; their change is retried."""

    state = ControllerState.BROKER_CHANGE
    retry_later = True


class TopicChange(Event, frozen=True):
    """Topics were created or removed."""

    state = ControllerState.TOPIC_CHANGE
    retry_later = True


class PartitionModifications(Event, frozen=True):
    """The assignment of one topic changed."""

    state = ControllerState.TOPIC_CHANGE
    retry_later = True
    topic: str


class TopicDeletion(Event, frozen=True):
    """Topics were marked for deletion."""

    state = ControllerState.TOPIC_DELETION
    retry_later = True


class ZkPartitionReassignment(Event, frozen=True):
    """A client stored a request for reassignments."""

    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    retry_later = True


class ZkReplicaLeaderElection(Event, frozen=True):
    """A client stored a request for preferred elections."""

    state = ControllerState.MANUAL_LEADER_BALANCE
    retry_later = True


class PartitionReassignmentIsrChange(Event, frozen=True):
    """A leader wrote the ISR of a partition that is watched."""

    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    retry_later = True
    partition: TopicPartition


class StrayProposal(Event, frozen=True):
    """A leader wants replicas in the ISR that are not assigned, under the current leader epoch."""

    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    partition: TopicPartition
    leader_epoch: int
    brokers: tuple[int, ...]


class TopicIdCopy(Event, frozen=True):
    """Copy the ids of topics that have no copy."""

    state = ControllerState.TOPIC_CHANGE
    retry_later = True


class AutoPreferredReplicaLeaderElection(Event, frozen=True):
    """Check whether leadership should return to preferred replicas.

    Attributes:
        participants: of participants only, one of which has joined.
    """

    state = ControllerState.AUTO_LEADER_BALANCE
    participants: bool = False


class AutoPlacement(Event, frozen=True):
    """Check whether partitions of ownership topics should move, so that participants own equal shares."""

    state = ControllerState.AUTO_LEADER_BALANCE


class ControlledShutdownTimeout(Event, frozen=True):
    """A broker that requested a controlled shutdown is still registered long after.

    Attributes:
        broker_epoch: of the registration that sent the request.
    """

    state = ControllerState.CONTROLLED_SHUTDOWN
    broker: int
    broker_epoch: int


class DrainProgress(Event, frozen=True):
    """The ISRs of partitions that a drained broker leads have changed: another member may be able to lead now.

    Attributes:
        stop_again: the broker may have missed StopReplica, for example because the controller has changed since.
    """

    state = ControllerState.CONTROLLED_SHUTDOWN
    retry_later = True
    broker: int
    stop_again: bool = False


class DrainTimeout(Event, frozen=True):
    """The time limit of a drain may have passed."""

    state = ControllerState.CONTROLLED_SHUTDOWN
    broker: int


class ReplicaRecovery(Event, frozen=True):
    """A broker serves replicas that count as failed.

    Attributes:
        broker_epoch: of the registration that responded.
    """

    state = ControllerState.LOG_DIR_CHANGE
    retry_later = True
    broker: int
    broker_epoch: int


class IsrChangeNotification(Event, frozen=True):
    """Leaders have written ISRs."""

    state = ControllerState.ISR_CHANGE
    retry_later = True


class LogDirEventNotification(Event, frozen=True):
    """A broker's log directory failed."""

    state = ControllerState.LOG_DIR_CHANGE
    retry_later = True


class TopicUncleanLeaderElectionEnable(Event, frozen=True):
    """The overrides of one topic changed; they may allow unclean elections now."""

    state = ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE
    retry_later = True
    topic: str


class UncleanLeaderElectionEnable(Event, frozen=True):
    """The defaults for all brokers changed; they may allow unclean elections now."""

    state = ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE
    retry_later = True


# -- responses of brokers ------------------------------------------------------------------------------------------


class LeaderAndIsrResponseReceived(Event, frozen=True):
    """A broker responded to a LeaderAndIsr.

    Attributes:
        broker_epoch: of the registration that received the request; the response does not apply to a later one.
        request: what the broker responded to; None if the sender did not keep it.
    """

    state = ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED
    broker: int
    broker_epoch: int
    response: LeaderAndIsrResponse
    request: LeaderAndIsr | None = None

    @property
    def priority(self) -> Priority:
        """EXCLUSIVE for a response that reports a failed directory: it causes a large event."""
        clean = self.response.error == ErrorCode.NONE and not self.response.partitions.error.any()
        return Priority.LOW if clean else Priority.EXCLUSIVE


class UpdateMetadataResponseReceived(Event, frozen=True):
    """A broker responded to an UpdateMetadata, with an error or without."""

    state = ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED
    broker: int
    broker_epoch: int
    response: UpdateMetadataResponse

    @property
    def priority(self) -> Priority:
        return Priority.LOW


class TopicDeletionStopReplicaResponseReceived(Event, frozen=True):
    """A broker responded to a request to delete replicas."""

    state = ControllerState.TOPIC_DELETION
    broker: int
    broker_epoch: int
    response: StopReplicaResponse
    request: StopReplica | None = None
