"""Messages as tables of fields, which define the encoding of requests and responses in each version.

Values are plain: a message is a dict by the protocol's names, an array a list, a null value None, an id 16 bytes. A
field that a version does not have is not written, and is read as its default, so that handlers do not depend on the
version.

Requests come from peers that are not authenticated. An array's count is checked against the bytes that are left and
against the number of elements that the request may have (`Elements`) before anything is allocated; tagged fields are
skipped; every error is a MalformedMessage. Large messages are read and written in steps (`reading`, `writing`),
so that the event loop runs other tasks in between.

Source: the protocol's primitive types, in their classic and their flexible form.
"""

import itertools
import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from kactl.errors import MalformedMessage
from kactl.model import ZERO_ID
from kactl.transports.kafka.codec.primitive import NO_TAGS, NULL, uvarint
from kactl.transports.kafka.codec.primitive import Reader as CompactReader

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UUID_SIZE: Final = 16
_NULL_LENGTH: Final = -1
# Integers of an array are small compared with structs and strings: this many count as one element, fewer as none.
INTS_PER_ELEMENT: Final = 8
# No message of the protocol has more than ten tagged fields in one struct; each of them costs as much as a struct.
TAGS_MAX: Final = 64
# Limit of a message that is read without its own limit: responses, and messages of tests.
ELEMENTS_MAX: Final = 1_000_000
# A step reads or writes about this many elements, at 2 to 20 microseconds each.
STEP: Final = 256

Values = Mapping[str, Any]
_T = TypeVar("_T")
# A generator that returns a value; it yields None after each step.
Steps = Generator[None, None, _T]


class TooManyElements(MalformedMessage):
    """A request has more structs, strings and tagged fields than requests of its kind may have."""


class Elements:
    """The elements of one message, counted while it is read.

    Args:
        limit: the maximal number.
        charge: called with the number of elements before they are allocated.
    """

    def __init__(self, limit: int, charge: Callable[[int], None] | None = None) -> None:
        self.limit = limit
        self.count = 0
        self._charge = charge

    def take(self, count: int) -> None:
        """Raises TooManyElements, and what `charge` raises."""
        self.count += count
        if self.count > self.limit:
            raise TooManyElements(f"{self.count} elements and more, and at most {self.limit} are taken")
        if self._charge is not None and count:
            self._charge(count)


def whole(steps: Steps[_T]) -> _T:
    """Run steps without interruption. Returns their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: _T = end.value
            return value


class Fixed(NamedTuple):
    """A type whose values all take the same number of bytes. `code`: as in the module struct."""

    code: str
    default: Any = 0

    @property
    def size_min(self) -> int:
        return struct.calcsize(f">{self.code}")


class Varying(NamedTuple):
    """A type with a length prefix. The second argument of `write` is whether the version is flexible."""

    read: Callable[["Reader"], Any]
    write: Callable[[Any, bool], bytes]
    default: Any
    size_min: int = 1


class Array(NamedTuple):
    """The type of an array. `of`: a Fixed but no UUID, a Varying, or a tuple of fields."""

    of: Any


class Field(NamedTuple):
    """One field.

    Attributes:
        kind: a Fixed, a Varying, or an Array of one of these or of structs, each a tuple of fields.
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
    """Reads either form.

    Args:
        begin: where the message begins in `data`.
    """

    def __init__(self, data: bytes, *, flexible: bool, elements: Elements, begin: int = 0) -> None:
        super().__init__(data)
        self.flexible = flexible
        self.elements = elements
        self.offset = begin
        self._stepped = 0

    def is_step(self, count: int) -> bool:
        """Count elements. Returns whether STEP of them were read since this was last true."""
        self._stepped += count
        if self._stepped < STEP:
            return False
        self._stepped = 0
        return True

    def int64(self) -> int:
        return int(_INT64.unpack_from(self.data, self.take(8))[0])

    def size(self, classic: Callable[[], int]) -> int | None:
        """Returns the length of a string or array; None if it is null."""
        size = self.uvarint() - 1 if self.flexible else classic()
        if size < _NULL_LENGTH:
            raise self.fail(f"a length of {size}")
        return None if size == _NULL_LENGTH else size

    def tags(self) -> None:
        """Skip tagged fields; nearly always there are none."""
        if self.data[self.offset : self.offset + 1] == NO_TAGS:
            self.offset += 1
            return
        count = self.count_of_tags()
        if count > TAGS_MAX:
            raise self.fail(f"{count} tagged fields are announced, and at most {TAGS_MAX} are taken")
        self.elements.take(count)
        for _ in range(count):
            self.uvarint()
            self.take(self.uvarint())

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


BOOL: Final = Fixed("?", False)
INT8: Final = Fixed("b")
INT16: Final = Fixed("h")
INT32: Final = Fixed("i")
INT64: Final = Fixed("q")
FLOAT64: Final = Fixed("d", 0.0)
UUID: Final = Fixed("16s", ZERO_ID)
STRING: Final = Varying(_read_text, _write_text, "")
BYTES: Final = Varying(_read_bytes, _write_bytes, b"")


# -- a message ---------------------------------------------------------------------------------------------------------


class Message:
    """A request or response in all of its versions.

    Args:
        fields: the fields in their order.
        flexible: the first version with compact lengths and tagged fields.
        may_be_longer: whether bytes after the last field are ignored, as brokers do in every request.
    """

    def __init__(self, *fields: Field, flexible: int, may_be_longer: bool = False) -> None:
        self.fields = fields
        self.flexible = flexible
        self.may_be_longer = may_be_longer
        self._layouts: dict[int, _Layout] = {}

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible

    def read(self, data: bytes, version: int, *, elements: Elements | None = None, begin: int = 0) -> dict[str, Any]:
        """Returns one whole message, after its header.

        Raises:
            MalformedMessage: it is not of this version, bytes are left over, or it has too many elements.
        """
        return whole(self.reading(data, version, elements=elements or Elements(ELEMENTS_MAX), begin=begin))

    def reading(self, data: bytes, version: int, *, elements: Elements, begin: int = 0) -> Steps[dict[str, Any]]:
        """The same in steps of STEP elements."""
        reader = Reader(data, flexible=self.is_flexible(version), elements=elements, begin=begin)
        values = yield from self._layout(version).reading(reader)
        if not self.may_be_longer:
            reader.end()
        return values

    def write(self, values: Values, version: int) -> bytes:
        """Returns one encoded message, after its header; fields that the version does not have are omitted."""
        return whole(self.writing(values, version))

    def writing(self, values: Values, version: int) -> Steps[bytes]:
        """The same in steps of STEP elements."""
        parts: list[bytes] = []
        yield from self._layout(version).writing(parts, values)
        return b"".join(parts)

    def _layout(self, version: int) -> "_Layout":
        """Returns the layout of a version, which is created once."""
        if version not in self._layouts:
            self._layouts[version] = _Layout(self.fields, version, flexible=self.is_flexible(version))
        return self._layouts[version]


class _Layout:
    """A struct in one version: its fields, with adjacent fields of fixed size combined."""

    def __init__(self, fields: tuple[Field, ...], version: int, *, flexible: bool) -> None:
        there = [field for field in fields if field.since <= version <= field.until]
        self._flexible = flexible
        self._tagged = [field for field in there if field.tag is not None]
        plain = [field for field in there if field.tag is None]
        self._absent = {field.name: _default(field) for field in fields if field not in plain}
        self._steps: list[_Run | _One | _Many] = []
        for is_fixed, together in itertools.groupby(plain, lambda field: isinstance(field.kind, Fixed)):
            if is_fixed:
                self._steps.append(_Run(list(together)))
                continue
            for field in together:
                may_be_null = field.nullable is not None and version >= field.nullable
                many = isinstance(field.kind, Array)
                self._steps.append(
                    _Many(field, version, may_be_null, flexible) if many else _One(field, may_be_null, flexible)
                )
        # Never 0, so that the count of an array is bounded by the remaining bytes.
        self.size_min = sum(step.size_min for step in self._steps) + flexible
        # A struct without arrays is read and written in one step, and counted by the array that contains it.
        self.is_flat = not any(isinstance(step, _Many) for step in self._steps)

    def read(self, reader: Reader) -> dict[str, Any]:
        """A flat struct."""
        values = dict(self._absent)
        for step in self._steps:
            assert not isinstance(step, _Many)
            step.read(reader, values)
        if self._flexible:
            reader.tags()
        return values

    def reading(self, reader: Reader) -> Steps[dict[str, Any]]:
        values = dict(self._absent)
        for step in self._steps:
            if isinstance(step, _Many):
                yield from step.reading(reader, values)
            else:
                step.read(reader, values)
        if self._flexible:
            reader.tags()
        return values

    def read_many(self, reader: Reader, count: int) -> list[dict[str, Any]]:
        """Read `count` structs. Structs that have only fixed fields, and no tags, are read at once."""
        if len(self._steps) == 1 and isinstance(self._steps[0], _Run) and not self._absent:
            run, begin = self._steps[0], reader.offset
            rows = list(run.rows(reader, count, flexible=self._flexible))
            if not (self._flexible and any(row[-1] for row in rows)):
                return [dict(zip(run.names, row, strict=False)) for row in rows]
            reader.offset = begin
        return [self.read(reader) for _ in range(count)]

    def write(self, parts: list[bytes], values: Values) -> None:
        """A flat struct."""
        for step in self._steps:
            assert not isinstance(step, _Many)
            step.write(parts, values)
        if self._flexible:
            self._write_tags(parts, values)

    def writing(self, parts: list[bytes], values: Values) -> Steps[None]:
        for step in self._steps:
            if isinstance(step, _Many):
                yield from step.writing(parts, values)
            else:
                step.write(parts, values)
        if self._flexible:
            self._write_tags(parts, values)

    def _write_tags(self, parts: list[bytes], values: Values) -> None:
        """Tagged fields whose value was given, ascending; each is of one type of fixed size."""
        error_of = [field for field in self._tagged if field.name in values]
        parts.append(uvarint(len(error_of)) if error_of else NO_TAGS)
        for field in error_of:
            assert field.tag is not None
            content = struct.pack(f">{field.kind.code}", values[field.name])
            parts.append(uvarint(field.tag) + uvarint(len(content)) + content)


class _Run:
    """Adjacent fields of fixed size."""

    def __init__(self, fields: list[Field]) -> None:
        self._defaults = [(field.name, _default(field)) for field in fields]
        self.names = [field.name for field in fields]
        self._struct = struct.Struct(">" + "".join(field.kind.code for field in fields))
        self._tagged = struct.Struct(self._struct.format + "B")
        self.size_min = self._struct.size

    def rows(self, reader: Reader, count: int, *, flexible: bool) -> Iterator[tuple[Any, ...]]:
        """So many structs that consist of this alone; with how many tags each has, where the version is flexible."""
        packed = self._tagged if flexible else self._struct
        begin = reader.take(packed.size * count)
        return packed.iter_unpack(memoryview(reader.data)[begin : reader.offset])

    def read(self, reader: Reader, values: dict[str, Any]) -> None:
        begin = reader.take(self.size_min)
        values.update(zip(self.names, self._struct.unpack_from(reader.data, begin), strict=True))

    def write(self, parts: list[bytes], values: Values) -> None:
        parts.append(self._struct.pack(*[values.get(name, default) for name, default in self._defaults]))


class _One:
    """A field with a length prefix."""

    def __init__(self, field: Field, may_be_null: bool, flexible: bool) -> None:
        self._name = field.name
        self._kind: Varying = field.kind
        self._default = _default(field)
        self._may_be_null = may_be_null
        self._flexible = flexible
        self.size_min = self._kind.size_min

    def read(self, reader: Reader, values: dict[str, Any]) -> None:
        value = self._kind.read(reader)
        if value is None and not self._may_be_null:
            raise reader.fail(f"no {self._name} where there must be one")
        values[self._name] = value

    def write(self, parts: list[bytes], values: Values) -> None:
        parts.append(self._kind.write(values.get(self._name, self._default), self._flexible))


class _Many:
    """An array of structs, or of values of one type."""

    size_min = 1

    def __init__(self, field: Field, version: int, may_be_null: bool, flexible: bool) -> None:
        self._name = field.name
        self._default = _default(field)
        self._may_be_null = may_be_null
        self._flexible = flexible
        self._of = field.kind.of
        self._layout = _Layout(self._of, version, flexible=flexible) if type(self._of) is tuple else None

    def reading(self, reader: Reader, values: dict[str, Any]) -> Steps[None]:
        count = reader.size(reader.int32)
        if count is None:
            if not self._may_be_null:
                raise reader.fail(f"no {self._name} where there must be one")
            values[self._name] = None
            return
        size_min = self._of.size_min if self._layout is None else self._layout.size_min
        if count * size_min > len(reader.data) - reader.offset:
            raise reader.fail(f"{count} members are announced, {len(reader.data) - reader.offset} bytes are left")
        reader.elements.take(count // INTS_PER_ELEMENT if isinstance(self._of, Fixed) else count)
        members: list[Any] = []
        values[self._name] = members
        if self._layout is not None and not self._layout.is_flat:
            for _ in range(count):
                members.append((yield from self._layout.reading(reader)))
                if reader.is_step(1):
                    yield
            return
        weight = INTS_PER_ELEMENT if isinstance(self._of, Fixed) else 1
        for begin in range(0, count, STEP * weight):
            size = min(STEP * weight, count - begin)
            members += self._members(reader, size)
            if reader.is_step(-(-size // weight)):
                yield

    def _members(self, reader: Reader, count: int) -> list[Any]:
        if self._layout is not None:
            return self._layout.read_many(reader, count)
        if isinstance(self._of, Fixed):
            return list(
                struct.unpack_from(f">{count}{self._of.code}", reader.data, reader.take(self._of.size_min * count))
            )
        members = [self._of.read(reader) for _ in range(count)]
        if None in members:
            raise reader.fail(f"a null member of {self._name} where there must be none")
        return members

    def writing(self, parts: list[bytes], values: Values) -> Steps[None]:
        members = values.get(self._name, self._default)
        if members is None:
            parts.append(NULL if self._flexible else _INT32.pack(-1))
            return
        parts.append(uvarint(len(members) + 1) if self._flexible else _INT32.pack(len(members)))
        if isinstance(self._of, Fixed):
            parts.append(struct.pack(f">{len(members)}{self._of.code}", *members))
            return
        stepped = len(parts)
        for member in members:
            if self._layout is None:
                parts.append(self._of.write(member, self._flexible))
            elif self._layout.is_flat:
                self._layout.write(parts, member)
            else:
                yield from self._layout.writing(parts, member)
            if len(parts) - stepped >= STEP:
                # Joined now: a million small parts would take ten times the memory of the message.
                parts[stepped:] = (b"".join(parts[stepped:]),)
                stepped = len(parts)
                yield


def _default(field: Field) -> Any:
    if field.default is not None or field.nullable is not None:
        return field.default
    return [] if isinstance(field.kind, Array) else field.kind.default
