"""Client certificates of the admin API: identity and role of the holder, and certificates that are refused."""

import asyncio
import contextlib
import functools
import re
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import anyio
import anyio.to_thread
import pytest

from kactl.admin.identity import credentials
from kactl.admin.identity.token_file import write_tokens
from kactl.config.file import load
from kactl.model.errors import BadConfig
from kactl.runtime import reloading
from kactl.security.access.role import Role
from kactl.security.access.tokens import new_token
from kactl.security.tls import server_tls
from kactl.security.tls.certificate_file import expiry_in
from tests.admin.conftest import Answered, Served, served
from tests.cli.server import kactl
from tests.support.certificates import Authority, Signed
from tests.support.observed_turns import observed_turns
from tests.support.raw_peer import RawPeer

pytestmark = pytest.mark.anyio
PATIENCE_S = 60
CONFIRMED = {"X-Kactl-Request": "1"}
ROLES = {"ada": "admin", "CN=oncall,O=Example": "operator", "CN=reader": "viewer"}


class Identities(NamedTuple):
    """Certificates that all tests of this file share: making one takes a tenth of a second."""

    authority: Authority
    server: Signed
    ada: Signed
    oncall: Signed
    stranger: Signed
    other_cluster: Signed
    expired: Signed
    foreign: Signed


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    folder = tmp_path_factory.mktemp("identities")
    authority = Authority(folder)
    return Identities(
        authority,
        server=authority.sign("server"),
        ada=authority.sign("ada", names="URI:kactl://test/client/x,URI:kactl://test/user/ada"),
        oncall=authority.sign("oncall", subject="/O=Example/CN=oncall"),
        stranger=authority.sign("stranger"),
        other_cluster=authority.sign("other", names="URI:kactl://else/user/ada"),
        expired=authority.sign("expired", names="URI:kactl://test/user/ada", days="-1"),
        foreign=Authority(folder, "other-authority").sign("foreign", names="URI:kactl://test/user/ada"),
    )


class Opened(NamedTuple):
    """Server that asks for certificates."""

    server: Served
    identities: Identities

    async def ask(
        self, own: Signed | None, method: str = "GET", path: str = "/v1/topics", headers: dict[str, str] | None = None
    ) -> Answered:
        """Send a request over a connection of its own, without a token unless the headers have one."""
        tls = ssl.create_default_context(cafile=str(self.identities.authority.cert))
        if own is not None:
            tls.load_cert_chain(own.cert, own.key)
        body: Any = {} if method == "GET" else {"json": {}}
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session,
            session.request(method, self.server.url + path, headers=headers, **body) as answer,
        ):
            return Answered(answer.status, answer.headers, await answer.read())

    async def until_refused(self, own: Signed) -> None:
        """Let the server look at its files until TLS refuses a certificate."""
        with anyio.fail_after(PATIENCE_S), contextlib.suppress(aiohttp.ClientError, ConnectionError):
            while True:
                await self.ask(own)
                reloading.request()  # as SIGHUP does, long before the next look at the files

    async def is_admitted(self, own: Signed) -> bool:
        try:
            return (await self.ask(own)).status == 200
        except (aiohttp.ClientError, ConnectionError):
            return False


@contextlib.asynccontextmanager
async def asking(identities: Identities, client_auth: str, **more: str) -> AsyncIterator[Opened]:
    settings: dict[str, Any] = {
        "api.tls.cert": str(identities.server.cert),
        "api.tls.key": str(identities.server.key),
        "api.tls.client-auth": client_auth,
        "api.tls.client-ca": str(identities.authority.cert),
        "api.certificates": ROLES,
    }
    async with served(settings=settings | more) as server:
        yield Opened(server, identities)


async def test_tls_handshakes_of_clients_take_turns(identities: Identities, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise many at a time would hold the event loop of the controller."""
    taken = observed_turns(monkeypatch)
    async with asking(identities, "required") as opened:
        for _ in range(2):
            assert await opened.is_admitted(identities.ada)

    assert len(taken) >= 4  # two messages of each client
    assert len(set(taken)) == 1


async def test_holder_has_the_role_of_its_name(identities: Identities) -> None:
    async with asking(identities, "required") as opened:
        admin = await opened.ask(identities.ada, "POST", "/v1/brokers/1/kill?", headers=CONFIRMED)
        operator = await opened.ask(identities.oncall, "POST", "/v1/brokers/1/kill?", headers=CONFIRMED)
        drained = await opened.ask(identities.oncall, "POST", "/v1/brokers/2/drain", headers=CONFIRMED)
        nobody = await opened.ask(identities.stranger)
        other_cluster = await opened.ask(identities.other_cluster)

    assert (admin.status in (200, 400), operator.status, drained.status) == (True, 403, 200)
    assert "certificate:CN=oncall,O=Example has the role operator" in operator.json()["detail"]
    assert (nobody.status, other_cluster.status) == (403, 403)
    assert "certificate:CN=stranger has the role none" in nobody.json()["detail"]


async def test_change_by_certificate_needs_the_header_of_a_program(identities: Identities) -> None:
    """A browser presents a certificate with the requests of any page."""
    async with asking(identities, "optional") as opened:
        refused = await opened.ask(identities.oncall, "POST", "/v1/brokers/2/drain")
        read = await opened.ask(identities.oncall)

    assert (refused.status, "X-Kactl-Request" in refused.json()["detail"], read.status) == (403, True, 200)


async def test_optional_certificate_leaves_tokens_valid(identities: Identities) -> None:
    async with asking(identities, "optional") as opened:
        token = {"Authorization": f"Bearer {opened.server.token}"}

        assert (await opened.ask(None)).status == 401
        assert (await opened.ask(None, headers=token)).status == 200
        assert (await opened.ask(None, path="/livez")).status == 200


async def test_token_and_certificate_have_to_name_the_same_client(identities: Identities, tmp_path: Path) -> None:
    tokens = [
        new_token(name, Role.VIEWER, random=37 * bytes([i]), now_ms=0, expires_ms=None)
        for i, name in enumerate(("ada", "grace"))
    ]
    write_tokens(tmp_path / "tokens.toml", [token.record for token in tokens])
    async with asking(identities, "optional", **{"api.tokens": str(tmp_path / "tokens.toml")}) as opened:
        ada, grace = ({"Authorization": f"Bearer {token.text}"} for token in tokens)

        assert (await opened.ask(identities.ada, headers=ada)).status == 200
        assert (await opened.ask(identities.ada, headers=grace)).status == 401
        assert (await opened.ask(identities.ada, headers={"Authorization": "Bearer wrong"})).status == 401
        # The token's role counts.
        assert (await opened.ask(identities.ada, "POST", "/v1/brokers/1/kill", headers=ada | CONFIRMED)).status == 403


@pytest.mark.parametrize("kind", ["none", "expired", "foreign"])
async def test_required_certificate_is_verified(identities: Identities, kind: str) -> None:
    own = None if kind == "none" else getattr(identities, kind)
    async with asking(identities, "required") as opened:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await opened.ask(own, path="/livez")
        assert (await opened.ask(identities.ada)).status == 200


async def test_optional_certificate_is_verified_too(identities: Identities) -> None:
    async with asking(identities, "optional") as opened:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await opened.ask(identities.foreign, path="/livez")


async def test_revoked_certificate_is_refused_as_soon_as_it_is_listed(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, first, second = (authority.sign(name) for name in ("server", "first", "reader"))
    own = Identities(authority, server, second, second, first, first, first, first)
    crl = tmp_path / "listed.pem"
    shutil.copy(authority.revoke(first), crl)
    async with asking(own, "required", **{"api.tls.crl": str(crl)}) as opened:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await opened.ask(first)
        assert (await opened.ask(second)).status == 200

        shutil.copy(authority.revoke(second), tmp_path / "newer.pem")
        (tmp_path / "newer.pem").replace(crl)
        await opened.until_refused(second)


@contextlib.asynccontextmanager
async def keeping(opened: Opened, own: Signed) -> AsyncIterator[aiohttp.ClientSession]:
    """Yields a session whose connections have a certificate, and are kept alive."""
    tls = ssl.create_default_context(cafile=str(opened.identities.authority.cert))
    tls.load_cert_chain(own.cert, own.key)
    async with aiohttp.ClientSession(opened.server.url, connector=aiohttp.TCPConnector(ssl=tls, limit=1)) as session:
        yield session


async def test_revocation_ends_open_connections(tmp_path: Path) -> None:
    """A holder who is not revoked opens another one without an error."""
    authority = Authority(tmp_path)
    server, first, second, reader = (authority.sign(name) for name in ("server", "first", "second", "reader"))
    own = Identities(authority, server, reader, first, first, first, first, first)
    crl = tmp_path / "listed.pem"
    shutil.copy(authority.revoke(first), crl)
    settings: dict[str, Any] = {"api.tls.crl": str(crl), "api.certificates": {"CN=second": "viewer"} | ROLES}
    async with (
        asking(own, "required", **settings) as opened,
        keeping(opened, reader) as stays,
        keeping(opened, reader) as reads,
        keeping(opened, second) as leaves,
        keeping(opened, second) as stolen,
    ):
        for session in (stays, leaves):
            assert (await session.get("/v1/topics")).status == 200
        async with reads.get("/v1/events/stream") as stream, stolen.get("/v1/events/stream") as ends:
            for each in (stream, ends):
                await each.content.readuntil(b"id: ")

            shutil.copy(authority.revoke(second), tmp_path / "newer.pem")
            (tmp_path / "newer.pem").replace(crl)
            await opened.until_refused(second)
            with anyio.fail_after(PATIENCE_S):
                # The stream of the other client ends, too.
                await ends.content.read()
                await stream.content.read()

        # aiohttp does not repeat a POST: this one begins another connection.
        assert (await stays.post("/v1/brokers/2/drain", headers=CONFIRMED, json={})).status == 403
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await leaves.post("/v1/brokers/2/drain", headers=CONFIRMED, json={})
        assert (await stays.get("/v1/topics")).status == 200


async def _status(received: asyncio.StreamReader, sent: asyncio.StreamWriter, request: str) -> int:
    """Send the rest of a request. Returns the status of the response."""
    sent.write(request.encode())
    with anyio.fail_after(PATIENCE_S):
        head = await received.readuntil(b"\r\n\r\n")
        size = re.search(rb"\r\nContent-Length: ([0-9]+)\r\n", head)
        assert size is not None
        await received.readexactly(int(size[1]))
    return int(head.split()[1])


async def test_other_connections_outlast_a_revocation(tmp_path: Path) -> None:
    """Clients without a certificate keep theirs, and a request that is on its way is refused by a response."""
    authority = Authority(tmp_path)
    server, first, reader = (authority.sign(name) for name in ("server", "first", "reader"))
    own = Identities(authority, server, reader, first, first, first, first, first)
    crl = tmp_path / "listed.pem"
    shutil.copy(authority.revoke(authority.sign("nobody")), crl)

    async with asking(own, "optional", **{"api.tls.crl": str(crl)}) as opened:
        where = urlsplit(opened.server.url)
        head = f"GET /v1/topics HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {opened.server.token}\r\n"

        async def sending(signed: Signed | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            tls = ssl.create_default_context(cafile=str(authority.cert))
            if signed is not None:
                tls.load_cert_chain(signed.cert, signed.key)
            received, sent = await asyncio.open_connection(where.hostname, where.port, ssl=tls)
            assert await _status(received, sent, f"GET /livez HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n") == 200
            return received, sent

        without, between = await sending(None)
        received, sent = await sending(reader)
        sent.write(head.encode())  # the last line is missing
        # The server has read it before this one, which was sent later.
        assert await _status(without, between, f"{head}\r\n") == 200

        shutil.copy(authority.revoke(first), tmp_path / "newer.pem")
        (tmp_path / "newer.pem").replace(crl)
        await opened.until_refused(first)

        assert await _status(without, between, f"{head}\r\n") == 200
        assert await _status(received, sent, "\r\n") == 401
        between.close()
        sent.close()


@pytest.mark.parametrize("last", [b"no TLS", b""], ids=["no TLS", "no announcement"])
@pytest.mark.parametrize("has_certificate", [True, False])
async def test_connection_that_fails_within_its_request_is_nobody(
    identities: Identities, has_certificate: bool, last: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """TLS demands that an end is announced. A client that ends without it leaves no internal error in the log, and
    nothing is changed with the token that it has sent: its certificate may have had another name.
    """
    request = "{} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Length: 0\r\n\r\n"
    tls = ssl.create_default_context(cafile=str(identities.authority.cert))
    if has_certificate:
        tls.load_cert_chain(identities.ada.cert, identities.ada.key)
    async with asking(identities, "optional") as opened:
        where = urlsplit(opened.server.url)
        for target in 5 * ("POST /v1/brokers/2/drain", "GET /livez"):
            with socket.create_connection((where.hostname, where.port)) as raw, anyio.fail_after(PATIENCE_S):
                peer = RawPeer(raw, tls)
                await peer.handshake()
                # The server reads all of it before it handles the request.
                await peer.send(request.format(target, where.netloc, opened.server.token).encode(), then=last)
                if not last:
                    raw.shutdown(socket.SHUT_WR)
                await peer.until_closed()
        token = {"Authorization": f"Bearer {opened.server.token}"}
        state = (await opened.ask(None, path="/v1/brokers/2", headers=token)).json()["state"]
        await opened.ask(None, "POST", "/v1/brokers/2/drain", headers=token)
        drained = (await opened.ask(None, path="/v1/brokers/2", headers=token)).json()["state"]

    assert state == "live"
    assert drained != "live"
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("client_auth", ["required", "optional"])
async def test_expired_certificate_ends_its_connection(
    identities: Identities, client_auth: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expires_s = expiry_in(identities.ada.cert)
    assert expires_s is not None
    async with asking(identities, client_auth) as opened, keeping(opened, identities.ada) as session:
        token = {"Authorization": f"Bearer {opened.server.token}"}
        async with keeping(opened, identities.ada) as reads, reads.get("/v1/events/stream") as stream:
            await stream.content.readuntil(b"id: ")
            async with session.get("/v1/topics") as before:
                assert before.status == 200

            monkeypatch.setattr(server_tls, "time", SimpleNamespace(time=lambda: expires_s))
            reloading.request()  # as the look at the files each second

            with anyio.fail_after(PATIENCE_S):
                await stream.content.read()
        async with session.get("/livez") as probe:
            assert probe.status == 200
        async with session.get("/v1/topics", headers=token) as after:
            problem = await after.json()
        assert (after.status, after.headers["Connection"]) == (401, "close")
        assert "the certificate of this connection has expired" in problem["detail"]
        # A client that has no certificate is not concerned.
        if client_auth == "optional":
            assert (await opened.ask(None, headers=token)).status == 200


async def test_reload_does_not_wait_for_the_next_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "POLL_S", 3600.0)
    monkeypatch.setattr(server_tls, "POLL_S", 3600.0)
    file = tmp_path / "tokens.toml"
    token = new_token("ada", Role.VIEWER, random=37 * b"x", now_ms=0, expires_ms=None)
    async with served(settings={"api.tokens": str(file)}) as server:
        write_tokens(file, [token.record])
        with anyio.fail_after(PATIENCE_S):
            while (await server.get("/v1/topics", headers={"Authorization": f"Bearer {token.text}"})).status != 200:
                reloading.request()


async def test_command_presents_the_certificate_of_its_context(identities: Identities, tmp_path: Path) -> None:
    async with asking(identities, "required", **{"api.socket": "off"}) as opened:
        context = tmp_path / "kactl" / "contexts.toml"
        context.parent.mkdir()
        context.write_text(
            f'[contexts.own]\nserver = "{opened.server.url}"\nca = "{identities.authority.cert}"\n'
            f'cert = "{identities.ada.cert}"\nkey = "{identities.ada.key}"\n',
            encoding="ascii",
        )
        command = ("--server", opened.server.url, "topic", "create", "orders", "--partitions", "1")
        run = functools.partial(kactl, *command, env={"XDG_CONFIG_HOME": str(tmp_path)})

        done = await anyio.to_thread.run_sync(run)

    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"client-auth": "required"}, "has no effect without TLS"),
        ({"client-auth": "required", "cert": "x", "key": "x"}, "client-ca: is missing"),
        ({"client-ca": "x", "cert": "x", "key": "x"}, "has no effect without api.tls.client-auth"),
        ({"client-auth": "perhaps"}, "client-auth"),
        ({"client-auth": "optional", "client-ca": "x", "cert": "x", "key": "x", "principal-rules": "RULE:("}, "rules"),
    ],
)
def test_settings_without_effect_are_errors(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(BadConfig, match=reason):
        load(None, {}, {"node-id": 1, **{f"api.tls.{key}": value for key, value in settings.items()}})


def test_certificates_without_a_mode_are_an_error() -> None:
    with pytest.raises(BadConfig, match=r"certificates: has no effect"):
        load(None, {}, {"node-id": 1, "api.certificates": {"ada": "viewer"}})
