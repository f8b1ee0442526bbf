"""Envelopes of messages from one participant to another, which a controller relays without reading them."""

from typing import Annotated, Final

import msgspec

from kactl.decide.messages.following import FollowerReports, PeerMessage
from kactl.model.errors import NotAuthorized
from kactl.transports.tcp import wire

_encode: Final = msgspec.msgpack.Encoder().encode
_Id = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Envelope(msgspec.Struct, frozen=True, array_like=True, tag="Envelope"):
    """A message and the other participant: the recipient on the way to the controller, the sender after it."""

    broker: _Id
    message: msgspec.Raw


_ENVELOPE: Final = wire.Family(Envelope)


def sealed(message: PeerMessage) -> bytes:
    """Returns a message on its way to the controller."""
    return _encode(Envelope(message.to, msgspec.Raw(wire.encode(message))))


def forwarded(head: bytes | memoryview, sender: int) -> tuple[int, bytes]:
    """Returns the recipient of a message, and the message on its way there. Raises MalformedMessage."""
    envelope: Envelope = wire.decode(head, _ENVELOPE)
    return envelope.broker, _encode(Envelope(sender, envelope.message))


def opened(head: bytes | memoryview, broker: int) -> PeerMessage:
    """Returns a message that has arrived at a participant.

    Raises:
        MalformedMessage: it is none.
        NotAuthorized: it is for another broker, or names another sender than the participant that sent it.
    """
    envelope: Envelope = wire.decode(head, _ENVELOPE)
    message: PeerMessage = wire.decode(envelope.message, wire.PEER_MESSAGES)
    sender = message.follower if isinstance(message, FollowerReports) else message.leader
    if sender != envelope.broker or message.to != broker:
        raise NotAuthorized(f"a message of broker {envelope.broker} names broker {sender} as its sender")
    return message
