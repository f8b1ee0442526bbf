"""Addresses that others can reach, and TLS of the admin API."""

import asyncio
import os
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp
import anyio
import anyio.to_thread
import pytest

from kactl.admin.exposure import checked, openings
from kactl.admin.identity.token_file import write_tokens
from kactl.config.file import load
from kactl.config.settings import ApiConfig, ApiTlsConfig, Config, SecurityConfig, StoreConfig
from kactl.model.errors import BadConfig
from kactl.security.access.role import Role
from kactl.security.tls import server_tls
from tests.admin.conftest import Served, served
from tests.admin.test_access import bearer, token
from tests.cli.server import kactl
from tests.support.certificates import Authority, Signed

pytestmark = pytest.mark.anyio
PATIENCE_S = 30
TLS = ApiTlsConfig(cert="cert.pem", key="key.pem")


def insecure(config: Config) -> tuple[str, ...]:
    """Returns the names of the interfaces that are open by consent."""
    return tuple(opening.interface for opening in checked(config) if opening.needs_consent)


# -- which addresses may be opened -------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
def test_loopback_needs_no_tls(host: str) -> None:
    assert insecure(Config(node_id=0, api=ApiConfig(listen=f"{host}:0"))) == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "host.invalid"])
def test_other_addresses_need_tls_or_consent(host: str) -> None:
    api = ApiConfig(listen=f"{host}:8080")
    with pytest.raises(BadConfig) as refused:
        insecure(Config(node_id=0, api=api))
    assert str(refused.value) == (
        f'api.listen: "{host}:8080" can be reached by others and has no TLS: give [api.tls] cert and key, '
        'listen on 127.0.0.1, or name "api" in security.allow-insecure'
    )
    allowed = SecurityConfig(allow_insecure=("api",))
    assert insecure(Config(node_id=0, api=api, security=allowed)) == ("api",)
    assert insecure(Config(node_id=0, api=ApiConfig(listen=f"{host}:8080", tls=TLS))) == ()


@pytest.mark.parametrize(
    ("api", "name", "reason"),
    [
        (ApiConfig(listen="127.0.0.1:0"), "api", "is secure: remove it"),
        (ApiConfig(listen="0.0.0.0:0", tls=TLS), "api", "is secure: remove it"),
        (
            ApiConfig(listen="0.0.0.0:0"),
            "everything",
            'is no interface of this configuration: use "api"$',
        ),
    ],
)
def test_consent_without_reason_is_an_error(api: ApiConfig, name: str, reason: str) -> None:
    with pytest.raises(BadConfig, match=reason):
        insecure(Config(node_id=0, api=api, security=SecurityConfig(allow_insecure=(name,))))


OTHERS_ETCD = StoreConfig(kind="etcd", endpoints=("https://192.0.2.1:2379", "http://192.0.2.2:2379"))
OTHERS_DIGEST = StoreConfig(
    kind="zookeeper", connect="127.0.0.1:2181,192.0.2.3:2181/kafka", auth_scheme="digest", user="kactl"
)


@pytest.mark.parametrize(
    ("store", "message"),
    [
        (
            OTHERS_ETCD,
            'store.endpoints: "http://192.0.2.2:2379" is another host, and has no TLS: write it as "https://...", or '
            'name "store" in security.allow-insecure',
        ),
        (
            OTHERS_DIGEST,
            'store.auth-scheme: "digest" would send the password to 192.0.2.3:2181 in clear text: set store.tls and '
            'store.ca, or name "store" in security.allow-insecure',
        ),
    ],
)
def test_secrets_are_sent_to_other_hosts_by_consent_only(store: StoreConfig, message: str) -> None:
    with pytest.raises(BadConfig) as refused:
        insecure(Config(node_id=0, store=store))
    assert str(refused.value) == message
    allowed = SecurityConfig(allow_insecure=("store",))
    assert insecure(Config(node_id=0, store=store, security=allowed)) == ("store",)
    what = [opening.what for opening in openings(Config(node_id=0, store=store)) if opening.needs_consent]
    assert what == [message.partition(": write")[0].partition(": set")[0]]


@pytest.mark.parametrize(
    "store",
    [
        StoreConfig(kind="etcd", endpoints=("http://127.0.0.1:2379", "http://[::1]:2379", "http://localhost:2379")),
        StoreConfig(kind="etcd", endpoints=("https://192.0.2.1:2379",)),
        StoreConfig(kind="zookeeper", connect="127.0.0.1:2181,[::1]:2181/kafka", auth_scheme="digest", user="kactl"),
        StoreConfig(kind="zookeeper", connect="192.0.2.3:2182", auth_scheme="digest", user="kactl", tls=True),
        StoreConfig(kind="zookeeper", connect="192.0.2.3:2181", user="kactl"),
    ],
)
def test_stores_that_need_no_consent(store: StoreConfig) -> None:
    assert insecure(Config(node_id=0, store=store)) == ()


def test_server_without_consent_to_an_open_store_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "kactl.toml"
    file.write_text('node-id = 0\n[store]\nkind = "etcd"\nendpoints = ["http://192.0.2.2:2379"]\n')

    refused = kactl("up", "--config", file, "--data-dir", tmp_path / "data", "--participants", "1")

    assert refused.code == 2
    assert 'name "store" in security.allow-insecure' in refused.err


def test_consent_can_only_be_given_in_the_file(tmp_path: Path) -> None:
    for env, overrides in (
        ({"KACTL_SECURITY__ALLOW_INSECURE": "api"}, {}),
        ({}, {"security.allow-insecure": ["api"]}),
    ):
        with pytest.raises(BadConfig, match="can only be set in the configuration file"):
            load(None, {"KACTL_NODE_ID": "0", **env}, overrides)
    file = tmp_path / "kactl.toml"
    file.write_text('node-id = 0\n[security]\nallow-insecure = ["api"]\n')
    assert load(file).security.allow_insecure == ("api",)


def test_refused_server_opens_and_writes_nothing(tmp_path: Path) -> None:
    refused = kactl("up", "--listen", "0.0.0.0:0", "--data-dir", tmp_path / "data", "--participants", "1")

    assert refused.code == 2
    assert "security.allow-insecure" in refused.err
    assert not (tmp_path / "data").exists()


async def test_open_server_says_so(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    admin = token("admin", Role.ADMIN)
    write_tokens(tmp_path / "tokens.toml", [admin.record])
    security = SecurityConfig(allow_insecure=("api",), folder=str(tmp_path))
    async with served(listen="0.0.0.0:0", security=security) as server:
        headers = bearer(admin.text) | {"Host": f"127.0.0.1:{urlsplit(server.url).port}"}
        (item,) = (await server.get("/v1/controller", headers=headers)).json()["insecure"]
        metrics = (await server.get("/metrics", headers=headers)).body.decode()
    what = 'api.listen: "0.0.0.0:0" can be reached by others and has no TLS'
    assert item == {"interface": "api", "what": what, "since_ms": server.clock.now_ms()}
    assert 'kactl_security_insecure{interface="api"} 1.0' in metrics
    assert f"api is insecure: {what}; see docs/security.md" in caplog.text


async def test_secure_server_lists_nothing(shared: Served) -> None:
    assert (await shared.get("/v1/controller")).json()["insecure"] == []


# -- TLS ---------------------------------------------------------------------------------------------------------------


class Encrypted(NamedTuple):
    """Server with TLS."""

    server: Served
    authority: Authority
    present: Signed
    folder: Path

    def client(self, authority: Authority | None = None) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str((authority or self.authority).cert))

    def replace(self, signed: Signed) -> None:
        for source, target in ((signed.cert, self.present.cert), (signed.key, self.present.key)):
            shutil.copy(source, f"{target}.new")
            os.replace(f"{target}.new", target)

    async def serial(self) -> str:
        """Returns the serial number of the certificate that a new connection is shown."""
        where = urlsplit(self.server.url)
        _, writer = await asyncio.open_connection(where.hostname, where.port, ssl=self.client())
        shown = writer.get_extra_info("peercert")["serialNumber"]
        writer.close()
        return str(shown)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def encrypted(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Encrypted]:
    monkeypatch.setattr(server_tls, "POLL_S", 0.02)
    signed = authority.sign("server")
    present = Signed(tmp_path / "cert.pem", tmp_path / "key.pem")
    shutil.copy(signed.cert, present.cert)
    shutil.copy(signed.key, present.key)
    settings = {"api.tls.cert": str(present.cert), "api.tls.key": str(present.key)}
    async with served(settings=settings) as server:
        yield Encrypted(server, authority, present, tmp_path)


async def test_requests_over_tls_follow_the_same_rules(encrypted: Encrypted) -> None:
    server, tls = encrypted.server, encrypted.client()
    assert server.url.startswith("https://")
    own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    clear = {"Origin": server.url.replace("https", "http")}

    assert (await server.get("/v1/topics", ssl=tls)).status == 200
    assert (await server.get("/v1/topics", ssl=tls, headers=own)).status == 200
    assert (await server.get("/v1/topics", ssl=tls, headers=clear)).status == 403
    assert (await server.get("/v1/topics", ssl=tls, headers={"Host": "evil.example"})).status == 421
    assert (await server.get("/v1/topics", ssl=tls, headers={"Authorization": ""})).status == 401


async def test_client_in_clear_text_gets_nothing(encrypted: Encrypted) -> None:
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        async with encrypted.server.http.get(encrypted.server.url.replace("https", "http") + "/livez"):
            pass


async def test_certificate_is_replaced_without_a_failed_handshake(encrypted: Encrypted) -> None:
    before = await encrypted.serial()
    successor = encrypted.authority.sign("successor")

    encrypted.replace(successor)

    with anyio.fail_after(PATIENCE_S):
        while await encrypted.serial() == before:
            pass
    assert (await encrypted.server.get("/livez", ssl=encrypted.client())).status == 200


async def test_wrong_pair_keeps_the_previous_one(encrypted: Encrypted, caplog: pytest.LogCaptureFixture) -> None:
    before = await encrypted.serial()
    encrypted.present.key.write_text("no key")

    with anyio.fail_after(PATIENCE_S):
        while "the previous one is used" not in caplog.text:
            assert await encrypted.serial() == before
    text = (await encrypted.server.get("/metrics", ssl=encrypted.client())).body.decode()
    assert "kactl_security_reload_failed 1.0" in text
    assert await encrypted.serial() == before


async def test_stalled_handshakes_make_room_for_a_client(encrypted: Encrypted) -> None:
    where = urlsplit(encrypted.server.url)
    stalled = [await asyncio.open_connection(where.hostname, where.port) for _ in range(150)]
    for _, writer in stalled:
        writer.write(b"\x16\x03\x01")

    with anyio.fail_after(PATIENCE_S):
        for _ in range(10):
            assert (await encrypted.server.get("/livez", ssl=encrypted.client())).status == 200
        cut = 0
        for reader, _ in stalled[:20]:
            cut += (await reader.read()) == b""
    assert cut == 20
    for _, writer in stalled:
        writer.close()


async def test_wrong_files_refuse_to_start(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").touch(mode=0o600)
    (tmp_path / "cert.pem").write_text("nothing")
    settings = {"api.tls.cert": str(tmp_path / "cert.pem"), "api.tls.key": str(tmp_path / "cert.pem")}
    with pytest.raises(BadConfig, match=r"api\.tls\.cert: .*cert\.pem contains no certificate in PEM"):
        async with served(settings=settings):
            pass
    with pytest.raises(BadConfig, match=r"api\.tls\.cert: needs the other one"):
        load(None, {}, {"node-id": 0, "api.tls.cert": "x"})


async def test_commands_verify_the_server(encrypted: Encrypted, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(encrypted.server.token)
    file.chmod(0o600)
    foreign = Authority(tmp_path, "foreign")
    command = ("--server", encrypted.server.url, "get", "topics", "--token-file", str(file))

    accepted = await anyio.to_thread.run_sync(kactl, *command, "--ca-file", str(encrypted.authority.cert))
    refused = await anyio.to_thread.run_sync(kactl, *command, "--ca-file", str(foreign.cert))

    assert accepted.code == 0, accepted.err
    assert refused.code == 3
    assert "its certificate is not accepted" in refused.err
    assert "--ca-file" in refused.err
