"""ISR updates, between a leader that decides them and the proposer that has the controller commit them."""

import dataclasses
from collections.abc import Callable, Sequence

from kactl.model import Leadership, TopicPartition

# (partition, follower) -> whether the follower has caught up. Called only for followers that follow this leader.
InSync = Callable[[TopicPartition, int], bool]

# A partition and its requested leadership; `partition_epoch` is the version that the update is based on.
IsrUpdate = tuple[TopicPartition, Leadership]


@dataclasses.dataclass(frozen=True, slots=True)
class IsrUpdateResult:
    """Result of a batch of ISR updates. Updates not listed succeeded.

    Attributes:
        rejected: not to be submitted again until another version or another LeaderAndIsr has arrived.
        retryable: rejected now; the cause may pass.
        ineligible: rejected, because a member may not be in any ISR at present. This may last for as long as a broker
            is being drained.
    """

    rejected: Sequence[IsrUpdate] = ()
    retryable: Sequence[IsrUpdate] = ()
    ineligible: Sequence[IsrUpdate] = ()
