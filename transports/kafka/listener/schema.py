"""Messages as tables of fields, from which the code that reads and writes each version is generated.

Values are plain: a message is a dict by the protocol's names, an array a list, a null value None, an id 16 bytes. A
field that a version does not have is not written, and is read as its default, so that handlers do not depend on the
version.

Each version of a message has one function that reads it and one that writes it, compiled at the first use. They have
a loop for each array and no call for a field, which takes a third of the time of a walk through the table. They are
generators that yield after each STEP elements, so that the event loop runs other tasks in between. CreateTopics 5
begins like this:

    v1 = data[o]                                    # the length of `topics`, plus 1
    o += 1
    if v1 > 127: v1, o = uvarint_at(data, o - 1)
    v1 -= 1
    if v1 < 0: raise missing(data, o, v1, 'topics')
    if v1 * 9 > size - o: raise short(data, o, v1, 'members')
    take(v1)
    v2 = []
    for _ in range(v1):
        left -= 1
        if not left: left = STEP; yield
        ...

Requests come from peers that are not authenticated. An array's count is checked against the bytes that are left and
against the number of elements that the request may have (`Elements`) before anything is allocated; tagged fields are
skipped; every error is a MalformedMessage.

Source: the protocol's primitive types, in their classic and their flexible form.
"""

import itertools
import linecache
import struct
from collections.abc import Callable
from typing import Any, Final

from kactl.transports.kafka.codec.primitive import uvarint

from . import field_types
from .field_types import ELEMENTS_MAX, INTS_PER_ELEMENT, Array, Elements, Field, Fixed, Steps, Values, whole

# Arrays of fewer numbers, such as lists of replicas, have prepared formats and count as no element.
_FEW: Final = INTS_PER_ELEMENT
_INDENT: Final = "    "
_CALLED: Final[dict[str, Any]] = {
    name: getattr(field_types, name)
    for name in ("STEP", "failed", "missing", "short", "uvarint_at", "tags_end", "numbers")
} | {"uvarint": uvarint, "pack": struct.pack, "struct_error": struct.error}


class Message:
    """A request or response in all of its versions.

    Args:
        fields: the fields in their order.
        flexible: the first version with compact lengths and tagged fields.
    """

    def __init__(self, *fields: Field, flexible: int) -> None:
        self.fields = fields
        self.flexible = flexible
        self._readers: dict[int, Callable[[bytes, int, Elements], Steps[dict[str, Any]]]] = {}
        self._writers: dict[int, Callable[[Values], Steps[bytes]]] = {}

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
        # librdkafka (2.16.0) writes a null list of topics of Metadata as four bytes in place of one.
        if version not in self._readers:
            self._readers[version] = _ReaderCode(version, self.is_flexible(version)).function(self.fields)
        return self._readers[version](data, begin, elements)

    def write(self, values: Values, version: int) -> bytes:
        """Returns one encoded message, after its header; fields that the version does not have are omitted."""
        return whole(self.writing(values, version))

    def writing(self, values: Values, version: int) -> Steps[bytes]:
        """The same in steps of STEP elements."""
        if version not in self._writers:
            self._writers[version] = _WriterCode(version, self.is_flexible(version)).function(self.fields)
        return self._writers[version](values)


class _Code:
    """The source of one function, line by line, and the names that it uses."""

    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._lines: list[str] = []
        self._depth = 1
        self._names = dict(_CALLED)
        self._number = itertools.count(1)

    def _add(self, *lines: str) -> None:
        self._lines += [self._depth * _INDENT + line for line in lines]

    def _new(self) -> str:
        return f"v{next(self._number)}"

    def _named(self, value: Any, kind: str) -> str:
        name = f"{kind}{next(self._number)}"
        self._names[name] = value
        return name

    def _has(self, field: Field) -> bool:
        return field.since <= self._version <= field.until

    def _may_be_null(self, field: Field) -> bool:
        return field.nullable is not None and self._version >= field.nullable

    def _step(self) -> None:
        """Count an element, at the begin of the body of a loop."""
        self._add("left -= 1", "if not left:", f"{_INDENT}left = STEP", f"{_INDENT}yield")

    def _compiled(self, head: str) -> Any:
        source = "\n".join([head, *self._lines, ""])
        # In the folder of this module, for tools that measure which lines run.
        file = f"{__file__}:{id(self._lines):x}"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(compile(source, file, "exec"), self._names)  # noqa: S102
        return self._names["function"]


class _ReaderCode(_Code):
    """The source of a function that reads one version of a message.

    Its variables are the data, the offset `o` in it, and a new one for each value. Adjacent fields of fixed size are
    read together, with the prefix of what follows them.
    """

    def function(self, fields: tuple[Field, ...]) -> Any:
        self._depth = 2
        result = self._struct(fields)
        self._add(f"return {result}", "yield")  # without an array there is no other yield
        self._depth = 1
        self._add(
            "except (struct_error, IndexError):",
            f"{_INDENT}raise failed(data, o, 'a field that is not whole') from None",
        )
        self._add(
            "except UnicodeDecodeError:", f"{_INDENT}raise failed(data, o, 'a string that is not UTF-8') from None"
        )
        head = "def function(data, o, elements):"
        self._lines[:0] = [
            _INDENT + line for line in ("size = len(data)", "left = STEP", "take = elements.take", "try:")
        ]
        return self._compiled(head)

    def _struct(self, fields: tuple[Field, ...]) -> str:
        """Add the lines that read a struct. Returns the expression of its value."""
        values = {field.name: repr(_default(field)) for field in fields}
        run: list[tuple[str, str]] = []
        for field in filter(self._has, fields):
            values[field.name] = variable = self._new()
            if isinstance(field.kind, Fixed):
                run.append((variable, field.kind.code))
            else:
                size = self._prefix(run, "i" if isinstance(field.kind, Array) else field.kind.prefix)
                run = []
                self._varying(field.kind, variable, size, field.name, self._may_be_null(field))
        if self._flexible:
            tags = self._new()
            self._run([*run, (tags, "B")])
            self._add(f"if {tags}:", f"{_INDENT}o = tags_end(data, o - 1, elements)")
        else:
            self._run(run)
        return f"{{{', '.join(f'{name!r}: {value}' for name, value in values.items())}}}"

    def _run(self, run: list[tuple[str, str]]) -> None:
        """Read adjacent values of fixed size: their variables and types."""
        if not run:
            return
        if len(run) == 1 and run[0][1] == "B":
            self._add(f"{run[0][0]} = data[o]", "o += 1")
            return
        packed = struct.Struct(">" + "".join(code for _, code in run))
        self._add(
            f"{', '.join(variable for variable, _ in run)}, = {self._named(packed.unpack_from, 'run')}(data, o)",
            f"o += {packed.size}",
        )

    def _prefix(self, run: list[tuple[str, str]], classic: str) -> str:
        """Read a length after a run. Returns its variable; the length is -1 for null."""
        size = self._new()
        self._run([*run, (size, "B" if self._flexible else classic)])
        if self._flexible:
            self._add(f"if {size} > 127:", f"{_INDENT}{size}, o = uvarint_at(data, o - 1)", f"{size} -= 1")
        return size

    def _varying(self, kind: Any, variable: str, size: str, name: str, may_be_null: bool) -> None:
        self._add(f"if {size} < {-1 if may_be_null else 0}:", f"{_INDENT}raise missing(data, o, {size}, {name!r})")
        if may_be_null:
            self._add(f"if {size} < 0:", f"{_INDENT}{variable} = None", "else:")
            self._depth += 1
        if isinstance(kind, Array):
            self._array(kind.of, variable, size, name)
        else:
            end, decoded = self._new(), ".decode()" if kind.default == "" else ""
            self._add(f"{end} = o + {size}", f"if {end} > size:", f"{_INDENT}raise short(data, o, {size})")
            self._add(f"{variable} = data[o:{end}]{decoded}", f"o = {end}")
        if may_be_null:
            self._depth -= 1

    def _array(self, of: Any, variable: str, count: str, name: str) -> None:
        least = self._size_min(of)
        self._add(f"if {count} * {least} > size - o:", f"{_INDENT}raise short(data, o, {count}, 'members')")
        if isinstance(of, Fixed):
            few = self._named([struct.Struct(f">{n}{of.code}").unpack_from for n in range(_FEW)], "few")
            many = f"numbers(data, o, {count}, {self._named(of, 'kind')})"
            self._add(f"if {count} < {_FEW}:", f"{_INDENT}{variable} = list({few}[{count}](data, o))", "else:")
            self._add(f"{_INDENT}take({count} // {INTS_PER_ELEMENT})", f"{_INDENT}{variable} = yield from {many}")
            self._add(f"o += {count} * {of.size}")
            return
        self._add(f"take({count})", f"{variable} = []", f"for _ in range({count}):")
        self._depth += 1
        self._step()
        if type(of) is tuple:
            member = self._struct(of)
        else:
            member = self._new()
            self._varying(of, member, self._prefix([], of.prefix), f"member of {name}", may_be_null=False)
        self._add(f"{variable}.append({member})")
        self._depth -= 1

    def _size_min(self, of: Any) -> int:
        """Returns the size of the smallest value; never 0, so that a count is bounded by the bytes that are left."""
        if isinstance(of, Fixed):
            return of.size
        if type(of) is not tuple:
            return 1
        sizes = [self._size_min(field.kind) for field in of if self._has(field)]
        return sum(sizes) + self._flexible


class _WriterCode(_Code):
    """The source of a function that writes one version of a message to a bytearray.

    Adjacent fields of fixed size are written together; in the classic form with the prefix of what follows them, in
    the flexible one with the byte that ends a struct without tagged fields.
    """

    def function(self, fields: tuple[Field, ...]) -> Any:
        self._add("out = bytearray()", "append = out.append", "left = STEP")
        self._struct(fields, "values")
        self._add("return bytes(out)", "yield")  # without an array there is no other yield
        return self._compiled("def function(values):")

    def _struct(self, fields: tuple[Field, ...], values: str) -> None:
        get = self._new()
        self._add(f"{get} = {values}.get")
        run: list[tuple[str, str]] = []
        for field in filter(self._has, fields):
            value = f"{get}({field.name!r}, {_default(field)!r})"
            if isinstance(field.kind, Fixed):
                run.append((value, field.kind.code))
            else:
                self._varying(field.kind, value, run, may_be_null=field.nullable is not None)
                run = []
        self._run([*run, ("", "x")] if self._flexible else run)

    def _run(self, run: list[tuple[str, str]]) -> None:
        """Write adjacent values of fixed size: their expressions and types; `x` is a zero without a value."""
        if run == [("", "x")]:
            self._add("append(0)")
        elif run:
            packed = struct.Struct(">" + "".join(code for _, code in run))
            written = ", ".join(value for value, code in run if code != "x")
            self._add(f"out += {self._named(packed.pack, 'run')}({written})")

    def _prefix(self, size: str, run: list[tuple[str, str]], classic: str) -> None:
        if not self._flexible:
            self._run([*run, (size, classic)])
            return
        self._run(run)
        self._add(f"if {size} < 127:", f"{_INDENT}append({size} + 1)", "else:", f"{_INDENT}out += uvarint({size} + 1)")

    def _varying(self, kind: Any, value: str, run: list[tuple[str, str]], may_be_null: bool) -> None:
        """Write a value with a length prefix, after a run."""
        variable = self._new()
        self._add(f"{variable} = {value}")
        classic = "i" if isinstance(kind, Array) else kind.prefix
        if may_be_null:
            self._add(f"if {variable} is None:")
            self._depth += 1
            self._prefix("-1", run, classic)
            self._depth -= 1
            self._add("else:")
            self._depth += 1
        if isinstance(kind, Array):
            self._prefix(f"len({variable})", run, classic)
            self._members(kind.of, variable)
        else:
            if kind.default == "":
                self._add(f"{variable} = {variable}.encode()")
            self._prefix(f"len({variable})", run, classic)
            self._add(f"out += {variable}")
        if may_be_null:
            self._depth -= 1

    def _members(self, of: Any, variable: str) -> None:
        if isinstance(of, Fixed):
            few = self._named([struct.Struct(f">{n}{of.code}").pack for n in range(_FEW)], "few")
            self._add(f"if len({variable}) < {_FEW}:", f"{_INDENT}out += {few}[len({variable})](*{variable})", "else:")
            self._add(f"{_INDENT}out += pack(f'>{{len({variable})}}{of.code}', *{variable})")
            return
        member = self._new()
        self._add(f"for {member} in {variable}:")
        self._depth += 1
        self._step()
        if type(of) is tuple:
            self._struct(of, member)
        else:
            self._varying(of, member, [], may_be_null=False)
        self._depth -= 1


def _default(field: Field) -> Any:
    if field.default is not None or field.nullable is not None:
        return field.default
    return [] if isinstance(field.kind, Array) else field.kind.default
