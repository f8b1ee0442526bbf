"""Clients with certificates on a listener of protocol SSL: whom the configuration lets in, and under which name."""

import datetime
import socket
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from kactl.cli.listener_security import listener_security, listener_tls
from kactl.config.kafka_settings import BrokerPrincipalsConfig, KafkaConfig, KafkaTlsConfig
from kactl.decide.messages.admin import CreateTopic
from kactl.decide.messages.broker import AllocateProducerIds
from kactl.model import Broker, Endpoint, ProducerIdBlock, TopicRef
from kactl.model.errors import BadConfig
from kactl.security.access import Acl, Acls, Operation, kafka_subject, topic
from kactl.security.tls import server_tls
from kactl.security.tls.certificate_file import expiry_in
from kactl.transports.kafka.listener import ListenerSecurity
from kactl.transports.kafka.listener.authentication import Authentication
from kactl.transports.kafka.listener.server import login_of
from tests.security.access.der import Attribute, certificate, encoded_name
from tests.support.certificates import Authority, Signed
from tests.support.raw_peer import RawPeer
from tests.support.tls_connection import Connected
from tests.transports.kafka.listener.client import Client, connected, request_class
from tests.transports.kafka.listener.listener_stub import ControllerStub, listening, until

pytestmark = pytest.mark.anyio

RULES = "RULE:^CN=([a-z0-9-]+),OU=Brokers$/$1/,RULE:^CN=([a-z]+)$/$1/"
ANSWERS: Any = {
    CreateTopic: lambda request: TopicRef(request.topic, bytes(16)),
    AllocateProducerIds: lambda _: ProducerIdBlock(0, 0, 999),
}


class Files:
    """Certificates of a listener, of clients, and of clients that are not to be let in."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.server = self.authority.sign("kactl")
        self.alice = self.authority.sign("alice")
        self.broker = self.authority.sign("broker", subject="/OU=Brokers/CN=broker-1")
        self.unmapped = self.authority.sign("unmapped", subject="/O=Example/CN=alice")
        self.expired = self.authority.sign("expired", days="-1")
        self.revoked = self.authority.sign("revoked")
        self.crl = self.authority.revoke(self.revoked)
        (folder / "foreign").mkdir()
        self.foreign = Authority(folder / "foreign", "foreign").sign("alice")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both event loops: their TLS differs."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


def _config(files: Files, **tls: str) -> KafkaConfig:
    chosen: dict[str, Any] = {
        "client_auth": "required",
        "client_ca": str(files.authority.cert),
        "crl": str(files.crl),
        "principal_rules": RULES,
    }
    return KafkaConfig(
        listeners=("INTERNAL://127.0.0.1:0",),
        protocols={"INTERNAL": "SSL"},
        tls=KafkaTlsConfig(cert=str(files.server.cert), key=str(files.server.key), **(chosen | tls)),
        broker_principals=BrokerPrincipalsConfig(pattern="User:broker-{id}"),
    )


def _security(files: Files, **tls: str) -> ListenerSecurity:
    security, authorizer = listener_security(_config(files, **tls), None)
    assert authorizer is not None
    authorizer.acls = Acls(
        {
            topic("of-alice"): [Acl("User:alice", "*", Operation.ALL)],
            topic("of-strangers"): [Acl("User:ANONYMOUS", "*", Operation.ALL)],
        }
    )
    return security["INTERNAL"]


def _client_tls(files: Files, signed: Signed | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.authority.cert))
    if signed is not None:
        context.load_cert_chain(signed.cert, signed.key)
    return context


async def _created(client: Client, *names: str) -> dict[str, KioError]:
    """Create topics. Returns the error of each."""
    create = request_class(19, 4)
    entry = create.__annotations__["topics"].__args__[0]
    topics = [entry(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()) for name in names]
    response = await client.ask(
        create(topics=tuple(topics), timeout=datetime.timedelta(seconds=10), validate_only=False)
    )
    return {topic.name: topic.error_code for topic in response.topics}


async def test_subject_is_the_principal(files: Files) -> None:
    controller = ControllerStub(ANSWERS)
    async with (
        listening(controller, security=_security(files)) as (_, port),
        connected(port, tls=_client_tls(files, files.alice)) as client,
    ):
        errors = await _created(client, "of-alice", "of-strangers")
    assert errors == {"of-alice": KioError.none, "of-strangers": KioError.topic_authorization_failed}
    assert [request.topic for request in controller.requests] == ["of-alice"]  # type: ignore[attr-defined]


async def test_broker_is_known_by_its_certificate(files: Files) -> None:
    controller = ControllerStub(ANSWERS)
    controller.live = [Broker(1, 77, (Endpoint("INTERNAL", "10.0.0.1", 1),))]
    allocate = request_class(67, 0)
    async with (
        listening(controller, security=_security(files)) as (listener, port),
        connected(port, tls=_client_tls(files, files.broker)) as client,
    ):
        denied = await client.ask(allocate(broker_id=2, broker_epoch=77))
        assert denied.error_code is KioError.cluster_authorization_failed
        assert (await client.ask(allocate(broker_id=1, broker_epoch=77))).error_code is KioError.none
        assert listener.counters.identified == 1


@pytest.mark.parametrize(
    ("who", "reason"),
    [
        ("nobody", "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        ("foreign", "its certificate is not accepted: unable to get local issuer certificate"),
        ("expired", "its certificate is not accepted: certificate has expired"),
        ("revoked", "its certificate is not accepted: certificate revoked"),
        ("unmapped", "no rule of kafka.tls.principal-rules gives 'CN=alice,O=Example' a printable name"),
    ],
)
async def test_nothing_is_done_for_other_certificates(
    files: Files, caplog: pytest.LogCaptureFixture, who: str, reason: str
) -> None:
    controller = ControllerStub(ANSWERS)
    signed = None if who == "nobody" else getattr(files, who)
    async with listening(controller, security=_security(files)) as (listener, port):
        with pytest.raises((ConnectionError, ssl.SSLError, EOFError)):
            async with connected(port, tls=_client_tls(files, signed)) as client:
                await _created(client, "of-alice", "of-strangers")
        await until(lambda: sum(listener.counters.rejected.values()) == 1)
    assert reason in caplog.text
    assert controller.requests == []


async def test_revocation_ends_open_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    controller, files = ControllerStub(ANSWERS), Files(tmp_path)
    kafka = _config(files)
    tls = listener_tls(kafka)
    security, authorizer = listener_security(kafka, None, tls)
    assert authorizer is not None
    authorizer.acls = Acls({topic("of-alice"): [Acl("User:*", "*", Operation.ALL)]})
    async with (
        listening(controller, security=security["INTERNAL"]) as (listener, port),
        connected(port, tls=_client_tls(files, files.alice)) as client,
    ):
        assert (await _created(client, "of-alice"))["of-alice"] is KioError.none

        files.authority.revoke(files.alice)
        for each in tls:
            await each.refresh()

        with pytest.raises((ConnectionError, EOFError)):
            await _created(client, "of-alice")
        assert len(controller.requests) == 1
        assert listener.counters.rejected["unauthenticated"] == 1
        assert "the files that verified it have changed" in caplog.text

        async with connected(port, tls=_client_tls(files, files.broker)) as other:
            assert (await _created(other, "of-alice"))["of-alice"] is KioError.none
        with pytest.raises((ConnectionError, ssl.SSLError, EOFError)):
            async with connected(port, tls=_client_tls(files, files.alice)) as again:
                await _created(again, "of-alice")
        assert len(controller.requests) == 2


@pytest.mark.parametrize("is_configured", [True, False])
async def test_expired_certificate_ends_its_connection(
    files: Files, is_configured: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    controller = ControllerStub(ANSWERS)
    security = _security(files)
    if not is_configured:
        # As in a program that has a context of its own.
        assert security.context is not None
        security = ListenerSecurity(security.authentication, security.context, security.authorizer)
    expires_s = expiry_in(files.alice.cert)
    assert expires_s is not None
    monkeypatch.setattr(server_tls, "time", SimpleNamespace(time=lambda: expires_s - 1))
    async with (
        listening(controller, security=security) as (listener, port),
        connected(port, tls=_client_tls(files, files.alice)) as client,
    ):
        assert (await _created(client, "of-alice"))["of-alice"] is KioError.none

        monkeypatch.setattr(server_tls, "time", SimpleNamespace(time=lambda: expires_s))

        with pytest.raises((ConnectionError, EOFError)):
            await _created(client, "of-alice")
    assert len(controller.requests) == 1
    assert listener.counters.rejected["unauthenticated"] == 1
    assert "its certificate has expired" in caplog.text


async def test_connection_that_fails_after_its_handshake_is_nobody(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenSSL forgets the certificate. What arrived before is not handled as that of a client without one."""
    controller = ControllerStub(ANSWERS)
    tls = _client_tls(files, files.alice)
    async with listening(controller, security=_security(files, client_auth="optional")) as (listener, port):
        with socket.create_connection(("127.0.0.1", port)) as raw:
            peer = RawPeer(raw, tls)
            # The server reads both at once: the last message of the handshake, and what is none.
            await peer.handshake(then=b"no TLS")
            await peer.until_closed()
        await until(lambda: listener.counters.connections == 0)
    assert sum(listener.counters.rejected.values()) == 0
    assert not [record for record in caplog.records if record.exc_info]


def test_failed_connection_is_not_logged_in_as_one_without_a_certificate(files: Files) -> None:
    """If the failure is not noticed before."""
    security = _security(files, client_auth="optional")
    assert security.context is not None
    failed = Connected(security.context, _client_tls(files, files.alice), fails=True).accepting
    stream: Any = SimpleNamespace(transport=SimpleNamespace(get_extra_info=lambda _: failed))
    with pytest.raises(ConnectionResetError):
        login_of(security, "127.0.0.1", stream)


async def test_optional_certificate_leaves_others_anonymous(files: Files) -> None:
    controller = ControllerStub(ANSWERS)
    security = _security(files, client_auth="optional")
    async with listening(controller, security=security) as (_, port):
        async with connected(port, tls=_client_tls(files, None)) as client:
            errors = await _created(client, "of-alice", "of-strangers")
        assert errors == {"of-alice": KioError.topic_authorization_failed, "of-strangers": KioError.none}
        async with connected(port, tls=_client_tls(files, files.alice)) as client:
            assert (await _created(client, "of-alice"))["of-alice"] is KioError.none


def test_login_is_the_identity_on_listeners_with_sasl(files: Files) -> None:
    """As on brokers: `ssl.client.auth` does not concern SASL_SSL."""
    kafka = KafkaConfig(
        listeners=("INTERNAL://127.0.0.1:0", "MTLS://127.0.0.1:0"),
        protocols={"INTERNAL": "SASL_SSL", "MTLS": "SSL"},
        tls=KafkaTlsConfig(
            cert=str(files.server.cert),
            key=str(files.server.key),
            client_auth="required",
            client_ca=str(files.authority.cert),
        ),
    )
    security, _ = listener_security(kafka, None)
    modes = {name: one.context.verify_mode for name, one in security.items() if one.context is not None}
    assert modes == {"INTERNAL": ssl.CERT_NONE, "MTLS": ssl.CERT_REQUIRED}


@pytest.mark.parametrize("key", ["client_ca", "crl"])
def test_file_that_cannot_be_used_is_named(files: Files, key: str) -> None:
    with pytest.raises(BadConfig, match=f"kafka.tls.{key.replace('_', '-')}: /none cannot be read"):
        _security(files, **{key: "/none"})


def test_name_without_rules_is_that_of_java() -> None:
    name = [[Attribute("2.5.4.10", 0x0C, b"Example, Inc.")], [Attribute("2.5.4.3", 0x0C, b"alice")]]
    login = Authentication("SSL").login("10.0.0.1", certificate(encoded_name(name)))
    assert login.principal == kafka_subject("CN=alice,O=Example\\, Inc.", peer="10.0.0.1")
