"""Drains in a node of kactl's own, in trees that have other nodes of kactl already."""

from typing import Any

import pytest

from kactl.model import Drain, Maintenance
from kactl.stores.zookeeper import ZooKeeperStore
from tests.support.store_clients import SESSION_MS

pytestmark = [pytest.mark.anyio, pytest.mark.interop]


@pytest.mark.parametrize("present", ["nothing", "folder", "node"])
async def test_drains_are_written_whatever_is_there(present: str, connect: str, tree: Any) -> None:
    written = [Maintenance(drains={number: Drain(since_ms=number)}) for number in (1, 2, 3)]
    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as store:
        fence = await store.contest(900)
        if present == "folder":
            tree.ensure_path("/kactl")
        elif present == "node":
            await store.write_maintenance(written[0], fence)

        for maintenance in written[1:]:
            await store.write_maintenance(maintenance, fence)
            assert (await store.membership()).maintenance == maintenance
