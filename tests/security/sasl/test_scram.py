"""SCRAM against the example of its RFC, a second implementation, and servers that misbehave."""

import base64
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kactl.security.sasl import Plain, SaslError, ScramClient
from kactl.security.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, MESSAGE_BYTES_MAX, Name
from tests.support.marks import at_most
from tests.support.scram_server import ScramServer

# RFC 7677, section 3.
RFC_NONCE = "rOprNGfwEbeRWgbNEkqO"
RFC_SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
RFC_CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
RFC_SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def _rfc_login() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", nonce=RFC_NONCE)


def test_example_of_the_rfc() -> None:
    login = _rfc_login()
    assert login.first() == b"n,,n=user,r=" + RFC_NONCE.encode()
    assert login.respond(RFC_SERVER_FIRST) == RFC_CLIENT_FINAL
    assert not login.is_complete
    assert login.respond(RFC_SERVER_FINAL) == b""
    assert login.is_complete
    with pytest.raises(SaslError, match="after the end"):
        login.respond(RFC_SERVER_FINAL)


def test_server_that_cannot_prove_itself_is_rejected() -> None:
    login = _rfc_login()
    login.first()
    login.respond(RFC_SERVER_FIRST)
    with pytest.raises(SaslError, match="did not prove"):
        login.respond(b"v=" + base64.b64encode(bytes(32)))
    assert not login.is_complete


def test_rejection_is_reported() -> None:
    login = _rfc_login()
    login.first()
    login.respond(RFC_SERVER_FIRST)
    with pytest.raises(SaslError, match="rejected the login"):
        login.respond(b"e=invalid-proof")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not continue"),
        (b"r=" + RFC_NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not continue"),
        (RFC_SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4096 to 65536 are accepted"),
        (RFC_SERVER_FIRST.replace(b"i=4096", b"i=65537"), "4096 to 65536 are accepted"),
        (RFC_SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 4000), "no number of iterations"),
        (RFC_SERVER_FIRST.replace(b"i=4096", b"i=-1"), "no number of iterations"),
        (RFC_SERVER_FIRST.replace(b"i=4096", "i=٤٠٩٦".encode()), "no number of iterations"),
        (RFC_SERVER_FIRST.replace(b",s=W22ZaJ0SNY7soEsUEjb6gQ==", b""), "no salt"),
        (RFC_SERVER_FIRST.replace(b"s=W", b"s=*"), "malformed"),
        (RFC_SERVER_FIRST.replace(b"s=W", b"s=*W"), "malformed"),
        (b"m=extension," + RFC_SERVER_FIRST, "extension"),
        (b"", "malformed"),
        (b"\xff", "not text"),
        (b"r=" + b"r" * 8191, "8192 are accepted"),
    ],
)
def test_impossible_message_is_rejected(message: bytes, reason: str) -> None:
    login = _rfc_login()
    login.first()
    with pytest.raises(SaslError, match=reason):
        login.respond(message)


def test_longest_message_is_read() -> None:
    longest = RFC_SERVER_FIRST + b",x=" + (MESSAGE_BYTES_MAX - len(RFC_SERVER_FIRST) - len(b",x=")) * b"x"

    login = _rfc_login()
    login.first()
    assert login.respond(longest).partition(b",p=")[0] == RFC_CLIENT_FINAL.partition(b",p=")[0]


@settings(max_examples=at_most(20))
@given(
    message=st.binary(max_size=200) | st.from_regex(r"[rsimve]=[^,]*(,[rsimve]=[^,]*)*", fullmatch=True).map(str.encode)
)
def test_any_message_is_answered_or_rejected(message: bytes) -> None:
    login = _rfc_login()
    login.first()
    with contextlib.suppress(SaslError):
        login.respond(message)
    assert not login.is_complete


@settings(max_examples=at_most(10))
@given(
    name=st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]),
    username=st.text(min_size=1, max_size=20),
    password=st.text(min_size=1, max_size=20),
    iterations=st.sampled_from([ITERATIONS_MIN, ITERATIONS_MIN + 1]),
)
def test_server_by_the_formulas_accepts_the_proof(name: Name, username: str, password: str, iterations: int) -> None:
    login = ScramClient(name, username, password)
    server = ScramServer(name, username, password, iterations)
    login.respond(server.final(login.respond(server.first(login.first()))))
    assert login.is_complete


def test_hostile_server_cannot_ask_for_more_than_the_limit() -> None:
    asked: list[int] = []

    def derive(salt: bytes, iterations: int) -> bytes:
        asked.append(iterations)
        return bytes(32)

    login = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce=RFC_NONCE, derive=derive)
    login.first()
    login.respond(RFC_SERVER_FIRST.replace(b"i=4096", f"i={ITERATIONS_MAX}".encode()))
    assert asked == [ITERATIONS_MAX]


def test_plain_is_complete_with_its_message() -> None:
    login = Plain("user", "pen\u00e7il")
    assert login.first() == b"\0user\0pen\xc3\xa7il"
    assert login.is_complete
    assert login.respond(b"") == b""
    with pytest.raises(SaslError):
        login.respond(b"more")
