"""What stands in a broker's own files: where its logs end, where epochs began, what it held for committed.

Where a process was killed the kernel still has all that it wrote, so that these are exact.

A segment is one batch behind another, numbers big-endian: int64 offset of the first record, int32 length of what
follows, int32 leader epoch, int8 format, uint32 checksum, int16 flags, int32 offset of the last record minus that of
the first.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct(">qiibIhi")
# Offset and length, which the length does not count.
_BEFORE: Final = 12
_CHECKPOINT: Final = "replication-offset-checkpoint"


class Batch(NamedTuple):
    """Some records that were written together: offsets of the first and the last one, and the leader epoch."""

    first: int
    last: int
    epoch: int


def batches(folder: Path, partition: str) -> Iterator[Batch]:
    """All that is in the log of a partition, in order; a batch that is not whole ends it.

    Args:
        folder: `log.dirs` of the broker.
    """
    for segment in sorted((folder / partition).glob("*.log")):
        content = segment.read_bytes()
        at = 0
        while at + _HEADER.size <= len(content):
            first, length, epoch, _, _, _, delta = _HEADER.unpack_from(content, at)
            at += _BEFORE + length
            if length <= 0 or at > len(content):
                return
            yield Batch(first, first + delta, epoch)


class End(NamedTuple):
    """Where a log ends: the offset behind its last record, and the leader epoch of that record; 0 and -1 if empty."""

    offset: int
    epoch: int


def end(folder: Path, partition: str) -> End:
    """Where the log of a partition ends."""
    found = End(0, -1)
    for batch in batches(folder, partition):
        found = End(batch.last + 1, batch.epoch)
    return found


def ends(folder: Path) -> dict[str, End]:
    """The same of all partitions that have anything."""
    partitions = sorted(each.parent.name for each in folder.glob("*/00000000000000000000.log"))
    found = {partition: end(folder, partition) for partition in partitions if not partition.startswith("__")}
    return {partition: at for partition, at in found.items() if at.offset}


def begins(folder: Path, partition: str) -> list[int]:
    """The offsets of the first records of each epoch that has any, in order."""
    found: dict[int, int] = {}
    for batch in batches(folder, partition):
        found.setdefault(batch.epoch, batch.first)
    return sorted(found.values())


def first_after(folder: Path, partition: str, epoch: int) -> int | None:
    """The offset of the first record of a later epoch; None if there is none."""
    return min((batch.first for batch in batches(folder, partition) if batch.epoch > epoch), default=None)


def high_watermark(folder: Path, partition: str) -> int:
    """Below which offset all is committed, as the broker last noted it for the time after its death; 0 if it did not.

    The file has a version, a number of entries, and in each line a topic, a partition and an offset.
    """
    try:
        lines = (folder / _CHECKPOINT).read_text().splitlines()[2:]
    except OSError:
        return 0
    topic, _, number = partition.rpartition("-")
    offsets = [int(words[2]) for words in map(str.split, lines) if words[:2] == [topic, number]]
    return offsets[0] if offsets else 0
