"""Messages as bytes, for networks between controllers and participants.

A message is MessagePack: an array of the name of its type and its fields. New fields are appended with a default: an
earlier version ignores them, and a later one fills in those that are missing. `columns` describes columns.

    data = encode(request)
    assert decode(data, REQUESTS) == request

Decoding allocates no more than a small multiple of the size of the data. Every error is MalformedMessage.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from kactl.decide.messages import routes, sessions
from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.control import Request, Response
from kactl.decide.messages.following import PeerMessage
from kactl.model.errors import KactlError, MalformedMessage

from . import control as control
from . import following, requests
from .errors import ErrorHead, error_head
from .requests import Begin as Begin

__all__ = [
    "ANSWERS_OF_SESSIONS",
    "ERRORS",
    "ORDERS",
    "PEER_MESSAGES",
    "REQUESTS",
    "RESPONSES",
    "ROUTES",
    "SESSIONS",
    "WATCHES",
    "Begin",
    "Buffer",
    "Family",
    "Message",
    "begin_of",
    "decode",
    "decode_answer",
    "encode",
    "encode_answer",
    "encode_pieces",
]

Buffer = bytes | bytearray | memoryview
Message = (
    Request
    | Response
    | ControllerRequest
    | PeerMessage
    | sessions.SessionRequest
    | sessions.SessionAnswer
    | routes.Watch
    | routes.RouteMessage
    | KactlError
)
_encode: Final = msgspec.msgpack.Encoder().encode
_ENCODERS: Final[dict[type, Callable[[Any], list[bytes | memoryview]]]] = {**control.ENCODERS, **following.ENCODERS}


class Family:
    """Types of messages that a receiver accepts at one place."""

    def __init__(self, *heads: type) -> None:
        union: Any = heads[0]
        for head in heads[1:]:
            union |= head
        self.decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(union)


ORDERS: Final = Family(*control.REQUEST_HEADS)
RESPONSES: Final = Family(*control.RESPONSE_HEADS)
REQUESTS: Final = Family(*requests.HEADS)
PEER_MESSAGES: Final = Family(*following.HEADS)
SESSIONS: Final = Family(sessions.Register, sessions.Heartbeat, sessions.Goodbye, sessions.VerifyEndpoint)
ANSWERS_OF_SESSIONS: Final = Family(
    sessions.Registered,
    sessions.Granted,
    sessions.Unconfirmed,
    sessions.Closed,
    sessions.EndpointVerified,
    sessions.Identified,
    sessions.Refused,
    sessions.NotController,
)
WATCHES: Final = Family(routes.Watch)
ROUTES: Final = Family(routes.Snapshot, routes.Delta)
ERRORS: Final = Family(ErrorHead)


def encode(message: Message) -> bytes:
    """Returns a message as bytes.

    Raises:
        TypeError: there is no encoding for messages of that type.
    """
    return b"".join(encode_pieces(message))


def encode_pieces(message: Message) -> list[bytes | memoryview]:
    """Returns a message as buffers, which follow each other. Columns are not copied.

    Raises:
        TypeError: see `encode`.
    """
    encoder = _ENCODERS.get(type(message))
    if encoder is not None:
        return encoder(message)
    if isinstance(message, KactlError):
        return [_encode(error_head(message))]
    if isinstance(message, ControllerRequest):
        return [_encode(requests.request_head(message))]
    return [_encode(message)]


def decode(data: Buffer, family: Family) -> Any:
    """Returns the message in some bytes. Its columns are views of `data`, and read-only.

    Raises:
        MalformedMessage: the bytes are no message of that family.
    """
    try:
        head = family.decoder.decode(data)
        build = getattr(head, "build", None)
        return head if build is None else build()
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as error:
        raise MalformedMessage(f"the bytes are no message that is accepted here: {error}") from None


def begin_of(data: Buffer) -> Begin:
    """Returns what a request names, without decoding its lists.

    Raises:
        MalformedMessage: the bytes are no request.
    """
    try:
        return requests.begin_of(data)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as error:
        raise MalformedMessage(f"the bytes are no request: {error}") from None


def encode_answer(answer: Any) -> bytes:
    """Returns the answer to a `ControllerRequest` as bytes."""
    return _encode(answer)


def decode_answer(data: Buffer, request: type[ControllerRequest]) -> Any:
    """Returns the answer to a request of one type.

    Raises:
        MalformedMessage: the bytes are no answer to it.
    """
    try:
        return requests.answer_decoder(request).decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as error:
        raise MalformedMessage(f"the bytes are no answer to {request.__name__}: {error}") from None
