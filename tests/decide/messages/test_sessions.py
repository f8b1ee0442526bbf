"""Messages of sessions: their encoding, which evolves by appended fields, and ids of registrations."""

import itertools

import msgspec
import pytest

from kactl.decide.messages import sessions
from kactl.decide.messages.sessions import (
    START_BYTES,
    Closed,
    EndpointVerified,
    Goodbye,
    Granted,
    Heartbeat,
    NotController,
    Refused,
    Register,
    Registered,
    SessionAnswer,
    SessionRequest,
    Unconfirmed,
    VerifyEndpoint,
    incarnation_ids,
    is_next_life,
)
from kactl.model import Endpoint

INCARNATION = bytes(range(16))
REQUESTS: list[SessionRequest] = [
    Register(3, INCARNATION, 6_000),
    Register(3, INCARNATION, 6_000, (Endpoint("A", "h", 1),), "r1", (("f", 1, 2),), Endpoint("P", "h", 2)),
    Heartbeat(3, 41, 7),
    Goodbye(3, 41),
    VerifyEndpoint(3, INCARNATION, Endpoint("P", "h", 2)),
]
ANSWERS: list[SessionAnswer] = [
    Registered(41, 6_000, 2),
    Granted(7, 6_000, 2, 90),
    Unconfirmed(7, 2),
    Closed(41),
    EndpointVerified(2),
    Refused("BrokerIdTaken", "another session", 7),
    NotController(100, "host:7373", 2),
]


@pytest.mark.parametrize("message", [*REQUESTS, *ANSWERS], ids=lambda message: type(message).__name__)
def test_message_is_decoded_as_it_was_encoded(message: SessionRequest | SessionAnswer) -> None:
    decoder = msgspec.msgpack.Decoder(SessionRequest | SessionAnswer)

    assert decoder.decode(msgspec.msgpack.encode(message)) == message


def test_appended_field_is_ignored_and_a_missing_one_filled_in() -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(Granted(7, 6_000, 2, 90)))

    longer, shorter = msgspec.msgpack.encode([*fields, "later"]), msgspec.msgpack.encode(fields[:-1])

    assert msgspec.msgpack.decode(longer, type=SessionAnswer) == Granted(7, 6_000, 2, 90)
    assert msgspec.msgpack.decode(shorter, type=SessionAnswer) == Granted(7, 6_000, 2, 0)


@pytest.mark.parametrize("fields", [["Register", 3, b"short", 6_000], ["Register", 3, INCARNATION, 0]])
def test_invalid_registration_is_rejected(fields: list[object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=SessionRequest)


def test_lives_of_one_participant_follow_each_other() -> None:
    first, second, third = itertools.islice(incarnation_ids(bytes(START_BYTES)), 3)
    (other,) = itertools.islice(incarnation_ids(b"x" * START_BYTES), 1)

    assert len({first, second, third, other}) == 4
    assert all(len(one) == sessions.INCARNATION_BYTES for one in (first, other))
    assert is_next_life(first, second)
    assert is_next_life(first, third)
    assert not is_next_life(second, first)
    assert not is_next_life(first, first)
    assert not is_next_life(first, other)
    assert not is_next_life(b"", first)
