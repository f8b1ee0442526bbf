"""Splits: parts of files that are parsed in parallel."""

import contextlib
import datetime
import io
import zoneinfo
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa

from kactl.forensics.event_types import EventType, Kind
from kactl.forensics.storage import Location

from . import columns, json_parser
from .forms import Forms
from .json_parser import JSON
from .parser import Parser
from .probe import Probe, opened
from .records import records
from .source import Broken, Readable, why
from .zone import is_ambiguous, logged

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


# At both ends of a file, so much is read to find its period.
_END_BYTES: Final = 64 * 1024
_DAY_US: Final = 24 * 3600 * 1_000_000
# Bytes of text per compressed byte; logs are repetitive.
_UNPACKED: Final = 15


def cut(
    probes: Iterable[tuple[int, Probe]], split_bytes: int = SPLIT_BYTES, time_zone: datetime.tzinfo = datetime.UTC
) -> Iterator[Split]:
    """Yields the splits of numbered files: one of a file that cannot be split, none of a file that is no log.

    A file in whose period clocks were set back is not split: only the lines before a line of that hour show which of
    the two hours it is.
    """
    for file_id, file in probes:
        if not file.is_log:
            continue
        file = msgspec.structs.replace(file, path=Location(file.path).absolute)
        is_whole = not file.can_be_split or (file.size > split_bytes and _spans_fold(file, time_zone))
        starts = range(1) if is_whole else range(0, max(1, file.size), split_bytes)
        for start in starts:
            end = start + split_bytes if start != starts[-1] else None
            size = file.size if is_whole else min(split_bytes, file.size - start)
            if file.packed:
                size *= _UNPACKED
            yield Split(file_id=file_id, file=file, start=start, end=end, size=size)


def _spans_fold(file: Probe, time_zone: datetime.tzinfo) -> bool:
    if file.kind in (Kind.DUMP, Kind.KACTL) or not isinstance(time_zone, zoneinfo.ZoneInfo):
        return False
    times: list[bytes] = []
    with contextlib.suppress(OSError, Broken):
        for start in (0, max(0, file.size - _END_BYTES)):
            with opened(file, start=start) as readable:
                forms = Forms(file.patterns, file.forms)
                part = records(io.BytesIO(readable.read(_END_BYTES)), forms, start=start and 1, end=None)
                times += [fields[0] for some in part for fields in some.fields if fields[0] and not fields[5]]
    local, is_time = logged(times, file.years_ahead) if times else (None, None)
    if local is None or is_time is None or not is_time.any():
        return False
    known = local[is_time]
    return is_ambiguous(int(known.min()) - _DAY_US, int(known.max()) + _DAY_US, time_zone)


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
    for chunk in records(file, Forms(probe.patterns, probe.forms), start=start, end=end):
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
