"""Rows of a small answer as values: times by the microsecond, in UTC, whatever the zone of this machine."""

import datetime
from typing import Any, Final, TypeVar

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_Value = TypeVar("_Value", bound=msgspec.Struct)


def moment(micros: int | None) -> datetime.datetime | None:
    """Microseconds since 1970 as a moment."""
    return None if micros is None else _EPOCH + datetime.timedelta(microseconds=micros)


def micros_of(time: datetime.datetime) -> int:
    """A moment as microseconds since 1970."""
    return (time - _EPOCH) // datetime.timedelta(microseconds=1)


def micros(name: str) -> Any:
    """A column of times as microseconds, under the same name."""
    return f.unix_micros(name).alias(name)


def values(found: DataFrame, kind: type[_Value]) -> tuple[_Value, ...]:
    """All rows as values of a kind whose attributes are columns; for answers that are small by nature."""
    table = found.select(*kind.__struct_fields__).toArrow()
    return tuple(msgspec.convert(row, kind) for row in table.to_pylist())
