"""TLS, logins and node permissions, against a real server with all three."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl_credential

from kactl.model import Assignment, Broker, TopicRef
from kactl.model.errors import BadConfig, StoreError, StoreUnavailable
from kactl.runtime.secret import Secret
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.stores.zookeeper.connection import messages
from tests.support.kazoo_connection import KazooConnection
from tests.support.secure_zookeeper import OTHER_PASSWORD, OTHER_USER, PASSWORD, SUPERUSER, USER, SecureZooKeeper

# Of the server's 1 to 10 s. An unsuccessful start takes as long.
SESSION_MS = 3000
REFUSED_MS = 2000

pytestmark = [pytest.mark.anyio, pytest.mark.interop]


@pytest.fixture(scope="module")
def server(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZooKeeper]:
    with SecureZooKeeper(tmp_path_factory.mktemp("secure")) as server:
        yield server


def _store(connect: str, **settings: Any) -> ZooKeeperStore:
    return ZooKeeperStore(connect, session_timeout_ms=SESSION_MS, **settings)


async def _kactl(server: SecureZooKeeper, chroot: str, **settings: Any) -> ZooKeeperStore:
    return _store(server.secure_connect(chroot), tls=server.tls(), username=USER, password=PASSWORD, **settings)


@pytest.fixture
def inspect(server: SecureZooKeeper, chroot: str) -> Iterator[Any]:
    """kazoo's client with the superuser's identity, over the clear-text port."""
    client = KazooClient(server.connect())
    client.start()
    client.add_auth("digest", SUPERUSER)
    client.chroot = chroot
    yield client
    client.stop()
    client.close()


def _ids(acls: Any) -> set[tuple[str, str, int]]:
    return {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls}


OWNER = ("sasl", USER, 31)
WORLD_READS = ("world", "anyone", 1)
WORLD_ALL = ("world", "anyone", 31)


async def _fill(store: ZooKeeperStore) -> None:
    """Make a node of every kind that a controller and a participant make."""
    fence = await store.contest(1)
    topic = TopicRef("orders", b"0123456789abcdef")
    await store.create_topic(topic, {0: Assignment((1,))}, {"retention.ms": "1"})
    session = await store.new_session(SESSION_MS)
    await session.register(Broker(1, epoch=0))
    await session.renew(0)
    await store.set_default_config({"min.insync.replicas": "1"})
    await store.notify_log_dir(1)
    await store.mark_deletion("orders")
    await store.producer_ids()
    await store.check(fence)
    await session.close()


async def test_nodes_of_a_secure_cluster_belong_to_the_identity(
    server: SecureZooKeeper, chroot: str, inspect: Any
) -> None:
    async with await _kactl(server, chroot, set_acl=True) as store:
        await _fill(store)
        paths = _all_paths(inspect)
        assert {"/controller", "/controller_epoch", "/brokers/topics/orders", "/admin/delete_topics/orders"} <= paths
        for path in paths:
            expected = {OWNER, WORLD_READS}
            if path.startswith(("/config/users", "/config/brokers")):
                expected = {OWNER}
            elif path == "/consumers":
                expected = {WORLD_ALL}
            assert _ids(inspect.get_acls(path)[0]) == expected, path


def _all_paths(client: Any) -> set[str]:
    paths, left = set(), [""]
    while left:
        folder = left.pop()
        paths.add(folder or "/")
        left += [f"{folder}/{name}" for name in client.get_children(folder or "/")]
    return paths


async def test_nodes_of_an_open_cluster_stay_open(server: SecureZooKeeper, chroot: str, inspect: Any) -> None:
    async with await _kactl(server, chroot) as store:
        await store.contest(1)
    assert _ids(inspect.get_acls("/controller_epoch")[0]) == {WORLD_ALL}


async def test_permissions_follow_those_of_the_cluster(server: SecureZooKeeper, chroot: str, inspect: Any) -> None:
    async with await _kactl(server, chroot, set_acl=True):
        pass
    async with await _kactl(server, chroot) as store:
        await store.contest(1)
    assert _ids(inspect.get_acls("/controller_epoch")[0]) == {OWNER, WORLD_READS}


async def test_secure_cluster_rejects_a_client_without_identity(server: SecureZooKeeper, chroot: str) -> None:
    async with await _kactl(server, chroot, set_acl=True):
        pass
    with pytest.raises(StoreError, match=f"lets only sasl:{USER} write /brokers/topics.*no identity"):
        async with _store(server.connect(chroot)):
            pass


async def test_stranger_can_change_nothing(server: SecureZooKeeper, chroot: str) -> None:
    async with await _kactl(server, chroot, set_acl=True) as store:
        await store.contest(1)
        tls = server.tls()
        stranger = _store(server.secure_connect(chroot), tls=tls, username=OTHER_USER, password=OTHER_PASSWORD)
        with pytest.raises(StoreError):
            async with stranger:
                await stranger.contest(2, take_over=True)
        record = await store.controller()
        assert record is not None
        assert record.id == 1


@pytest.mark.parametrize("settings", [{"set_acl": None}, {"set_acl": True}])
async def test_identity_without_the_brokers_rights_is_rejected(
    server: SecureZooKeeper, chroot: str, settings: dict[str, Any]
) -> None:
    async with await _kactl(server, chroot, set_acl=True) as store:
        await _fill(store)
    stranger = _store(
        server.secure_connect(chroot), tls=server.tls(), username=OTHER_USER, password=OTHER_PASSWORD, **settings
    )
    reason = rf"connection \(sasl:{OTHER_USER}\) create nodes below, delete nodes below /, .* set store.user and"
    with pytest.raises(StoreError, match=reason):
        async with stranger:
            pass


async def test_open_folder_of_a_secure_cluster_is_reported(
    server: SecureZooKeeper, chroot: str, inspect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with await _kactl(server, chroot, set_acl=True) as store:
        await _fill(store)
    assert "zk-secure" not in caplog.text
    inspect.set_acls("/", [make_acl("world", "anyone", all=True)])
    inspect.set_acls("/config/topics", [make_acl("world", "anyone", all=True)])
    inspect.ensure_path("/config/users")
    inspect.set_acls("/config/users", [make_acl("sasl", USER, all=True), make_acl("world", "anyone", read=True)])

    async with await _kactl(server, chroot, set_acl=None):
        pass

    assert f"anyone can delete /controller_epoch, since {chroot} is open" in caplog.text
    assert "anyone can change /config/topics: run `kactl zk-secure --apply`" in caplog.text
    assert "anyone can read the credentials below /config/users" in caplog.text


@pytest.mark.parametrize("password", ["wrong", ""])
async def test_wrong_password_is_named(server: SecureZooKeeper, chroot: str, password: str) -> None:
    store = _store(server.connect(chroot), username=USER, password=password)
    with pytest.raises(StoreUnavailable, match=f"does not accept sasl:{USER}.*check its username and password"):
        async with store:
            pass


async def test_certificate_of_another_name_is_rejected(server: SecureZooKeeper, chroot: str) -> None:
    # The same address under a name that is not in the certificate.
    store = _store(server.secure_connect(chroot, host="127.1"), tls=server.tls())
    with pytest.raises(StoreUnavailable, match=r"its certificate is not accepted.*127\.1"):
        async with store:
            pass


async def test_certificate_of_another_authority_is_rejected(server: SecureZooKeeper, chroot: str) -> None:
    foreign = ssl.create_default_context(cafile=str(server.foreign_authority.cert))
    with pytest.raises(StoreUnavailable, match="its certificate is not accepted"):
        async with _store(server.secure_connect(chroot), tls=foreign):
            pass


async def test_tls_on_the_clear_port_is_explained(server: SecureZooKeeper, chroot: str) -> None:
    with pytest.raises(StoreUnavailable, match="is this the secure port"):
        async with _store(f"localhost:{server.port}{chroot}", tls=server.tls(), start_timeout_ms=REFUSED_MS):
            pass


async def test_clear_text_on_the_secure_port_is_explained(server: SecureZooKeeper, chroot: str) -> None:
    with pytest.raises(StoreUnavailable, match="is this the secure port"):
        async with _store(server.secure_connect(chroot), start_timeout_ms=REFUSED_MS):
            pass


async def test_client_certificate_is_an_identity(server: SecureZooKeeper, chroot: str, inspect: Any) -> None:
    tls = server.tls(server.authority.sign("kactl"))
    async with _store(server.secure_connect(chroot), tls=tls, set_acl=True) as store:
        await store.contest(1)
    assert ("x509", "CN=kactl", 31) in _ids(inspect.get_acls("/controller_epoch")[0])


async def test_certificate_and_login_own_nodes_together(server: SecureZooKeeper, chroot: str, inspect: Any) -> None:
    """`auth` in a permission means all identities of the connection."""
    tls = server.tls(server.authority.sign("both"))
    connect = server.secure_connect(chroot)
    async with _store(connect, tls=tls, username=USER, password=PASSWORD, set_acl=True) as store:
        await store.contest(1)
    assert _ids(inspect.get_acls("/controller_epoch")[0]) == {OWNER, ("x509", "CN=both", 31), WORLD_READS}


def _digest(server: SecureZooKeeper, chroot: str, password: str = "own-secret", **settings: Any) -> ZooKeeperStore:
    return _store(
        server.secure_connect(chroot),
        tls=server.tls(),
        username="kactl",
        password=password,
        scheme="digest",
        **settings,
    )


async def test_digest_is_an_identity_that_survives_reconnections(
    server: SecureZooKeeper, chroot: str, inspect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with _digest(server, chroot, set_acl=True) as store:
        fence = await store.contest(1)
        connection = store._client._connection
        for _ in range(3):
            connection._connection.drop("cut by the test")  # type: ignore[attr-defined]
            await store.check(fence)
            await store.set_default_config({"min.insync.replicas": "2"})
    owner = ("digest", make_digest_acl_credential("kactl", "own-secret"), 31)
    assert _ids(inspect.get_acls("/controller_epoch")[0]) == {owner, WORLD_READS}

    async with _digest(server, chroot) as again:
        await again.contest(1)
    assert "own-secret" not in caplog.text


async def test_digest_with_another_password_is_another_identity(server: SecureZooKeeper, chroot: str) -> None:
    """A server knows no passwords of this scheme, so that it accepts each."""
    async with _digest(server, chroot, set_acl=True) as store:
        await store.contest(1)
    with pytest.raises(StoreError, match=r"does not let this connection \(digest:kactl\) create nodes below"):
        async with _digest(server, chroot, "mistaken"):
            pass


async def test_server_that_rejects_an_identity_is_reported(server: SecureZooKeeper, chroot: str) -> None:
    """A server without the scheme answers with an error, and closes the connection."""
    store = _digest(server, chroot)
    with (
        patch.object(messages, "auth", lambda scheme, secret, auth=messages.auth: auth("no-such-scheme", secret)),
        pytest.raises(StoreUnavailable, match=r"does not accept digest:kactl: the server rejects this client"),
    ):
        async with store:
            pass


@pytest.mark.parametrize("settings", [{}, {"username": "a:b", "password": "x"}])
def test_digest_needs_a_user_without_a_colon(settings: dict[str, str]) -> None:
    with pytest.raises(BadConfig, match=r"username: .*without a colon"):
        _store("127.0.0.1:2181", scheme="digest", **settings)


async def test_server_that_demands_a_login_gets_it_before_any_request(jars: str, tmp_path: Path, chroot: str) -> None:
    with SecureZooKeeper(tmp_path, require_login=True) as strict:
        async with await _kactl(strict, chroot, set_acl=True) as store:
            fence = await store.contest(1)
            for _ in range(3):
                store._client._connection._connection.drop("cut by the test")  # type: ignore[attr-defined]
                await store.check(fence)
        with pytest.raises(StoreError, match=r"SASL|closed|answered"):
            async with _store(strict.connect(chroot)):
                pass


async def test_identity_survives_a_reconnection(server: SecureZooKeeper, chroot: str) -> None:
    async with await _kactl(server, chroot, set_acl=True) as store:
        fence = await store.contest(1)
        connection = store._client._connection
        for _ in range(3):
            connection._connection.drop("cut by the test")  # type: ignore[attr-defined]
            await store.check(fence)
            await store.set_default_config({"min.insync.replicas": "2"})


@pytest.mark.parametrize("settings", [{"username": USER}, {"password": "x"}, {"username": "", "password": "x"}])
def test_half_an_identity_is_rejected(settings: dict[str, str]) -> None:
    with pytest.raises(BadConfig, match="username"):
        _store("127.0.0.1:2181", **settings)


def test_permissions_without_identity_are_rejected() -> None:
    with pytest.raises(BadConfig, match=r"set_acl.*needs an identity"):
        _store("127.0.0.1:2181", set_acl=True)


def test_tls_without_verification_is_rejected() -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    with pytest.raises(BadConfig, match="does not verify"):
        _store("127.0.0.1:2181", tls=context)


def test_other_client_has_no_credentials() -> None:
    with pytest.raises(BadConfig, match="client: connects in clear text"):
        _store("127.0.0.1:2181", client=KazooConnection, username=USER, password=PASSWORD)


def test_password_is_not_shown() -> None:
    from kactl.stores.zookeeper.connection import Credentials

    assert PASSWORD not in repr(Credentials(None, USER, Secret(PASSWORD)))
