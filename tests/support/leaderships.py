"""Times for which participants of other processes led partitions, and whether two of them overlap."""

from collections.abc import Iterable
from typing import NamedTuple


class Led(NamedTuple):
    """A time for which a participant led a partition; without an end, if it still does.

    Attributes:
        ended_ms: when the lease was valid for the last time.
        returned_ms: when `lead` had ended.
    """

    broker: int
    name: str
    token: str
    began_ms: float
    ended_ms: float
    returned_ms: float


def overlaps(led: Iterable[Led]) -> list[tuple[Led, Led]]:
    """Returns pairs of leaderships of one partition, of which the later one began before the earlier one's end."""
    found = []
    last: dict[str, Led] = {}
    for later in sorted(led, key=lambda led: led.began_ms):
        earlier = last.setdefault(later.name, later)
        if earlier is not later and earlier.ended_ms >= later.began_ms:
            found.append((earlier, later))
        last[later.name] = max(earlier, later, key=lambda led: led.ended_ms)
    return found
