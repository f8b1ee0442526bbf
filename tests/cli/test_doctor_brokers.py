"""`kactl doctor` on the brokers that are registered in a real ZooKeeper."""

import json
from pathlib import Path

import anyio.to_thread
import pytest

from kactl.cli.stores import zookeeper_store
from kactl.config.settings import StoreConfig
from kactl.model import Broker, Endpoint
from tests.support.zookeeper_fixtures import chroot, jars, zookeeper
from tests.support.zookeeper_server import ZooKeeperServer

from .server import kactl

__all__ = ["chroot", "jars", "zookeeper"]

pytestmark = [pytest.mark.anyio, pytest.mark.interop]


@pytest.mark.parametrize("protocol", ["SASL_SSL", "PLAINTEXT"])
async def test_differing_protocols_of_brokers_are_named(
    protocol: str, zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    """S-34."""
    file = tmp_path / "kactl.toml"
    connect = zookeeper.connect(chroot)
    file.write_text(
        f'node-id = 900\n[store]\nkind = "zookeeper"\nconnect = "{connect}"\n'
        '[kafka]\nlisteners = ["INTERNAL://127.0.0.1:9090"]\nlistener-name = "INTERNAL"\n'
    )
    async with zookeeper_store(StoreConfig(kind="zookeeper", connect=connect)) as store:
        session = await store.new_session(60_000)
        await session.register(Broker(1, 0, (Endpoint("INTERNAL", "127.0.0.1", 1, protocol),)))

        done = await anyio.to_thread.run_sync(kactl, "doctor", "--config", str(file), "-o", "json")

    (check,) = [check for check in json.loads(done.out) if check["check"] == "broker listeners"]
    if protocol == "PLAINTEXT":
        assert (check["result"], check["value"]) == ("pass", "1")
    else:
        assert (done.code, check["result"]) == (1, "FAIL")
        assert check["detail"] == (
            "listener INTERNAL is SASL_SSL on broker 1 and PLAINTEXT here: brokers will not reach kactl; "
            'set kafka.protocols.INTERNAL = "SASL_SSL"'
        )
