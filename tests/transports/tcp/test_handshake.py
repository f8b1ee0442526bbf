"""Handshake: versions, clusters, identities by certificate and by secret, rights, and hostile bytes."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from kactl.decide.messages.admin import DeleteTopic
from kactl.decide.messages.broker import AllocateProducerIds
from kactl.decide.messages.following import FollowerReportsRequested
from kactl.decide.messages.sessions import Heartbeat, NotController, Register, VerifyEndpoint
from kactl.model import Endpoint
from kactl.model.errors import (
    BadConfig,
    BadRequest,
    ControllerUnreachable,
    EndpointUnreachable,
    KactlError,
    NotAuthorized,
    ProtocolMismatch,
)
from kactl.testing.contracts.link_support import ContractOffice, ContractPort, opened, until
from kactl.testing.contracts.network import UPDATE
from kactl.transports.base import ControlLink, LinkState
from kactl.transports.tcp import wire
from kactl.transports.tcp.addresses import Address
from kactl.transports.tcp.framing import Kind
from kactl.transports.tcp.identity import Identity, PeerCertificate, Role
from kactl.transports.tcp.limits import Limits
from kactl.transports.tcp.network import TcpNetwork
from kactl.transports.tcp.tls import Tls
from tests.support.certificates import Authority, Signed
from tests.support.observed_turns import observed_turns
from tests.support.tls_connection import Connected

from .support import RawClient, hello_of, raw_client

pytestmark = pytest.mark.anyio

SECRET = b"0123456789abcdef"
LOOPBACK = "127.0.0.1:0"
# Attempts follow each other fast, so that a test sees the reason of the first one soon.
QUICK = Limits(backoff_ms=1, backoff_max_ms=5)


class Pki:
    """An authority, and certificates of identities."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self.authority = Authority(folder, name)
        self._count = 0

    def tls(self, *identities: str, authority: "Pki | None" = None, days: str | None = None) -> Tls:
        """Returns files with a new certificate. `authority` is the one that they trust."""
        self._count += 1
        names = ",".join(f"URI:{identity}" for identity in identities) or "DNS:localhost"
        signed = self.authority.sign(f"{self.authority.cert.stem}-{self._count}", names=names, days=days or "2")
        trusted = self if authority is None else authority
        return Tls(ca=trusted.authority.cert, cert=signed.cert, key=signed.key)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@asynccontextmanager
async def controller(office: ContractOffice | None = None, **options: Any) -> AsyncIterator[TcpNetwork]:
    network = TcpNetwork(listen=LOOPBACK, **options)
    async with network.controller_side(office or ContractOffice()):
        yield network


@asynccontextmanager
async def participant(address: str | None, broker: int = 1, **options: Any) -> AsyncIterator[ControlLink]:
    assert address is not None
    network = TcpNetwork(controllers=[address], limits=QUICK, **options)
    async with network.participant_side(ContractPort(broker)) as link:
        yield link


async def reason_of(link: ControlLink) -> str:
    """Returns why a link does not open, once it has been tried."""
    while True:
        with pytest.raises(ControllerUnreachable) as raised:
            await link.session(Heartbeat(1, 41, 1))
        if "no controller has been reached yet" not in raised.value.reason:
            return raised.value.reason
        await anyio.lowlevel.checkpoint()


# -- versions and clusters ---------------------------------------------------------------------------------------------


async def test_clusters_do_not_connect_and_both_are_named() -> None:
    async with controller(cluster="east") as network, participant(network.address, cluster="west") as link:
        reason = await reason_of(link)

    assert "'east'" in reason
    assert "'west'" in reason


@pytest.mark.parametrize(("minimum", "maximum", "accepted"), [(0, 1, True), (1, 9, True), (2, 9, False), (0, 0, False)])
async def test_highest_common_version_is_used(minimum: int, maximum: int, accepted: bool) -> None:
    hello = msgspec.structs.replace(hello_of(), minimum=minimum, maximum=maximum, software="other 9.9")
    async with controller() as network, raw_client(network.address) as client:
        if accepted:
            assert (await client.greet(hello)).version == 1
        else:
            with pytest.raises(ProtocolMismatch, match=r"other 9\.9.*speaks versions.*kactl"):
                await client.greet(hello)


async def test_hello_of_a_later_version_is_understood() -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(hello_of()))
    hello: Any = [*fields, "a field of a later version"]
    async with controller(secret=SECRET) as network, raw_client(network.address) as client:
        assert (await client.greet(hello, SECRET)).version == 1


# -- the shared secret -------------------------------------------------------------------------------------------------


async def test_secret_opens_the_link() -> None:
    async with controller(secret=SECRET) as network, participant(network.address, secret=SECRET.decode()) as link:
        await opened(link)


@pytest.mark.parametrize("secret", [None, b"another secret..."])
async def test_participant_with_another_secret_is_refused(secret: bytes | None) -> None:
    office = ContractOffice()
    async with controller(office, secret=SECRET) as network, participant(network.address, secret=secret) as link:
        reason = await reason_of(link)
        assert "give the same secret= to all programs" in reason
        assert reason.count(str(network.address)) == 1
    assert office.open == []


async def test_controller_without_the_secret_is_refused() -> None:
    async with controller() as network, participant(network.address, secret=SECRET) as link:
        assert "does not know the shared secret" in await reason_of(link)


async def test_proof_cannot_be_used_again_or_reflected() -> None:
    hello = hello_of()
    async with controller(secret=SECRET) as network:
        async with raw_client(network.address) as client:
            await client.greet(hello, SECRET)
            # The proof of an earlier handshake with the same hello.
        async with raw_client(network.address) as client:
            head = msgspec.msgpack.encode(hello)
            await client.send(Kind.HANDSHAKE, head)
            challenge = msgspec.msgpack.decode((await client.receive()).head)
            await client.send(Kind.HANDSHAKE, msgspec.msgpack.encode(["Proof", challenge[2]]))
            refusal = await client.receive()
            assert refusal.error
            assert isinstance(wire.decode(refusal.head, wire.ERRORS), NotAuthorized)


def test_short_secret_is_rejected() -> None:
    with pytest.raises(BadConfig, match="at least 16"):
        TcpNetwork(secret=b"short")


# -- certificates ------------------------------------------------------------------------------------------------------


async def test_tls_handshakes_of_participants_take_turns(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise many at a time would hold the event loop of the controller."""
    taken = observed_turns(monkeypatch)
    server = pki.tls("kactl://kactl/controller/100")
    clients = [pki.tls(f"kactl://kactl/participant/{broker}") for broker in (1, 2)]
    async with controller(tls=server) as network, AsyncExitStack() as stack:
        for broker, tls in zip((1, 2), clients, strict=True):
            await stack.enter_async_context(participant(network.address, broker, tls=tls))
        await until(lambda: len(taken) >= 4)  # two messages of each client

    assert len(set(taken)) == 1


async def test_certificates_open_the_link(pki: Pki) -> None:
    server, client = pki.tls("kactl://kactl/controller/100"), pki.tls("kactl://kactl/participant/1")
    async with controller(tls=server) as network, participant(network.address, tls=client) as link:
        await opened(link)


@pytest.mark.parametrize(
    ("theirs", "text"),
    [
        ("kactl://kactl/participant/2", "claims to be kactl://kactl/participant/1"),
        ("kactl://kactl/controller/1", "claims to be kactl://kactl/participant/1"),
        ("kactl://other/participant/1", "claims to be kactl://kactl/participant/1"),
        ("spiffe://kactl/participant/1", "names no identity of kactl"),
        ("", "names no identity of kactl"),
    ],
)
async def test_certificate_of_another_identity_is_refused(pki: Pki, theirs: str, text: str) -> None:
    server, client = pki.tls("kactl://kactl/controller/100"), pki.tls(*filter(None, [theirs]))
    office = ContractOffice()
    async with controller(office, tls=server) as network, participant(network.address, tls=client) as link:
        assert text in await reason_of(link)
    assert office.open == []


@pytest.mark.parametrize("theirs", ["kactl://kactl/participant/100", "kactl://kactl/controller/101"])
async def test_participant_refuses_a_controller_with_another_certificate(pki: Pki, theirs: str) -> None:
    server, client = pki.tls(theirs), pki.tls("kactl://kactl/participant/1")
    async with controller(tls=server) as network, participant(network.address, tls=client) as link:
        assert "claims to be kactl://kactl/controller/100" in await reason_of(link)


async def test_certificates_of_another_authority_are_refused(pki: Pki, tmp_path: Path) -> None:
    other = Pki(tmp_path, "other")
    server = pki.tls("kactl://kactl/controller/100")
    stranger = other.tls("kactl://kactl/participant/1", authority=pki)
    distrustful = pki.tls("kactl://kactl/participant/1", authority=other)
    async with controller(tls=server) as network:
        async with participant(network.address, tls=stranger) as link:
            assert "may not accept the certificate" in await reason_of(link)
        async with participant(network.address, tls=distrustful) as link:
            assert "its certificate is not accepted: self-signed certificate" in await reason_of(link)


async def test_identities_may_be_found_by_a_function(pki: Pki) -> None:
    def identify(certificate: PeerCertificate) -> Identity:
        role, _, name = certificate.uris[0].removeprefix("spiffe://example/").partition("-")
        return Identity("kactl", Role(role), name)

    server, client = pki.tls("spiffe://example/controller-100"), pki.tls("spiffe://example/participant-1")
    async with (
        controller(tls=server, identify=identify) as network,
        participant(network.address, tls=client, identify=identify) as link,
        participant(network.address, 2, tls=client, identify=identify) as other,
    ):
        await opened(link)
        assert "claims to be kactl://kactl/participant/2" in await reason_of(other)


@pytest.mark.parametrize("name", ["", "any"])
@pytest.mark.parametrize("found", [None, "kactl://kactl/spectator/any"])
async def test_function_that_returns_no_identity_denies_and_closes_the_connection(
    pki: Pki, found: Any, name: str
) -> None:
    tls = pki.tls("kactl://kactl/controller/100", "kactl://kactl/spectator/any")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(tls.cert, tls.key)
    async with controller(tls=tls, identify=lambda _: found) as network, raw_client(network.address, context) as client:
        with pytest.raises(NotAuthorized, match="identify returned a"):
            await client.greet(hello_of(name, role=Role.SPECTATOR))
        await client.ended()


async def test_connection_ends_if_its_handshake_fails_unexpectedly(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing else would end it: it has no time limit any more, and its silence is not watched yet."""

    class Faulty(ContractOffice):
        calls = 0

        def standby(self) -> NotController | None:
            self.calls += 1
            if self.calls == 2:  # after the handshake
                raise RuntimeError("a bug")
            return super().standby()

    async with controller(Faulty()) as network, raw_client(network.address) as client:
        with pytest.raises(EOFError):
            await client.greet(hello_of())

    assert "a bug" in caplog.text


async def test_tls_before_version_1_3_is_refused(pki: Pki) -> None:
    tls = pki.tls("kactl://kactl/controller/100", "kactl://kactl/participant/1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(tls.cert, tls.key)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with controller(tls=tls) as network:
        with pytest.raises((ssl.SSLError, OSError)):
            async with raw_client(network.address, context):
                pass
        context.maximum_version = ssl.TLSVersion.TLSv1_3
        async with raw_client(network.address, context) as client:
            assert (await client.greet(hello_of())).version == 1


def test_no_session_of_tls_is_resumed(pki: Pki) -> None:
    """Its certificate would not be verified again."""
    tls = pki.tls("kactl://kactl/participant/1")
    server, client = tls.server_context(), tls.client_context()
    first = Connected(server, client)

    assert first.session is not None
    assert not first.session.has_ticket
    assert not Connected(server, client, first.session).is_resumed


async def test_client_without_a_certificate_is_refused(pki: Pki) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with controller(tls=pki.tls("kactl://kactl/controller/100")) as network:
        with pytest.raises((OSError, EOFError)):  # TLS 1.3 tells it after its own side of the handshake
            async with raw_client(network.address, context) as client:
                await client.greet(hello_of())


async def test_reloaded_certificate_is_used_for_new_links(pki: Pki, tmp_path: Path) -> None:
    earlier, later = pki.tls("kactl://kactl/participant/1"), pki.tls("kactl://kactl/participant/2")
    files = Tls(ca=pki.authority.cert, cert=tmp_path / "cert.pem", key=tmp_path / "key.pem")

    def put(tls: Tls) -> None:
        Path(files.cert).write_bytes(Path(tls.cert).read_bytes())
        Path(files.key).touch(mode=0o600)
        Path(files.key).write_bytes(Path(tls.key).read_bytes())
        Path(files.key).chmod(0o600)

    put(earlier)
    server = pki.tls("kactl://kactl/controller/100")
    async with controller(tls=server) as network, participant(network.address, 1, tls=files) as link:
        await opened(link)
        put(later)
        async with participant(network.address, 2, tls=files) as other:
            assert "its certificate names kactl://kactl/participant/1" in await reason_of(other)
        files.reload()
        async with participant(network.address, 2, tls=files) as other:
            await opened(other)
        assert link.state is LinkState.OPEN

        Path(files.key).write_text("no key")
        with pytest.raises(BadConfig, match=r"tls\.key: .*key\.pem contains no private key"):
            files.reload()
        async with participant(network.address, 2, tls=files) as other:
            await opened(other)


async def test_revoked_certificate_loses_its_open_link(pki: Pki, tmp_path: Path) -> None:
    revoked, stays = pki.tls("kactl://kactl/participant/1"), pki.tls("kactl://kactl/participant/2")
    server, listed = pki.tls("kactl://kactl/controller/100"), tmp_path / "revoked.crl"
    listed.write_bytes(pki.authority.revoke(pki.authority.sign("gone")).read_bytes())
    own = Tls(ca=server.ca, cert=server.cert, key=server.key, crl=listed)
    async with (
        controller(tls=own) as network,
        participant(network.address, 1, tls=revoked) as one,
        participant(network.address, 2, tls=stays) as other,
    ):
        await opened(one)
        await opened(other)

        network.reload()
        assert one.state is other.state is LinkState.OPEN  # the list is the same
        listed.write_bytes(pki.authority.revoke(Signed(Path(revoked.cert), Path(revoked.key))).read_bytes())
        network.reload()
        await until(lambda: one.state is not LinkState.OPEN)

        assert await reason_of(one)  # the link does not open again
        await opened(other)


async def test_expired_certificate_loses_its_open_link(
    pki: Pki, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tls, server = pki.tls("kactl://kactl/participant/1"), pki.tls("kactl://kactl/controller/100")
    limits = Limits(silence_ms=600, backoff_ms=1, backoff_max_ms=5)

    class Later:
        @staticmethod
        def time() -> float:
            return 2.0**40

    async with controller(tls=server, limits=limits) as network, participant(network.address, 1, tls=tls) as link:
        await opened(link)

        monkeypatch.setattr("kactl.transports.tcp.link.time", Later)

        await until(lambda: "is closed: the certificate of the peer has expired" in caplog.text)


async def test_link_by_a_replaced_secret_ends() -> None:
    earlier, later = b"earlier secret, 24 bytes", b"later secret of 24 bytes"
    async with controller(secret=earlier) as network, participant(network.address, 1, secret=earlier) as link:
        await opened(link)
        with pytest.raises(BadConfig, match="5 bytes"):
            network.reload(secret=b"short")

        network.reload(secret=later)

        async with participant(network.address, 2, secret=later) as other:
            await opened(other)
        async with participant(network.address, 3, secret=earlier) as other:
            assert "secret" in await reason_of(other)
        await until(lambda: link.state is not LinkState.OPEN)


def test_own_certificate_has_the_names_that_peers_see(pki: Pki) -> None:
    names = ("kactl://kactl/participant/1", "kactl://kactl/spectator/any")

    assert pki.tls(*names).own_certificate().uris == names


def test_certificate_that_no_peer_accepts_is_reported(pki: Pki, tmp_path: Path) -> None:
    other = Pki(tmp_path, "other")
    identity = "kactl://kactl/participant/1"
    for tls, reason in (
        (pki.tls(identity, authority=other), "self-signed certificate|unable to get local issuer certificate"),
        (pki.tls(identity, days="-1"), "certificate has expired"),
    ):
        with pytest.raises(BadConfig, match=rf"^tls\.cert: .*{tls.ca} do not accept {tls.cert}: .*({reason})"):
            tls.own_certificate()


async def test_controller_uses_a_renewed_certificate(pki: Pki) -> None:
    files = pki.tls("kactl://kactl/participant/1")
    server = pki.tls("kactl://kactl/participant/9")
    async with controller(tls=server) as network:
        async with participant(network.address, 1, tls=files) as link:
            assert "participant/9" in await reason_of(link)
        renewed = pki.tls("kactl://kactl/controller/100")
        server.cert, server.key = renewed.cert, renewed.key

        network.reload()

        async with participant(network.address, 1, tls=files) as link:
            await opened(link)


def test_network_without_a_secret_gets_none() -> None:
    with pytest.raises(BadConfig, match="start it with one"):
        TcpNetwork().reload(secret=b"a secret of 16 bytes")


def test_files_do_not_follow_the_working_directory(pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = pki.tls("kactl://kactl/participant/1")
    monkeypatch.chdir(Path(own.cert).parent)
    tls = Tls(ca=Path(own.ca).name, cert=Path(own.cert).name, key=Path(own.key).name)
    monkeypatch.chdir("/")

    tls.reload()

    assert tls.expires_s is not None


async def test_missing_certificate_is_reported_at_the_start(tmp_path: Path) -> None:
    network = TcpNetwork(listen=LOOPBACK, tls=Tls(ca=tmp_path / "ca.pem", cert="c.pem", key="k.pem"))

    with pytest.raises(BadConfig, match=r"ca\.pem"):
        async with network.controller_side(ContractOffice()):
            pass


# -- other protocols ---------------------------------------------------------------------------------------------------


async def test_tls_client_on_a_plain_address_is_recognised(pki: Pki, caplog: pytest.LogCaptureFixture) -> None:
    tls = pki.tls("kactl://kactl/participant/1")
    async with controller() as network, participant(network.address, tls=tls) as link:
        assert "does not use TLS" in await reason_of(link)

    assert "has no TLS, and the peer speaks TLS" in caplog.text


async def test_plain_client_on_a_tls_address_is_recognised(pki: Pki, caplog: pytest.LogCaptureFixture) -> None:
    server = pki.tls("kactl://kactl/controller/100")
    async with controller(tls=server) as network, participant(network.address) as link:
        assert "requires TLS" in await reason_of(link)
    assert "requires TLS, and the peer speaks plain text" in caplog.text


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-OpenSSH\r\n"])
async def test_other_clients_are_recognised(first: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with controller() as network, raw_client(network.address) as client:
        await client.write(first)
        await client.ended()
    assert "the peer speaks" in caplog.text


async def test_certificate_that_has_expired_is_refused(pki: Pki) -> None:
    server, client = pki.tls("kactl://kactl/controller/100"), pki.tls("kactl://kactl/participant/1", days="-1")
    async with controller(tls=server) as network, participant(network.address, tls=client) as link:
        assert "may not accept the certificate" in await reason_of(link)


async def test_other_servers_are_recognised() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with participant(f"127.0.0.1:{port}") as link:
            assert "it speaks HTTP" in await reason_of(link)


# -- addresses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "has no TLS"),
        ({"secret": SECRET}, "has no TLS"),
        ({"allow_plaintext": True}, "neither TLS nor a secret"),
    ],
)
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
async def test_plain_text_is_limited_to_loopback(options: dict[str, Any], text: str, host: str) -> None:
    network = TcpNetwork(listen=f"{host}:0", **options)

    with pytest.raises(BadConfig, match=text):
        async with network.controller_side(ContractOffice()):
            pass
    assert network.address is None


async def test_allowed_plain_text_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    network = TcpNetwork(listen="0.0.0.0:0", secret=SECRET, allow_plaintext=True)

    async with network.controller_side(ContractOffice()):
        assert network.address
    assert any("without TLS" in record.message and record.levelno == logging.WARNING for record in caplog.records)


async def test_tls_may_leave_the_host(pki: Pki) -> None:
    async with TcpNetwork(listen="0.0.0.0:0", tls=pki.tls("kactl://kactl/controller/100")).controller_side(
        ContractOffice()
    ):
        pass


async def test_participant_sends_no_plain_text_to_another_host() -> None:
    async with participant("192.0.2.1:7373") as link:
        assert "has no TLS" in await reason_of(link)


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example", "a\0b"])
async def test_name_that_no_resolver_accepts_cannot_be_verified(host: str) -> None:
    """Another program has sent it: names in a configuration are rejected at once."""
    async with controller() as network:
        with pytest.raises(EndpointUnreachable) as raised:
            await network.verify(1, bytes(16), host, 7373, "127.0.0.1")

        assert "the name of the host cannot be resolved" in str(raised.value.__cause__)


async def test_address_in_use_is_reported() -> None:
    async with controller() as network:
        other = TcpNetwork(listen=network.address)
        with pytest.raises(BadConfig, match=r"cannot be listened on \(Address already in use\): choose another"):
            async with other.controller_side(ContractOffice()):
                pass


@pytest.mark.parametrize("file", ["ca", "cert", "key"])
async def test_file_of_tls_that_cannot_be_used_is_reported_at_once(pki: Pki, tmp_path: Path, file: str) -> None:
    files = pki.tls("kactl://kactl/participant/1")
    tls = Tls(**{"ca": files.ca, "cert": files.cert, "key": files.key, file: str(tmp_path / "gone.pem")})
    network = TcpNetwork(controllers=["127.0.0.1:7373"], tls=tls)

    for side in (network.participant_side(ContractPort(1)), network.spectator_side()):
        with pytest.raises(BadConfig, match=rf"tls\.{file}: .*gone\.pem cannot be read"):
            await side.__aenter__()


async def test_controllers_without_a_port_are_reported_at_once() -> None:
    with pytest.raises(BadConfig, match=r"controllers: 127\.0\.0\.1:0 has no port"):
        await TcpNetwork(controllers=["127.0.0.1:0"]).participant_side(ContractPort(1)).__aenter__()


async def test_unknown_host_and_closed_port_are_told_apart(pki: Pki) -> None:
    tls = pki.tls("kactl://kactl/participant/1")
    async with participant(f"127.0.0.1:{_closed_port()}", tls=tls) as link:
        assert (await reason_of(link)).endswith(": Connection refused")
    async with controller(tls=pki.tls("kactl://kactl/controller/100")) as network:
        with pytest.raises(EndpointUnreachable) as raised:
            await network.verify(1, b"0123456789abcdef", "a..b", 7373, "127.0.0.1")
        assert "the name of the host cannot be resolved" in str(raised.value.__cause__)


async def test_participant_needs_the_addresses_of_controllers() -> None:
    with pytest.raises(BadRequest, match="knows no controller"):
        async with TcpNetwork().participant_side(ContractPort(1)):
            pass


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("host", Address("host", 7373)),
        ("host:1", Address("host", 1)),
        (":0", Address("127.0.0.1", 0)),
        ("[::1]:5", Address("::1", 5)),
        ("[::1]", Address("::1", 7373)),
        ("::1", Address("::1", 7373)),
    ],
)
def test_addresses_are_parsed(text: str, address: Address) -> None:
    assert Address.parse(text, "x") == address
    assert Address.parse(str(address), "x") == address


@pytest.mark.parametrize(
    "text",
    [
        "host:",
        "host:x",
        "host:70000",
        "[::1",
        "[::1]5",
        "host:-1",
        "http://host:7373",
        "a:b:c",
        "a host:1",
        "ho/st",
        "a..b:1",
        f"{'x' * 64}:1",
    ],
)
def test_invalid_addresses_are_rejected(text: str) -> None:
    with pytest.raises(BadConfig, match="is no address"):
        Address.parse(text, "x")


# -- endpoints ---------------------------------------------------------------------------------------------------------


async def test_advertised_endpoint_is_verified() -> None:
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(controller())
        assert network.address is not None
        port = ContractPort(1)
        other = TcpNetwork(listen=LOOPBACK, controllers=[network.address])
        await stack.enter_async_context(other.participant_side(port))
        assert other.advertised is not None
        host, _, number = other.advertised.rpartition(":")

        await network.verify(1, port.incarnation, host, int(number), host)

        for broker, incarnation, at, text in (
            (1, b"another", (host, int(number)), "another start of participant 1"),
            (2, port.incarnation, (host, int(number)), "no participant 2 runs"),
            (1, port.incarnation, (host, _closed_port()), "Connection refused"),
            (1, port.incarnation, ("0.0.0.0", 7373), "advertise="),
        ):
            with pytest.raises(EndpointUnreachable) as raised:
                await network.verify(broker, incarnation, *at, "127.0.0.1")

            assert text in str(raised.value.__cause__ or raised.value)


async def test_every_failed_check_of_an_endpoint_reads_the_same() -> None:
    """A participant must not find out what listens elsewhere."""

    async def closes(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with controller() as network, await asyncio.start_server(closes, "127.0.0.1", 0) as server:
        texts = set[str]()
        for port in (_closed_port(), server.sockets[0].getsockname()[1], int(str(network.address).rpartition(":")[2])):
            with pytest.raises(EndpointUnreachable) as raised:
                await network.verify(1, bytes(16), "127.0.0.1", port, "127.0.0.1")
            texts.add(raised.value.reason)

    assert len(texts) == 1


def _closed_port() -> int:
    import socket

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        number: int = bound.getsockname()[1]
    return number


# -- rights ------------------------------------------------------------------------------------------------------------


async def test_participant_speaks_only_for_itself() -> None:
    office = ContractOffice()
    async with controller(office) as network, participant(network.address) as link:
        await opened(link)
        requests: list[Any] = [AllocateProducerIds(2, 77), DeleteTopic("orders")]
        for request in requests:
            with pytest.raises(NotAuthorized, match="participant 1 must not send"):
                await link.ask(request, controller=100)
        before = len(office.received_ns)
        for session in (
            Heartbeat(2, 41, 1),
            Register(1, bytes(16), 6_000),
            VerifyEndpoint(1, bytes(16), Endpoint("PEER", "127.0.0.1", 7373)),
        ):
            with pytest.raises(NotAuthorized, match="participant 1 must not"):
                await link.session(session)
        assert (await link.ask(AllocateProducerIds(1, 77), controller=100)).broker == 1
        assert len(office.received_ns) == before


async def test_controllers_do_not_link_with_each_other() -> None:
    async with controller() as network, raw_client(network.address) as client:
        with pytest.raises(NotAuthorized, match="needs the role participant"):
            await client.greet(hello_of(role=Role.CONTROLLER))


@pytest.mark.parametrize("role", [Role.SPECTATOR, Role.CLIENT])
@pytest.mark.parametrize("kind", [Kind.SESSION, Kind.ASK, Kind.PEER, Kind.READY])
async def test_spectators_only_watch(role: Role, kind: Kind) -> None:
    office = ContractOffice()
    async with controller(office) as network, raw_client(network.address) as client:
        await client.greet(hello_of("any", role=role))
        before = len(office.received_ns)
        await client.send(kind, wire.encode(AllocateProducerIds(1, 1)))
        await client.ended()
    assert office.open == []
    assert len(office.received_ns) == before


@pytest.mark.parametrize(("name", "reason"), [("-1", "is not 1 to"), ("²", "is not 1 to"), ("40000", "to names")])
async def test_participant_needs_a_broker_id_or_a_name(name: str, reason: str) -> None:
    async with controller() as network, raw_client(network.address) as client:
        with pytest.raises(NotAuthorized, match=reason):
            await client.greet(hello_of(name))


@pytest.mark.parametrize("changes", [{"broker": 40_001}, {"incarnation": b"short"}])
async def test_link_under_an_id_that_was_not_given_is_refused(changes: dict[str, Any]) -> None:
    office = ContractOffice()
    office.given = 40_000
    hello = msgspec.structs.replace(hello_of("a", incarnation=bytes(16)), **changes)
    async with controller(office) as network, raw_client(network.address) as client:
        with pytest.raises(KactlError, match=r"has lost the id 40001|sent no incarnation"):
            await client.greet(hello)
    assert not office.open


async def test_forged_sender_of_a_message_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    receiver = ContractPort(2)
    async with controller() as network:
        assert network.address is not None
        other = TcpNetwork(controllers=[network.address])
        async with other.participant_side(receiver) as link, raw_client(network.address) as client:
            await opened(link)
            await client.greet(hello_of(1))
            for leader in (3, 1):  # the sender is broker 1
                message = wire.encode(FollowerReportsRequested(leader, 2, 0, 0))
                await client.send(Kind.PEER, msgspec.msgpack.encode(["Envelope", 2, msgspec.Raw(message)]))
            await until(lambda: receiver.received)
    assert receiver.received == [FollowerReportsRequested(1, 2, 0, 0)]
    assert "names broker 3 as its sender" in caplog.text


@pytest.mark.parametrize("kind", [Kind.ORDER, Kind.METADATA, Kind.HANDSHAKE])
async def test_participant_that_sends_a_controllers_message_is_closed(kind: Kind) -> None:
    office = ContractOffice()
    async with controller(office) as network, raw_client(network.address) as client:
        await client.greet(hello_of())
        await until(lambda: office.open)
        await client.send(kind, wire.encode(UPDATE))
        await client.ended()
        await until(lambda: office.closed)


# -- hostile bytes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x20\x00" + bytes(20),  # a frame of 8 KiB
        b"\x00\x00\x00\x0c\x01\x01\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00",  # a part
        b"\x00\x00\x00\x0d\x01\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01x",  # no hello
        b"\x00\x00\x00\x0d\x04\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01x",  # an order
        b"\x00\x00\x00\x0c\x02\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00" * 6,  # too many frames
    ],
)
async def test_hostile_bytes_before_the_handshake_close_the_connection(data: bytes) -> None:
    office = ContractOffice()
    async with controller(office) as network, raw_client(network.address) as client:
        await client.write(data)
        await client.ended()
    assert office.open == []


async def test_listener_survives_hostile_bytes() -> None:
    """Mutated frames, before and after the handshake, against a controller with a live participant."""
    import random

    from kactl.transports.tcp.framing import Message, frames_of

    rng, office = random.Random(53), ContractOffice()
    session = b"".join(frames_of(Message(Kind.SESSION, 1, wire.encode(Heartbeat(1, 41, 1))), 4096))
    ask = b"".join(frames_of(Message(Kind.ASK, 2, wire.encode(AllocateProducerIds(2, 1))), 4096))
    hello = b"".join(frames_of(Message(Kind.HANDSHAKE, 0, msgspec.msgpack.encode(hello_of(2))), 4096))

    def mutated(data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        return bytes(changed)

    async def attack(client: RawClient, data: bytes) -> None:
        try:
            await client.write(data)
            client.writer.write_eof()
            await client.ended()
        except OSError:
            return

    async with controller(office) as network, participant(network.address) as link:
        await opened(link)
        for _ in range(150):
            async with raw_client(network.address) as client:
                await attack(client, mutated(hello))
            async with raw_client(network.address) as client:
                try:
                    await client.greet(hello_of(2))
                except KactlError:
                    continue
                await attack(client, mutated(session + ask))
        assert link.state is LinkState.OPEN
        assert (await link.session(Heartbeat(1, 41, 7))).seq == 7  # type: ignore[union-attr]
        await until(lambda: [one.broker for one in office.open] == [1])
