"""Encryption of connections to brokers, and the principal that they present.

A login is two requests of Kafka's protocol: SaslHandshake names the mechanism, SaslAuthenticate carries its messages. A
broker may limit how long a login is valid; the connection then logs in again, between two requests.

Source: Kafka's SaslClientAuthenticator, KIP-43, KIP-152, KIP-368.
"""

import asyncio
import functools
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Final, Literal, Protocol, get_args

from kactl.model.errors import BadConfig, KactlError, MalformedMessage
from kactl.runtime.connecting import NoAddressAnswers
from kactl.runtime.secret import Secret
from kactl.runtime.threads import LOGINS, run_in_thread
from kactl.security.sasl import (
    ClientMechanism,
    Conversation,
    OAuthBearerClient,
    Plain,
    SaslError,
    SaslMechanism,
    ScramClient,
    salted_password,
)
from kactl.security.sasl.oauthbearer import NAME as OAUTHBEARER
from kactl.security.sasl.scram import HASHES
from kactl.security.sasl.scram import Name as ScramName
from kactl.security.tls.outgoing import rejected_certificate, require_verification

from .codec.primitive import Reader

Mechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]
MECHANISMS: Final[tuple[Mechanism, ...]] = get_args(Mechanism)

# Before the login is complete.
RESPONSE_SIZE_MAX: Final = 64 * 1024
# Of a login's validity after which it is renewed.
_RENEW_AT: Final = 0.85
# Mechanisms that send a secret as it is.
_CLEAR: Final = ("PLAIN", OAUTHBEARER)

_SASL_HANDSHAKE: Final = 17
_SASL_AUTHENTICATE: Final = 36
_VERSION: Final = 1
_HEADER: Final = struct.Struct(">hhi")
_UNSUPPORTED_MECHANISM: Final = 33
_AUTHENTICATION_FAILED: Final = 58


class LoginFailed(Exception):
    """The broker has rejected the login, or is not the broker that it should be."""


class BrokerCredentials:
    """What a broker's listener demands of kactl, as far as it is configured.

    Args:
        tls: for listeners of protocols SSL and SASL_SSL; the brokers' certificates are compared with the host names of
            their endpoints.
        server_name: the name in the certificates of all brokers, if it is not the host name of their endpoints.
        mechanism: for listeners of protocols SASL_PLAINTEXT and SASL_SSL; or an object of another mechanism, such as
            GSSAPI, which needs none of the following.
        username, password: for SCRAM and PLAIN.
        token: for OAUTHBEARER: returns the token for a login that begins.
        allow_clear_text: send a password of PLAIN, or a token, to listeners of protocol SASL_PLAINTEXT.

    Raises:
        BadConfig: an argument is missing or invalid.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        mechanism: Mechanism | SaslMechanism | None = None,
        username: str | None = None,
        password: Secret | str | None = None,
        token: Callable[[], Secret] | None = None,
        allow_clear_text: bool = False,
    ) -> None:
        self._own = None if mechanism is None or isinstance(mechanism, str) else mechanism
        _check(mechanism, username, password, token)
        require_verification(tls)
        self.tls = tls
        self.server_name = server_name
        self.mechanism: str | None = mechanism if self._own is None else self._own.name  # type: ignore[assignment]
        self._token = token
        self._allows_clear_text = allow_clear_text
        self._username = username or ""
        self._password = Secret.of(password or "")
        # By salt and iterations. Brokers keep one for each user, so a reconnection has nothing to derive.
        self._salted: dict[tuple[bytes, int], bytes] = {}
        self._deriving = threading.Lock()

    def missing(self, protocol: str) -> str:
        """Returns what is missing for a listener of a security protocol; empty if nothing is."""
        if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            return "kactl does not know this protocol"
        if protocol.endswith("SSL") and self.tls is None:
            return "give kactl the authority of its certificate: kafka.client.ca"
        if protocol.startswith("SASL") and self.mechanism is None:
            return "give kactl sasl-mechanism, username and password-file in [kafka.client]"
        if protocol == "SASL_PLAINTEXT" and self._is_clear and not self._allows_clear_text:
            what = "password" if self.mechanism == "PLAIN" else "token"
            return f"{self.mechanism} would send the {what} in clear text: use SCRAM, or a listener with SASL_SSL"
        return ""

    @property
    def _is_clear(self) -> bool:
        return self._own is None and self.mechanism in _CLEAR

    def login(self, host: str) -> ClientMechanism:
        """Returns the client's side of a new login to a broker."""
        if self._own is not None:
            return self._own.login(host)
        if self._token is not None:
            return OAuthBearerClient(functools.partial(_text_of, self._token))
        if self.mechanism not in HASHES:
            return Plain(self._username, self._password.reveal().decode())
        name: ScramName = self.mechanism

        def derive(salt: bytes, iterations: int) -> bytes:
            # One login derives the key for all that begin at the same time, as in a takeover.
            with self._deriving:
                salted = self._salted.get((salt, iterations))
                if salted is None:
                    salted = salted_password(name, self._password.reveal().decode(), salt, iterations)
                    self._salted = {(salt, iterations): salted}
                return salted

        return ScramClient(name, self._username, self._password.reveal().decode(), derive=derive)

    @property
    def remedy(self) -> str:
        """What to do after a broker has rejected the login."""
        if self._own is not None:
            return f"check the credentials of {self._own.name}"
        return "renew the token in its file" if self._token is not None else "check username and password"

    @property
    def principal(self) -> str:
        """The name under which brokers know this controller; for messages. It is their decision without a login."""
        if self._own is not None:
            return f"User:{self._own.identity}"
        if self._token is not None:
            return "the holder of kactl's token"
        if self.mechanism is not None:
            return f"User:{self._username}"
        return "User:ANONYMOUS" if self.tls is None else "the principal of kactl's certificate"


def _check(
    mechanism: "Mechanism | SaslMechanism | None",
    username: str | None,
    password: Secret | str | None,
    token: Callable[[], Secret] | None,
) -> None:
    """Raises BadConfig unless a mechanism has what it needs, and nothing else is given."""
    given = {"username": bool(username), "password": bool(password), "token": token is not None}
    if isinstance(mechanism, str) and mechanism not in MECHANISMS:
        raise BadConfig("sasl-mechanism", f"{mechanism!r} is not one of {', '.join(MECHANISMS)}")
    if mechanism == OAUTHBEARER:
        if given != {"username": False, "password": False, "token": True}:
            raise BadConfig("sasl-mechanism", "OAUTHBEARER needs a token, and neither a username nor a password")
    elif isinstance(mechanism, str):
        if given != {"username": True, "password": True, "token": False}:
            raise BadConfig("sasl-mechanism", "needs a username and a password, and they need a mechanism")
    elif any(given.values()):
        problem = "needs a username and a password, and they need a mechanism"
        raise BadConfig("sasl-mechanism", problem if mechanism is None else "its object needs nothing else")


def _text_of(token: Callable[[], Secret]) -> str:
    try:
        return token().reveal().decode()
    except (KactlError, UnicodeDecodeError) as error:
        raise SaslError(str(error)) from None


class ReadsFrames(Protocol):
    """The reading side of a connection, such as asyncio.StreamReader."""

    async def readexactly(self, n: int, /) -> bytes: ...


class WritesFrames(Protocol):
    """The writing side of a connection, such as asyncio.StreamWriter."""

    def write(self, data: bytes, /) -> object: ...


class LoginConnection:
    """The login of one connection.

    Args:
        client_id: of the requests.
        host: of the broker's endpoint.
    """

    def __init__(
        self,
        credentials: BrokerCredentials,
        reader: ReadsFrames,
        writer: WritesFrames,
        *,
        client_id: str,
        host: str,
    ) -> None:
        self._credentials = credentials
        self._host = host
        self._reader = reader
        self._writer = writer
        self._client_id = _string(client_id)
        self._renew_at: float | None = None

    @property
    def is_due(self) -> bool:
        """Whether the login has to be renewed before the next request."""
        return self._renew_at is not None and asyncio.get_running_loop().time() >= self._renew_at

    async def run(self) -> None:
        """Log in, or log in again.

        Raises:
            LoginFailed: the broker rejected the login, or could not prove that it knows the password.
            OSError, asyncio.IncompleteReadError: the connection broke.
        """
        try:
            await self._log_in()
        except MalformedMessage as error:
            raise LoginFailed(f"its response to the login cannot be read: {error}") from None

    async def _log_in(self) -> None:
        login = self._credentials.login(self._host)
        conversation, lifetime_ms = Conversation(login), 0
        began = asyncio.get_running_loop().time()
        await self._handshake(login.name)
        try:
            # Deriving a key takes milliseconds, and reading a token may, for which the event loop must not wait.
            token: bytes | None = await run_in_thread(conversation.begin, kind=LOGINS)
            while token is not None:
                challenge, lifetime_ms = await self._authenticate(token)
                token = await run_in_thread(conversation.next, challenge, kind=LOGINS)
        except SaslError as error:
            raise LoginFailed(f"{login.name}: {error}") from None
        self._renew_at = began + lifetime_ms / 1000 * _RENEW_AT if lifetime_ms > 0 else None

    async def _handshake(self, mechanism: str) -> None:
        body = await self._ask(_SASL_HANDSHAKE, _string(mechanism))
        code = body.int16()
        offered = [_text(body) for _ in range(body.int32())]
        if code == _UNSUPPORTED_MECHANISM:
            raise LoginFailed(f"it offers {', '.join(offered) or 'no mechanism'}, and not {mechanism}")
        if code:
            raise LoginFailed(f"it rejected the beginning of a login with error {code}")

    async def _authenticate(self, token: bytes) -> tuple[bytes, int]:
        """Send a message of the login. Returns the broker's message, and the login's validity in ms, 0 for no limit."""
        body = await self._ask(_SASL_AUTHENTICATE, struct.pack(">i", len(token)) + token)
        code, message = body.int16(), _text(body)
        challenge = body.bytes(max(body.int32(), 0))
        lifetime_ms = int.from_bytes(body.bytes(8), signed=True)
        if code == _AUTHENTICATION_FAILED:
            raise LoginFailed(f"it rejects {self._credentials.principal} ({message}): {self._credentials.remedy}")
        if code:
            raise LoginFailed(f"it rejected the login with error {code} ({message})")
        return challenge, lifetime_ms

    async def _ask(self, key: int, body: bytes) -> Reader:
        """Send a request and wait for its response. All have correlation id 0: one is in flight at a time."""
        frame = _HEADER.pack(key, _VERSION, 0) + self._client_id + body
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        if not 4 <= size <= RESPONSE_SIZE_MAX:
            raise LoginFailed(
                f"what it sent is no response: a length of {size} bytes; is the listener's protocol right?"
            )
        response = Reader(await self._reader.readexactly(size))
        if response.int32() != 0:
            raise LoginFailed("what it sent is no response to the login")
        return response


def _text(body: Reader) -> str:
    """Reads a string that may be null, as an empty one."""
    return body.bytes(max(body.int16(), 0)).decode(errors="replace")


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def failed_handshake(error: Exception) -> str:
    """Returns why a connection could not be made."""
    if isinstance(error, NoAddressAnswers):
        return error.explained(failed_handshake)
    if isinstance(error, socket.gaierror):
        return f"the name of the host cannot be resolved ({error.strerror})"
    if not isinstance(error, OSError):
        return str(error)
    if rejected := rejected_certificate(error):
        return rejected
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error}): is the listener's protocol right?"
    return str(error)
