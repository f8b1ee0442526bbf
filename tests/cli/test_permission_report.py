"""Permissions in ZooKeeper are checked each day."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from kactl.cli import permission_report
from kactl.cli.permission_report import INTERVAL_S, RETRY_S, PermissionReport
from kactl.cli.serving import over_zookeeper
from kactl.config.file import load
from kactl.model.errors import StoreError, StoreUnavailable
from tests.support.secure_zookeeper import PASSWORD, SUPERUSER, USER, SecureZooKeeper
from tests.support.zookeeper_fixtures import jars

__all__ = ["jars"]

START_S = 60.0

pytestmark = pytest.mark.anyio


class Store:
    """A store whose checks have these results."""

    def __init__(self, *results: Exception | None) -> None:
        self._results = list(results)

    async def check_permissions(self) -> None:
        if error := self._results.pop(0):
            raise error


class Over(Exception):
    """The end of a run."""


async def test_check_is_repeated_each_day_and_sooner_without_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 5:
            raise Over

    store = Store(None, StoreUnavailable("gone"), StoreError("does not let this connection write /admin"), None)
    with pytest.raises(Over):
        await PermissionReport(store, sleep=sleep).run()

    assert slept == [INTERVAL_S, INTERVAL_S, RETRY_S, INTERVAL_S, INTERVAL_S]
    levels = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert levels[:2] == [
        ("WARNING", "the permissions in ZooKeeper could not be checked, trying again soon: gone"),
        ("ERROR", "does not let this connection write /admin"),
    ]
    (level, end) = levels[2]
    assert (level, end.partition(" (")[0]) == ("WARNING", "the permissions in ZooKeeper have been checked")
    assert len(levels) == 3


@pytest.fixture
def server(jars: str, tmp_path: Path) -> Iterator[SecureZooKeeper]:
    with SecureZooKeeper(tmp_path / "zookeeper") as server:
        yield server


@pytest.mark.interop
async def test_nodes_that_are_opened_later_are_reported(
    server: SecureZooKeeper, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permission_report, "INTERVAL_S", 0.05)
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    config = load(
        None,
        {},
        {
            "node-id": 900,
            "api.listen": "127.0.0.1:0",
            "api.socket": "off",
            "kafka.ibp": "3.9",
            "security.folder": str(tmp_path / "security"),
            "store.kind": "zookeeper",
            "store.connect": server.secure_connect("/kafka"),
            "store.tls": True,
            "store.ca": str(server.authority.cert),
            "store.user": USER,
            "store.password-file": str(password),
            "store.set-acl": True,
        },
    )
    client = KazooClient(server.connect())
    client.start()
    client.add_auth("digest", SUPERUSER)
    try:
        with anyio.fail_after(START_S):
            async with over_zookeeper(config) as running:
                await running.controller.wait_active()
                assert "zk-secure" not in caplog.text
                client.set_acls("/kafka", [make_acl("world", "anyone", all=True)])
                while "anyone can delete /controller_epoch, since /kafka is open" not in caplog.text:
                    await anyio.lowlevel.checkpoint()
    finally:
        client.stop()
        client.close()
