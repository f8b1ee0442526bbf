"""Columns of the table of events: conversion of texts to values of a column's type, and assembly of batches."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kactl.forensics.events import PARTITIONED_BY, SCHEMA
from kactl.model.errors import ErrorCode

from .zone import Micros

# Limit of a stored text, reason or list of topics, in bytes. File and offset lead to the complete line.
TEXT_LIMIT: Final = 4096
# The schema of batches: the events, and then the columns by which the table is partitioned into folders.
WRITTEN: Final = SCHEMA.append(pa.field(PARTITIONED_BY[0], pa.string())).append(
    pa.field(PARTITIONED_BY[1], pa.date32())
)
_DAY_US: Final = 24 * 3600 * 1_000_000

Texts = Sequence[bytes | None]

_NUMBER: Final = re.compile(rb"-?\d+")
_WITH_EPOCH: Final = re.compile(rb"brokerId=(\d+)")
# Spellings of different versions -> the stored one.
_SPELLINGS: Final[dict[str, dict[bytes, bytes]]] = {
    "error": {str(int(error)).encode(): error.name.encode() for error in ErrorCode},
    "request": {
        b"LeaderAndIsr": b"LEADER_AND_ISR",
        b"LeaderAndIs": b"LEADER_AND_ISR",  # of the name LeaderAndIsRequest
        b"StopReplica": b"STOP_REPLICA",
        b"UpdateMetadata": b"UPDATE_METADATA",
    },
    "recovery": {b"0": b"RECOVERED", b"1": b"RECOVERING"},
    "strategy": {
        b"PREFERRED": b"preferred",
        b"UNCLEAN": b"unclean",
        b"Offline": b"offline",
        b"Reassign": b"reassign",
        b"PreferredReplica": b"preferred",
        b"ControlledShutdown": b"controlled-shutdown",
    },
}
# Ids are below 2**31. A longer text is not an id, and may be too long to be converted.
_ID_DIGITS: Final = 10
_LONG: Final = frozenset({"text", "reason", "topic"})


# -- values ------------------------------------------------------------------------------------------------------------


def column(name: str, texts: Texts) -> Any:
    """Returns texts as an array of the column's type; null where there is no text or no valid value."""
    kind = SCHEMA.field(name).type
    if pa.types.is_string(kind):
        return _strings(name, texts)
    if pa.types.is_list(kind):
        return _convert(texts, _ids, kind)
    if pa.types.is_boolean(kind):
        return _convert(texts, lambda text: text == b"true", kind)
    return _numbers(texts, kind)


def mapped(texts: Texts, function: Callable[[bytes], bytes | str | None], name: str) -> Any:
    """Returns a column with `function` of each text. It is called once per distinct text."""
    encoded = pa.array(texts, pa.binary()).dictionary_encode()
    results: list[Any] = [function(text) for text in encoded.dictionary.to_pylist()]
    kind = SCHEMA.field(name).type
    values = pa.array(results, kind) if pa.types.is_string(kind) else _numbers(results, kind)
    return pc.take(values, encoded.indices)


def readable(text: bytes) -> str:
    """Decodes UTF-8, or else Latin-1, in which all bytes are valid."""
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character that was cut at the end does not mean that the rest has another encoding.
        is_cut = error.start >= len(text) - 3
        return text.decode("utf-8", "ignore") if is_cut else text.decode("latin-1")


def _strings(name: str, texts: Texts) -> Any:
    if name in _SPELLINGS:
        spellings = _SPELLINGS[name]
        return _convert(texts, lambda text: spellings.get(text, text).decode("ascii", "replace"), pa.string())
    if name in _LONG:
        texts = [None if text is None else text[:TEXT_LIMIT] for text in texts]
    try:
        return pa.array(texts, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if text is None else readable(text) for text in texts], pa.string())


def _numbers(texts: Texts, kind: pa.DataType) -> Any:
    try:
        return pa.array(texts, pa.binary()).cast(pa.string()).cast(kind)
    except pa.ArrowInvalid:
        return pa.array([_number(text, kind) for text in texts], kind)


def _number(text: bytes | None, kind: pa.DataType) -> Any:
    """Returns one value; None for a number that is out of range."""
    try:
        return None if text is None else pa.scalar(text.decode("ascii")).cast(kind).as_py()
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None


def _convert(texts: Texts, function: Callable[[bytes], object], kind: pa.DataType) -> Any:
    """Converts each distinct text once: there are far fewer ISRs and assignments than lines."""
    encoded = pa.array(texts, pa.binary()).dictionary_encode()
    values = pa.array([function(text) for text in encoded.dictionary.to_pylist()], kind)
    return pc.take(values, encoded.indices)


def _ids(text: bytes) -> list[int]:
    numbers = _WITH_EPOCH.findall(text) if b"brokerId" in text else _NUMBER.findall(text)
    return [id for number in numbers if len(number) <= _ID_DIGITS and (id := int(number)) < 2**31]


# -- batches -----------------------------------------------------------------------------------------------------------


def constant(name: str, value: object, count: int) -> Any:
    """Returns a column that has the same value in every row."""
    kind = WRITTEN.field(name).type
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def times(logged: Micros, utc: Micros, known: "np.ndarray[Any, Any] | None" = None) -> dict[str, Any]:
    """Returns the columns `ts_logged`, `ts` and `day`; null where `known`, bool[n], is false."""
    unknown = None if known is None or known.all() else ~known
    return {
        "ts_logged": pa.array(logged, pa.timestamp("us"), mask=unknown),
        "ts": pa.array(utc, pa.timestamp("us", "UTC"), mask=unknown),
        "day": pa.array((utc // _DAY_US).astype(np.int32), pa.int32(), mask=unknown).cast(pa.date32()),
    }


def batch(given: Mapping[str, Any], count: int) -> pa.RecordBatch:
    """Returns a batch of `count` rows; columns that are not given are null."""
    arrays = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in WRITTEN]
    return pa.RecordBatch.from_arrays(arrays, schema=WRITTEN)


def concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Returns one batch with the rows of several. At least one batch is given."""
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole
