"""A cluster in a thread of its own with an ownership topic, of which one shard cannot be owned."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
from anyio.from_thread import start_blocking_portal

import kactl
from kactl.admin.prometheus import telemetry_for_server
from kactl.admin.server import serve
from kactl.config.file import load

SHARDS: Final = 6
POISONED: Final = "jobs-5"


class _Shard(kactl.PartitionHandler):
    async def lead(self, leader: kactl.Leader) -> None:
        if str(self.partition) == POISONED:
            # A back-off that outlasts the test.
            raise kactl.NotReady(retry_after_ms=3_600_000, reason="its database is away")
        await anyio.sleep_forever()


@contextlib.contextmanager
def served_shards(folder: Path) -> Iterator[str]:
    """Yield the address of the admin API. Participants 1 and 2 offer jobs, worker-a offers mail, and none
    offers idle."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(_served(folder)) as url:
        yield url


@asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[str]:
    settings = {"node-id": 0, "cluster": "shards", "api.listen": "127.0.0.1:0", "security.folder": str(folder)}
    provider, render = telemetry_for_server()
    async with (
        kactl.Controller(0, meter_provider=provider, cluster_name="shards") as controller,
        AsyncExitStack() as members,
    ):
        for number, name, group in ((1, None, "jobs"), (2, None, "jobs"), (None, "worker-a", "mail")):
            member = kactl.Participant(
                number, name=name, store=controller.store, hub=controller.hub, handler=_Shard, groups=[group]
            )
            await members.enter_async_context(member)
        await controller.create_topic("jobs", partitions=SHARDS, kind="ownership", standby=1, timeout_ms=0)
        await controller.create_topic("idle", partitions=2, kind="ownership", timeout_ms=0)
        await controller.create_topic("orders", assignment={0: (1, 2)})
        async with serve(controller, load(None, {}, settings), render_metrics=render) as server:
            yield server.url
