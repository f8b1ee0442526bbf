"""DIGEST-MD5, the client's side, for authentication only (RFC 2831).

It keeps the password from the network, and proves that the server knows it too. It does not protect later messages: use
it over TLS, or on one host.
"""

import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from typing import Final

from .mechanism import SaslError

# RFC 2831, 2.1.1.
CHALLENGE_BYTES_MAX: Final = 2048
_COUNT: Final = "00000001"  # a nonce is used for one response
_QOP: Final = "auth"
_ALGORITHM: Final = "md5-sess"
_NONCE_BYTES: Final = 24
# Possessive, since the expression engine stores a state for each character that it could give back.
_PAIR: Final = re.compile(
    r'\s*+([A-Za-z-]++)\s*+=\s*+(?:"([^"\\]*+(?:\\.[^"\\]*+)*+)"|([^\s,"\\]++))\s*+(?:,|$)', re.ASCII
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_TO_ESCAPE: Final = re.compile(r'(["\\])')


class DigestMd5:
    """One login.

    Args:
        service, host: the parts of the digest-uri, as the server expects them.
        nonce: the client's nonce; by default from the operating system.
    """

    name = "DIGEST-MD5"

    def __init__(self, username: str, password: str, *, service: str, host: str, nonce: str | None = None) -> None:
        self._username = username
        self._password = password
        self._uri = f"{service}/{host}"
        self._nonce = os.urandom(_NONCE_BYTES).hex() if nonce is None else nonce
        self._expected: bytes | None = None
        self.is_complete = False

    def first(self) -> bytes:
        return b""

    def respond(self, challenge: bytes) -> bytes:
        pairs = _parse(challenge)
        if self.is_complete:
            raise SaslError("the server sent a message after the end of the login")
        if self._expected is None:
            return self._response(pairs)
        if not hmac.compare_digest(pairs.get("rspauth", "").encode(), self._expected):
            raise SaslError("the server did not prove that it knows the password")
        self.is_complete = True
        return b""

    def _response(self, challenge: Mapping[str, str]) -> bytes:
        nonce, realm = challenge.get("nonce", ""), challenge.get("realm", "")
        if not nonce:
            raise SaslError("the server's challenge has no nonce")
        if challenge.get("algorithm") != _ALGORITHM:
            raise SaslError(f"the server's challenge is not of algorithm {_ALGORITHM}")
        if _QOP not in challenge.get("qop", _QOP).split(","):
            raise SaslError(f"the server does not offer the quality of protection {_QOP}")
        key = self._key(realm, nonce, utf8="charset" in challenge)
        self._expected = self._digest(key, nonce, "").encode()
        fields = [
            ("username", _quoted(self._username)),
            ("realm", _quoted(realm)),
            ("nonce", _quoted(nonce)),
            ("nc", _COUNT),
            ("cnonce", _quoted(self._nonce)),
            ("digest-uri", _quoted(self._uri)),
            ("qop", _QOP),
            ("response", self._digest(key, nonce, "AUTHENTICATE")),
        ]
        if "charset" in challenge:
            fields.insert(0, ("charset", "utf-8"))
        return ",".join(f"{name}={value}" for name, value in fields).encode()

    def _key(self, realm: str, nonce: str, *, utf8: bool) -> str:
        user = b":".join(_encoded(text, utf8=utf8) for text in (self._username, realm, self._password))
        secret = hashlib.md5(user, usedforsecurity=False).digest()
        return _hex(secret + f":{nonce}:{self._nonce}".encode())

    def _digest(self, key: str, nonce: str, method: str) -> str:
        uri = _hex(f"{method}:{self._uri}".encode())
        return _hex(f"{key}:{nonce}:{_COUNT}:{self._nonce}:{_QOP}:{uri}".encode())


def _hex(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _encoded(text: str, *, utf8: bool) -> bytes:
    """Text as it is hashed: in ISO 8859-1 wherever that is possible, also for servers that read UTF-8."""
    try:
        return text.encode("iso-8859-1")
    except UnicodeEncodeError:
        if utf8:
            return text.encode()
        raise SaslError("the name or the password has characters that the server cannot read") from None


def _quoted(text: str) -> str:
    return f'"{_TO_ESCAPE.sub(_escape, text)}"'


def _escape(matched: re.Match[str]) -> str:
    return "\\" + matched[1]


def _parse(message: bytes) -> dict[str, str]:
    """Returns the fields of a message; of one that is repeated, the first."""
    if len(message) > CHALLENGE_BYTES_MAX:
        raise SaslError(f"the server's message has {len(message)} bytes; {CHALLENGE_BYTES_MAX} are accepted")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise SaslError("the server's message is not text") from None
    pairs: dict[str, str] = {}
    position = 0
    while position < len(text):
        matched = _PAIR.match(text, position)
        if matched is None:
            raise SaslError("the server's message is malformed")
        name, quoted, plain = matched.groups()
        pairs.setdefault(name.lower(), plain if quoted is None else _ESCAPED.sub(r"\1", quoted))
        position = matched.end()
    return pairs
