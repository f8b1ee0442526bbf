"""Requests of brokers to the controller, and the results.

Events like those of `kactl.decide.messages.admin`. Field names are the protocol's.
"""

from typing import Final

import msgspec

from kactl.model import NO_EPOCH, Leadership, ReplicaStatus, TopicPartition, TopicRef
from kactl.model.errors import ErrorCode, StaleController

from .admin import ControllerRequest
from .events import BRIEF_PARTITIONS_MAX, ControllerState, Priority
from .routes import LeaderColumns

# Number of producer ids in one block. Kafka's number.
PRODUCER_ID_BLOCK_SIZE: Final = 1000


class ControlledShutdown(ControllerRequest, frozen=True):
    """Move leadership away from a broker that is about to stop. Answer: list[TopicPartition], those that it still
    leads.

    Raises StaleController, StaleBrokerEpoch or BrokerNotAvailable. A broker that is still registered under the same
    epoch long after its request counts as live again.

    Attributes:
        broker_epoch: of the registration that sends the request; NO_EPOCH is not checked, and marks a request of an
            operator. The broker is then drained, which is stored: until an UndrainBroker, or as the next fields say.
        dry_run: return the partitions that it would still lead, without a change.
        until_ms: the drain ends at this Unix time.
        until_restart: the drain ends when the broker has registered anew.
        by, reason: of the drain, for operators.
    """

    state = ControllerState.CONTROLLED_SHUTDOWN
    not_controller = StaleController
    broker: int
    broker_epoch: int = NO_EPOCH
    dry_run: bool = False
    until_ms: int | None = None
    until_restart: bool = False
    by: str = ""
    reason: str = ""


# From this version of AlterPartition on, leaders can be told that a member may not be in the ISR. Kafka 2.7 to 3.1 send
# the version before, and their controllers do not look at the members. Those of 3.2, whose version this is, do not
# either; but 3.3 and later send it, too, below protocol level 2.8, and their controllers do.
VERSION_WITH_REJECTIONS: Final = 1


class IsrProposal(msgspec.Struct, frozen=True):
    """ISR that a leader proposes for one of its partitions.

    Attributes:
        topic: with an id and an empty name from version 2 of the request on, with a name before.
        recovering: whether the leader still recovers from an unclean election, or the protocol's number for it.
        partition_epoch: the one that the leader knows.
        broker_epochs: the broker epoch of each member of `isr` that the leader found to be in sync; NO_EPOCH is not
            checked. Empty if the leader sends none, as before version 3 of the request.
    """

    topic: TopicRef
    partition: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    recovering: bool | int = False
    broker_epochs: tuple[int, ...] = ()


class AlterPartitionReceived(ControllerRequest, frozen=True):
    """Change ISRs as a leader proposes. Answer: a list of IsrResult, in order.

    Of two proposals for one partition the last one counts, and both have its result. Raises NotController,
    StaleBrokerEpoch or UnknownRecoveryState.

    Attributes:
        version: of the request, 0 to 3; it determines the error code for a member that is not live.
    """

    state = ControllerState.ISR_CHANGE
    broker: int
    broker_epoch: int
    proposals: tuple[IsrProposal, ...]
    version: int = 3

    @property
    def priority(self) -> Priority:
        return Priority.HIGH if len(self.proposals) <= BRIEF_PARTITIONS_MAX else Priority.EXCLUSIVE


class IsrResult(msgspec.Struct, frozen=True):
    """Result of one proposal; `leadership` is the leadership afterwards if it was accepted."""

    topic: TopicRef
    partition: int
    error: ErrorCode = ErrorCode.NONE
    leadership: Leadership | None = None


class AllocateProducerIds(ControllerRequest, frozen=True):
    """Reserve producer ids. Answer: a `kactl.model.ProducerIdBlock` of PRODUCER_ID_BLOCK_SIZE ids.

    Raises NotController, BrokerNotRegistered, StaleBrokerEpoch or ProducerIdsExhausted.
    """

    state = ControllerState.IDLE  # as in Kafka
    broker: int
    broker_epoch: int

    @property
    def priority(self) -> Priority:
        return Priority.HIGH


# Of the detail of a report: room for an exception with its reason, and not for a dump.
DETAIL_MAX: Final = 1_000


class PartitionReport(msgspec.Struct, frozen=True):
    """Status of one replica that has changed after the response to the order, or without an order.

    Attributes:
        leader_epoch: of the last order.
        detail: the exception of the handler, or what took too long; at most DETAIL_MAX characters.
        age_ms: how long it had been in this state when the report was made.
        recovered: the replica is READY after a failure, and does not serve until it is started again.
        set_aside: the replica's data is kept for this topic, which is not the one that the controller has named.
        hold_ms: how long automatic balancing does not return the leadership to the replica, which has resigned it.
        failures: in a row.
        next_ms: until the handler is called again.
    """

    partition: TopicPartition
    leader_epoch: int
    status: ReplicaStatus
    detail: str = ""
    age_ms: float = 0.0
    recovered: bool = False
    set_aside: TopicRef | None = None
    hold_ms: float = 0.0
    failures: int = 0
    next_ms: float = 0.0


class ReportPartitions(ControllerRequest, frozen=True):
    """Statuses of replicas of a participant. Answer: None.

    They have the effects of the same results in a response to LeaderAndIsr: a replica that failed counts as offline
    until it is ready. Raises NotController, BrokerNotAvailable or StaleBrokerEpoch.

    Attributes:
        reports: each partition once.
    """

    state = ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED
    broker: int
    broker_epoch: int
    reports: tuple[PartitionReport, ...]

    @property
    def priority(self) -> Priority:
        return Priority.HIGH if len(self.reports) <= BRIEF_PARTITIONS_MAX else Priority.EXCLUSIVE


class ReportLeaders(ControllerRequest, frozen=True):
    """Leaderships of a participant that act, or do so no more. Answer: None.

    Raises NotController, BrokerNotAvailable, StaleBrokerEpoch or MalformedMessage.
    """

    state = ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED
    priority = Priority.LOW
    broker: int
    broker_epoch: int
    leaders: LeaderColumns
