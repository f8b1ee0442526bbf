"""Rows of a small result as values: times in microseconds and in UTC, whatever the zone of this machine."""

import datetime
from typing import Final, TypeVar

import msgspec
from pyspark.sql import DataFrame

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_Value = TypeVar("_Value", bound=msgspec.Struct)


def moment(micros: int | None) -> datetime.datetime | None:
    """Returns microseconds since 1970 as a time."""
    return None if micros is None else known_moment(micros)


def known_moment(micros: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(microseconds=micros)


def micros_of(time: datetime.datetime) -> int:
    """Returns a time as microseconds since 1970."""
    return (time - _EPOCH) // datetime.timedelta(microseconds=1)


def values(rows: DataFrame, kind: type[_Value]) -> tuple[_Value, ...]:
    """Returns all rows of a small result as values of a class whose attributes are columns."""
    table = rows.select(*kind.__struct_fields__).toArrow()
    return tuple(msgspec.convert(row, kind) for row in table.to_pylist())
