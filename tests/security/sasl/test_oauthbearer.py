"""OAUTHBEARER: messages of RFC 7628 on both sides."""

import pytest

from kactl.security.sasl import Conversation, OAuthBearerClient, SaslError
from kactl.security.sasl.oauthbearer import MESSAGE_BYTES_MAX, Presented, failure, presented

TOKEN = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
# Section 4.1 of the RFC; Kafka's and librdkafka's messages leave host and port out.
OF_THE_RFC = f"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer {TOKEN}\x01\x01".encode()
OF_KAFKA = f"n,,\x01auth=Bearer {TOKEN}\x01\x01".encode()


def client(token: str = TOKEN) -> Conversation:
    return Conversation(OAuthBearerClient(lambda: token))


def test_client_sends_the_message_of_kafka() -> None:
    login = client()

    assert login.begin() == OF_KAFKA
    assert login.next(b"") is None


def test_refused_token_is_acknowledged_and_named() -> None:
    login = client()
    login.begin()

    # Section 4.3 of the RFC.
    assert login.next(b'{"status":"invalid_token","scope":"example_scope"}') == b"\x01"
    with pytest.raises(SaslError, match="the server rejects the token: invalid_token"):
        login.next(b"")


@pytest.mark.parametrize("challenge", [b"x", b"\xff", b"[]", b'{"status":1}'])
def test_malformed_refusal_is_rejected(challenge: bytes) -> None:
    login = client()
    login.begin()
    with pytest.raises(SaslError, match="malformed"):
        login.next(challenge)


@pytest.mark.parametrize("token", ["", "two words", "a\nb", "a\x01auth=b", "Zoë"])
def test_text_that_is_no_token_is_not_sent(token: str) -> None:
    with pytest.raises(SaslError, match="other characters") as raised:
        client(token).begin()
    assert not token or token not in str(raised.value)


@pytest.mark.parametrize(
    ("message", "content"),
    [
        (OF_THE_RFC, Presented(TOKEN, "user@example.com")),
        (OF_KAFKA, Presented(TOKEN, "")),
        (OF_KAFKA.replace(b"Bearer", b"bearer"), Presented(TOKEN, "")),
        (OF_KAFKA.replace(b"n,,", b"n,a=a=2Cb=3Dc,"), Presented(TOKEN, "a,b=c")),
        (OF_KAFKA.replace(b"\x01auth", b"\x01traceId=7\x01auth"), Presented(TOKEN, "")),  # an extension of KIP-342
    ],
)
def test_messages_of_clients_are_read(message: bytes, content: Presented) -> None:
    assert presented(message) == content


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"\xff",
        OF_KAFKA[:-1],
        OF_KAFKA + b"\x01x",
        OF_KAFKA.replace(b"n,", b"p=tls-unique,"),
        OF_KAFKA.replace(b"n,", b"y,"),
        OF_KAFKA.replace(b"n,,", b"n,b=x,"),
        OF_KAFKA.replace(b"Bearer", b"Basic"),
        OF_KAFKA.replace(b"Bearer ", b""),
        OF_KAFKA.replace(b"auth=", b"auth"),
        OF_KAFKA.replace(b"auth=", b"auth2="),
        OF_KAFKA.replace(b"\x01auth", b"\x01auth=Bearer x\x01auth"),
        OF_KAFKA.replace(b"vF9", b"v F9"),
        b"n,,\x01auth=Bearer " + b"x" * MESSAGE_BYTES_MAX + b"\x01\x01",
    ],
)
def test_other_messages_are_rejected(message: bytes) -> None:
    with pytest.raises(SaslError) as raised:
        presented(message)
    assert TOKEN not in str(raised.value)


def test_own_refusal_is_understood() -> None:
    login = client()
    login.begin()
    assert login.next(failure()) == b"\x01"
