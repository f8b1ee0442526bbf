"""Coverage of an answer: the share of the cluster for which there is evidence.

An answer about a part of a cluster looks like an answer about the whole cluster. Every answer therefore begins with its
coverage, and a command whose coverage is too low fails unless the caller accepts a partial answer.
"""

from typing import Final

import msgspec

from kactl.runtime.plural import count

# Below this share an answer is partial. A few partitions are always between two lines of a log; the partitions of one
# broker in twenty are more than that.
ENOUGH: Final = 0.95


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions that an answer covers, of all partitions that the evidence names.

    Attributes:
        known: partitions with known leader, replicas and ISR.
        partitions: all partitions that the evidence names.
        share: known / partitions, 0 to 1; 1 if there is no partition.
        is_partial: whether the share is below 0.95, so that the command exits with 1 without `--partial`.
        stated: the coverage as a phrase.
    """

    known: int
    partitions: int
    share: float
    is_partial: bool
    stated: str

    @classmethod
    def of(cls, *, known: int, unknown: int) -> "Coverage":
        """Return the coverage for `known` partitions and `unknown` other partitions that are only named."""
        partitions = known + unknown
        part = share(known, partitions)
        stated = f"{known:,} of {count(partitions)} known"
        return cls(known=known, partitions=partitions, share=part, is_partial=part < ENOUGH, stated=stated)

    @property
    def is_whole(self) -> bool:
        """Whether every named partition is known."""
        return self.known == self.partitions


def share(part: int, whole: int) -> float:
    """Return part / whole, truncated to four digits so that it is 1 only for the whole. Returns 1 if `whole` is 0."""
    return 1.0 if part >= whole else int(10_000 * part / whole) / 10_000
