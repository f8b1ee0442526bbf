"""The protocol's primitives: unsigned varints, compact strings and arrays, tagged fields. All numbers are big-endian.

Functions that return bytes write them; a `Reader` reads and validates them.
"""

import struct
from typing import Final

from kactl.model.errors import MalformedMessage

NO_TAGS: Final = b"\0"
NULL: Final = b"\0"
EMPTY_ARRAY: Final = b"\1"

UVARINT_SIZE_MAX: Final = 5  # 32 bits, seven to a byte

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def uvarint(value: int) -> bytes:
    """Returns an unsigned varint: seven bits per byte, the lowest first; the high bit is set if more bytes follow."""
    if value < 0x80:
        return _ONE_BYTE[value]
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def string(text: str) -> bytes:
    """Returns a compact string: its UTF-8 length plus one, then the bytes."""
    content = text.encode()
    return uvarint(len(content) + 1) + content


def nullable_string(text: str | None) -> bytes:
    return NULL if text is None else string(text)


def array(members: list[bytes]) -> bytes:
    """Returns a compact array of encoded members."""
    return uvarint(len(members) + 1) + b"".join(members)


class Reader:
    """Reads a message from its beginning.

    Every read beyond the end raises MalformedMessage. No allocation is larger than the message itself.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0

    def fail(self, reason: str) -> MalformedMessage:
        return MalformedMessage(f"byte {self.offset} of {len(self.data)}: {reason}")

    def take(self, size: int) -> int:
        """Skip `size` bytes. Returns the position at which they begin."""
        begin = self.offset
        if size > len(self.data) - begin:
            raise self.fail(f"{size} bytes are announced, {len(self.data) - begin} are left")
        self.offset = begin + size
        return begin

    def int16(self) -> int:
        return int(_INT16.unpack_from(self.data, self.take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack_from(self.data, self.take(4))[0])

    def bytes(self, size: int) -> bytes:
        begin = self.take(size)
        return self.data[begin : begin + size]

    def uvarint(self) -> int:
        value = 0
        for place in range(UVARINT_SIZE_MAX):
            byte = self.data[self.take(1)]
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value
        raise self.fail(f"a varint of more than {UVARINT_SIZE_MAX} bytes")

    def string(self) -> str:
        size = self.uvarint()
        if not size:
            raise self.fail("no string where there must be one")
        content = self.bytes(size - 1)
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise self.fail("a string that is not UTF-8") from error

    def count(self, *, size_min: int) -> int:
        """Returns the number of members of an array. `size_min` is the minimal size of a member in bytes."""
        count = self.uvarint() - 1
        if count < 0:
            raise self.fail("no array where there must be one")
        if count * size_min > len(self.data) - self.offset:
            raise self.fail(f"{count} members are announced, {len(self.data) - self.offset} bytes are left")
        return count

    def tags(self) -> None:
        """Skip tagged fields: no response has a known one."""
        for _ in range(self.count_of_tags()):
            self.uvarint()
            self.take(self.uvarint())

    def count_of_tags(self) -> int:
        count = self.uvarint()
        if count * 2 > len(self.data) - self.offset:  # a tag and a size take a byte each
            raise self.fail(f"{count} tagged fields are announced, {len(self.data) - self.offset} bytes are left")
        return count

    def end(self) -> None:
        if self.offset != len(self.data):
            raise self.fail(f"{len(self.data) - self.offset} bytes are left over")
