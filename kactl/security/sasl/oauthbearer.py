"""OAUTHBEARER, both sides (RFC 7628). The token travels as it is: only for encrypted connections.

A server that does not accept a token answers with the reason in JSON, which the client acknowledges with one byte. Then
the login fails.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from .mechanism import SaslError

NAME: Final = "OAUTHBEARER"
MESSAGE_BYTES_MAX: Final = 16 * 1024
# The form of tokens in headers: RFC 6750, section 2.1.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_KEY: Final = re.compile(r"[A-Za-z]+")
_SEPARATOR: Final = "\x01"
_ACKNOWLEDGED: Final = b"\x01"
_SHOWN_MAX: Final = 100


class _Failure(msgspec.Struct):
    status: str = "no reason"


class OAuthBearerClient:
    """One login.

    Args:
        token: returns the token; called once, when the login begins.
    """

    name = NAME

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token
        self._failure = ""
        self.is_complete = False

    def first(self) -> bytes:
        """Returns the message with the token.

        Raises:
            SaslError: it is no token.
        """
        token = self._token()
        if _TOKEN.fullmatch(token) is None:
            raise SaslError("what should be a token has other characters: write the token alone into its file")
        return f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{_SEPARATOR}".encode()

    def respond(self, challenge: bytes) -> bytes:
        if self._failure or self.is_complete:
            raise SaslError(f"the server rejects the token: {self._failure}" if self._failure else "it is complete")
        if not challenge:
            self.is_complete = True  # the server proves nothing: its certificate has to
            return b""
        try:
            self._failure = msgspec.json.decode(challenge, type=_Failure).status[:_SHOWN_MAX] or "no reason"
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise SaslError("the server's message is malformed") from None
        return _ACKNOWLEDGED


class Bearer(NamedTuple):
    """The holder of a token, as the host program knows it.

    Attributes:
        name: of the user.
        lifetime_ms: how long the token is valid; None for as long as a login.
    """

    name: str
    lifetime_ms: int | None = None


class Presented(NamedTuple):
    """The first message of a client.

    Attributes:
        authorization: the identity that the client wants; empty for that of the token.
    """

    token: str
    authorization: str


def presented(message: bytes) -> Presented:
    """Returns the content of the first message of a client.

    Raises:
        SaslError: the message is malformed, or demands something that is not supported.
    """
    if len(message) > MESSAGE_BYTES_MAX:
        raise SaslError(f"the client's message has {len(message)} bytes; {MESSAGE_BYTES_MAX} are accepted")
    try:
        header, *pairs = message.decode().split(_SEPARATOR)
    except UnicodeDecodeError:
        raise SaslError("the client's message is not text") from None
    parts = header.split(",")
    if len(parts) != 3 or parts[0] != "n" or parts[2] or (parts[1] and not parts[1].startswith("a=")):
        raise SaslError("the client wants channel binding, or its message is malformed")
    if len(pairs) < 3 or pairs[-1] or pairs[-2]:
        raise SaslError("the client's message is malformed")
    values: dict[str, str] = {}
    for pair in pairs[:-2]:
        key, equals, value = pair.partition("=")
        if not equals or _KEY.fullmatch(key) is None or key in values:
            raise SaslError("the client's message is malformed")
        values[key] = value
    scheme, _, token = values.get("auth", "").partition(" ")
    if scheme.lower() != "bearer" or _TOKEN.fullmatch(token.strip()) is None:
        raise SaslError("the client's message has no bearer token")
    return Presented(token.strip(), parts[1].removeprefix("a=").replace("=2C", ",").replace("=3D", "="))


def failure() -> bytes:
    """Returns the message to a client whose token is not accepted."""
    return b'{"status":"invalid_token"}'
