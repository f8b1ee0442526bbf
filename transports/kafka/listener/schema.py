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
from collections.abc import Iterator
from typing import Any, Final

from kactl.transports.kafka.codec.primitive import NO_TAGS, NULL, uvarint

from .field_types import ELEMENTS_MAX, STEP, Array, Elements, Field, Fixed, Reader, Steps, Values, Varying, whole

_INT32: Final = struct.Struct(">i")
# Integers of an array are small compared with structs and strings: this many count as one element, fewer as none.
INTS_PER_ELEMENT: Final = 8


class Message:
    """A request or response in all of its versions.

    Args:
        fields: the fields in their order.
        flexible: the first version with compact lengths and tagged fields.
    """

    def __init__(self, *fields: Field, flexible: int) -> None:
        self.fields = fields
        self.flexible = flexible
        self._layouts: dict[int, _Layout] = {}

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible

    def read(self, data: bytes, version: int, *, elements: Elements | None = None, begin: int = 0) -> dict[str, Any]:
        """Returns one whole message, after its header. Bytes after its last field are ignored, as brokers do.

        Raises:
            MalformedMessage: it is not of this version, or it has too many elements.
        """
        return whole(self.reading(data, version, elements=elements or Elements(ELEMENTS_MAX), begin=begin))

    def reading(self, data: bytes, version: int, *, elements: Elements, begin: int = 0) -> Steps[dict[str, Any]]:
        """The same in steps of STEP elements."""
        reader = Reader(data, flexible=self.is_flexible(version), elements=elements, begin=begin)
        # librdkafka (2.16.0) writes a null list of topics of Metadata as four bytes in place of one.
        return (yield from self._layout(version).reading(reader))

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
