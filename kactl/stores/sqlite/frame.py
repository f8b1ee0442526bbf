"""Checksummed byte strings (frames), and columns packed into them.

    frame   = magic, CRC-32 of all that follows, payload
    columns = length of the header, header (MessagePack), the columns one after another, little-endian

A column is stored in the narrowest integer type that holds its values, and not at all if all values are equal.
"""

import math
import struct
import zlib
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

_MAGIC: Final = b"kcf1"  # 1 is the version of this format
_HEAD: Final = struct.Struct("<4sI")
_LENGTH: Final = struct.Struct("<I")
_NARROW: Final = tuple(np.dtype(code) for code in ("<i1", "<i2", "<i4"))
# numpy would take any text as a type, and evaluate parts of it.
_CODES: Final = frozenset(narrow.str for narrow in _NARROW)
# Values of one column. A header of some bytes can announce any number of equal values, which take memory when they are
# used; 2,000,000 partitions with 32 replicas each fit.
_VALUES_MAX: Final = 1 << 26


class FrameDamagedError(ValueError):
    """The bytes are not those that were written."""


def seal(payload: bytes) -> bytes:
    return _HEAD.pack(_MAGIC, zlib.crc32(payload)) + payload


def unseal(frame: object) -> memoryview:
    """Returns the payload of a frame.

    Raises:
        FrameDamagedError: the bytes are damaged, or not bytes at all.
    """
    if not isinstance(frame, bytes) or len(frame) < _HEAD.size:
        raise FrameDamagedError("it is cut short")
    magic, checksum = _HEAD.unpack_from(frame)
    if magic != _MAGIC:
        raise FrameDamagedError(f"it begins with {magic.hex()} instead of {_MAGIC.hex()}")
    payload = memoryview(frame)[_HEAD.size :]
    if zlib.crc32(payload) != checksum:
        raise FrameDamagedError("its checksum does not match")
    return payload


class _Column(msgspec.Struct, frozen=True, array_like=True):
    name: str
    slots: int  # -1 for a one-dimensional column
    code: str  # the numpy type; "" if every value is `value`
    value: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class _Header(msgspec.Struct, frozen=True, array_like=True):
    """`kind` and `key` identify the frame, so that a frame in the place of another one is detected."""

    kind: str
    key: int
    rows: int
    columns: tuple[_Column, ...]


_DECODER: Final = msgspec.msgpack.Decoder(_Header)


def pack(kind: str, key: int, columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Returns a frame of some columns, each bool or int32, shaped [n] or [W, n]."""
    described, bodies, rows = [], [], 0
    for name, column in columns.items():
        rows = column.shape[-1]
        slots = -1 if column.ndim == 1 else len(column)
        low, high = (int(column.min()), int(column.max())) if column.size else (0, 0)
        code = "" if low == high else _code(low, high)
        described.append(_Column(name, slots, code, low))
        if code:
            bodies.append(column.astype(code).tobytes())
    header = msgspec.msgpack.encode(_Header(kind, key, rows, tuple(described)))
    return seal(b"".join((_LENGTH.pack(len(header)), header, *bodies)))


def kind_of(frame: object) -> str:
    """Returns the kind of columns in a frame.

    Raises:
        FrameDamagedError: the frame is damaged.
    """
    try:
        return _header(unseal(frame))[0].kind
    except (struct.error, msgspec.DecodeError) as error:
        raise FrameDamagedError(str(error)) from error


def _header(payload: memoryview) -> tuple[_Header, int]:
    """Returns the header, and the offset of the columns."""
    (length,) = _LENGTH.unpack_from(payload)
    end = _LENGTH.size + length
    return _DECODER.decode(payload[_LENGTH.size : end]), end


def unpack(kind: str, key: int, frame: object) -> dict[str, npt.NDArray[np.int32]]:
    """Returns the columns of a frame; bools are returned as integers.

    A column whose values are all equal is a read-only view of one value: a frame of a few bytes may have many of them.

    Raises:
        FrameDamagedError: the frame is damaged, or has another `kind` or `key`.
    """
    payload = unseal(frame)
    try:
        header, offset = _header(payload)
        if (header.kind, header.key) != (kind, key):
            raise FrameDamagedError(f"it is {header.kind} {header.key}")
        columns = {}
        for column in header.columns:
            shape = (header.rows,) if column.slots < 0 else (column.slots, header.rows)
            count = math.prod(shape)
            if not 0 <= count <= _VALUES_MAX or (column.code and column.code not in _CODES):
                raise FrameDamagedError(f"its column {column.name} has {count} values of type {column.code!r}")
            if column.code:
                flat = np.frombuffer(payload, column.code, count, offset)
                offset += flat.nbytes
                columns[column.name] = flat.astype(np.int32).reshape(shape)
            else:
                columns[column.name] = np.broadcast_to(np.int32(column.value), shape)
    except (struct.error, msgspec.DecodeError, ValueError, TypeError, OverflowError) as error:
        raise FrameDamagedError(str(error)) from error
    return columns


def _code(low: int, high: int) -> str:
    for narrow in _NARROW:
        limits = np.iinfo(narrow)
        if limits.min <= low and high <= limits.max:
            return narrow.str
    raise OverflowError(f"{low} to {high} does not fit a column of 32 bits")
