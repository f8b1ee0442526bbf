"""Server's side of ZooKeeper's wire format: decoding of requests, encoding of responses. Frames have no length here.

Source: zookeeper.jute, MultiOperationRecord, MultiResponse.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from .codes import EVENT_XID, Code, Event, Op

_INT: Final = struct.Struct("!i")
_LONG: Final = struct.Struct("!q")
_HEADER: Final = struct.Struct("!ii")
_MULTI: Final = struct.Struct("!i?i")
_REPLY: Final = struct.Struct("!iqi")
_CONNECT: Final = struct.Struct("!iqiq")
_GRANTED: Final = struct.Struct("!iiq")
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_CONNECTED: Final = 3
_MULTI_END: Final = _MULTI.pack(-1, True, -1)


class Undecodable(Exception):
    """Data that is no request."""


class Acl(NamedTuple):
    """One entry of an access list."""

    perms: int
    scheme: str
    id: str


class Greeting(NamedTuple):
    """First message of a client. A session of 0 requests a new one."""

    zxid: int
    timeout_ms: int
    session: int
    password: bytes


class Request(NamedTuple):
    """A decoded request; fields that its kind does not have are empty.

    Attributes:
        mode: flags of a create, mode of an added watch, kind of the watches to remove.
        parts: the operations of a multi.
        paths: of set-watches: data, existence and children.
    """

    op: Op
    path: str = ""
    data: bytes | None = None
    acl: tuple[Acl, ...] | None = None
    mode: int = 0
    version: int = -1
    watch: bool = False
    parts: "tuple[Request, ...]" = ()
    zxid: int = 0
    paths: tuple[tuple[str, ...], ...] = ()
    scheme: str = ""


class Stat(NamedTuple):
    """Metadata of a node, in the order of the wire."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    owner: int
    size: int
    children: int
    pzxid: int


class _Reader:
    """Cursor in a frame."""

    def __init__(self, frame: bytes, at: int = 0) -> None:
        self._frame = frame
        self._at = at

    def unpack(self, shape: struct.Struct) -> tuple[Any, ...]:
        values = shape.unpack_from(self._frame, self._at)
        self._at += shape.size
        return values

    def int32(self) -> int:
        (value,) = self.unpack(_INT)
        return int(value)

    def int64(self) -> int:
        (value,) = self.unpack(_LONG)
        return int(value)

    def flag(self) -> bool:
        self._at += 1
        return self._frame[self._at - 1] != 0

    def buffer(self) -> bytes | None:
        length = self.int32()
        if length < 0:
            return None
        if self._at + length > len(self._frame):
            raise Undecodable(f"a buffer of {length} bytes")
        self._at += length
        return self._frame[self._at - length : self._at]

    def text(self) -> str:
        data = self.buffer()
        if data is None:
            raise Undecodable("a text that is null")
        return data.decode()

    def texts(self) -> tuple[str, ...]:
        return tuple(self.text() for _ in range(self.int32()))

    def acl(self) -> tuple[Acl, ...] | None:
        count = self.int32()
        return None if count < 0 else tuple(self._entry() for _ in range(count))

    def _entry(self) -> Acl:
        return Acl(self.int32(), self.text(), (self.buffer() or b"").decode())


def greeting(frame: bytes) -> Greeting:
    """Returns the decoded first message of a connection."""
    reader = _Reader(frame)
    _, zxid, timeout_ms, session = reader.unpack(_CONNECT)
    return Greeting(zxid, timeout_ms, session, reader.buffer() or b"")


def header(frame: bytes) -> tuple[int, int]:
    """Returns the number and the kind of a request."""
    xid, kind = _HEADER.unpack_from(frame)
    return xid, kind


def request(op: Op, frame: bytes) -> Request:
    """Returns the decoded request of a frame.

    Raises:
        Undecodable: the frame is no such request.
    """
    try:
        return _request(op, _Reader(frame, _HEADER.size))
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise Undecodable(str(error)) from None


def _request(op: Op, body: _Reader) -> Request:
    match op:
        case Op.CREATE | Op.CREATE_2:
            return Request(op, body.text(), data=body.buffer(), acl=body.acl(), mode=body.int32())
        case Op.DELETE | Op.CHECK:
            return Request(op, body.text(), version=body.int32())
        case Op.SET_DATA:
            return Request(op, body.text(), data=body.buffer(), version=body.int32())
        case Op.SET_ACL:
            return Request(op, body.text(), acl=body.acl(), version=body.int32())
        case Op.EXISTS | Op.GET_DATA | Op.CHILDREN | Op.CHILDREN_2:
            return Request(op, body.text(), watch=body.flag())
        case Op.GET_ACL | Op.SYNC:
            return Request(op, body.text())
        case Op.ADD_WATCH | Op.REMOVE_WATCHES:
            return Request(op, body.text(), mode=body.int32())
        case Op.SET_WATCHES:
            return Request(op, zxid=body.int64(), paths=(body.texts(), body.texts(), body.texts()))
        case Op.AUTH:
            body.int32()
            return Request(op, scheme=body.text(), data=body.buffer())
        case Op.MULTI | Op.MULTI_READ:
            parts: list[Request] = []
            while True:
                kind, done, _ = body.unpack(_MULTI)
                if done:
                    return Request(op, parts=tuple(parts))
                parts.append(_request(Op(kind), body))
        case _:
            return Request(op)


# -- responses ---------------------------------------------------------------------------------------------------------


def granted(*, session: int, password: bytes, timeout_ms: int) -> bytes:
    """Returns the response to a greeting. A timeout of 0 means that the session has ended."""
    return _GRANTED.pack(0, timeout_ms, session) + _INT.pack(len(password)) + password + b"\0"


def reply(xid: int, zxid: int, code: Code, body: bytes = b"") -> bytes:
    """Returns a response. `zxid` is the last transaction that the server has applied."""
    return _REPLY.pack(xid, zxid, code) + body


def event(kind: Event, path: str) -> bytes:
    """Returns the message of a watch event."""
    return _REPLY.pack(EVENT_XID, -1, 0) + _HEADER.pack(kind, _CONNECTED) + text(path)


def stat(value: Stat) -> bytes:
    return _STAT.pack(*value)


def number(value: int) -> bytes:
    return _INT.pack(value)


def buffer(data: bytes | None) -> bytes:
    return _INT.pack(-1) if data is None else _INT.pack(len(data)) + data


def text(value: str) -> bytes:
    return buffer(value.encode())


def texts(values: Iterable[str]) -> bytes:
    encoded = [text(value) for value in values]
    return _INT.pack(len(encoded)) + b"".join(encoded)


def acl(entries: Sequence[Acl]) -> bytes:
    encoded = [_INT.pack(one.perms) + text(one.scheme) + text(one.id) for one in entries]
    return _INT.pack(len(encoded)) + b"".join(encoded)


def multi(results: Iterable[tuple[Op | Code, bytes]]) -> bytes:
    """Returns the body of a multi or a multi-read: the results of the operations, each with its kind or its error."""
    parts: list[bytes] = []
    for kind, body in results:
        if isinstance(kind, Code):
            parts.append(_MULTI.pack(-1, False, kind) + number(kind))
        else:
            parts += (_MULTI.pack(kind, False, 0), body)
    return b"".join((*parts, _MULTI_END))
