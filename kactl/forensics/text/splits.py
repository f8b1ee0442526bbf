"""Files cut into pieces that are read at the same time, and what becomes of a piece."""

import datetime
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa

from kactl.forensics.event_types import EventType, Kind
from kactl.forensics.storage import Location

from . import batch, json_parser
from .envelope import JSON, LAYOUTS
from .parser import Parser
from .probe import Probe, opened
from .records import records
from .source import Broken, Readable, why

# Some 200,000 lines, two or three seconds of one core; so that a core that is done finds something to do.
SPLIT_BYTES: Final = 32 * 1024 * 1024


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a file. `end` None is the file's; see `records` for what belongs to which piece.

    `size` is what it is expected to cost, bytes of text; `stored` how many bytes the whole file had.
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


# What a packed byte becomes; logs say the same over and over.
_UNPACKED: Final = 15


def cut(probes: Iterable[tuple[int, Probe]], split_bytes: int = SPLIT_BYTES) -> Iterator[Split]:
    """The pieces of numbered files; what cannot be begun anywhere is one, and what is no log is none."""
    for file_id, found in probes:
        if not found.is_log:
            continue
        starts = range(0, max(1, found.size), split_bytes) if found.can_be_split else range(1)
        for start in starts:
            yield Split(
                file_id=file_id,
                path=found.path,
                kind=found.kind,
                layout=found.layout,
                encoding=found.encoding,
                packed=found.packed,
                broker=found.broker,
                start=start,
                end=start + split_bytes if start != starts[-1] else None,
                size=min(split_bytes, found.size - start) if found.can_be_split else found.size * _UNPACKED,
                stored=found.size,
            )


def events(split: Split, time_zone: datetime.tzinfo) -> Iterator[pa.RecordBatch]:
    """The events of a piece. What cannot be read ends it with an event that says so."""
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
    """That it grows meanwhile is what logs do; one that became shorter has been replaced, and nobody knows by what."""
    now = Location(split.path).size()
    if now < split.stored:
        raise Broken(f"had {split.stored:,} bytes at first and then {now:,}: read it again when nobody writes to it")


def _read(split: Split, file: Readable, time_zone: datetime.tzinfo) -> Iterator[pa.RecordBatch]:
    start, end = split.start, split.end
    if split.layout in JSON:
        yield from json_parser.events(
            file, split.layout, file_id=split.file_id, kind=split.kind, broker=split.broker, start=start, end=end
        )
        return
    parser = Parser(file_id=split.file_id, kind=split.kind, broker=split.broker, time_zone=time_zone)
    for found in records(file, LAYOUTS[split.layout], start=start, end=end):
        yield parser.parse(found)


def _broken(split: Split, reason: str) -> pa.RecordBatch:
    given = {
        "file_id": split.file_id,
        "offset": split.start,
        "lines": 0,
        "kind": split.kind,
        "type": EventType.BROKEN,
        "reason": reason,
    }
    return batch.batch({name: batch.same(name, value, 1) for name, value in given.items()}, 1)
