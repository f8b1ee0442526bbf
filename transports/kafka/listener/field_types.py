"""Types of the fields of messages, and the reader of their values, in the classic and in the flexible form.

A type reads and writes one value; `schema` combines types into messages. The elements of a message are counted while it
is read (`Elements`), before anything is allocated.

Source: the protocol's primitive types.
"""

import struct
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from kactl.model import ZERO_ID
from kactl.model.errors import MalformedMessage
from kactl.transports.kafka.codec.primitive import NO_TAGS, NULL, uvarint
from kactl.transports.kafka.codec.primitive import Reader as CompactReader

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UUID_SIZE: Final = 16
_NULL_LENGTH: Final = -1
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
