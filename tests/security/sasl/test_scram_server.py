"""The server's side of SCRAM: the example of its RFC, the client's side, and hostile clients."""

import base64
import contextlib
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kactl.security.sasl import SaslError, ScramClient, ScramServer, decoy, verifier
from kactl.security.sasl.scram import MESSAGE_BYTES_MAX, Name, ScramVerifier, salted_password
from tests.support.marks import at_most

PEPPER = b"pepper"
NAME: Name = "SCRAM-SHA-256"
# RFC 7677, section 3.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def _server(nonce: str | None = None) -> ScramServer:
    return ScramServer(NAME, pepper=PEPPER, nonce=nonce)


def _challenged() -> ScramServer:
    """A server that has sent the challenge of the RFC."""
    server = _server("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert server.begin(CLIENT_FIRST) == "user"
    assert server.challenge(verifier(NAME, "pencil", salt=SALT, iterations=4096)) == SERVER_FIRST
    return server


def test_example_of_the_rfc() -> None:
    server = _challenged()
    assert server.finish(CLIENT_FINAL) == SERVER_FINAL
    assert server.is_complete


@pytest.mark.parametrize(
    "message",
    [
        CLIENT_FINAL.replace(b"p=dHz", b"p=dHy"),
        CLIENT_FINAL.replace(b"%hv", b"%hw"),
        CLIENT_FINAL.replace(b"c=biws", b"c=eSws"),
        CLIENT_FINAL.partition(b",p=")[0],
        CLIENT_FINAL.partition(b",p=")[0] + b",p=",
        CLIENT_FINAL.partition(b",p=")[0] + b",p=AAAA",
        b"",
        b"\xff",
    ],
)
def test_wrong_proof_is_rejected(message: bytes) -> None:
    server = _challenged()
    with pytest.raises(SaslError):
        server.finish(message)
    assert not server.is_complete


def _proven(without_proof: bytes) -> bytes:
    """Returns a message with the proof of a client that knows the password."""
    client_key = hmac.digest(salted_password(NAME, "pencil", SALT, 4096), b"Client Key", "sha256")
    signed = b",".join([CLIENT_FIRST.removeprefix(b"n,,"), SERVER_FIRST, without_proof])
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    return without_proof + b",p=" + base64.b64encode(proof)


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"%hv", b"%hw"), (b"c=biws", b"c=eSws"), (b"c=biws,", b""), (b",r=", b",x="), (b"j)hNlF$k0", b"")],
)
def test_proof_counts_for_this_login_only(before: bytes, after: bytes) -> None:
    """The password alone does not answer another challenge, or bind to a channel."""
    without_proof = CLIENT_FINAL.partition(b",p=")[0]
    assert _proven(without_proof) == CLIENT_FINAL
    server = _challenged()
    with pytest.raises(SaslError, match="does not continue the login"):
        server.finish(_proven(without_proof.replace(before, after)))
    assert not server.is_complete


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"y,,n=user,r=abc", "channel binding"),  # the client could bind to the channel
        (b"p=tls-unique,,n=user,r=abc", "channel binding"),
        (b"n,a=another,n=user,r=abc", "another identity"),
        (b"n,,n=user,r=", "malformed"),
        (b"n,,n=,r=abc", "malformed"),
        (b"n,,n=us=2Der,r=abc", "malformed"),
        (b"n,,m=extension,n=user,r=abc", "demands an extension"),
        (b"n,,n=user,r=abc,m=extension", "demands an extension"),
        (b"n,,n=user,r=abc,tokenauth=true", "delegation token"),
        (b"n,,r=abc,n=user", "malformed"),
        (b"n", "channel binding, or"),
        (b"", "channel binding, or"),
        (b"\xff,,n=user,r=abc", "not text"),
        (b"n,,n=" + b"u" * 8192 + b",r=abc", "8192 are accepted"),
    ],
)
def test_impossible_first_message_is_rejected(message: bytes, reason: str) -> None:
    with pytest.raises(SaslError, match=reason):
        _server().begin(message)


def test_unknown_user_is_challenged_like_a_known_one() -> None:
    """The salt of a name stays the same, and the login fails at its end, with any password."""
    challenges = []
    for _ in range(2):
        client, server = ScramClient(NAME, "nobody", "x"), _server("nonce")
        server.begin(client.first())
        challenge = server.challenge(None)
        challenges.append(challenge.partition(b",s=")[2])
        with pytest.raises(SaslError, match="did not prove"):
            server.finish(client.respond(challenge))
    assert challenges[0] == challenges[1]
    other = _server("nonce")
    other.begin(ScramClient(NAME, "another", "x").first())
    assert other.challenge(None).partition(b",s=")[2] != challenges[0]


def test_decoy_stays_when_users_with_other_iterations_are_added() -> None:
    """A change of the users would otherwise tell which names are unknown."""
    names = [f"user{number}" for number in range(60)]
    before, after = [
        [decoy(NAME, name, pepper=PEPPER, iterations=known) for name in names] for known in ([4096], [4096, 8192])
    ]

    changed = [later for earlier, later in zip(before, after, strict=True) if earlier != later]
    assert 0 < len(changed) < len(names)
    assert {later.iterations for later in changed} == {8192}
    assert {earlier.iterations for earlier in before} == {4096}


def test_listeners_with_the_same_secret_challenge_alike() -> None:
    def made(name: Name = NAME, pepper: bytes = PEPPER) -> ScramVerifier:
        return decoy(name, "nobody", pepper=pepper, iterations=[8192])

    assert made() == made()
    assert made(pepper=b"other") != made()
    assert made("SCRAM-SHA-512").salt != made().salt
    assert len(made().salt) == 16


def test_key_of_unknown_users_opens_nothing() -> None:
    """The stored key of an unknown user is no hash of a key that a client could present."""
    server = _server("nonce")
    server.begin(b"n,,n=nobody,r=abc")
    server.challenge(None)
    with pytest.raises(SaslError):
        server.finish(b"c=biws,r=abcnonce,p=" + base64.b64encode(bytes(32)))


@settings(max_examples=at_most(15))
@given(
    name=st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]),
    username=st.text(min_size=1, max_size=20),
    password=st.text(min_size=1, max_size=20),
    wrong=st.booleans(),
)
def test_client_logs_in_with_the_password_only(name: Name, username: str, password: str, *, wrong: bool) -> None:
    server, client = ScramServer(name, pepper=PEPPER), ScramClient(name, username, password + "!" * wrong)
    assert server.begin(client.first()) == username
    challenge = server.challenge(verifier(name, password, salt=b"salt", iterations=4096))
    if wrong:
        with pytest.raises(SaslError):
            server.finish(client.respond(challenge))
        return
    client.respond(server.finish(client.respond(challenge)))
    assert client.is_complete
    assert server.is_complete


@given(first=st.binary(max_size=60), final=st.binary(max_size=100))
def test_any_messages_are_answered_or_rejected(first: bytes, final: bytes) -> None:
    server = _server()
    with contextlib.suppress(SaslError):
        server.begin(first)
        server.challenge(None)
        server.finish(final)
    assert not server.is_complete


def test_longest_message_is_accepted() -> None:
    head = b"n,,n=user,r="
    message = head + b"a" * (MESSAGE_BYTES_MAX - len(head))

    assert _server().begin(message) == "user"
    with pytest.raises(SaslError, match="8193 bytes"):
        _server().begin(message + b"a")
