"""Columns put together to batches of the table of events."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kactl.forensics.events import PARTITIONED_BY, SCHEMA

from .zone import Micros

# With the columns behind it by which the table is kept in folders.
WRITTEN: Final = SCHEMA.append(pa.field(PARTITIONED_BY[0], pa.string())).append(
    pa.field(PARTITIONED_BY[1], pa.date32())
)
_DAY_US: Final = 24 * 3600 * 1_000_000


def same(name: str, value: object, count: int) -> Any:
    """A column in which every row says the same."""
    kind = WRITTEN.field(name).type
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def times(logged: Micros, utc: Micros, known: "np.ndarray[Any, Any] | None" = None) -> dict[str, Any]:
    """The columns `ts_logged`, `ts` and `day`; null where `known`, bool[n], is false."""
    unknown = None if known is None or known.all() else ~known
    return {
        "ts_logged": pa.array(logged, pa.timestamp("us"), mask=unknown),
        "ts": pa.array(utc, pa.timestamp("us", "UTC"), mask=unknown),
        "day": pa.array((utc // _DAY_US).astype(np.int32), pa.int32(), mask=unknown).cast(pa.date32()),
    }


def batch(given: Mapping[str, Any], count: int) -> pa.RecordBatch:
    """A batch of `count` rows; columns that are not given are null."""
    columns = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in WRITTEN]
    return pa.RecordBatch.from_arrays(columns, schema=WRITTEN)


def together(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of several; at least one is given."""
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole
