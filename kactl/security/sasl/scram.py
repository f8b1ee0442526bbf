"""SCRAM, both sides, without channel binding (RFC 5802, RFC 7677; SHA-512 as Kafka uses it).

The server learns neither the password nor anything that allows another login, and proves that it knows the client's
stored key. Names and passwords are UTF-8 as they are, without SASLprep, as in Kafka.
"""

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Callable, Collection
from typing import Final, Literal, NamedTuple

from .mechanism import SaslError

Name = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
HASHES: Final[dict[Name, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

# Fewer make guessing cheap; more would let a hostile server use this process's time.
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 65_536
MESSAGE_BYTES_MAX: Final = 8192
_NONCE_BYTES: Final = 24
# "n,,": neither channel binding nor another identity.
_HEADER: Final = b"n,,"
# Of an unknown user: as many as the tools of kactl make.
_SALT_BYTES: Final = 16

# Derives the salted password from salt and iterations.
Derive = Callable[[bytes, int], bytes]


def salted_password(name: Name, password: str, salt: bytes, iterations: int) -> bytes:
    """Returns the key that all others are derived from. Takes milliseconds of processor time."""
    return hashlib.pbkdf2_hmac(HASHES[name], password.encode(), salt, iterations)


class ScramClient:
    """One login.

    Args:
        derive: returns the salted password, perhaps a remembered one; by default computes it.
        nonce: printable ASCII without commas; by default from the operating system.
    """

    def __init__(
        self, name: Name, username: str, password: str, *, derive: Derive | None = None, nonce: str | None = None
    ) -> None:
        self.name: str = name
        self._hash = HASHES[name]
        self._username = username
        self._derive = derive or (lambda salt, iterations: salted_password(name, password, salt, iterations))
        self._nonce = base64.b64encode(os.urandom(_NONCE_BYTES)).decode() if nonce is None else nonce
        self._bare = b""
        self._server_signature: bytes | None = None
        self.is_complete = False

    def first(self) -> bytes:
        name = self._username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}".encode()
        return _HEADER + self._bare

    def respond(self, challenge: bytes) -> bytes:
        if self.is_complete:
            raise SaslError("the server sent a message after the end of the login")
        fields = _parse(challenge)
        if self._server_signature is None:
            return self._final(challenge, fields)
        if "e" in fields:
            raise SaslError("the server rejected the login")
        if not hmac.compare_digest(_decoded(fields.get("v", "")), self._server_signature):
            raise SaslError("the server did not prove that it knows the password")
        self.is_complete = True
        return b""

    def _final(self, server_first: bytes, fields: dict[str, str]) -> bytes:
        nonce, salt, count = fields.get("r", ""), _decoded(fields.get("s", "")), fields.get("i", "")
        if "m" in fields:
            raise SaslError("the server demands an extension that is not supported")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslError("the server's nonce does not continue the client's")
        if not salt:
            raise SaslError("the server sent no salt")
        if not (count.isascii() and count.isdecimal() and len(count) <= len(str(ITERATIONS_MAX))):
            raise SaslError("the server sent no number of iterations")
        if not ITERATIONS_MIN <= int(count) <= ITERATIONS_MAX:
            raise SaslError(f"the server wants {count} iterations; {ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted")
        without_proof = b"c=" + base64.b64encode(_HEADER) + b",r=" + nonce.encode()
        message = b",".join((self._bare, server_first, without_proof))
        salted = self._derive(salt, int(count))
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return without_proof + b",p=" + base64.b64encode(proof)

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _parse(message: bytes) -> dict[str, str]:
    if len(message) > MESSAGE_BYTES_MAX:
        raise SaslError(f"the server's message has {len(message)} bytes; {MESSAGE_BYTES_MAX} are accepted")
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise SaslError("the server's message is not text") from None
    if not all(part[1:2] == "=" for part in parts):
        raise SaslError("the server's message is malformed")
    return {part[0]: part[2:] for part in reversed(parts)}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslError("the server's message is malformed") from None


class ScramVerifier(NamedTuple):
    """The part of a password that a server stores: enough to check a login, not enough to log in."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        """Returns a text without the keys, which allow guesses of the password."""
        return f"ScramVerifier({self.iterations} iterations)"


def decoy(name: Name, username: str, *, pepper: bytes, iterations: Collection[int]) -> ScramVerifier:
    """Returns what an unknown user is challenged with. It opens nothing.

    Args:
        pepper: secret of this process. The same name has the same decoy as long as this is the same.
        iterations: of the verifiers of known users, one of which the decoy has; those of Kafka's tools if empty.
    """

    def derived(*parts: object) -> bytes:
        return hmac.digest(pepper, "\0".join(map(str, (name, *parts, username))).encode(), "sha512")

    # A further number changes the decoys of the names that it is chosen for, and no others.
    chosen = max(iterations or (ITERATIONS_MIN,), key=derived)
    return ScramVerifier(derived()[:_SALT_BYTES], chosen, hmac.digest(pepper, b"", HASHES[name]), b"")


def verifier(name: Name, password: str, *, salt: bytes, iterations: int) -> ScramVerifier:
    """Returns the verifier of a password. Takes milliseconds of processor time."""
    return verifier_of(name, salted_password(name, password, salt, iterations), salt=salt, iterations=iterations)


def verifier_of(name: Name, salted: bytes, *, salt: bytes, iterations: int) -> ScramVerifier:
    """Returns the verifier of a salted password, which alone allows a login, and is not stored."""
    client_key = hmac.digest(salted, b"Client Key", HASHES[name])
    stored_key = hashlib.new(HASHES[name], client_key).digest()
    return ScramVerifier(salt, iterations, stored_key, hmac.digest(salted, b"Server Key", HASHES[name]))


class ScramServer:
    """The server's side of one login.

    Args:
        pepper: secret of this process. An unknown user is challenged with a decoy that depends on it and on the name,
            so that the names of users cannot be found out.
        iterations: of the verifiers of known users; see `decoy`.
        nonce: printable ASCII without commas; by default from the operating system.
    """

    def __init__(
        self, name: Name, *, pepper: bytes, iterations: Collection[int] = (), nonce: str | None = None
    ) -> None:
        self.name: Name = name
        self._hash = HASHES[name]
        self._pepper = pepper
        self._iterations = iterations
        self._nonce = base64.b64encode(os.urandom(_NONCE_BYTES)).decode() if nonce is None else nonce
        self._messages: list[bytes] = []
        self._verifier: ScramVerifier | None = None
        self._is_known = False
        self.username = ""
        self.is_complete = False

    def begin(self, message: bytes) -> str:
        """Returns the name of the user in the client's first message.

        Raises:
            SaslError: the message is malformed, or wants something that is not supported.
        """
        header, bare = _halves(message)
        if header != "n,":
            raise SaslError("the client wants channel binding, or another identity than its own")
        if ",tokenauth=" in bare:
            raise SaslError("the client wants to log in by a delegation token, which is not supported")
        fields = _parse(bare.encode())
        if not bare.startswith("n=") or not fields.get("r") or "m" in fields:
            raise SaslError("the client's message is malformed, or demands an extension")
        self.username = _unescaped(fields["n"])
        self._nonce = fields["r"] + self._nonce
        self._messages = [bare.encode()]
        return self.username

    def challenge(self, known: ScramVerifier | None) -> bytes:
        """Returns the server's first message.

        Args:
            known: the user's verifier; None if there is no such user.
        """
        self._is_known = known is not None
        shown = known or decoy(self.name, self.username, pepper=self._pepper, iterations=self._iterations)
        message = f"r={self._nonce},s={base64.b64encode(shown.salt).decode()},i={shown.iterations}".encode()
        self._verifier = shown
        self._messages.append(message)
        return message

    def finish(self, message: bytes) -> bytes:
        """Returns the server's last message, which proves that it knows the verifier.

        Raises:
            SaslError: the client does not know the password, or there is no such user.
        """
        without_proof, _, proof = message.rpartition(b",p=")
        fields = _parse(without_proof)
        if fields.get("r") != self._nonce or _decoded(fields.get("c", "")) != _HEADER:
            raise SaslError("the client's message does not continue the login")
        signed = b",".join([*self._messages, without_proof])
        known = self._verifier
        assert known is not None, "the client has been challenged"
        signature = hmac.digest(known.stored_key, signed, self._hash)
        given = _decoded(proof.decode(errors="replace"))
        if len(given) != len(signature):
            raise SaslError("the client's proof is malformed")
        client_key = bytes(left ^ right for left, right in zip(given, signature, strict=True))
        matches = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), known.stored_key)
        if not self._is_known or not matches:
            raise SaslError("the client did not prove that it knows the password")
        self.is_complete = True
        return b"v=" + base64.b64encode(hmac.digest(known.server_key, signed, self._hash))


def _halves(message: bytes) -> tuple[str, str]:
    if len(message) > MESSAGE_BYTES_MAX:
        raise SaslError(f"the client's message has {len(message)} bytes; {MESSAGE_BYTES_MAX} are accepted")
    try:
        binding, comma, rest = message.decode().partition(",")
    except UnicodeDecodeError:
        raise SaslError("the client's message is not text") from None
    identity, _, bare = rest.partition(",")
    return binding + comma + identity, bare


def _unescaped(name: str) -> str:
    """Returns a name as the client meant it. Raises SaslError for other escapes than those of comma and equals sign."""
    plain = name.replace("=2C", "").replace("=3D", "")
    if "=" in plain or not name:
        raise SaslError("the name of the user is malformed")
    return name.replace("=2C", ",").replace("=3D", "=")
