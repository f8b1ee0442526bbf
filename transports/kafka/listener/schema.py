"""Messages as tables of fields: what is read and written in which version of a request or an answer.

Values are plain: a message is a dict by the protocol's names, an array a list, an absent nullable thing None, an id 16
bytes. A field that a version does not have is not written, and reads as its default, so that who handles a request
need not know which version came.

Everything that is read comes from strangers: nothing is believed about lengths, tagged fields are passed over whatever
they hold, and every mistake is a MalformedMessage.

Source: the protocol's primitive types, in their classic and their flexible form.
"""

import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kactl.model import ZERO_ID
from kactl.transports.kafka.codec.primitive import NO_TAGS, NULL, uvarint
from kactl.transports.kafka.codec.primitive import Reader as CompactReader

_INT8, _INT16, _INT32, _INT64 = (struct.Struct(f">{code}") for code in "bhiq")
_UUID_SIZE: Final = 16
_NULL_LENGTH: Final = -1

Values = Mapping[str, Any]


class Kind(NamedTuple):
    """A type of one value: how it is read and written. `size_min`: the bytes that each takes at least."""

    read: Callable[["Reader"], Any]
    write: Callable[[Any, bool], bytes]
    size_min: int


class Array(NamedTuple):
    """The type of an array; `of` is that of its members, as in a field."""

    of: Any


class Field(NamedTuple):
    """One field.

    Attributes:
        kind: a Kind, a tuple of fields for a struct, or an Array of either.
        since, until: the versions that have it.
        nullable: from which version on it may be null; None for never.
        default: what it reads as where the version does not have it.
        tag: its number, if it is a tagged field of flexible versions.
    """

    name: str
    kind: Any
    since: int = 0
    until: int = 99
    nullable: int | None = None
    default: Any = None
    tag: int | None = None


class Reader(CompactReader):
    """Reads either form."""

    def __init__(self, data: bytes, *, flexible: bool) -> None:
        super().__init__(data)
        self.flexible = flexible

    def int8(self) -> int:
        return int(_INT8.unpack_from(self.data, self.take(1))[0])

    def int64(self) -> int:
        return int(_INT64.unpack_from(self.data, self.take(8))[0])

    def size(self, classic: Callable[[], int]) -> int | None:
        """How long a string or array is; None if it is null."""
        size = self.uvarint() - 1 if self.flexible else classic()
        if size < _NULL_LENGTH:
            raise self.fail(f"a length of {size}")
        return None if size == _NULL_LENGTH else size

    def text(self, size: int) -> str:
        content = self.bytes(size)
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise self.fail("a string that is not UTF-8") from None


# -- one value ---------------------------------------------------------------------------------------------------------


def _write_text(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return NULL if flexible else _INT16.pack(_NULL_LENGTH)
    content = text.encode()
    return (uvarint(len(content) + 1) if flexible else _INT16.pack(len(content))) + content


def _read_text(reader: Reader) -> str | None:
    size = reader.size(reader.int16)
    return None if size is None else reader.text(size)


def _write_bytes(content: bytes, flexible: bool) -> bytes:
    return (uvarint(len(content) + 1) if flexible else _INT32.pack(len(content))) + content


def _read_bytes(reader: Reader) -> bytes | None:
    size = reader.size(reader.int32)
    return None if size is None else reader.bytes(size)


BOOL: Final = Kind(lambda reader: reader.int8() != 0, lambda value, _: _INT8.pack(bool(value)), 1)
INT8: Final = Kind(Reader.int8, lambda value, _: _INT8.pack(value), 1)
INT16: Final = Kind(Reader.int16, lambda value, _: _INT16.pack(value), 2)
INT32: Final = Kind(Reader.int32, lambda value, _: _INT32.pack(value), 4)
INT64: Final = Kind(Reader.int64, lambda value, _: _INT64.pack(value), 8)
UUID: Final = Kind(lambda reader: reader.bytes(_UUID_SIZE), lambda value, _: value, _UUID_SIZE)
STRING: Final = Kind(_read_text, _write_text, 1)
BYTES: Final = Kind(_read_bytes, _write_bytes, 1)

_DEFAULTS: Final[dict[int, Any]] = {id(STRING): "", id(BYTES): b"", id(UUID): ZERO_ID, id(BOOL): False}


# -- a message ---------------------------------------------------------------------------------------------------------


class Message:
    """A request or an answer in all of its versions.

    Args:
        fields: in their order.
        flexible: the first version with compact lengths and tagged fields.
    """

    def __init__(self, *fields: Field, flexible: int) -> None:
        self.fields = fields
        self.flexible = flexible

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible

    def read(self, data: bytes, version: int) -> dict[str, Any]:
        """One whole message, behind its header.

        Raises:
            MalformedMessage: it is none of this version, or something is left over.
        """
        reader = Reader(data, flexible=self.is_flexible(version))
        values = _read_struct(reader, self.fields, version)
        reader.end()
        return values

    def write(self, values: Values, version: int) -> bytes:
        """One whole message, behind its header; what the version does not have is left out."""
        parts: list[bytes] = []
        _write_struct(parts, self.fields, values, version, self.is_flexible(version))
        return b"".join(parts)


@functools.cache
def _of_version(fields: tuple[Field, ...], version: int) -> tuple[tuple[Field, ...], tuple[Field, ...], dict[str, Any]]:
    """The plain fields of a version, its tagged fields, and the defaults of the others."""
    there = [field for field in fields if field.since <= version <= field.until]
    plain = tuple(field for field in there if field.tag is None)
    tagged = tuple(field for field in there if field.tag is not None)
    absent = {field.name: _default(field) for field in fields if field not in plain}
    return plain, tagged, absent


def _default(field: Field) -> Any:
    if field.default is not None or field.nullable is not None:
        return field.default
    return [] if isinstance(field.kind, Array) else _DEFAULTS.get(id(field.kind), 0)


def _read_struct(reader: Reader, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    plain, _, absent = _of_version(fields, version)
    values = dict(absent)
    for field in plain:
        values[field.name] = _read_value(reader, field, version)
    if reader.flexible:
        reader.tags()
    return values


def _read_value(reader: Reader, field: Field, version: int) -> Any:
    kind = field.kind
    if isinstance(kind, Array):
        value: Any = _read_array(reader, kind.of, version)
    else:
        value = kind.read(reader)
    if value is None and (field.nullable is None or version < field.nullable):
        raise reader.fail(f"no {field.name} where there must be one")
    return value


def _read_array(reader: Reader, kind: Any, version: int) -> list[Any] | None:
    count = reader.size(reader.int32)
    if count is None:
        return None
    size_min = kind.size_min if isinstance(kind, Kind) else _size_min(kind, version, reader.flexible)
    if count * size_min > len(reader.data) - reader.at:
        raise reader.fail(f"{count} members are announced, {len(reader.data) - reader.at} bytes are left")
    if kind is INT32:
        begin = reader.take(4 * count)
        return list(struct.unpack_from(f">{count}i", reader.data, begin))
    if isinstance(kind, Kind):
        return [_present(reader, kind.read(reader)) for _ in range(count)]
    return [_read_struct(reader, kind, version) for _ in range(count)]


def _present(reader: Reader, value: Any) -> Any:
    if value is None:
        raise reader.fail("a null member where there must be none")
    return value


@functools.cache
def _size_min(fields: tuple[Field, ...], version: int, flexible: bool) -> int:
    """What a struct takes at least, in bytes; it is never nothing."""
    plain, _, _ = _of_version(fields, version)
    return sum(field.kind.size_min if isinstance(field.kind, Kind) else 1 for field in plain) + flexible


def _write_struct(parts: list[bytes], fields: tuple[Field, ...], values: Values, version: int, flexible: bool) -> None:
    plain, tagged, _ = _of_version(fields, version)
    for field in plain:
        value = values[field.name] if field.name in values else _default(field)
        if isinstance(field.kind, Array):
            _write_array(parts, field.kind.of, value, version, flexible)
        else:
            parts.append(field.kind.write(value, flexible))
    if flexible:
        _write_tags(parts, [field for field in tagged if field.name in values], values)


def _write_array(parts: list[bytes], kind: Any, value: Sequence[Any] | None, version: int, flexible: bool) -> None:
    if value is None:
        parts.append(NULL if flexible else _INT32.pack(_NULL_LENGTH))
        return
    parts.append(uvarint(len(value) + 1) if flexible else _INT32.pack(len(value)))
    if kind is INT32:
        parts.append(struct.pack(f">{len(value)}i", *value))
    elif isinstance(kind, Kind):
        parts.extend(kind.write(member, flexible) for member in value)
    else:
        for member in value:
            _write_struct(parts, kind, member, version, flexible)


def _write_tags(parts: list[bytes], tagged: Sequence[Field], values: Values) -> None:
    """Tagged fields whose value was given, ascending; they are flexible by nature, and of one plain kind each."""
    if not tagged:
        parts.append(NO_TAGS)
        return
    parts.append(uvarint(len(tagged)))
    for field in tagged:
        assert field.tag is not None
        content = field.kind.write(values[field.name], True)
        parts.append(uvarint(field.tag) + uvarint(len(content)) + content)
