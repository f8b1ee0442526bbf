"""Splits: parts of files that are parsed in parallel."""

import datetime
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa

from kactl.forensics.event_types import EventType, Kind
from kactl.forensics.storage import Location

from . import columns, json_parser
from .envelope import JSON, LAYOUTS
from .parser import Parser
from .probe import Probe, opened
from .records import records
from .source import Broken, Readable, why

# About 200,000 lines, two or three seconds of one core: small enough to keep all cores busy until the end.
SPLIT_BYTES: Final = 32 * 1024 * 1024


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a file; see `records` for the records that belong to it.

    Attributes:
        end: None for the end of the file.
        size: expected bytes of text, as an estimate of the cost.
        stored: bytes of the whole file when it was probed.
    """

    file_id: int
    path: str
    kind: Kind
    layout: str
    encoding: str
    packed: bool
    broker: int | None
    start: int = 0
    end: int | None = None
    size: int = 0
    stored: int = 0


# Bytes of text per compressed byte; logs are repetitive.
_UNPACKED: Final = 15


def cut(probes: Iterable[tuple[int, Probe]], split_bytes: int = SPLIT_BYTES) -> Iterator[Split]:
    """Yields the splits of numbered files: one of a file that cannot be split, none of a file that is no log."""
    for file_id, file in probes:
        if not file.is_log:
            continue
        starts = range(0, max(1, file.size), split_bytes) if file.can_be_split else range(1)
        for start in starts:
            yield Split(
                file_id=file_id,
                path=file.path,
                kind=file.kind,
                layout=file.layout,
                encoding=file.encoding,
                packed=file.packed,
                broker=file.broker,
                start=start,
                end=start + split_bytes if start != starts[-1] else None,
                size=min(split_bytes, file.size - start) if file.can_be_split else file.size * _UNPACKED,
                stored=file.size,
            )


def events(split: Split, time_zone: datetime.tzinfo) -> Iterator[pa.RecordBatch]:
    """Yields the events of a split. If the rest cannot be read, the last event is a `BROKEN` with the reason."""
    try:
        with opened(split.path, packed=split.packed, encoding=split.encoding, start=split.start) as file:
            yield from _read(split, file, time_zone)
        if split.end is None:
            _check_length(split)
    except Broken as error:
        yield _broken(split, str(error))
    except OSError as error:
        yield _broken(split, f"can no longer be read: {why(error)}")


def _check_length(split: Split) -> None:
    """Raises Broken if a file became shorter. Logs grow while they are read, but a shorter file was replaced."""
    now = Location(split.path).size()
    if now < split.stored:
        raise Broken(f"had {split.stored:,} bytes at first and then {now:,}: read it again when nothing writes to it")


def _read(split: Split, file: Readable, time_zone: datetime.tzinfo) -> Iterator[pa.RecordBatch]:
    start, end = split.start, split.end
    if split.layout in JSON:
        yield from json_parser.events(
            file, split.layout, file_id=split.file_id, kind=split.kind, broker=split.broker, start=start, end=end
        )
        return
    parser = Parser(file_id=split.file_id, kind=split.kind, broker=split.broker, time_zone=time_zone)
    for chunk in records(file, LAYOUTS[split.layout], start=start, end=end):
        yield parser.parse(chunk)


def _broken(split: Split, reason: str) -> pa.RecordBatch:
    given = {
        "file_id": split.file_id,
        "offset": split.start,
        "lines": 0,
        "kind": split.kind,
        "type": EventType.BROKEN,
        "reason": reason,
    }
    return columns.batch({name: columns.constant(name, value, 1) for name, value in given.items()}, 1)
