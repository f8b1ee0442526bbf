"""Coverage of an answer: how much of the cluster its evidence knows.

An answer about a part of a cluster looks like one about all of it. So every answer states its coverage before anything
else, and a command whose coverage is too low fails unless the caller accepts a partial answer.
"""

from typing import Final

import msgspec

# Below it an answer is partial. A few partitions are always between two lines of a log; one broker of twenty is not.
ENOUGH: Final = 0.95


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions that an answer is about, of those that exist as far as the evidence shows.

    Attributes:
        known: partitions of which leader, replicas and ISR are known.
        partitions: all partitions that the evidence names.
        share: known / partitions, 0 to 1; 1 where there is no partition.
        is_partial: whether the share is below 0.95, so that the command exits with 1 without `--partial`.
        stated: the same in words.
    """

    known: int
    partitions: int
    share: float
    is_partial: bool
    stated: str

    @classmethod
    def of(cls, *, known: int, unknown: int) -> "Coverage":
        """The coverage of `known` partitions where `unknown` more are named."""
        partitions = known + unknown
        part = share(known, partitions)
        stated = f"{known:,} of {partitions:,} partition{'' if partitions == 1 else 's'} known"
        return cls(known=known, partitions=partitions, share=part, is_partial=part < ENOUGH, stated=stated)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return self.known == self.partitions


def share(part: int, whole: int) -> float:
    """part / whole, cut (not rounded) to four digits, so that less than all is never 1; 1 of nothing."""
    return 1.0 if part >= whole else int(10_000 * part / whole) / 10_000
