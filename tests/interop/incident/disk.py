"""Content of a broker's own files: the ends of its logs, the beginnings of epochs, and the noted high watermarks.

The files are exact even after SIGKILL: the kernel still has everything that the process wrote.

A segment is a sequence of batches, numbers big-endian: int64 offset of the first record, int32 length of the rest,
int32 leader epoch, int8 format, uint32 checksum, int16 flags, int32 offset of the last record minus that of the first.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct(">qiibIhi")
# Offset and length, which the length does not include.
_BEFORE: Final = 12
_CHECKPOINT: Final = "replication-offset-checkpoint"


class Batch(NamedTuple):
    """A batch of records: offsets of the first and the last one, and the leader epoch."""

    first: int
    last: int
    epoch: int


def batches(folder: Path, partition: str) -> Iterator[Batch]:
    """Return all batches in the log of a partition, in order. An incomplete batch ends the log.

    Args:
        folder: `log.dirs` of the broker.
    """
    for segment in sorted((folder / partition).glob("*.log")):
        content = segment.read_bytes()
        offset = 0
        while offset + _HEADER.size <= len(content):
            first, length, epoch, _, _, _, delta = _HEADER.unpack_from(content, offset)
            offset += _BEFORE + length
            if length <= 0 or offset > len(content):
                return
            yield Batch(first, first + delta, epoch)


class End(NamedTuple):
    """End of a log: the offset after its last record, and the leader epoch of that record; 0 and -1 if empty."""

    offset: int
    epoch: int


def end(folder: Path, partition: str) -> End:
    """Return the end of the log of a partition."""
    log_end = End(0, -1)
    for batch in batches(folder, partition):
        log_end = End(batch.last + 1, batch.epoch)
    return log_end


def ends(folder: Path) -> dict[str, End]:
    """Return the ends of the logs of all partitions with records."""
    partitions = sorted(segment.parent.name for segment in folder.glob("*/00000000000000000000.log"))
    log_ends = {partition: end(folder, partition) for partition in partitions if not partition.startswith("__")}
    return {partition: log_end for partition, log_end in log_ends.items() if log_end.offset}


def begins(folder: Path, partition: str) -> list[int]:
    """Return the offsets of the first records of each epoch that has records, in order."""
    offsets: dict[int, int] = {}
    for batch in batches(folder, partition):
        offsets.setdefault(batch.epoch, batch.first)
    return sorted(offsets.values())


def first_after(folder: Path, partition: str, epoch: int) -> int | None:
    """Return the offset of the first record of a later epoch; None if there is none."""
    return min((batch.first for batch in batches(folder, partition) if batch.epoch > epoch), default=None)


def high_watermark(folder: Path, partition: str) -> int:
    """Return the high watermark in the broker's last checkpoint; 0 if it has none.

    The file contains a version, a number of entries, and on each line a topic, a partition and an offset.
    """
    try:
        lines = (folder / _CHECKPOINT).read_text().splitlines()[2:]
    except OSError:
        return 0
    topic, _, number = partition.rpartition("-")
    offsets = [int(words[2]) for words in map(str.split, lines) if words[:2] == [topic, number]]
    return offsets[0] if offsets else 0
