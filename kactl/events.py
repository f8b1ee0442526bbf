"""Everything that can happen to the controller. One at a time, handled to its end before the next.

Each kind has a `state`: what the controller is said to do meanwhile, numbered as in Kafka's metric ControllerState.
A kind that is asked (by the admin API, by a broker) has an answer; one that had to make way for a resignation is
answered with NotController.
"""

import enum
from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from kactl.errors import ErrorCode
from kactl.model import NO_LEADER, Assignment, TopicPartition
from kactl.wire import LeaderAndIsrResponse, UpdateMetadataResponse


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


class Event(msgspec.Struct, frozen=True):
    """The root of all events."""

    state: ClassVar[ControllerState] = ControllerState.IDLE

    @property
    def label(self) -> str:
        return type(self).__name__


# -- the controllership ------------------------------------------------------------------------------------------------


class Started(Event, frozen=True):
    """The instance runs; it contests for the first time."""

    state = ControllerState.CONTROLLER_CHANGE


class ControllerChanged(Event, frozen=True):
    """The controllership was taken or changed hands: perhaps it is no longer ours."""

    state = ControllerState.CONTROLLER_CHANGE


class ControllerGone(Event, frozen=True):
    """Nobody holds the controllership; contest (Kafka: Reelect)."""

    state = ControllerState.CONTROLLER_CHANGE


class SessionLost(Event, frozen=True):
    """Our session with the store ended (Kafka: Expire). Everything that waited before it is void."""

    state = ControllerState.CONTROLLER_CHANGE


class SessionOpened(Event, frozen=True):
    """A new session stands after a loss; contest (Kafka: RegisterBrokerAndReelect)."""

    state = ControllerState.CONTROLLER_CHANGE


class ResignRequested(Event, frozen=True):
    """Give the controllership up. Answer: None.

    Attributes:
        stop: the instance is stopping, and does not contest again.
    """

    state = ControllerState.CONTROLLER_SHUTDOWN
    stop: bool = False


# -- what the store saw change -----------------------------------------------------------------------------------------


class BrokersChanged(Event, frozen=True):
    """Brokers registered, or registrations ended."""

    state = ControllerState.BROKER_CHANGE


class BrokerModified(Event, frozen=True):
    """The data of one registration changed."""

    state = ControllerState.BROKER_CHANGE
    broker: int


class BrokerLagged(Event, frozen=True):
    """A channel gave up a queue that grew beyond its bound; the broker has to be told everything anew."""

    state = ControllerState.BROKER_CHANGE
    broker: int


class WritesFailed(Event, frozen=True):
    """The store failed for some partitions; what was to become of them is tried again."""

    state = ControllerState.BROKER_CHANGE


class TopicsChanged(Event, frozen=True):
    """Topics came or vanished."""

    state = ControllerState.TOPIC_CHANGE


class TopicModified(Event, frozen=True):
    """The assignment of one topic changed (Kafka: PartitionModifications)."""

    state = ControllerState.TOPIC_CHANGE
    topic: str


class IsrNotified(Event, frozen=True):
    """Leaders have written ISRs."""

    state = ControllerState.ISR_CHANGE


class LogDirNotified(Event, frozen=True):
    """A broker's log directory failed."""

    state = ControllerState.LOG_DIR_CHANGE


class TopicConfigChanged(Event, frozen=True):
    """The overrides of one topic changed; they may allow unclean elections now."""

    state = ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE
    topic: str


class DefaultConfigChanged(Event, frozen=True):
    """What is set for all brokers changed; it may allow unclean elections now."""

    state = ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE


class UncleanElectionsEnabled(Event, frozen=True):
    """This instance's own setting: topics that say nothing of it allow unclean elections from now on, or no longer.

    What the store says for all brokers wins over it. Answer: None.
    """

    state = ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE
    enabled: bool = True


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


class UpdateMetadataAnswered(Event, frozen=True):
    """A broker answered an UpdateMetadata with an error, or without (Kafka: UpdateMetadataResponseReceived)."""

    state = ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED
    broker: int
    broker_epoch: int
    response: UpdateMetadataResponse


# -- what is asked of it -----------------------------------------------------------------------------------------------


class ElectionKind(enum.Enum):
    """What a person can ask for."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class ElectionRequested(Event, frozen=True):
    """Elect leaders. Answer: a list of ElectionResult, one for each partition that was asked for.

    Attributes:
        partitions: None for all; those that need no election are left out of the answer then.
        dry_run: say what would be, and change nothing.
    """

    state = ControllerState.MANUAL_LEADER_BALANCE
    election: ElectionKind
    partitions: tuple[TopicPartition, ...] | None = None
    dry_run: bool = False


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


class TopicCreationRequested(Event, frozen=True):
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


# How many partitions one topic may be asked for; a topic's stored entry has to fit ZooKeeper's limit for one node.
PARTITIONS_OF_A_TOPIC_MAX: Final = 50_000
