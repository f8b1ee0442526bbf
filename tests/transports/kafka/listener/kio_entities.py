"""Strategies for any request and response from kio's classes, and their content as plain values."""

import datetime
import enum
import functools
import types
import typing
import uuid
from dataclasses import Field, fields
from typing import Any

from hypothesis import strategies as st

from kactl.model import ZERO_ID

_SIZES = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# All that UTF-8 can encode. Hypothesis finds that out for `codec="utf-8"` by encoding every character, for seconds.
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# Long enough for lengths of two bytes.
_ARRAY_MAX = 3


@functools.cache
def entities(kind: Any) -> st.SearchStrategy[Any]:
    """Strategy for any entity of a class; tagged fields keep their defaults."""
    hints = typing.get_type_hints(kind)
    strategies = {
        field.name: _values(field, hints[field.name]) for field in fields(kind) if "tag" not in field.metadata
    }
    return st.builds(kind, **strategies)


def _values(field: Field[Any], hint: Any) -> st.SearchStrategy[Any]:
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    nullable = type(None) in options
    (hint,) = [option for option in options if option is not type(None)] or [type(None)]
    kafka_type = field.metadata.get("kafka_type")
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        members = _plain(kafka_type) if kafka_type else entities(inner)
        one: st.SearchStrategy[Any] = st.lists(members, max_size=_ARRAY_MAX).map(tuple)
    else:
        one = _plain(kafka_type) if kafka_type else entities(hint)
    if kafka_type == "uuid":
        return one  # the zero id is None in kio, and the protocol has no null ids
    return st.none() | one if nullable else one


@functools.cache
def _plain(kafka_type: str | None) -> st.SearchStrategy[Any]:
    from kio.schema.errors import ErrorCode

    if kafka_type in _SIZES:
        limit = 1 << _SIZES[kafka_type] - 1
        return st.integers(-limit, limit - 1)
    if kafka_type == "string":
        return _TEXTS
    if kafka_type == "bytes":
        return st.binary(max_size=20)
    if kafka_type == "bool":
        return st.booleans()
    if kafka_type == "float64":
        return st.floats(allow_nan=False)
    if kafka_type == "uuid":
        return st.binary(min_size=16, max_size=16).filter(any).map(lambda raw: uuid.UUID(bytes=raw))
    if kafka_type == "error_code":
        return st.sampled_from(ErrorCode)
    assert kafka_type == "timedelta_i32", kafka_type
    return st.integers(0, 2**31 - 1).map(lambda ms: datetime.timedelta(milliseconds=ms))


def plain(value: Any) -> Any:
    """Return the entity as plain values, by the protocol's field names."""
    if hasattr(value, "__dataclass_fields__"):
        values = {}
        for field in fields(value):
            name = field.name.rstrip("_")
            if field.metadata.get("kafka_type", "").startswith("timedelta"):
                name += "_ms"
            field_value = getattr(value, field.name)
            values[name] = (
                ZERO_ID if field_value is None and field.metadata.get("kafka_type") == "uuid" else plain(field_value)
            )
        return values
    if isinstance(value, tuple):
        return [plain(member) for member in value]
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    return value.value if isinstance(value, enum.Enum) else value
