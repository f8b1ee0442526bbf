"""Rows of a small result as values: times in microseconds and in UTC, whatever the zone of this machine."""

import datetime
from typing import Any, Final, TypeVar

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_Value = TypeVar("_Value", bound=msgspec.Struct)


def moment(micros: int | None) -> datetime.datetime | None:
    """Returns microseconds since 1970 as a time."""
    return None if micros is None else _EPOCH + datetime.timedelta(microseconds=micros)


def micros_of(time: datetime.datetime) -> int:
    """Returns a time as microseconds since 1970."""
    return (time - _EPOCH) // datetime.timedelta(microseconds=1)


def micros(name: str) -> Any:
    """Returns a column of times as microseconds, under the same name."""
    return f.unix_micros(name).alias(name)


def values(found: DataFrame, kind: type[_Value]) -> tuple[_Value, ...]:
    """Returns all rows of a small result as values of a class whose attributes are columns."""
    table = found.select(*kind.__struct_fields__).toArrow()
    return tuple(msgspec.convert(row, kind) for row in table.to_pylist())
