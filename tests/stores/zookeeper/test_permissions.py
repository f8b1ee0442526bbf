"""Change of the permissions of existing nodes, against Kafka's own tool on a real server."""

import asyncio
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from kactl.model import Assignment, TopicRef
from kactl.model.errors import StoreError
from kactl.runtime.secret import Secret
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.stores.zookeeper.connection import Credentials
from kactl.stores.zookeeper.permissions import Permissions
from tests.cli.server import kactl
from tests.support.jars import java_command
from tests.support.secure_zookeeper import OTHER_PASSWORD, OTHER_USER, PASSWORD, SUPERUSER, USER, SecureZooKeeper

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

SESSION_MS = 5000
TOOL_S = 120

Acls = set[tuple[str, str, int]]


@pytest.fixture(scope="module")
def server(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZooKeeper]:
    with SecureZooKeeper(tmp_path_factory.mktemp("secure")) as server:
        yield server


@pytest.fixture
def superuser(server: SecureZooKeeper) -> Iterator[Any]:
    client = KazooClient(server.connect())
    client.start()
    client.add_auth("digest", SUPERUSER)
    yield client
    client.stop()
    client.close()


async def _fill(server: SecureZooKeeper, superuser: Any, chroot: str) -> None:
    """Make an open cluster with a topic, a user, a list of rights, and a node that belongs to no cluster."""
    store = ZooKeeperStore(server.connect(chroot), session_timeout_ms=SESSION_MS, set_acl=False)
    async with store:
        await store.contest(1)
        await store.create_topic(TopicRef("orders", bytes(16)), {0: Assignment((1,)), 1: Assignment((1,))}, {})
        for path in ("/config/users/alice", "/config/brokers/1", "/kafka-acl/Topic/orders", "/consumers/old", "/other"):
            superuser.ensure_path(f"{chroot}{path}", acl=[make_acl("world", "anyone", all=True)])


def _permissions(superuser: Any, chroot: str) -> dict[str, Acls]:
    found: dict[str, Acls] = {}
    left = [""]
    while left:
        path = left.pop()
        acls, _ = superuser.get_acls(chroot + path)
        found[path] = {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls}
        left += [f"{path}/{name}" for name in superuser.get_children(chroot + path)]
    return found


def _client(server: SecureZooKeeper, chroot: str, user: str = USER, password: str = PASSWORD) -> Permissions:
    return Permissions(
        server.connect(chroot), session_timeout_ms=SESSION_MS, credentials=Credentials(None, user, Secret(password))
    )


def _by_kafkas_tool(server: SecureZooKeeper, folder: Path, chroot: str, kind: str) -> None:
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    jaas = folder / "tool-jaas.conf"
    login = "org.apache.zookeeper.server.auth.DigestLoginModule"
    jaas.write_text(f'Client {{\n  {login} required username="{USER}" password="{escaped}";\n}};\n')
    arguments = ["--zookeeper.acl", kind, "--zookeeper.connect", server.connect(chroot)]
    options = [f"-Djava.security.auth.login.config={jaas}"]
    command = java_command("kafka.admin.ZkSecurityMigrator", arguments, heap_mb=128, options=options)
    subprocess.run(command, check=True, timeout=TOOL_S, capture_output=True)


async def test_result_is_that_of_kafkas_tool(
    server: SecureZooKeeper, superuser: Any, chroot: str, tmp_path: Path
) -> None:
    ours, theirs = f"{chroot}-ours", f"{chroot}-theirs"
    for path in (ours, theirs):
        await _fill(server, superuser, path)
    for kind in ("secure", "unsecure"):
        await asyncio.to_thread(_by_kafkas_tool, server, tmp_path, theirs, kind)
        async with _client(server, ours) as permissions:
            await permissions.migrate(secure=kind == "secure", apply=True)

        mine, expected = _permissions(superuser, ours), _permissions(superuser, theirs)
        # The tool creates the folders that are missing.
        assert mine.keys() <= expected.keys()
        assert mine == {path: expected[path] for path in mine}


async def test_nothing_is_changed_without_apply(server: SecureZooKeeper, superuser: Any, chroot: str) -> None:
    await _fill(server, superuser, chroot)
    before = _permissions(superuser, chroot)
    async with _client(server, chroot) as permissions:
        counted = await permissions.migrate(secure=True, apply=False)
        assert _permissions(superuser, chroot) == before
        changed = await permissions.migrate(secure=True, apply=True)
        assert changed == counted
        assert counted.changed == counted.nodes
        again = await permissions.migrate(secure=True, apply=True)
    assert again == counted._replace(changed=0)


async def _interrupt(permissions: Permissions) -> None:
    """Begin a change, and cancel it when some nodes are changed."""
    changes, write = itertools.count(), permissions._set

    async def counted(*arguments: Any) -> None:
        await write(*arguments)
        if next(changes) == 10:
            scope.cancel()

    with pytest.MonkeyPatch.context() as patch, anyio.CancelScope() as scope:
        patch.setattr(permissions, "_set", counted)
        await permissions.migrate(secure=True, apply=True)
    assert scope.cancelled_caught


async def test_interrupted_change_is_finished_by_the_next_run(
    server: SecureZooKeeper, superuser: Any, chroot: str
) -> None:
    await _fill(server, superuser, chroot)
    for number in range(300):
        superuser.create(f"{chroot}/brokers/topics/t-{number}", b"", acl=[make_acl("world", "anyone", all=True)])
    async with _client(server, chroot) as permissions:
        all_nodes = await permissions.migrate(secure=True, apply=False)
        await _interrupt(permissions)
        left = await permissions.migrate(secure=True, apply=False)
        assert 0 < left.changed < all_nodes.changed
        await permissions.migrate(secure=True, apply=True)
        assert (await permissions.migrate(secure=True, apply=False)).changed == 0


async def test_survey_tells_open_mixed_and_secure(server: SecureZooKeeper, superuser: Any, chroot: str) -> None:
    await _fill(server, superuser, chroot)
    async with _client(server, chroot) as permissions:
        assert (await permissions.survey()).is_open
        await permissions.migrate(secure=True, apply=True)
        superuser.set_acls(f"{chroot}/brokers/topics", [make_acl("world", "anyone", all=True)])
        mixed = await permissions.survey()
        assert mixed.open_nodes == ("/brokers/topics",)
        assert not mixed.is_open
        await permissions.migrate(secure=True, apply=True)
        secure = await permissions.survey()
    assert secure.open_nodes == secure.unreadable == ()


async def test_stranger_changes_nothing(server: SecureZooKeeper, superuser: Any, chroot: str) -> None:
    await _fill(server, superuser, chroot)
    async with _client(server, chroot) as permissions:
        await permissions.migrate(secure=True, apply=True)
    before = _permissions(superuser, chroot)
    async with _client(server, chroot, OTHER_USER, OTHER_PASSWORD) as permissions:
        assert (await permissions.survey()).unreadable
        with pytest.raises(StoreError):
            await permissions.migrate(secure=False, apply=True)
    assert _permissions(superuser, chroot) == before


async def test_connection_without_identity_is_rejected(server: SecureZooKeeper, superuser: Any, chroot: str) -> None:
    await _fill(server, superuser, chroot)
    connection = Permissions(server.connect(chroot), session_timeout_ms=SESSION_MS, credentials=Credentials())
    async with connection as permissions:
        with pytest.raises(StoreError, match="no identity that nodes could belong to"):
            await permissions.migrate(secure=True, apply=True)


async def test_command_counts_changes_and_opens(
    server: SecureZooKeeper, superuser: Any, chroot: str, tmp_path: Path
) -> None:
    await _fill(server, superuser, chroot)
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    file = tmp_path / "kactl.toml"
    file.write_text(
        f"node-id = 900\n[store]\nkind = 'zookeeper'\nconnect = '{server.connect(chroot)}'\n"
        f"user = '{USER}'\npassword-file = '{password}'\n"
    )

    async def run(*arguments: str) -> str:
        done = await anyio.to_thread.run_sync(kactl, "zk-secure", "--config", str(file), *arguments)
        assert done.code == 0, done.err
        return done.out

    count = len([path for path in _permissions(superuser, chroot) if not path.startswith(("/consumers", "/other"))])
    assert await run() == f"{count} of {count} nodes are not secure; --apply changes them\n"
    assert await run("--apply", "--dry-run") == f"{count} of {count} nodes are not secure; --apply changes them\n"
    assert await run("--apply") == f"{count} of {count} nodes were changed; all are secure now\n"
    assert await run("--open", "--apply") == f"{count} of {count} nodes were changed; all are open now\n"
