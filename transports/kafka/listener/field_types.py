"""Types of the fields of messages, and what the code that `schema` generates from them calls.

The elements of a message are counted while it is read (`Elements`), before anything is allocated.

Source: the protocol's primitive types, in their classic and in their flexible form.
"""

import struct
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from kactl.model import ZERO_ID
from kactl.model.errors import MalformedMessage
from kactl.transports.kafka.codec.primitive import UVARINT_SIZE_MAX

# No message of the protocol has more than ten tagged fields in one struct; each of them costs as much as a struct.
TAGS_MAX: Final = 64
# Limit of a message that is read without its own limit: responses, and messages of tests.
ELEMENTS_MAX: Final = 1_000_000
# A step reads or writes about this many elements, at 0.5 to 5 microseconds each.
STEP: Final = 256
# Integers of an array are small compared with structs and strings: this many count as one element, fewer as none.
INTS_PER_ELEMENT: Final = 8

_CLIENT_ID: Final = struct.Struct(">h")

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
    def size(self) -> int:
        return struct.calcsize(f">{self.code}")


class Varying(NamedTuple):
    """A type with a length prefix, of the type `prefix` in the classic form, and a varint in the flexible one."""

    prefix: str
    default: str | bytes


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
    """

    name: str
    kind: Any
    since: int = 0
    until: int = 99
    nullable: int | None = None
    default: Any = None


BOOL: Final = Fixed("?", False)
INT8: Final = Fixed("b")
INT16: Final = Fixed("h")
INT32: Final = Fixed("i")
INT64: Final = Fixed("q")
FLOAT64: Final = Fixed("d", 0.0)
UUID: Final = Fixed("16s", ZERO_ID)
STRING: Final = Varying("h", "")
BYTES: Final = Varying("i", b"")


# -- parts of reading that are rare, or too long to be repeated --------------------------------------------------------


def failed(data: bytes, offset: int, reason: str) -> MalformedMessage:
    return MalformedMessage(f"byte {offset} of {len(data)}: {reason}")


def missing(data: bytes, offset: int, size: int, name: str) -> MalformedMessage:
    """Returns the error of a negative length: a null value that may not be one, or no length at all."""
    return failed(data, offset, f"no {name} where there must be one" if size == -1 else f"a length of {size}")


def short(data: bytes, offset: int, size: int, what: str = "bytes") -> MalformedMessage:
    return failed(data, offset, f"{size} {what} are announced, {len(data) - offset} bytes are left")


def uvarint_at(data: bytes, offset: int) -> tuple[int, int]:
    """Returns an unsigned varint, and where it ends. Raises IndexError beyond the end of the data."""
    value = 0
    for place in range(UVARINT_SIZE_MAX):
        byte = data[offset + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, offset + place + 1
    raise failed(data, offset, f"a varint of more than {UVARINT_SIZE_MAX} bytes")


def tags_end(data: bytes, offset: int, elements: Elements) -> int:
    """Returns where the tagged fields end that begin here. Their contents are not read."""
    count, offset = uvarint_at(data, offset)
    if count * 2 > len(data) - offset:  # a tag and a size take a byte each
        raise short(data, offset, count, "tagged fields")
    if count > TAGS_MAX:
        raise failed(data, offset, f"{count} tagged fields are announced, and at most {TAGS_MAX} are taken")
    elements.take(count)
    for _ in range(count):
        _, offset = uvarint_at(data, offset)
        size, offset = uvarint_at(data, offset)
        if size > len(data) - offset:
            raise short(data, offset, size)
        offset += size
    return offset


def numbers(data: bytes, offset: int, count: int, kind: Fixed) -> Steps[list[Any]]:
    """Read an array of numbers, which the data has."""
    members: list[Any] = []
    for begin in range(0, count, STEP * INTS_PER_ELEMENT):
        size = min(STEP * INTS_PER_ELEMENT, count - begin)
        members += struct.unpack_from(f">{size}{kind.code}", data, offset + begin * kind.size)
        yield
    return members


def body_begin(content: bytes, elements: Elements, *, has_client_id: bool = True, has_tags: bool) -> int:
    """Returns where the body of a request begins, after the rest of its header.

    Raises:
        MalformedMessage: the header is not whole.
    """
    if not has_client_id:
        return 0
    try:
        (size,) = _CLIENT_ID.unpack_from(content)
        if size < -1:
            raise missing(content, 0, size, "client id")
        offset = _CLIENT_ID.size + max(size, 0)  # always in the classic form
        if offset > len(content):
            raise short(content, _CLIENT_ID.size, size)
        return tags_end(content, offset, elements) if has_tags else offset
    except (struct.error, IndexError):
        raise failed(content, 0, "the header is not whole") from None
