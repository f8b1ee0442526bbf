"""Splits: parts of files that are parsed in parallel."""

import datetime
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa

from kactl.forensics.event_types import EventType
from kactl.forensics.storage import Location

from . import columns, json_parser
from .envelope import JSON, LAYOUTS
from .parser import Parser
from .probe import Probe, opened
from .records import records
from .source import Broken, Readable, why

# About 200,000 lines, two or three seconds of one core: small enough to keep all cores busy until the end.
SPLIT_BYTES: Final = 32 * 1024 * 1024
# How the reason begins if a file that was probed cannot be opened or read.
UNREADABLE: Final = "can no longer be read"


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a file; see `records` for the records that belong to it.

    Attributes:
        file: the file as it was probed, with its absolute path.
        end: None for the end of the file.
        size: expected bytes of text, as an estimate of the cost.
    """

    file_id: int
    file: Probe
    start: int = 0
    end: int | None = None
    size: int = 0


# Bytes of text per compressed byte; logs are repetitive.
_UNPACKED: Final = 15


def cut(probes: Iterable[tuple[int, Probe]], split_bytes: int = SPLIT_BYTES) -> Iterator[Split]:
    """Yields the splits of numbered files: one of a file that cannot be split, none of a file that is no log."""
    for file_id, file in probes:
        if not file.is_log:
            continue
        file = msgspec.structs.replace(file, path=Location(file.path).absolute)
        starts = range(0, max(1, file.size), split_bytes) if file.can_be_split else range(1)
        for start in starts:
            end = start + split_bytes if start != starts[-1] else None
            size = min(split_bytes, file.size - start) if file.can_be_split else file.size
            if file.packed:
                size *= _UNPACKED
            yield Split(file_id=file_id, file=file, start=start, end=end, size=size)


def events(split: Split, time_zone: datetime.tzinfo) -> Iterator[pa.RecordBatch]:
    """Yields the events of a split. If the rest cannot be read, the last event is a `BROKEN` with the reason."""
    try:
        with opened(split.file, start=split.start) as file:
            yield from _read(split, file, time_zone)
        if split.end is None:
            _check_length(split)
    except Broken as error:
        yield _broken(split, str(error))
    except OSError as error:
        yield _broken(split, f"{UNREADABLE}: {why(error)}")


def _check_length(split: Split) -> None:
    """Raises Broken if a file became shorter. Logs grow while they are read, but a shorter file was replaced."""
    before, now = split.file.size, Location(split.file.path).size()
    if now < before:
        raise Broken(f"had {before:,} bytes at first and then {now:,}: read it again when nothing writes to it")


def _read(split: Split, file: Readable, time_zone: datetime.tzinfo) -> Iterator[pa.RecordBatch]:
    probe, start, end = split.file, split.start, split.end
    if probe.layout in JSON:
        yield from json_parser.events(
            file, probe.layout, file_id=split.file_id, kind=probe.kind, broker=probe.broker, start=start, end=end
        )
        return
    parser = Parser(
        file_id=split.file_id,
        kind=probe.kind,
        broker=probe.broker,
        time_zone=time_zone,
        years_ahead=probe.years_ahead,
    )
    for chunk in records(file, LAYOUTS[probe.layout], start=start, end=end):
        yield parser.parse(chunk)


def _broken(split: Split, reason: str) -> pa.RecordBatch:
    given = {
        "file_id": split.file_id,
        "offset": split.start,
        "lines": 0,
        "kind": split.file.kind,
        "type": EventType.BROKEN,
        "reason": reason,
    }
    return columns.batch({name: columns.constant(name, value, 1) for name, value in given.items()}, 1)
