"""What brokers ask of the controller, and what it answers.

Events like any other; see `kactl.messages.admin`. Names of fields are the protocol's.
"""

from typing import Final

import msgspec

from kactl.errors import ErrorCode, StaleController
from kactl.model import NO_EPOCH, Leadership, TopicRef

from .admin import ControllerRequest
from .events import BRIEF_PARTITIONS_MAX, ControllerState, Priority

# How many producer ids a broker is given at a time. Kafka's number.
PRODUCER_ID_BLOCK_SIZE: Final = 1000


class ControlledShutdownRequested(ControllerRequest, frozen=True):
    """A broker is about to stop: lead its partitions elsewhere. Answer: list[TopicPartition], those it still leads.

    Refused with StaleController, StaleBrokerEpoch or BrokerNotAvailable. A broker that is still registered under the
    same epoch long after it has asked is counted on again.

    Attributes:
        broker_epoch: of the registration that asks; NO_EPOCH is not checked, as when an operator asks. The broker is
            drained then: it stays as it is until an UndrainRequested, or the end of its registration.
        dry_run: say what it would still lead, and change nothing.
    """

    state = ControllerState.CONTROLLED_SHUTDOWN
    not_controller = StaleController
    broker: int
    broker_epoch: int = NO_EPOCH
    dry_run: bool = False


class IsrProposal(msgspec.Struct, frozen=True):
    """The ISR that a leader would like one of its partitions to have.

    Attributes:
        topic: with an id and an empty name from version 2 of the request on, with a name before.
        recovering: whether the leader still recovers from an unclean election, or the protocol's number for it.
        partition_epoch: that the leader knows.
        broker_epochs: of each member of `isr`, that of the registration which the leader found to be in sync; NO_EPOCH
            is not checked. Empty if the leader names none, as before version 3 of the request.
    """

    topic: TopicRef
    partition: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    recovering: bool | int = False
    broker_epochs: tuple[int, ...] = ()


class AlterPartitionRequested(ControllerRequest, frozen=True):
    """A leader proposes ISRs. Answer: a list of IsrResult, in order.

    Of two proposals for one partition the last one counts, and both are answered alike. Refused with NotController,
    StaleBrokerEpoch or UnknownRecoveryState.

    Attributes:
        version: of the request, 0 to 3; it decides how a proposal with a broker that is not live is refused.
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
    """What became of one proposal; `leadership` is what holds now if it was taken."""

    topic: TopicRef
    partition: int
    error: ErrorCode = ErrorCode.NONE
    leadership: Leadership | None = None


class ProducerIdsRequested(ControllerRequest, frozen=True):
    """A broker wants producer ids. Answer: a `kactl.model.ProducerIdBlock` of PRODUCER_ID_BLOCK_SIZE ids.

    Refused with NotController, BrokerNotRegistered, StaleBrokerEpoch or ProducerIdsExhausted.
    """

    state = ControllerState.IDLE  # as in Kafka
    broker: int
    broker_epoch: int

    @property
    def priority(self) -> Priority:
        return Priority.HIGH
