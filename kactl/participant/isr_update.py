"""What a leader asks others about its followers, and how an ISR that it wants comes about."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

from kactl.model import Leadership, TopicPartition
from kactl.state.rows import Bools, Ints
from kactl.stores.base import Names

# (partition, follower) -> whether the follower has caught up. Asked only about followers that follow.
InSync = Callable[[TopicPartition, int], bool]
# (broker, partitions, leader epochs) -> bool[n], which of them that broker follows from us under these epochs.
Follows = Callable[[int, Names, Ints], Bools]

# What a leader wants a partition to be; `partition_epoch` is the version that this is built upon.
Wanted = tuple[TopicPartition, Leadership]


@dataclasses.dataclass(frozen=True, slots=True)
class Brought:
    """What became of some wishes; those that are not named have come true.

    Attributes:
        refused: not to be wished again before another version, or another instruction, has come.
        later: refused now; what stands in the way may pass.
        ineligible: refused, as a member may not be in any ISR at present. That may last for as long as a broker is
            drained.
    """

    refused: Sequence[Wanted] = ()
    later: Sequence[Wanted] = ()
    ineligible: Sequence[Wanted] = ()


class Way(Protocol):
    """How what a leader wants is brought about.

    Attributes:
        limit: how many wishes may be given at one time.
    """

    limit: int

    async def bring(self, wanted: Sequence[Wanted]) -> Brought:
        """Bring some wishes about, no partition twice, and whatever an earlier call has left to do.

        Raises:
            KactlError: some may have come true, and some not. Look again after a pause.
        """

    def catch_up(self) -> None:
        """Go on from what has been heard of meanwhile, of partitions for which a wish was refused."""
