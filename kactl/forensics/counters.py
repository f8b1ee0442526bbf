"""Events counted by what overviews ask about: some hundred rows for each file, made where events are written.

Sets and hours are slow to collect from every event, and quick to collect from these; and nothing is read again for it.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from .event_types import EventType
from .events import SCHEMA

_TIME: Final = pa.timestamp("us", "UTC")
_KEYS: Final = ("file_id", "type", "format", "level", "speaker", "role", "controller", "hour", "reason")
# `part` is the file that holds the events, below the folder of all; `hour` when it began; `reason` of `broken` alone;
# `lines` and `rows` their sums, `took_ms` the longest.
COUNTER_SCHEMA: Final = pa.schema(
    [
        pa.field("part", pa.string()),
        pa.field("kind", pa.string()),
        *(SCHEMA.field(name) for name in _KEYS[:-2]),
        pa.field("hour", _TIME),
        pa.field("reason", pa.string()),
        pa.field("lines", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("begin", _TIME),
        pa.field("end", _TIME),
        pa.field("took_ms", pa.int64()),
    ]
)


def count_events(events: pa.Table, *, part: str, kind: str) -> pa.Table:
    """The rows of `COUNTER_SCHEMA` of some events, which all are of one kind and stand in one part."""
    said = {name: events[name] for name in (*_KEYS[:-2], "lines", "ts", "took_ms")}
    said["hour"] = pc.floor_temporal(events["ts"], unit="hour")
    is_broken = pc.equal(events["type"], EventType.BROKEN)
    said["reason"] = pc.if_else(is_broken, events["reason"], pa.scalar(None, pa.string()))
    asked: list[Any] = [("lines", "sum"), ("ts", "min"), ("ts", "max"), ("took_ms", "max"), ([], "count_all")]
    counted = pa.table(said).group_by(list(_KEYS)).aggregate(asked)
    named = {name: counted[name] for name in _KEYS} | {
        "part": pa.repeat(part, counted.num_rows),
        "kind": pa.repeat(kind, counted.num_rows),
        "lines": counted["lines_sum"],
        "rows": counted["count_all"],
        "begin": counted["ts_min"],
        "end": counted["ts_max"],
        "took_ms": counted["took_ms_max"],
    }
    return pa.table({name: named[name] for name in COUNTER_SCHEMA.names}, schema=COUNTER_SCHEMA)
