"""Messages between client and server other than the bodies of requests and responses.

Source: ZooKeeper's zookeeper.jute (ConnectRequest, ConnectResponse, RequestHeader, ReplyHeader, WatcherEvent,
GetSASLRequest, SetSASLResponse, AuthPacket).
"""

import struct
from typing import Any, Final, NamedTuple

from kazoo.protocol.states import EventType

from .frames import MalformedFrame

# In place of a request's number, in unsolicited messages. Request numbers begin at 1.
WATCH_XID: Final = -1
PING_XID: Final = -2
AUTH_XID: Final = -4
XID_MAX: Final = 2**31 - 1

_PING: Final = 11
_AUTH: Final = 100
_SASL: Final = 102
_CLOSE: Final = -11

_REQUEST: Final = struct.Struct("!iii")
_REPLY: Final = struct.Struct("!iqi")
_CONNECT: Final = struct.Struct("!iqiqi")
_GRANTED: Final = struct.Struct("!iiqi")
_EVENT: Final = struct.Struct("!iii")
_LENGTH: Final = struct.Struct("!i")
_PROTOCOL: Final = 0
_NO_PASSWORD: Final = bytes(16)

# Of a server's message in a login.
SASL_TOKEN_BYTES_MAX: Final = 4096

# Offset of a response's body.
BODY: Final = _REPLY.size

PING: Final = _REQUEST.pack(8, PING_XID, _PING)

_KINDS: Final = {1: EventType.CREATED, 2: EventType.DELETED, 3: EventType.CHANGED, 4: EventType.CHILD}


class Session(NamedTuple):
    """Identification of a session. An id of 0 requests a new one."""

    id: int = 0
    password: bytes = _NO_PASSWORD


class Granted(NamedTuple):
    """A server's response to the handshake. A timeout of 0 means that the session has ended."""

    session: Session
    timeout_ms: int
    read_only: bool


def connect(session: Session, *, timeout_ms: int, zxid: int) -> bytes:
    """Returns the frame that begins a connection. A server that is behind `zxid`, or is read-only, closes it."""
    body = _CONNECT.pack(_PROTOCOL, zxid, timeout_ms, session.id, len(session.password)) + session.password + b"\0"
    return struct.pack("!i", len(body)) + body


def granted(frame: bytes) -> Granted:
    """Returns the decoded response to `connect`. Servers before 3.4 do not report whether they are read-only.

    Raises:
        MalformedFrame: it is not such a response.
    """
    if len(frame) < _GRANTED.size:
        raise MalformedFrame(f"{len(frame)} bytes in response to the handshake, too few for a session")
    _, timeout_ms, number, length = _GRANTED.unpack_from(frame)
    rest = frame[_GRANTED.size :]
    if not -1 <= length <= len(rest):
        raise MalformedFrame(f"a session with a password of {length} bytes, of which {len(rest)} were received")
    password, rest = rest[: max(length, 0)], rest[max(length, 0) :]
    return Granted(Session(number, password), timeout_ms, rest[:1] not in (b"", b"\0"))


def request_frame(xid: int, request: Any) -> tuple[bytes, bytes]:
    """Returns the frame of one request, in two parts."""
    body = request.serialize()
    return _REQUEST.pack(len(body) + 8, xid, request.type), body


def sasl(xid: int, token: bytes) -> bytes:
    """Returns the frame with a message of the client in a login. Source: GetSASLRequest."""
    return _REQUEST.pack(len(token) + 12, xid, _SASL) + _LENGTH.pack(len(token)) + token


def auth(scheme: str, secret: bytes) -> bytes:
    """Returns the frame that adds an identity to a connection. Source: AuthPacket."""
    name = scheme.encode()
    body = _LENGTH.pack(0) + _LENGTH.pack(len(name)) + name + _LENGTH.pack(len(secret)) + secret
    return _REQUEST.pack(len(body) + 8, AUTH_XID, _AUTH) + body


def sasl_token(frame: bytes) -> bytes:
    """Returns the server's message in a login; a null one is empty. Source: SetSASLResponse.

    Raises:
        MalformedFrame: it is not such a response, or too long.
    """
    token = frame[BODY + _LENGTH.size :]
    if len(frame) < BODY + _LENGTH.size:
        raise MalformedFrame("a response to a login without a message")
    (length,) = _LENGTH.unpack_from(frame, BODY)
    if max(length, 0) != len(token) or length > SASL_TOKEN_BYTES_MAX:
        raise MalformedFrame(f"a login's message of {length} bytes, of which {len(token)} were received")
    return token


def close(xid: int) -> bytes:
    """Returns the frame that ends the session."""
    return _REQUEST.pack(8, xid, _CLOSE)


def reply_header(frame: bytes) -> tuple[int, int, int]:
    """Returns the number of the request, the last transaction that the server had processed, and an error code or 0.

    Raises:
        MalformedFrame: it is not a response.
    """
    if len(frame) < _REPLY.size:
        raise MalformedFrame(f"a response of {len(frame)} bytes; its header alone has {_REPLY.size}")
    xid, zxid, error = _REPLY.unpack_from(frame)
    return xid, zxid, error


def event(frame: bytes) -> tuple[str | None, str]:
    """Returns the kind of a watch event, None if it is unknown, and its path.

    Raises:
        MalformedFrame: it is not an event.
    """
    try:
        number, _, length = _EVENT.unpack_from(frame, BODY)
        text = frame[BODY + _EVENT.size :]
        if length != len(text):
            raise MalformedFrame(f"an event with a path of {length} bytes, of which {len(text)} were received")
        return _KINDS.get(number), text.decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedFrame(f"an event that cannot be decoded: {error}") from None
