"""Connections to brokers with TLS and logins, over real sockets; the broker's messages are kio's."""

import asyncio
import datetime
import ssl
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.response_header.v0.header import ResponseHeader
from kio.schema.sasl_authenticate.v1 import request as authenticate_request
from kio.schema.sasl_authenticate.v1 import response as authenticate_response
from kio.schema.sasl_handshake.v1 import request as handshake_request
from kio.schema.sasl_handshake.v1 import response as handshake_response
from kio.serial import entity_reader
from kio.static.primitive import i64Timedelta

from kactl.config.protocol_level import LATEST
from kactl.decide.messages.control import Request, Response, UpdateMetadataResponse
from kactl.model.errors import BadConfig, BrokerUnreachable
from kactl.runtime.secret import Secret
from kactl.security.sasl import salted_password
from kactl.transports.kafka import BrokerCredentials, KafkaTransport
from kactl.transports.kafka.credentials import MECHANISMS
from tests.support.certificates import Authority
from tests.support.fake_mechanism import FakeMechanism, FakeServer
from tests.support.kio_codec import entity_bytes
from tests.support.message_strategies import LISTENER
from tests.support.scram_server import ScramServer

from .peer import listening
from .test_request import UPDATE

pytestmark = pytest.mark.anyio

USER, PASSWORD, TOKEN = "kactl", "s3cret, of=kactl", "a.b-c"
OWN = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
OK = UpdateMetadataResponse(0)


async def agree(request: Request) -> Response:
    return OK


def transport(credentials: BrokerCredentials, **settings: Any) -> KafkaTransport:
    return KafkaTransport(controller_id=1000, level=LATEST, listener_name=LISTENER, credentials=credentials, **settings)


VERSIONS = transport(BrokerCredentials()).versions


def scram(**settings: Any) -> BrokerCredentials:
    settings = {"mechanism": "SCRAM-SHA-512", "username": USER, "password": PASSWORD} | settings
    return BrokerCredentials(**settings)


class SaslLogins:
    """Authenticates USER by SCRAM or PLAIN.

    Args:
        lifetime_ms: how long a login is valid.
        spoil: what is wrong with the server.
    """

    def __init__(
        self, *, offered: tuple[str, ...] = MECHANISMS, lifetime_ms: int = 0, spoil: str = "", iterations: int = 4096
    ) -> None:
        self.offered = offered
        self.lifetime_ms = lifetime_ms
        self.spoil = spoil
        self.iterations = iterations
        self.complete = 0
        self._servers: dict[asyncio.StreamWriter, ScramServer | FakeServer | str | None] = {}
        self._authenticated: set[asyncio.StreamWriter] = set()

    def reply(self, writer: asyncio.StreamWriter, request: bytes) -> bytes | None:
        header, size = entity_reader(RequestHeader)(request, 0)
        body: Any
        if header.request_api_key == 17:
            handshake, length = entity_reader(handshake_request.SaslHandshakeRequest)(request, size)
            body = self._handshake(writer, handshake)
        elif header.request_api_key == 36:
            authenticate, length = entity_reader(authenticate_request.SaslAuthenticateRequest)(request, size)
            body = self._authenticate(writer, authenticate)
        else:
            assert writer in self._authenticated, "a request before the login"
            return None
        assert size + length == len(request), "bytes behind a request"
        return entity_bytes(ResponseHeader(correlation_id=header.correlation_id)) + entity_bytes(body)

    def _handshake(self, writer: asyncio.StreamWriter, request: Any) -> Any:
        known = request.mechanism in self.offered
        server: ScramServer | FakeServer | str = request.mechanism
        if request.mechanism == "FAKE":
            server = FakeServer()
        elif known and request.mechanism.startswith("SCRAM"):
            server = ScramServer(request.mechanism, USER, PASSWORD, self.iterations)
        self._servers[writer] = server
        return handshake_response.SaslHandshakeResponse(
            error_code=ErrorCode.none if known else ErrorCode.unsupported_sasl_mechanism, mechanisms=self.offered
        )

    def _authenticate(self, writer: asyncio.StreamWriter, request: Any) -> Any:
        server, message = self._servers[writer], bytes(request.auth_bytes)
        code, reply, done = ErrorCode.none, b"", False
        try:
            if server == "OAUTHBEARER":
                done = message == f"n,,\x01auth=Bearer {TOKEN}\x01\x01".encode()
                assert done or message != b"\x01"
                reply = b"" if done else b'{"status":"invalid_token"}'
            elif isinstance(server, FakeServer):
                reply = server.reply(message)
                done = server.is_complete
            elif server == "PLAIN":
                assert message == f"\0{USER}\0{PASSWORD}".encode()
                done = True
            elif isinstance(server, ScramServer) and not server.messages:
                reply = server.first(message)
            elif isinstance(server, ScramServer):
                reply, done = server.final(message), True
        except AssertionError:
            code = ErrorCode.sasl_authentication_failed
        if self.spoil == "proof" and done:
            reply = b"v=" + b"AAAA"
        if done:
            self._authenticated.add(writer)
            self.complete += 1
        return authenticate_response.SaslAuthenticateResponse(
            error_code=code,
            error_message="Authentication failed" if code != ErrorCode.none else None,
            auth_bytes=reply,
            session_lifetime=i64Timedelta.parse(datetime.timedelta(milliseconds=self.lifetime_ms if done else 0)),
        )


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server_tls(authority: Authority) -> ssl.SSLContext:
    signed = authority.sign("broker", names="DNS:localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(signed.cert, signed.key)
    return context


@pytest.fixture(scope="module")
def client_tls(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.cert))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256"])
async def test_login_by_scram_precedes_the_requests(mechanism: str) -> None:
    logins = SaslLogins()
    async with listening(agree, VERSIONS, protocol="SASL_PLAINTEXT", logins=logins) as peer:
        connection = transport(scram(mechanism=mechanism)).connect(peer.broker)
        for _ in range(3):
            assert await connection.deliver(UPDATE) == OK
        await connection.close()
    assert logins.complete == 1


@pytest.mark.parametrize("mechanism", OWN)
async def test_login_over_tls(mechanism: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    logins = SaslLogins()
    async with listening(agree, VERSIONS, protocol="SASL_SSL", tls=server_tls, logins=logins, host="localhost") as peer:
        connection = transport(scram(mechanism=mechanism, tls=client_tls)).connect(peer.broker)
        assert await connection.deliver(UPDATE) == OK
        await connection.close()
    assert logins.complete == 1


async def test_password_is_sent_in_clear_text_by_consent_only() -> None:
    """A listener of SASL_PLAINTEXT receives no byte of a password of PLAIN without it."""
    logins = SaslLogins()
    async with listening(agree, VERSIONS, protocol="SASL_PLAINTEXT", logins=logins) as peer:
        connection = transport(scram(mechanism="PLAIN", allow_clear_text=True)).connect(peer.broker)
        assert await connection.deliver(UPDATE) == OK
        await connection.close()
        accepted = len(peer.connections)
        with pytest.raises(BrokerUnreachable, match="in clear text"):
            await transport(scram(mechanism="PLAIN")).connect(peer.broker).deliver(UPDATE)
        assert len(peer.connections) == accepted
    assert logins.complete == 1


async def test_tls_without_login(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    async with listening(agree, VERSIONS, protocol="SSL", tls=server_tls, host="localhost") as peer:
        connection = transport(BrokerCredentials(tls=client_tls)).connect(peer.broker)
        assert await connection.deliver(UPDATE) == OK
        await connection.close()


async def test_name_of_all_certificates_can_be_configured(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async with listening(agree, VERSIONS, protocol="SSL", tls=server_tls) as peer:
        by_address = transport(BrokerCredentials(tls=client_tls)).connect(peer.broker)
        with pytest.raises(BrokerUnreachable, match=r"certificate is not accepted.*127\.0\.0\.1"):
            await by_address.deliver(UPDATE)
        by_name = transport(BrokerCredentials(tls=client_tls, server_name="localhost")).connect(peer.broker)
        assert await by_name.deliver(UPDATE) == OK
        await by_name.close()


async def test_certificate_of_another_authority_is_rejected(server_tls: ssl.SSLContext, tmp_path: Path) -> None:
    foreign = ssl.create_default_context(cafile=str(Authority(tmp_path, "foreign").cert))
    async with listening(agree, VERSIONS, protocol="SSL", tls=server_tls, host="localhost") as peer:
        with pytest.raises(BrokerUnreachable, match="certificate is not accepted"):
            await transport(BrokerCredentials(tls=foreign)).connect(peer.broker).deliver(UPDATE)


async def test_broker_in_clear_text_is_explained(client_tls: ssl.SSLContext) -> None:
    async with listening(agree, VERSIONS, protocol="SSL", host="localhost") as peer:
        with pytest.raises(BrokerUnreachable, match="no connection to localhost"):
            await (
                transport(BrokerCredentials(tls=client_tls), connect_timeout_ms=500)
                .connect(peer.broker)
                .deliver(UPDATE)
            )


async def test_wrong_password_is_named() -> None:
    async with listening(agree, VERSIONS, protocol="SASL_PLAINTEXT", logins=SaslLogins()) as peer:
        connection = transport(scram(password="wrong")).connect(peer.broker)
        with pytest.raises(BrokerUnreachable, match=r"it rejects User:kactl.*check username and password") as raised:
            await connection.deliver(UPDATE)
    assert "wrong" not in str(raised.value)


async def test_server_that_does_not_know_the_password_is_rejected() -> None:
    async with listening(agree, VERSIONS, protocol="SASL_PLAINTEXT", logins=SaslLogins(spoil="proof")) as peer:
        with pytest.raises(BrokerUnreachable, match="did not prove that it knows the password"):
            await transport(scram()).connect(peer.broker).deliver(UPDATE)


async def test_mechanism_is_not_exchanged_for_a_weaker_one() -> None:
    """A listener that offers PLAIN alone does not get the password."""
    logins = SaslLogins(offered=("PLAIN",))
    async with listening(agree, VERSIONS, protocol="SASL_PLAINTEXT", logins=logins) as peer:
        with pytest.raises(BrokerUnreachable, match="it offers PLAIN, and not SCRAM-SHA-512"):
            await transport(scram()).connect(peer.broker).deliver(UPDATE)
    assert logins.complete == 0


async def test_hostile_number_of_iterations_is_rejected() -> None:
    async with listening(agree, VERSIONS, protocol="SASL_PLAINTEXT", logins=SaslLogins(iterations=65_537)) as peer:
        with pytest.raises(BrokerUnreachable, match="65537 iterations"):
            await transport(scram()).connect(peer.broker).deliver(UPDATE)


async def test_login_is_renewed_before_it_ends() -> None:
    logins = SaslLogins(lifetime_ms=100)
    async with listening(agree, VERSIONS, protocol="SASL_PLAINTEXT", logins=logins) as peer:
        connection = transport(scram()).connect(peer.broker)
        with anyio.fail_after(60):
            while logins.complete < 3:
                assert await connection.deliver(UPDATE) == OK
        assert len(peer.connections) == 1
        await connection.close()


async def test_login_that_never_ends_has_a_time_limit() -> None:
    class Silent(SaslLogins):
        def reply(self, writer: asyncio.StreamWriter, request: bytes) -> bytes | None:
            return super().reply(writer, request) if request[1] == 17 else b""

    async with listening(agree, VERSIONS, protocol="SASL_PLAINTEXT", logins=Silent()) as peer:
        with pytest.raises(BrokerUnreachable, match="no response"):
            await transport(scram(), connect_timeout_ms=300).connect(peer.broker).deliver(UPDATE)


@pytest.mark.parametrize(
    ("protocol", "credentials", "reason"),
    [
        ("SSL", {}, "give kactl the authority"),
        ("SASL_SSL", {"tls": True}, "give kactl sasl-mechanism, username and password-file"),
        ("SASL_PLAINTEXT", {}, "give kactl sasl-mechanism"),
        ("SASL_PLAINTEXT", {"mechanism": "PLAIN", "username": "a", "password": "b"}, "in clear text"),
        ("GSSAPI", {}, "does not know this protocol"),
    ],
)
async def test_missing_credentials_are_named(protocol: str, credentials: dict[str, Any], reason: str) -> None:
    if credentials.get("tls"):
        credentials = credentials | {"tls": ssl.create_default_context()}
    async with listening(agree, VERSIONS, protocol=protocol) as peer:
        with pytest.raises(BrokerUnreachable, match=reason):
            await transport(BrokerCredentials(**credentials)).connect(peer.broker).deliver(UPDATE)
        assert not peer.connections


@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": "GSSAPI", "username": "a", "password": "b"},
        {"mechanism": "PLAIN", "username": "a"},
        {"mechanism": "PLAIN", "password": "a"},
        {"username": "a", "password": "b"},
        {"mechanism": "PLAIN", "username": "", "password": "b"},
        {"mechanism": "OAUTHBEARER"},
        {"mechanism": "OAUTHBEARER", "username": "a", "password": "b"},
        {"mechanism": "OAUTHBEARER", "username": "a", "token": lambda: Secret(TOKEN)},
        {"mechanism": "PLAIN", "username": "a", "password": "b", "token": lambda: Secret(TOKEN)},
        {"mechanism": FakeMechanism(), "username": "a", "password": "b"},
        {"token": lambda: Secret(TOKEN)},
    ],
)
def test_incomplete_credentials_are_rejected(settings: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match="sasl-mechanism"):
        BrokerCredentials(**settings)


async def test_logins_that_begin_together_derive_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a takeover, in which the controller connects to all brokers at the same time."""
    derived = []
    together = threading.Barrier(4, timeout=60)

    def derive(*arguments: Any) -> bytes:
        derived.append(arguments)
        return salted_password(*arguments)

    def log_in() -> None:
        login = credentials.login("localhost")
        server = ScramServer("SCRAM-SHA-512", USER, PASSWORD, 4096)
        server.salt = b"salt-of-the-user"
        challenge = server.first(login.first())
        together.wait()
        login.respond(challenge)

    monkeypatch.setattr("kactl.transports.kafka.credentials.salted_password", derive)
    credentials = scram()
    async with anyio.create_task_group() as logins:
        for _ in range(4):
            logins.start_soon(anyio.to_thread.run_sync, log_in)

    assert len(derived) == 1


def test_key_is_derived_once() -> None:
    credentials = scram()
    for _ in range(2):
        server = ScramServer("SCRAM-SHA-512", USER, PASSWORD, 4096)
        server.salt = b"salt"
        login = credentials.login("b1")
        login.respond(server.first(login.first()))
    assert list(credentials._salted) == [(b"salt", 4096)]


async def test_missing_right_is_named_and_tried_again_ever_less_often() -> None:
    answers = [UpdateMetadataResponse(31)] * 7 + [OK, UpdateMetadataResponse(31)]

    async def respond(request: Request) -> Response:
        return answers.pop(0)

    async with listening(respond, VERSIONS, protocol="SASL_PLAINTEXT", logins=SaslLogins()) as peer:
        connection = transport(scram()).connect(peer.broker)
        pauses = []
        while len(answers) > 2:
            with pytest.raises(
                BrokerUnreachable, match=r"rejects UpdateMetadata from User:kactl.*super\.users"
            ) as raised:
                await connection.deliver(UPDATE)
            pauses.append(raised.value.retry_after_ms)
        assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]

        assert await connection.deliver(UPDATE) == OK
        with pytest.raises(BrokerUnreachable) as raised:
            await connection.deliver(UPDATE)
        assert raised.value.retry_after_ms == 1_000
        await connection.close()


@pytest.mark.parametrize("response", [b"", b"\0" * 5, b"\0" * 6 + b"\x7f\xff\xff\xff"])
async def test_response_that_is_too_short_is_no_login(response: bytes) -> None:
    class Short(SaslLogins):
        def reply(self, writer: asyncio.StreamWriter, request: bytes) -> bytes | None:
            return response

    async with listening(agree, VERSIONS, protocol="SASL_PLAINTEXT", logins=Short()) as peer:
        with pytest.raises(BrokerUnreachable, match=r"is no response|cannot be read|offers no mechanism"):
            await transport(scram()).connect(peer.broker).deliver(UPDATE)


# -- tokens, and other mechanisms --------------------------------------------------------------------------------------


def bearer(token: Any = lambda: Secret(TOKEN), **more: Any) -> BrokerCredentials:
    return BrokerCredentials(mechanism="OAUTHBEARER", token=token, **more)


async def test_token_is_read_before_each_login(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    logins, tokens = SaslLogins(), iter([TOKEN, TOKEN, "expired"])
    credentials = bearer(lambda: Secret(next(tokens)), tls=client_tls)
    async with listening(agree, VERSIONS, protocol="SASL_SSL", tls=server_tls, logins=logins, host="localhost") as peer:
        for _ in range(2):
            connection = transport(credentials).connect(peer.broker)
            assert await connection.deliver(UPDATE) == OK
            await connection.close()
        with pytest.raises(BrokerUnreachable, match=r"rejects the holder of kactl's token .*: renew the token"):
            await transport(credentials).connect(peer.broker).deliver(UPDATE)
    assert logins.complete == 2


async def test_token_is_sent_in_clear_text_by_consent_only() -> None:
    logins = SaslLogins()
    async with listening(agree, VERSIONS, protocol="SASL_PLAINTEXT", logins=logins) as peer:
        with pytest.raises(BrokerUnreachable, match="OAUTHBEARER would send the token in clear text"):
            await transport(bearer()).connect(peer.broker).deliver(UPDATE)
        assert not peer.connections
        connection = transport(bearer(allow_clear_text=True)).connect(peer.broker)
        assert await connection.deliver(UPDATE) == OK
        await connection.close()


async def test_missing_token_is_named() -> None:
    def read() -> Secret:
        raise BadConfig("kafka.client.token-file", "token cannot be read: No such file")

    async with listening(agree, VERSIONS, protocol="SASL_PLAINTEXT", logins=SaslLogins()) as peer:
        with pytest.raises(BrokerUnreachable, match=r"OAUTHBEARER: kafka\.client\.token-file: token cannot be read"):
            await transport(bearer(read, allow_clear_text=True)).connect(peer.broker).deliver(UPDATE)


async def test_foreign_mechanism_with_four_rounds_logs_in() -> None:
    logins, mechanism = SaslLogins(offered=("FAKE",)), FakeMechanism()
    async with listening(agree, VERSIONS, protocol="SASL_PLAINTEXT", logins=logins) as peer:
        connection = transport(BrokerCredentials(mechanism=mechanism)).connect(peer.broker)
        assert await connection.deliver(UPDATE) == OK
        await connection.close()
    assert logins.complete == 1
    assert mechanism.hosts == ["127.0.0.1"]


async def test_foreign_mechanism_that_fails_is_named() -> None:
    async with listening(agree, VERSIONS, protocol="SASL_PLAINTEXT", logins=SaslLogins(offered=("FAKE",))) as peer:
        credentials = BrokerCredentials(mechanism=FakeMechanism(fails=True))
        with pytest.raises(BrokerUnreachable, match="FAKE: the mechanism has failed: RuntimeError: no ticket"):
            await transport(credentials).connect(peer.broker).deliver(UPDATE)
