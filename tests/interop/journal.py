"""All writes to a ZooKeeper server, in order, from its transaction log.

The current value of a node can be read, but proving that a value was *never* stored, or never written by some session,
needs every write. The server's log contains them, and it is forced to disk before each response.

Layout of a log file, all numbers big-endian: `ZKLG`, int32 version, int64 database; then for each transaction int64
checksum, int32 length, that many bytes, and a `B`. A length of 0 marks the end of the written part. The bytes are int64
session, int32 number within the session, int64 zxid, int64 time in ms, int32 type, and the fields of the type.

Source: the classes FileTxnLog and TxnHeader of ZooKeeper 3.8, and its zookeeper.jute.
"""

import struct
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

_FILE_HEADER: Final = struct.Struct(">4siq")
_ENTRY: Final = struct.Struct(">qi")
_HEADER: Final = struct.Struct(">qiqqi")
_INT: Final = struct.Struct(">i")
_MAGIC: Final = b"ZKLG"


class Kind(Enum):
    """Kind of a transaction."""

    CREATE = "create"
    DELETE = "delete"
    SET = "set"
    END_SESSION = "end of session"


class Written(NamedTuple):
    """One write.

    Attributes:
        zxid: position in the order of all writes; the writes of one multi share it.
        at_ms: the server's wall clock.
        session: the writing session; for an end of session, the ended one.
        path: with chroot; empty for an end of session.
        data: None if there is none, which differs from empty data.
        ephemeral: whether a created node is removed with the session.
    """

    zxid: int
    at_ms: int
    session: int
    kind: Kind
    path: str = ""
    data: bytes | None = None
    ephemeral: bool = False


class Torn(Exception):
    """The log has an unknown format."""


def read(folder: Path) -> list[Written]:
    """Return all writes so far, in order; the server may be writing at the same time.

    Args:
        folder: `dataDir` of the server.

    Raises:
        Torn: the log has an unknown format.
    """
    files = sorted((folder / "version-2").glob("log.*"), key=lambda path: int(path.suffix[1:], 16))
    return [write for path in files for write in _read_file(path.read_bytes(), path.name)]


def _read_file(data: bytes, name: str) -> Iterator[Written]:
    if len(data) < _FILE_HEADER.size:
        return  # newly created
    if _FILE_HEADER.unpack_from(data)[0] != _MAGIC:
        raise Torn(f"{name} is no log of transactions")
    offset = _FILE_HEADER.size
    while offset + _ENTRY.size <= len(data):
        _, length = _ENTRY.unpack_from(data, offset)
        offset += _ENTRY.size
        if length <= 0 or data[offset + length : offset + length + 1] != b"B":
            return  # not written yet, or incomplete
        yield from _read_transaction(data[offset : offset + length])
        offset += length + 1


def _read_transaction(data: bytes) -> Iterator[Written]:
    session, _, zxid, at_ms, kind = _HEADER.unpack_from(data)
    yield from _read_body(Written(zxid, at_ms, session, Kind.SET), kind, _Cursor(data, _HEADER.size))


def _read_body(blank: Written, kind: int, cursor: "_Cursor") -> Iterator[Written]:
    match kind:
        case 1 | 15 | 19 | 21:  # create; with a stat in the response; a container; with a time to live
            path, content = cursor.text(), cursor.buffer()
            for _ in range(cursor.int32()):  # the ACL
                cursor.int32(), cursor.text(), cursor.text()
            ephemeral = kind in (1, 15) and cursor.byte() != 0
            yield blank._replace(kind=Kind.CREATE, path=path, data=content, ephemeral=ephemeral)
        case 2 | 20:  # delete; of an empty container
            yield blank._replace(kind=Kind.DELETE, path=cursor.text())
        case 5:
            yield blank._replace(kind=Kind.SET, path=cursor.text(), data=cursor.buffer())
        case 14:
            members = [(cursor.int32(), cursor.buffer()) for _ in range(cursor.int32())]
            if all(inner != -1 for inner, _ in members):  # a rejected member rejects those before it too
                for inner, body in members:
                    yield from _read_body(blank, inner, _Cursor(body or b""))
        case -11:
            yield blank._replace(kind=Kind.END_SESSION)
        case -1 | -10 | 7 | 13:  # rejection, new session, ACL, check: nothing is written
            return
        case _:
            raise Torn(f"transaction {blank.zxid:#x} is of the unknown type {kind}")


class _Cursor:
    """Reader of consecutive values from bytes."""

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self._data = data
        self._at = offset

    def int32(self) -> int:
        (value,) = _INT.unpack_from(self._data, self._at)
        self._at += _INT.size
        return int(value)

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def buffer(self) -> bytes | None:
        length = self.int32()
        if length < 0:
            return None
        self._at += length
        return self._data[self._at - length : self._at]

    def text(self) -> str:
        return (self.buffer() or b"").decode()
