"""Columns in MessagePack: little-endian bytes, with the number of bytes of one value.

A column is the array `[width, bytes]`, or nil. A receiver accepts every width up to that of its own type, so a later
version may send narrower columns. The number of rows is not part of a column: all columns of a message have as many
rows as its column of partitions, and one that is not a multiple of it is malformed.
"""

import struct
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from kactl.model.errors import MalformedMessage

Buffer = bytes | memoryview
Array = npt.NDArray[Any]
NIL: Final = b"\xc0"
# An array of two members, and a byte string of up to 4 GiB.
_COLUMN: Final = struct.Struct(">BBBI")
_ARRAY_OF_TWO, _BYTES = 0x92, 0xC6


class Column(msgspec.Struct, frozen=True, array_like=True):
    """A column as it arrived; `data` is a view of the message."""

    width: int
    data: memoryview


def pieces(column: Array | None, dtype: str) -> list[Buffer]:
    """Returns the encoded column as buffers to join.

    Args:
        dtype: of the values: `<i4`, `<i8`, `<i2` or `?`.
    """
    if column is None:
        return [NIL]
    flat = np.ascontiguousarray(column, np.dtype(dtype)).reshape(-1)
    head = _COLUMN.pack(_ARRAY_OF_TWO, flat.itemsize, _BYTES, flat.nbytes)
    return [head, flat.view(np.uint8).data]


def rows(column: Column, dtype: str) -> Array:
    """Returns the values of a column that determines the number of rows. The array is read-only.

    Raises:
        MalformedMessage: the width is not one of integers of at most the type's size, or the bytes are no multiple.
    """
    wanted = np.dtype(dtype)
    if wanted.kind == "b":
        if column.width != 1:
            raise MalformedMessage(f"a column of booleans has {column.width} bytes per value: it needs 1")
        is_set: Array = np.frombuffer(column.data, np.uint8) != 0
        is_set.flags.writeable = False
        return is_set
    if column.width not in (1, 2, 4, 8) or column.width > wanted.itemsize:
        raise MalformedMessage(f"a column has {column.width} bytes per value: at most {wanted.itemsize} are accepted")
    if len(column.data) % column.width:
        raise MalformedMessage(f"a column of {len(column.data)} bytes has no whole number of values")
    values: Array = np.frombuffer(column.data, f"<i{column.width}")
    return values if column.width == wanted.itemsize else values.astype(wanted)


def values(column: Column, count: int, dtype: str) -> Array:
    """Returns a column with one value per row.

    Raises:
        MalformedMessage: see `rows`; or the number of rows differs from `count`.
    """
    found = rows(column, dtype)
    if len(found) != count:
        raise MalformedMessage(f"a column has {len(found)} rows in a message of {count}")
    return found


def slots(column: Column | None, count: int, dtype: str) -> Array | None:
    """Returns a column with several values per row, of the shape [W, count]; None if there is none.

    Raises:
        MalformedMessage: see `rows`; or the number of values is no multiple of `count`.
    """
    if column is None:
        return None
    found = rows(column, dtype)
    width, rest = divmod(len(found), count) if count else (0, len(found))
    if rest:
        raise MalformedMessage(f"a column has {len(found)} values, no multiple of the {count} rows of its message")
    return found.reshape(width, count)
