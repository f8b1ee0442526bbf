"""Event counters: some hundred rows per file, computed by the task that writes the events.

File reports need sets of values and sums per hour. They are slow to collect from all events and fast to collect from
the counters, and the events are not read a second time.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from .event_types import EventType
from .events import SCHEMA

_TIME: Final = pa.timestamp("us", "UTC")
_KEYS: Final = ("file_id", "type", "format", "level", "speaker", "role", "controller", "hour", "reason")
# `part` is the path of the Parquet file below the events folder; `hour` is the beginning of the hour; `reason` is set
# for `broken` only; `lines` and `rows` are sums; `took_ms` is the maximum.
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
    """Return the counters, in `COUNTER_SCHEMA`, of events of one kind that are written to one file."""
    columns = {name: events[name] for name in (*_KEYS[:-2], "lines", "ts", "took_ms")}
    columns["hour"] = pc.floor_temporal(events["ts"], unit="hour")
    is_broken = pc.equal(events["type"], EventType.BROKEN)
    columns["reason"] = pc.if_else(is_broken, events["reason"], pa.scalar(None, pa.string()))
    sums: list[Any] = [("lines", "sum"), ("ts", "min"), ("ts", "max"), ("took_ms", "max"), ([], "count_all")]
    counted = pa.table(columns).group_by(list(_KEYS)).aggregate(sums)
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
