"""Bytes that know when they were damaged, and columns packed into them.

    frame   = magic, CRC-32 of all that follows, payload
    columns = length of the header, header (MessagePack), the columns one after another, little-endian

A column is stored in the narrowest integers that hold it, and not at all when it is the same throughout.
"""

import struct
import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

_MAGIC: Final = b"kcf1"  # the 1 is the version of this format
_HEAD: Final = struct.Struct("<4sI")
_LENGTH: Final = struct.Struct("<I")
_NARROW: Final = tuple(np.dtype(code) for code in ("<i1", "<i2", "<i4"))


class FrameDamagedError(ValueError):
    """The bytes are not what was written."""


def seal(payload: bytes) -> bytes:
    return _HEAD.pack(_MAGIC, zlib.crc32(payload)) + payload


def unseal(frame: object) -> memoryview:
    """What was sealed.

    Raises:
        FrameDamagedError: these are other bytes, or no bytes at all.
    """
    if not isinstance(frame, bytes) or len(frame) < _HEAD.size:
        raise FrameDamagedError("it is cut short")
    magic, checksum = _HEAD.unpack_from(frame)
    if magic != _MAGIC:
        raise FrameDamagedError(f"it begins with {magic.hex()} in place of {_MAGIC.hex()}")
    payload = memoryview(frame)[_HEAD.size :]
    if zlib.crc32(payload) != checksum:
        raise FrameDamagedError("its checksum does not match")
    return payload


class _Column(msgspec.Struct, frozen=True, array_like=True):
    name: str
    slots: int  # -1 for a column of one dimension
    code: str  # the numpy type; "" where every value is `value`
    value: int


class _Header(msgspec.Struct, frozen=True, array_like=True):
    """`kind` and `key` say what the frame is, so that one frame in the place of another is found out."""

    kind: str
    key: int
    rows: int
    columns: tuple[_Column, ...]


_DECODER: Final = msgspec.msgpack.Decoder(_Header)


def pack(kind: str, key: int, columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """A frame of some columns, each bool or int32, shaped [n] or [W, n]."""
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
    """What kind of columns a frame holds.

    Raises:
        FrameDamagedError: the frame is damaged.
    """
    try:
        return _header(unseal(frame))[0].kind
    except (struct.error, msgspec.DecodeError) as error:
        raise FrameDamagedError(str(error)) from error


def _header(payload: memoryview) -> tuple[_Header, int]:
    """The header, and where the columns begin."""
    (length,) = _LENGTH.unpack_from(payload)
    at = _LENGTH.size + length
    return _DECODER.decode(payload[_LENGTH.size : at]), at


def unpack(kind: str, key: int, frame: object) -> dict[str, npt.NDArray[np.int32]]:
    """The columns of a frame; bools come as integers.

    Raises:
        FrameDamagedError: the frame is damaged, or is another one than `kind` and `key` say.
    """
    payload = unseal(frame)
    try:
        header, at = _header(payload)
        if (header.kind, header.key) != (kind, key):
            raise FrameDamagedError(f"it is {header.kind} {header.key}")
        columns = {}
        for column in header.columns:
            shape = (header.rows,) if column.slots < 0 else (column.slots, header.rows)
            if column.code:
                flat = np.frombuffer(payload, column.code, int(np.prod(shape)), at)
                at += flat.nbytes
                columns[column.name] = flat.astype(np.int32).reshape(shape)
            else:
                columns[column.name] = np.full(shape, column.value, np.int32)
    except (struct.error, msgspec.DecodeError, ValueError, TypeError) as error:
        raise FrameDamagedError(str(error)) from error
    return columns


def _code(low: int, high: int) -> str:
    for narrow in _NARROW:
        limits = np.iinfo(narrow)
        if limits.min <= low and high <= limits.max:
            return narrow.str
    raise OverflowError(f"{low} to {high} does not fit a column of 32 bits")
