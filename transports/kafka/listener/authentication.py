"""Logins of the peers of one listener.

On a listener of protocol SSL a peer's certificate is its login, and the subject's name, mapped by rules, its principal.
On listeners with SASL the login is a conversation:

    connected ─ApiVersions─▶ ─SaslHandshake─▶ mechanism chosen ─SaslAuthenticate ...─▶ logged in ─▶ requests
        └─────────── anything else: the connection is closed, its body is not read ───────────┘

A login is valid for some time. The peer renews it over the same connection by the same two requests, as the same
principal; the first other request after the end of that time closes the connection. So does the first one after the
peer's certificate has expired, or the files have changed by which it was verified.

Source: Kafka's SaslServerAuthenticator, KIP-43, KIP-152, KIP-368.
"""

import asyncio
import enum
import functools
import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

import anyio.to_thread

from kactl.model.errors import ErrorCode, KactlError
from kactl.runtime.addresses import group_of
from kactl.runtime.budget import RATES, Budget, Unit
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.security.access import (
    ANONYMOUS,
    MalformedCertificate,
    Principal,
    PrincipalRules,
    kafka_subject,
    kafka_user,
    stranger,
    subject_of,
)
from kactl.security.sasl import Bearer, SaslError, ScramServer, ScramVerifier, decoy, oauthbearer, verifier
from kactl.security.sasl.scram import HASHES
from kactl.security.sasl.scram import Name as ScramName

from .api_keys import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from .counters import PeerRejected
from .discovery_apis import API_VERSIONS_API

Mechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]
# Those with users. The other one needs a function that decides about tokens.
MECHANISMS: Final[tuple[Mechanism, ...]] = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
# They send a secret as it is.
_OVER_TLS_ONLY: Final = ("PLAIN", "OAUTHBEARER")
log = logger(__name__)

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

# Of a request before the login, and the number of its elements.
REQUEST_SIZE_MAX: Final = 16 * 1024
ELEMENTS_MAX: Final = 16
# From the connection to the end of the login.
LOGIN_TIMEOUT_S: Final = 10.0
# A failed login is answered after this time, so that guessing is slow.
FAILURE_PAUSE_S: Final = 0.1
# The only text that a peer receives about a failed login.
FAILURE: Final = "Authentication failed: check mechanism, username and password"
# The time in which a function of the host program decides about a token.
VALIDATION_S: Final = 2.0
# How often the user of an open connection is looked up again.
CONFIRM_S: Final = 5.0
# Password checks of PLAIN that run at a time; each takes some milliseconds of processor time.
_PLAIN_CHECKS: Final = 4
# Password checks of one address. Further ones wait; those that would wait longer than a login may take fail unchecked.
PLAIN_RATE: Final = RATES[Unit.PASSWORDS].per_s
_PLAIN_PARTS: Final = 3


class Users(Protocol):
    """The users of SCRAM."""

    async def scram_verifier(self, mechanism: ScramName, username: str) -> ScramVerifier | None:
        """Returns what is stored of a user's password; None if there is no such user, or not for this mechanism.

        Raises:
            KactlError: the users cannot be read.
        """

    def iterations(self, mechanism: ScramName) -> Collection[int]:
        """Returns the numbers of iterations of verifiers. Unknown users are challenged by one of them."""


class ValidateToken(Protocol):
    """Function of the host program that decides about the tokens of OAUTHBEARER."""

    async def __call__(self, token: str, /) -> Bearer | None:
        """Returns the holder of a token; None if it is not valid.

        It has `VALIDATION_S`. An exception, a delay or another value denies the login.
        """


def new_pepper() -> bytes:
    """Returns a secret for `Authentication`."""
    return os.urandom(32)


class Known(NamedTuple):
    """What the password of a login was checked by."""

    mechanism: ScramName
    username: str
    verifier: ScramVerifier


class Authentication:
    """How the peers of one listener prove who they are.

    Args:
        protocol: of the listener.
        mechanisms: that are offered, for protocols with SASL. PLAIN and OAUTHBEARER are offered over TLS only.
        lifetime_ms: how long a login is valid; 0 for the whole connection.
        rules: that turn the subjects of certificates into the names of principals, for protocol SSL.
        validate_token: for OAUTHBEARER, which is not offered without.
        pepper: secret of this process, the same for all listeners with the same users: an unknown user is challenged
            alike on each. A new one by default.
    """

    def __init__(
        self,
        protocol: SecurityProtocol = "PLAINTEXT",
        *,
        mechanisms: Sequence[Mechanism] = (),
        users: Users | None = None,
        lifetime_ms: int = 0,
        rules: PrincipalRules | None = None,
        validate_token: ValidateToken | None = None,
        pepper: bytes | None = None,
    ) -> None:
        self._validate_token = validate_token
        self._conditions = Conditions(log)
        self.protocol = protocol
        self.demands_login = protocol.startswith("SASL")
        encrypted = protocol.endswith("SSL")
        self.mechanisms = [
            name
            for name in (mechanisms if self.demands_login else ())
            if (encrypted or name not in _OVER_TLS_ONLY) and (name != "OAUTHBEARER" or validate_token is not None)
        ]
        self.lifetime_ms = lifetime_ms
        self._users = users
        self._rules = rules or PrincipalRules()
        self._pepper = new_pepper() if pepper is None else pepper
        self._plain_checks = anyio.CapacityLimiter(_PLAIN_CHECKS)
        # Its own one: addresses that guess must not displace the accounts of principals.
        self._budget = Budget(_now_s, time.thread_time)

    def login(
        self, host: str, certificate: bytes | None = None, *, holds: Callable[[], bool] = lambda: True
    ) -> "Login":
        """Returns the login of a new connection.

        Args:
            certificate: of the peer, in DER; None if it has none. It has been verified.
            holds: returns whether the certificate would be accepted now.

        Raises:
            PeerRejected: the certificate's subject is not a principal.
        """
        if self.demands_login:
            return Login(self, host, None)
        if certificate is None:
            return Login(self, host, stranger(host, ANONYMOUS))
        return Login(self, host, kafka_subject(self._name_of(certificate), peer=host), holds)

    def _name_of(self, certificate: bytes) -> str:
        try:
            subject = subject_of(certificate)
        except MalformedCertificate as error:
            raise PeerRejected("login", f"its certificate cannot be read: {error}") from None
        name = self._rules.name_of(subject)
        if not name or not name.isprintable():
            raise PeerRejected("login", f"no rule of kafka.tls.principal-rules gives {subject!r} a printable name")
        return name

    def scram(self, mechanism: ScramName) -> ScramServer:
        return ScramServer(mechanism, pepper=self._pepper, iterations=self._iterations(mechanism))

    async def verifier(self, mechanism: ScramName, username: str) -> ScramVerifier | None:
        return None if self._users is None else await self._users.scram_verifier(mechanism, username)

    def _iterations(self, mechanism: ScramName) -> Collection[int]:
        return () if self._users is None else self._users.iterations(mechanism)

    async def bearer(self, token: str) -> Bearer | None:
        """Returns the holder of a token; None if the host program does not know it, or does not decide."""
        if self._validate_token is None:
            return None
        try:
            async with asyncio.timeout(VALIDATION_S):
                bearer = await self._validate_token(token)
        except TimeoutError:
            text = "a login is denied: the host program did not decide about its token in %g s"
            self._conditions.add("", logging.ERROR, text, VALIDATION_S)
            return None
        except Exception as error:
            text = "a login is denied: the host program's decision about its token failed: %s"
            self._conditions.add("", logging.ERROR, text, error, kind=type(error).__name__)
            return None
        self._conditions.end("", "the host program decides about tokens again")
        return bearer if isinstance(bearer, Bearer) and _is_valid(bearer) else None

    async def is_password(self, username: str, password: str, address: str) -> bool:
        """Returns whether a user has this password; see `matching`."""
        return await self.matching(username, password, address) is not None

    async def matching(self, username: str, password: str, address: str) -> Known | None:
        """Returns the stored verifier that a password fits; None if it fits none. Unknown users take as much time.

        Raises:
            SaslError: too many checks of this address wait.
            KactlError: the users cannot be read.
        """
        account = group_of(address)
        if self._budget.overdraft_s(account, Unit.PASSWORDS) > LOGIN_TIMEOUT_S - 1 / PLAIN_RATE:
            raise SaslError("too many logins of this address")
        self._budget.settle(account, Unit.PASSWORDS, 1)
        await asyncio.sleep(self._budget.overdraft_s(account, Unit.PASSWORDS))
        for mechanism in HASHES:
            known = await self.verifier(mechanism, username)
            salt, iterations, *_ = known or decoy(
                mechanism, username, pepper=self._pepper, iterations=self._iterations(mechanism)
            )
            given = await anyio.to_thread.run_sync(
                functools.partial(verifier, mechanism, password, salt=salt, iterations=iterations),
                limiter=self._plain_checks,
            )
            if known is not None and given == known:
                return Known(mechanism, username, known)
        return None


class _State(enum.Enum):
    NO_MECHANISM = enum.auto()
    BEGUN = enum.auto()
    REFUSED = enum.auto()  # the token, which the client has not acknowledged yet
    CHALLENGED = enum.auto()
    COMPLETE = enum.auto()


class Login:
    """The login of one connection.

    Args:
        holds: returns whether the peer's certificate, if it is its login, would be accepted now.

    Attributes:
        principal: of the last complete login; None before the first.
    """

    def __init__(
        self,
        authentication: Authentication,
        host: str,
        principal: Principal | None,
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        self._holds = holds
        self._authentication = authentication
        self._host = host
        self._state = _State.NO_MECHANISM
        self._mechanism: Mechanism = "SCRAM-SHA-512"
        self._scram: ScramServer | None = None
        self._known: Known | None = None
        self._confirmed_s = 0.0
        self._lifetime_ms: int | None = None  # of the token
        self._knows_versions = False
        self._first_mechanism: Mechanism | None = None
        self._ends_at: float | None = None
        self.principal = principal

    @property
    def is_pending(self) -> bool:
        """Whether requests have to wait for the end of the first login."""
        return self.principal is None

    def check(self, key: int, version: int) -> None:
        """Decide whether a request may be read now.

        Raises:
            PeerRejected: it may not; the connection is closed.
        """
        if key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            if not self._authentication.demands_login:
                raise PeerRejected("not_for_us", "logs in on a listener without logins: check its security.protocol")
            return
        if self.principal is None:
            if key != API_VERSIONS or self._knows_versions or self._state is not _State.NO_MECHANISM:
                raise PeerRejected(
                    "unauthenticated", f"request {key} before the login: check the client's security.protocol"
                )
            # An unknown version is answered with the supported ones, and the client repeats the request in one of them.
            self._knows_versions = version <= API_VERSIONS_API.version_max
        elif self._state is not _State.COMPLETE and self._authentication.demands_login:
            raise PeerRejected("unauthenticated", f"request {key} while the login is being renewed")
        elif self._ends_at is not None and _now_s() > self._ends_at:
            raise PeerRejected("unauthenticated", "the login has ended, and was not renewed")
        elif not self._holds():
            raise PeerRejected(
                "unauthenticated",
                "its certificate has expired, or the files that verified it have changed: it has to connect again",
            )

    async def confirm(self) -> None:
        """Look up the user again, at most every CONFIRM_S. Users that cannot be read change nothing.

        Raises:
            PeerRejected: the user was removed, or has another password.
        """
        if self._known is None or _now_s() < self._confirmed_s + CONFIRM_S:
            return
        self._confirmed_s = _now_s()
        try:
            async with asyncio.timeout(VALIDATION_S):
                found = await self._authentication.verifier(self._known.mechanism, self._known.username)
        except (KactlError, TimeoutError):
            return
        if found != self._known.verifier:
            raise PeerRejected(
                "unauthenticated", "its user was removed or has another password: it has to log in again"
            )

    def on_handshake(self, values: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """Returns the response to SaslHandshake, and whether the connection ends with it."""
        offered = self._authentication.mechanisms
        chosen = values["mechanism"]
        renewed = self._first_mechanism is not None and chosen != self._first_mechanism
        if chosen not in offered or renewed:
            return {"error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": offered}, True
        if self._state not in (_State.NO_MECHANISM, _State.COMPLETE):
            return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": offered}, True
        self._mechanism = chosen
        self._state = _State.BEGUN
        return {"error_code": ErrorCode.NONE, "mechanisms": offered}, False

    async def on_authenticate(self, values: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """Returns the response to SaslAuthenticate, and whether the connection ends with it.

        Raises:
            PeerRejected: the users cannot be read.
        """
        message = bytes(values["auth_bytes"])
        try:
            if self._state is _State.BEGUN and self._mechanism == "PLAIN":
                return self._completed(b"", await self._plain(message))
            if self._state is _State.BEGUN and self._mechanism == "OAUTHBEARER":
                return await self._bearer(message)
            if self._state is _State.BEGUN:
                return {"error_code": ErrorCode.NONE, "auth_bytes": await self._challenge(message)}, False
            if self._state is _State.CHALLENGED and self._scram is not None:
                return self._completed(self._scram.finish(message), self._scram.username)
            if self._state is _State.REFUSED:
                raise SaslError("the token was refused")
        except SaslError:
            pass
        except KactlError as error:
            # Closed without a response, after which clients try again; a failed login is final for them.
            await asyncio.sleep(FAILURE_PAUSE_S)
            raise PeerRejected("login", f"cannot log in now: {error}") from None
        else:
            return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": "no mechanism was chosen"}, True
        await asyncio.sleep(FAILURE_PAUSE_S)
        return {"error_code": ErrorCode.SASL_AUTHENTICATION_FAILED, "error_message": FAILURE}, True

    async def _challenge(self, message: bytes) -> bytes:
        assert self._mechanism in HASHES
        mechanism: ScramName = self._mechanism
        scram = self._authentication.scram(mechanism)
        username = scram.begin(message)
        self._scram = scram
        self._state = _State.CHALLENGED
        known = await self._authentication.verifier(mechanism, username)
        self._known = None if known is None else Known(mechanism, username, known)
        return scram.challenge(known)

    async def _plain(self, message: bytes) -> str:
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            raise SaslError("the message is not text") from None
        if len(parts) != _PLAIN_PARTS or not parts[1] or parts[0] not in ("", parts[1]):
            raise SaslError("the message is malformed, or wants another identity")
        self._known = await self._authentication.matching(parts[1], parts[2], self._host)
        if self._known is None:
            raise SaslError("wrong password")
        return parts[1]

    async def _bearer(self, message: bytes) -> tuple[dict[str, Any], bool]:
        """Returns the response to a message with a token. Source: Kafka's OAuthBearerSaslServer."""
        presented = oauthbearer.presented(message)
        bearer = await self._authentication.bearer(presented.token)
        if bearer is None or presented.authorization not in ("", bearer.name):
            await asyncio.sleep(FAILURE_PAUSE_S)
            self._state = _State.REFUSED
            return {"error_code": ErrorCode.NONE, "auth_bytes": oauthbearer.failure()}, False
        self._lifetime_ms = bearer.lifetime_ms
        return self._completed(b"", bearer.name)

    def _completed(self, message: bytes, username: str) -> tuple[dict[str, Any], bool]:
        principal = kafka_user(username, peer=self._host, method=self._mechanism)
        if self.principal is not None and principal != self.principal:
            raise SaslError("the login was renewed by another user")
        self.principal = principal
        self._first_mechanism = self._mechanism
        self._state = _State.COMPLETE
        self._confirmed_s = _now_s()
        self._scram = None
        lifetime_ms = self._authentication.lifetime_ms
        if self._lifetime_ms is not None:
            lifetime_ms = min(lifetime_ms or self._lifetime_ms, self._lifetime_ms)
        self._ends_at = _now_s() + lifetime_ms / 1000 if lifetime_ms else None
        return {"error_code": ErrorCode.NONE, "auth_bytes": message, "session_lifetime_ms": lifetime_ms}, False


def _is_valid(bearer: Bearer) -> bool:
    is_name = isinstance(bearer.name, str) and bool(bearer.name) and bearer.name.isprintable()
    return is_name and (bearer.lifetime_ms is None or bearer.lifetime_ms > 0)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
