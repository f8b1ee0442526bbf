"""Broken connections to a real server, over either client: no request takes effect twice, and none is lost."""

import random
from typing import Any

import anyio
import pytest
from kazoo.protocol.states import KazooState

from kactl.stores.zookeeper import request
from kactl.stores.zookeeper.client import Client
from tests.stores.zookeeper.proxy import Proxy
from tests.support.kazoo_connection import CLIENTS, KINDS, Kind
from tests.support.link import Link
from tests.support.store_clients import WAIT_S
from tests.support.zookeeper_server import ZooKeeperServer

from .test_oracle import Diary, random_write, read_tree

pytestmark = [pytest.mark.anyio, pytest.mark.interop]


@pytest.mark.parametrize("kind", KINDS)
async def test_frequently_lost_connections_do_not_change_results(
    proxy: Proxy, zookeeper: ZooKeeperServer, chroot: str, kind: Kind
) -> None:
    """Sends requests one after the other. Each can succeed only once, however often it is sent."""

    def writes(rng: random.Random, client: Client) -> list[Any]:
        return [
            each
            for each in (random_write(rng, client) for _ in range(200))
            if getattr(each, "version", 0) >= 0 and not getattr(each, "flags", 0)
        ]

    async with Diary(zookeeper.connect(f"{chroot}-undisturbed"), "kazoo") as calm:
        for each in writes(random.Random(1), calm.client):
            await calm.client.ask(each)
        expected = await read_tree(calm.client)

    repeated = 0
    async with Diary(f"127.0.0.1:{proxy.port}{chroot}-{kind}", kind) as shaken:
        chance = random.Random(2)
        for each in writes(random.Random(1), shaken.client):
            breaks = chance.random() < 0.05
            if breaks:
                proxy.lose(each.type)
            async with anyio.create_task_group() as tasks:
                if breaks:
                    tasks.start_soon(cut_when_silent, proxy)
                responses = await shaken.client.ask_all([each])
            repeated += len(responses.repeated)

        assert await read_tree(shaken.client) == expected
    assert repeated >= 3
    assert expected


async def cut_when_silent(proxy: Proxy) -> None:
    await proxy.silent.wait()
    proxy.silent.clear()
    await proxy.cut()


@pytest.mark.parametrize("kind", KINDS)
async def test_silently_cut_connection_is_detected(zookeeper: ZooKeeperServer, chroot: str, kind: Kind) -> None:
    """Neither side receives an error. The client detects the loss by its pings, and continues in the same session."""
    with Link(zookeeper.port) as wire:
        states: list[str] = []
        client = Client(
            f"127.0.0.1:{wire.port}{chroot}",
            session_timeout_ms=6_000,
            max_in_flight=3,
            on_state=states.append,
            factory=CLIENTS[kind],
        )
        await client.open()
        session = client.session_id
        made = await client.ask(request.create(client.chroot, b"mine", ephemeral=True))
        assert made == client.chroot

        wire.cut()
        with anyio.fail_after(WAIT_S):
            while client.connected:  # noqa: ASYNC110 - no event signals it
                await anyio.sleep(0.05)
        wire.mend()
        data, stat = await client.ask(client.get(""))

        assert states in ([KazooState.CONNECTED, KazooState.SUSPENDED, KazooState.CONNECTED],)
        assert (data, stat.ephemeralOwner) == (b"mine", session)
        await client.close()
