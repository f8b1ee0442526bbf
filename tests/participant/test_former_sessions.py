"""A participant that starts while the session of its killed predecessor lasts, over stores that know its timeout."""

import logging
from pathlib import Path
from typing import Any

import anyio
import pytest

import kactl
from kactl.stores.zookeeper import ZooKeeperStore
from tests.support.etcd_server import EtcdServer, require_etcd
from tests.support.zookeeper_fixtures import jars, zookeeper
from tests.support.zookeeper_server import ZooKeeperServer

__all__ = ["jars", "zookeeper"]

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def replaced(open_store: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Kill a participant, and start another one with its id, which has no patience of its own."""

    def participant(start_timeout_ms: int | None) -> kactl.Participant:
        return kactl.Participant(
            1, store=open_store(), hub=controller.hub, session_timeout_ms=4_000, start_timeout_ms=start_timeout_ms
        )

    with anyio.fail_after(120):
        async with kactl.Controller(100, store=open_store()) as controller, participant(None) as former:
            await controller.wait_active()
            epoch = await former.wait_linked()
            await former.kill()
            caplog.clear()

            async with participant(0) as later:
                assert later.epoch > epoch

    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    (line,) = [line for line in lines if "broker id 1 is registered by another session" in line]
    assert line.startswith("broker 1 waits for up to 14.0 s: broker id 1 is registered by another session: stop that")


async def test_killed_participant_over_etcd_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    require_etcd()
    with EtcdServer(tmp_path) as server:
        await replaced(lambda: kactl.EtcdStore(server.url), caplog)


@pytest.mark.java
async def test_killed_participant_over_zookeeper_is_waited_for(
    zookeeper: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    await replaced(lambda: ZooKeeperStore(zookeeper.connect("/former")), caplog)
