"""DIGEST-MD5 against the example of its RFC, a second implementation, and servers that misbehave."""

import contextlib
import hashlib
import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.security.sasl import DigestMd5, SaslError

# RFC 2831, section 4 (the IMAP example).
RFC_CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
RFC_RESPONSE = "d388dad90d4bbd760a152321f2143af7"
RFC_PROOF = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def _rfc_login(password: str = "secret") -> DigestMd5:
    return DigestMd5("chris", password, service="imap", host="elwood.innosoft.com", nonce="OA6MHXh6VqTrRk")


def test_example_of_the_rfc() -> None:
    login = _rfc_login()
    assert login.first() == b""
    response = login.respond(RFC_CHALLENGE).decode()
    assert f"response={RFC_RESPONSE}" in response
    assert not login.is_complete
    assert login.respond(RFC_PROOF) == b""
    assert login.is_complete


def test_another_password_is_another_response() -> None:
    assert RFC_RESPONSE not in _rfc_login("secrets").respond(RFC_CHALLENGE).decode()


def test_server_without_the_password_is_rejected() -> None:
    login = _rfc_login()
    login.respond(RFC_CHALLENGE)
    with pytest.raises(SaslError, match="did not prove"):
        login.respond(b"rspauth=ea40f60335c427b5527b84dbabcdfffe")
    assert not login.is_complete


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b'realm="r",algorithm=md5-sess', "no nonce"),
        (b'realm="r",nonce="n",algorithm=md5', "algorithm"),
        (b'realm="r",nonce="n"', "algorithm"),
        (b'realm="r",nonce="n",algorithm=md5-sess,qop="auth-int,auth-conf"', "quality of protection"),
        (b'realm="r,nonce="n",algorithm=md5-sess', "malformed"),
        (b"\xff", "not text"),
        (b"nonce=" + b"n" * 2048, "2048 are accepted"),
    ],
)
def test_impossible_challenge_is_rejected(challenge: bytes, reason: str) -> None:
    with pytest.raises(SaslError, match=reason):
        _rfc_login().respond(challenge)


def test_challenge_of_the_longest_length_is_read() -> None:
    longest = RFC_CHALLENGE + b',extension="' + (2048 - len(RFC_CHALLENGE) - len(b',extension=""')) * b"x" + b'"'

    assert RFC_RESPONSE in _rfc_login().respond(longest).decode()
    with pytest.raises(SaslError, match="has 2049 bytes"):
        _rfc_login().respond(longest + b",")


def test_server_without_utf8_gets_latin_letters_and_no_others() -> None:
    challenge = b'realm="r",nonce="n",algorithm=md5-sess'
    for username, password in (("ω", "secret"), ("chris", "ω")):
        login = DigestMd5(username, password, service="zookeeper", host="zk-sasl-md5")
        with pytest.raises(SaslError, match="the server cannot read"):
            login.respond(challenge)

    response = DigestMd5("chris", "é", service="zookeeper", host="zk-sasl-md5").respond(challenge).decode()
    assert "charset" not in response
    assert _fields(response)["response"] == _server_digest("AUTHENTICATE", _fields(response), "é")


def test_message_after_the_end_is_rejected() -> None:
    login = _rfc_login()
    login.respond(RFC_CHALLENGE)
    login.respond(RFC_PROOF)
    with pytest.raises(SaslError, match="after the end"):
        login.respond(RFC_PROOF)


@given(
    challenge=st.binary(max_size=200)
    | st.from_regex(r'(realm|nonce|qop|algorithm)="?[^,]*"?(,.*)?', fullmatch=True).map(str.encode)
)
def test_any_challenge_is_answered_or_rejected(challenge: bytes) -> None:
    login = _rfc_login()
    with contextlib.suppress(SaslError):
        login.respond(challenge)
    assert not login.is_complete


@given(
    username=st.text(min_size=1, max_size=30),
    password=st.text(min_size=1, max_size=30),
    realm=st.text(max_size=30),
    nonce=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40),
)
def test_quoting_is_reversible_and_the_proof_is_accepted(username: str, password: str, realm: str, nonce: str) -> None:
    login = DigestMd5(username, password, service="zookeeper", host="zk-sasl-md5")
    challenge = f"realm={_quote(realm)},nonce={_quote(nonce)},charset=utf-8,algorithm=md5-sess".encode()
    fields = _fields(login.respond(challenge).decode())
    assert (fields["username"], fields["realm"], fields["nonce"]) == (username, realm, nonce)
    assert fields["response"] == _server_digest("AUTHENTICATE", fields, password)
    login.respond(b"rspauth=" + _server_digest("", fields, password).encode())
    assert login.is_complete


def _server_digest(method: str, fields: dict[str, str], password: str) -> str:
    """The digest by the formulas of RFC 2831, 2.1.2.1, from the fields that the client sent."""

    def legacy(text: str) -> bytes:
        return text.encode("latin-1") if all(ord(char) < 256 for char in text) else text.encode()

    user = legacy(fields["username"]) + b":" + legacy(fields["realm"]) + b":" + legacy(password)
    a1 = hashlib.md5(user).digest() + b":" + fields["nonce"].encode() + b":" + fields["cnonce"].encode()
    a2 = method + ":" + fields["digest-uri"]
    parts = [fields[name] for name in ("nonce", "nc", "cnonce", "qop")]
    middle = ":".join([hashlib.md5(a1).hexdigest(), *parts, hashlib.md5(a2.encode()).hexdigest()])
    return hashlib.md5(middle.encode()).hexdigest()


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _fields(message: str) -> dict[str, str]:
    found = re.findall(r'([a-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^,]*))(?:,|$)', message, re.DOTALL)
    return {name: plain or re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) for name, quoted, plain in found}


@pytest.mark.parametrize("nonce", ["n" * 2000, '\\"' * 1000], ids=["plain", "escaped"])
def test_longest_challenge_allocates_little(nonce: str) -> None:
    """An expression that could give back each character needs some hundred bytes for it."""
    login = DigestMd5("kafka", "secret", service="zookeeper", host="zk-sasl-md5")
    challenge = f'nonce="{nonce}",algorithm=md5-sess'.encode()
    tracemalloc.start()
    try:
        login.respond(challenge)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 64 * 1024
