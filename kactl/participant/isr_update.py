"""ISR updates: the interface between a leader that decides them and an updater that commits them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

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


class IsrUpdater(Protocol):
    """Commits the ISR updates of a leader.

    Attributes:
        limit: the number of updates that one call accepts.
    """

    limit: int

    async def submit(self, updates: Sequence[IsrUpdate]) -> IsrUpdateResult:
        """Submit some updates, at most one for each partition, and finish the work that an earlier call has left.

        Raises:
            KactlError: some of the updates may have been committed. Compare with the current state after a pause.
        """

    def reconcile(self) -> None:
        """Apply newer versions that have become known of partitions with a rejected update."""
