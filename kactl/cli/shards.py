"""Text about shards: the partitions of ownership topics, with owners in place of leaders."""

import collections
from collections.abc import Iterable
from typing import Final

from kactl.admin.schema import PartitionInfo

from . import output
from .output import BAD, NONE, PLAIN, WARN, Cell

HEADER: Final = ("SHARD", "STATE", "OWNER", "EPOCH", "STANDBYS", "FORMER OWNER")
_COLOUR: Final = {"unowned": BAD, "failing": BAD, "owned": PLAIN}
# Owners that a summary names.
_OWNERS_MAX: Final = 20


def state(item: PartitionInfo) -> Cell:
    """Returns the state of a shard; of one without, as a standby instance returns it, whether it has an owner."""
    name = item.shard.state if item.shard is not None else "unowned" if item.leader < 0 else "owned"
    return name, _COLOUR.get(name, WARN)


def row(item: PartitionInfo) -> tuple[Cell, ...]:
    """Returns the row of a shard."""
    former = None if item.shard is None else item.shard.former
    return (
        f"{item.topic}-{item.partition}",
        state(item),
        (output.broker(item.leader), BAD if item.leader < 0 else PLAIN),
        output.broker(item.leader_epoch),
        standbys(item),
        NONE if former is None else str(former),
    )


def standbys(item: PartitionInfo) -> str:
    """Returns the participants that follow a shard."""
    return output.numbers(broker for broker in item.isr if broker != item.leader)


def owners(items: Iterable[PartitionInfo]) -> str:
    """Returns how many shards each owner has."""
    counts = collections.Counter(item.leader for item in items if item.leader >= 0)
    named = [f"{owner} ({count})" for owner, count in sorted(counts.items())[:_OWNERS_MAX]]
    more = f" and {len(counts) - _OWNERS_MAX} more" if len(counts) > _OWNERS_MAX else ""
    return ", ".join(named) + more or NONE
