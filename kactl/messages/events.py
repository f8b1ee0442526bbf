"""Everything that can happen to the controller. One at a time, handled to its end before the next.

Each kind has a `state`: what the controller is said to do meanwhile, numbered as in Kafka's metric ControllerState.
What is asked of the controller stands in `kactl.messages.admin` and `kactl.messages.broker`.
"""

import enum
from typing import ClassVar, Final

import msgspec

from kactl.errors import ErrorCode
from kactl.model import TopicPartition

from .control import LeaderAndIsrResponse, StopReplicaResponse, UpdateMetadataResponse


class ControllerState(enum.IntEnum):
    """What the controller is doing. Numbers and names as in Kafka."""

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
        """Kafka's name: BrokerChange."""
        return self.name.title().replace("_", "")

    @property
    def is_timed(self) -> bool:
        """Whether Kafka has a timer for it. LeaderElectionRateAndTimeMs is that of BROKER_CHANGE."""
        return self not in (ControllerState.IDLE, ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED)


class Priority(enum.IntEnum):
    """When an event may be handled while a large one is in hand. See `actors.preemption`."""

    EXCLUSIVE = 0  # when that one is done
    LOW = 1  # between two chunks of it, if it is not delayed by that, or has gone on for a while
    HIGH = 2  # as soon as a chunk of it is done: somebody waits


# An event that names more partitions than this is not brief: it takes milliseconds itself.
BRIEF_PARTITIONS_MAX: Final = 100


class Event(msgspec.Struct, frozen=True):
    """The root of all events."""

    state: ClassVar[ControllerState] = ControllerState.IDLE
    # Handled whether we are the controller or not.
    on_standby: ClassVar[bool] = False
    # Says no more than "read again", and nothing may make the controller deaf to what it spoke of.
    retry_later: ClassVar[bool] = False
    # Somebody waits for the answer; see `kactl.messages.admin`.
    asked: ClassVar[bool] = False

    @property
    def label(self) -> str:
        return type(self).__name__

    @property
    def priority(self) -> Priority:
        """Only what concerns partitions that it names, or none at all, may come before a large event is done; and
        nothing that adds or removes topics, brokers or partitions, or says who is live."""
        return Priority.EXCLUSIVE


# -- the controllership ------------------------------------------------------------------------------------------------


class Started(Event, frozen=True):
    """The instance runs; it contests for the first time."""

    state = ControllerState.CONTROLLER_CHANGE
    on_standby = True
    retry_later = True


class ControllerChanged(Event, frozen=True):
    """The controllership was taken or changed hands: perhaps it is no longer ours."""

    state = ControllerState.CONTROLLER_CHANGE
    on_standby = True
    retry_later = True


class ControllerGone(Event, frozen=True):
    """Nobody holds the controllership; contest (Kafka: Reelect)."""

    state = ControllerState.CONTROLLER_CHANGE
    on_standby = True
    retry_later = True


class SessionLost(Event, frozen=True):
    """Our session with the store ended (Kafka: Expire). Everything that waited before it is void."""

    state = ControllerState.CONTROLLER_CHANGE
    on_standby = True


class SessionOpened(Event, frozen=True):
    """A new session stands after a loss; contest (Kafka: RegisterBrokerAndReelect)."""

    state = ControllerState.CONTROLLER_CHANGE
    on_standby = True
    retry_later = True


class StandbyDue(Event, frozen=True):
    """Another instance is the controller: it is time to see what has changed, so that little is left to be read."""

    on_standby = True


# -- what the store saw change -----------------------------------------------------------------------------------------


class BrokersChanged(Event, frozen=True):
    """Brokers registered, or registrations ended."""

    state = ControllerState.BROKER_CHANGE
    retry_later = True


class BrokerModified(Event, frozen=True):
    """The data of one registration changed."""

    state = ControllerState.BROKER_CHANGE
    retry_later = True
    broker: int


class BrokerLagged(Event, frozen=True):
    """A channel gave up a queue that grew beyond its bound; the broker has to be told everything anew."""

    state = ControllerState.BROKER_CHANGE
    retry_later = True
    broker: int


class WritesFailed(Event, frozen=True):
    """The store failed for some partitions; what was to become of them is tried again."""

    state = ControllerState.BROKER_CHANGE
    retry_later = True


class TopicsChanged(Event, frozen=True):
    """Topics came or vanished."""

    state = ControllerState.TOPIC_CHANGE
    retry_later = True


class TopicModified(Event, frozen=True):
    """The assignment of one topic changed (Kafka: PartitionModifications)."""

    state = ControllerState.TOPIC_CHANGE
    retry_later = True
    topic: str


class DeletionsChanged(Event, frozen=True):
    """Topics were marked for deletion (Kafka: TopicDeletion)."""

    state = ControllerState.TOPIC_DELETION
    retry_later = True


class ReassignmentStored(Event, frozen=True):
    """Somebody left a request for reassignments in the store (Kafka: ZkPartitionReassignment)."""

    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    retry_later = True


class PreferredElectionStored(Event, frozen=True):
    """Somebody left a request for preferred elections in the store (Kafka: ReplicaLeaderElection)."""

    state = ControllerState.MANUAL_LEADER_BALANCE
    retry_later = True


class LeadershipWritten(Event, frozen=True):
    """A leader wrote the ISR of a partition that is watched (Kafka: PartitionReassignmentIsrChange)."""

    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    retry_later = True
    partition: TopicPartition


class BalanceDue(Event, frozen=True):
    """It is time to see whether leaders should return to preferred replicas."""

    state = ControllerState.AUTO_LEADER_BALANCE


class ShutdownOverdue(Event, frozen=True):
    """A broker asked to be shut down so long ago that it should be gone.

    Attributes:
        broker_epoch: of the registration under which it asked.
    """

    state = ControllerState.CONTROLLED_SHUTDOWN
    broker: int
    broker_epoch: int


class IsrNotified(Event, frozen=True):
    """Leaders have written ISRs."""

    state = ControllerState.ISR_CHANGE
    retry_later = True


class LogDirNotified(Event, frozen=True):
    """A broker's log directory failed."""

    state = ControllerState.LOG_DIR_CHANGE
    retry_later = True


class TopicConfigChanged(Event, frozen=True):
    """The overrides of one topic changed; they may allow unclean elections now."""

    state = ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE
    retry_later = True
    topic: str


class DefaultConfigChanged(Event, frozen=True):
    """What is set for all brokers changed; it may allow unclean elections now."""

    state = ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE
    retry_later = True


# -- what brokers answered ---------------------------------------------------------------------------------------------


class LeaderAndIsrAnswered(Event, frozen=True):
    """A broker answered a LeaderAndIsr (Kafka: LeaderAndIsrResponseReceived).

    Attributes:
        broker_epoch: of the registration that the request was for; what it said does not hold for a later one.
    """

    state = ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED
    broker: int
    broker_epoch: int
    response: LeaderAndIsrResponse

    @property
    def priority(self) -> Priority:
        """One that says of a directory that it failed is a large event itself."""
        clean = self.response.error == ErrorCode.NONE and not self.response.partitions.error.any()
        return Priority.LOW if clean else Priority.EXCLUSIVE


class UpdateMetadataAnswered(Event, frozen=True):
    """A broker answered an UpdateMetadata with an error, or without (Kafka: UpdateMetadataResponseReceived)."""

    state = ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED
    broker: int
    broker_epoch: int
    response: UpdateMetadataResponse

    @property
    def priority(self) -> Priority:
        return Priority.LOW


class ReplicasDeleted(Event, frozen=True):
    """A broker answered the order to delete replicas of a topic (Kafka: TopicDeletionStopReplicaResponseReceived)."""

    state = ControllerState.TOPIC_DELETION
    broker: int
    broker_epoch: int
    response: StopReplicaResponse
