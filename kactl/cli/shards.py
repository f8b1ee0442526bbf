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
    return (
        f"{item.topic}-{item.partition}",
        state(item),
        owner(item),
        output.broker(item.leader_epoch),
        standbys(item),
        former(item),
    )


def owner(item: PartitionInfo) -> Cell:
    """Returns the owner of a shard."""
    return (NONE, BAD) if item.leader < 0 else (_named(item, item.leader), PLAIN)


def former(item: PartitionInfo) -> str:
    """Returns the former owner of a shard during a hand-over."""
    return NONE if item.shard is None or item.shard.former is None else _named(item, item.shard.former)


def _named(item: PartitionInfo, participant: int) -> str:
    return named(participant, "" if item.shard is None else item.shard.names.get(participant, ""))


def named(participant: int, name: str) -> str:
    """Returns an id with the name of a participant that has not chosen it."""
    return f"{participant} ({name})" if name else str(participant)


def standbys(item: PartitionInfo) -> str:
    """Returns the participants that follow a shard."""
    return ", ".join(_named(item, broker) for broker in item.isr if broker != item.leader) or NONE


def owners(items: Iterable[PartitionInfo]) -> str:
    """Returns how many shards each owner has."""
    counts = collections.Counter((item.leader, _named(item, item.leader)) for item in items if item.leader >= 0)
    shown = [f"{name}: {count}" for (_, name), count in sorted(counts.items())[:_OWNERS_MAX]]
    more = f" and {len(counts) - _OWNERS_MAX} more" if len(counts) > _OWNERS_MAX else ""
    return ", ".join(shown) + more or NONE
