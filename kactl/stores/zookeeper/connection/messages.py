"""What is said between client and server besides the requests themselves.

Source: ZooKeeper's zookeeper.jute (ConnectRequest, ConnectResponse, RequestHeader, ReplyHeader, WatcherEvent).
"""

import struct
from typing import Any, Final, NamedTuple

from kazoo.protocol.states import EventType

from .frames import MalformedFrame

# Instead of the number of a request, in answers that nobody asked for. No request has a number below 1.
WATCH_XID: Final = -1
PING_XID: Final = -2
XID_MAX: Final = 2**31 - 1

_PING: Final = 11
_CLOSE: Final = -11

_REQUEST: Final = struct.Struct("!iii")
_REPLY: Final = struct.Struct("!iqi")
_CONNECT: Final = struct.Struct("!iqiqi")
_GRANTED: Final = struct.Struct("!iiqi")
_EVENT: Final = struct.Struct("!iii")
_PROTOCOL: Final = 0
_NO_PASSWORD: Final = bytes(16)

# An answer's body begins here.
BODY: Final = _REPLY.size

PING: Final = _REQUEST.pack(8, PING_XID, _PING)

_KINDS: Final = {1: EventType.CREATED, 2: EventType.DELETED, 3: EventType.CHANGED, 4: EventType.CHILD}


class Session(NamedTuple):
    """What a server knows a session by. An id of 0 asks for a new one."""

    id: int = 0
    password: bytes = _NO_PASSWORD


class Granted(NamedTuple):
    """What a server answers to who connects. A timeout of 0 says that the session has ended."""

    session: Session
    timeout_ms: int
    read_only: bool


def connect(session: Session, *, timeout_ms: int, zxid: int) -> bytes:
    """The frame that begins a connection. A server that knows less than `zxid`, or can only read, closes it."""
    body = _CONNECT.pack(_PROTOCOL, zxid, timeout_ms, session.id, len(session.password)) + session.password + b"\0"
    return struct.pack("!i", len(body)) + body


def granted(frame: bytes) -> Granted:
    """The answer to `connect`. Servers before 3.4 do not say whether they can only read.

    Raises:
        Garbled: it is none.
    """
    if len(frame) < _GRANTED.size:
        raise MalformedFrame(f"{len(frame)} bytes in answer to the first request, too few for a session")
    _, timeout_ms, number, length = _GRANTED.unpack_from(frame)
    rest = frame[_GRANTED.size :]
    if not -1 <= length <= len(rest):
        raise MalformedFrame(f"a session with a password of {length} bytes, of which {len(rest)} are there")
    password, rest = rest[: max(length, 0)], rest[max(length, 0) :]
    return Granted(Session(number, password), timeout_ms, rest[:1] not in (b"", b"\0"))


def ask(xid: int, request: Any) -> tuple[bytes, bytes]:
    """The frame of one request, in two parts."""
    body = request.serialize()
    return _REQUEST.pack(len(body) + 8, xid, request.type), body


def close(xid: int) -> bytes:
    """The frame that ends the session."""
    return _REQUEST.pack(8, xid, _CLOSE)


def answer(frame: bytes) -> tuple[int, int, int]:
    """The number of the request, the transaction up to which the server had come, and an error or 0.

    Raises:
        Garbled: it is no answer.
    """
    if len(frame) < _REPLY.size:
        raise MalformedFrame(f"an answer of {len(frame)} bytes, where its head alone has {_REPLY.size}")
    xid, zxid, error = _REPLY.unpack_from(frame)
    return xid, zxid, error


def event(frame: bytes) -> tuple[str | None, str]:
    """What kind of watch fired, and its path; None for a kind that we know nothing of.

    Raises:
        Garbled: it is no event.
    """
    try:
        number, _, length = _EVENT.unpack_from(frame, BODY)
        text = frame[BODY + _EVENT.size :]
        if length != len(text):
            raise MalformedFrame(f"a watch with a path of {length} bytes, of which {len(text)} are there")
        return _KINDS.get(number), text.decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedFrame(f"a watch that cannot be read: {error}") from None
