"""OAUTHBEARER on the listener: by librdkafka, by kactl's own client, and by single messages."""

import asyncio
import ssl
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from kactl.model.errors import ErrorCode
from kactl.runtime.secret import Secret
from kactl.security.access import AclAuthorizer
from kactl.security.sasl import Bearer
from kactl.telemetry.attempts import Attempt
from kactl.transports.kafka import BrokerCredentials
from kactl.transports.kafka.credentials import LoginConnection, LoginFailed
from kactl.transports.kafka.listener import ListenerSecurity, authentication
from kactl.transports.kafka.listener.authentication import MECHANISMS, Authentication
from tests.support.certificates import Authority

from .listener_stub import ControllerStub, listening
from .test_logins import CREATED, UserTable

pytestmark = pytest.mark.anyio

TOKEN = "alices-token.x"


async def known(token: str) -> Bearer | None:
    return Bearer("alice") if token == TOKEN else None


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> ssl.SSLContext:
    return authority.server_context()


def security(tls: ssl.SSLContext | None, validate: Any = known, **more: Any) -> ListenerSecurity:
    made = Authentication(
        "SASL_SSL" if tls else "SASL_PLAINTEXT",
        mechanisms=("OAUTHBEARER", *MECHANISMS),
        users=UserTable(),
        validate_token=validate,
        **more,
    )
    return ListenerSecurity(made, tls, AclAuthorizer(super_users=["User:alice"]))


class Session:
    """kactl's own client on a connection to the listener."""

    def __init__(self, port: int, authority: Authority, token: str = TOKEN) -> None:
        self._port = port
        self._tls = ssl.create_default_context(cafile=str(authority.cert))
        self.credentials = BrokerCredentials(tls=self._tls, mechanism="OAUTHBEARER", token=lambda: Secret(token))

    async def log_in(self) -> LoginConnection:
        """Returns the login; the connection is closed. Raises LoginFailed."""
        reader, writer = await asyncio.open_connection("localhost", self._port, ssl=self._tls)
        login = LoginConnection(self.credentials, reader, writer, client_id="test", host="localhost")
        try:
            await login.run()
        finally:
            writer.transport.abort()
        return login


async def test_librdkafka_logs_in_by_a_token(tls: ssl.SSLContext, authority: Authority) -> None:
    attempts: list[Attempt] = []
    async with listening(ControllerStub(CREATED), security=security(tls), audit=attempts.append) as (_, port):
        settings: dict[str, Any] = {
            "bootstrap.servers": f"localhost:{port}",
            "log_level": 0,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.cert),
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (TOKEN, 4_000_000_000.0),
        }
        admin = AdminClient(settings)
        admin.poll(0)
        future = admin.create_topics([NewTopic("new", 1, 1)], request_timeout=60)["new"]
        polling = asyncio.create_task(_poll(admin))
        try:
            await asyncio.wrap_future(future)
        finally:
            polling.cancel()

    (attempt,) = attempts
    assert (attempt.principal.label, attempt.principal.method, attempt.outcome) == ("User:alice", "OAUTHBEARER", "done")


async def _poll(admin: Any) -> None:
    """Let librdkafka call for the token."""
    while True:
        await asyncio.to_thread(admin.poll, 0.05)


async def test_own_client_logs_in_and_is_refused_with_the_reason(tls: ssl.SSLContext, authority: Authority) -> None:
    async with listening(ControllerStub(), security=security(tls)) as (listener, port):
        await Session(port, authority).log_in()
        with pytest.raises(LoginFailed, match="rejects the holder of kactl's token"):
            await Session(port, authority, "another").log_in()
        assert listener.counters.rejected["login"] == 1


@pytest.mark.parametrize(("encrypted", "validate"), [(True, None), (False, known)])
async def test_it_is_offered_over_tls_and_with_a_function_only(
    encrypted: bool, validate: Any, tls: ssl.SSLContext
) -> None:
    offered = security(tls if encrypted else None, validate).authentication.mechanisms

    assert "OAUTHBEARER" not in offered
    assert "SCRAM-SHA-512" in offered


async def raises(token: str) -> Bearer | None:
    raise RuntimeError("a bug")


async def hangs(token: str) -> Bearer | None:
    await asyncio.Event().wait()
    raise AssertionError


async def returns_text(token: str) -> Any:
    return "alice"


async def returns_nobody(token: str) -> Bearer:
    return Bearer("")


async def returns_a_line(token: str) -> Bearer:
    return Bearer("alice\nUser:admin")


async def returns_an_old_one(token: str) -> Bearer:
    return Bearer("alice", lifetime_ms=0)


@pytest.mark.parametrize("validate", [raises, hangs, returns_text, returns_nobody, returns_a_line, returns_an_old_one])
async def test_failing_function_denies(
    validate: Any, tls: ssl.SSLContext, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "VALIDATION_S", 0.05)
    async with listening(ControllerStub(), security=security(tls, validate)) as (_, port):
        with pytest.raises(LoginFailed, match="rejects"):
            await Session(port, authority).log_in()


@pytest.mark.parametrize(("token_ms", "login_ms", "expected"), [(None, 900, 900), (500, 900, 500), (500, 0, 500)])
async def test_login_lasts_no_longer_than_its_token(token_ms: int | None, login_ms: int, expected: int) -> None:
    async def validate(token: str) -> Bearer:
        return Bearer("alice", token_ms)

    made = Authentication("SASL_SSL", mechanisms=("OAUTHBEARER",), lifetime_ms=login_ms, validate_token=validate).login(
        "127.0.0.1"
    )
    made.on_handshake({"mechanism": "OAUTHBEARER"})
    answer, _ = await made.on_authenticate({"auth_bytes": b"n,,\x01auth=Bearer t\x01\x01"})

    assert answer["session_lifetime_ms"] == expected


@pytest.mark.parametrize(
    ("messages", "codes"),
    [
        ([b"n,,\x01auth=Bearer alices-token.x\x01\x01"], [ErrorCode.NONE]),
        ([b"n,a=alice,\x01auth=Bearer alices-token.x\x01\x01"], [ErrorCode.NONE]),
        ([b"n,a=bob,\x01auth=Bearer alices-token.x\x01\x01", b"\x01"], [ErrorCode.NONE, 58]),
        ([b"n,,\x01auth=Bearer x\x01\x01", b"\x01"], [ErrorCode.NONE, 58]),
        # A refused client cannot try again on the same connection.
        ([b"n,,\x01auth=Bearer x\x01\x01", b"n,,\x01auth=Bearer alices-token.x\x01\x01"], [ErrorCode.NONE, 58]),
        ([b"n,,\x01auth=Basic alices-token.x\x01\x01"], [58]),
        ([b""], [58]),
    ],
)
async def test_messages_of_a_login(messages: list[bytes], codes: list[int], tls: ssl.SSLContext) -> None:
    login = security(tls).authentication.login("127.0.0.1")
    login.on_handshake({"mechanism": "OAUTHBEARER"})

    answers = [await login.on_authenticate({"auth_bytes": message}) for message in messages]

    assert [answer["error_code"] for answer, _ in answers] == codes
    assert [ends for _, ends in answers] == [code == 58 for code in codes]
    is_known = codes == [ErrorCode.NONE] and len(messages) == 1
    assert (login.principal is not None) is is_known
    if len(codes) == 2:
        assert answers[0][0]["auth_bytes"] == b'{"status":"invalid_token"}'


async def test_token_of_another_user_does_not_renew_a_login(tls: ssl.SSLContext) -> None:
    names = iter(["alice", "alice", "bob"])

    async def validate(token: str) -> Bearer:
        return Bearer(next(names))

    login = security(tls, validate).authentication.login("127.0.0.1")
    codes = []
    for _ in range(3):
        login.on_handshake({"mechanism": "OAUTHBEARER"})
        answer, _ = await login.on_authenticate({"auth_bytes": b"n,,\x01auth=Bearer t\x01\x01"})
        codes.append(answer["error_code"])

    assert codes == [ErrorCode.NONE, ErrorCode.NONE, 58]
