"""Lines that carry JSON made events: the metadata log, and kactl's own log."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kactl.forensics.event_types import EventType, Kind, Role
from kactl.forensics.events import SCHEMA

from . import batch, dump, kactl_log
from .columns import TEXT_LIMIT, readable
from .envelope import DUMP, KACTL
from .source import Broken, Readable, lines
from .zone import END_US

_READ: Final[dict[str, Callable[[bytes], tuple[int, str, dict[str, Any]] | None]]] = {
    DUMP: dump.read,
    KACTL: kactl_log.read,
}


def events(
    file: Readable, layout: str, *, file_id: int, kind: Kind, broker: int | None, start: int, end: int | None
) -> Iterator[pa.RecordBatch]:
    """The events of one split; see `records.records` for its bounds. No line continues another here.

    Raises:
        source.Broken: the rest cannot be read; what was before it has been yielded.
    """
    read = _READ[layout]
    broken: Broken | None = None
    found = lines(file, start=max(0, start - 1), discard_first=start > 0)
    while broken is None:
        try:
            offset, texts = next(found)
        except StopIteration:
            return
        except Broken as error:
            broken = error
            break
        rows = []
        for text in texts:
            if end is not None and offset >= end:
                break
            rows.append(_row(text, read(text), offset))
            offset += len(text) + 1
        if rows:
            yield _batch(rows, file_id=file_id, kind=kind, broker=broker)
        if end is not None and offset >= end:
            return
    raise broken


def _row(text: bytes, said: tuple[int, str, dict[str, Any]] | None, offset: int) -> dict[str, Any]:
    if said is None:
        if not text.strip() or dump.is_around(text):
            return {"type": EventType.OTHER, "offset": offset}
        return {"type": EventType.UNPARSED, "offset": offset, "text": readable(text[:TEXT_LIMIT])}
    time_ms, form, columns = said
    time = {"ts": time_ms * 1000} if 0 <= time_ms * 1000 < END_US else {}
    if not columns:
        return {"type": EventType.OTHER, "offset": offset, **time}
    if not time:
        return {"type": EventType.UNPARSED, "offset": offset, "text": readable(text[:TEXT_LIMIT])}
    return {"format": form, "role": Role.CONTROLLER, "offset": offset, **time, **columns}


def _batch(rows: Sequence[dict[str, Any]], *, file_id: int, kind: Kind, broker: int | None) -> pa.RecordBatch:
    count = len(rows)
    names = {name for row in rows for name in row} - {"ts"}
    given = {name: _array([row.get(name) for row in rows], SCHEMA.field(name).type) for name in names}
    known = np.array(["ts" in row for row in rows], np.bool_)
    instants = np.array([row.get("ts", 0) for row in rows], np.int64)
    given.update(batch.times(instants, instants, known))
    given["lines"] = batch.same("lines", 1, count)
    given["file_id"] = batch.same("file_id", file_id, count)
    given["kind"] = batch.same("kind", kind, count)
    given["speaker"] = batch.same("speaker", broker, count)
    return batch.batch(given, count)


def _array(values: list[Any], kind: pa.DataType) -> Any:
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # A number that no such thing can have, or a list where a number should be: what can be used is.
        return pa.array([_usable(value, kind) for value in values], kind)


def _usable(value: Any, kind: pa.DataType) -> Any:
    try:
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
