"""Texts of a column, as groups of an expression gave them, made values of its type."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kactl.errors import ErrorCode
from kactl.forensics.events import SCHEMA

# What is kept of a text, reason or list of topics, in bytes; whoever wants all of it has file and offset.
TEXT_LIMIT: Final = 4096

Texts = Sequence[bytes | None]

_NUMBER: Final = re.compile(rb"-?\d+")
_WITH_EPOCH: Final = re.compile(rb"brokerId=(\d+)")
# How different versions say the same.
_SAME: Final[dict[str, dict[bytes, bytes]]] = {
    "error": {str(int(each)).encode(): each.name.encode() for each in ErrorCode},
    "request": {
        b"LeaderAndIsr": b"LEADER_AND_ISR",
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
# Ids are below 2**31. What is longer is none, and may be too long to be read at all.
_ID_DIGITS: Final = 10
_LONG: Final = frozenset({"text", "reason", "topic"})


def column(name: str, texts: Texts) -> Any:
    """An array of the column's type; null where there was no text, or none that can be a value of it."""
    kind = SCHEMA.field(name).type
    if pa.types.is_string(kind):
        return _strings(name, texts)
    if pa.types.is_list(kind):
        return _by_kind_of_text(texts, _ids, kind)
    if pa.types.is_boolean(kind):
        return _by_kind_of_text(texts, lambda text: text == b"true", kind)
    return _numbers(texts, kind)


def of_texts(texts: Texts, say: Callable[[bytes], bytes | str | None], name: str) -> Any:
    """A column of what is said of each text: as many questions as there are different texts."""
    coded = pa.array(texts, pa.binary()).dictionary_encode()
    said: list[Any] = [say(text) for text in coded.dictionary.to_pylist()]
    kind = SCHEMA.field(name).type
    values = pa.array(said, kind) if pa.types.is_string(kind) else _numbers(said, kind)
    return pc.take(values, coded.indices)


def _strings(name: str, texts: Texts) -> Any:
    if name in _SAME:
        same = _SAME[name]
        return _by_kind_of_text(texts, lambda text: same.get(text, text).decode("ascii", "replace"), pa.string())
    if name in _LONG:
        texts = [None if text is None else text[:TEXT_LIMIT] for text in texts]
    try:
        return pa.array(texts, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if text is None else readable(text) for text in texts], pa.string())


def readable(text: bytes) -> str:
    """Text in UTF-8, or else in Latin-1, which every byte is."""
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character that was cut in the middle makes no other encoding of the rest.
        cut = error.start >= len(text) - 3
        return text.decode("utf-8", "ignore") if cut else text.decode("latin-1")


def _numbers(texts: Texts, kind: pa.DataType) -> Any:
    try:
        return pa.array(texts, pa.binary()).cast(pa.string()).cast(kind)
    except pa.ArrowInvalid:
        return pa.array([_number(text, kind) for text in texts], kind)


def _number(text: bytes | None, kind: pa.DataType) -> Any:
    """One value; null for a number that is too large to be what it claims to be."""
    try:
        return None if text is None else pa.scalar(text.decode("ascii")).cast(kind).as_py()
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None


def _by_kind_of_text(texts: Texts, convert: Callable[[bytes], object], kind: pa.DataType) -> Any:
    """Each different text is converted once: ISRs and assignments are few, however many lines there are."""
    coded = pa.array(texts, pa.binary()).dictionary_encode()
    values = pa.array([convert(text) for text in coded.dictionary.to_pylist()], kind)
    return pc.take(values, coded.indices)


def _ids(text: bytes) -> list[int]:
    found = _WITH_EPOCH.findall(text) if b"brokerId" in text else _NUMBER.findall(text)
    return [number for number in map(int, (each for each in found if len(each) <= _ID_DIGITS)) if number < 2**31]
