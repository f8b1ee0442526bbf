"""A cluster in a thread of its own whose only handler cannot lead, and states a reason that nothing may execute."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from anyio.from_thread import start_blocking_portal

import kactl
from kactl.admin.server import serve
from kactl.config.file import load

REASON: Final = "boom in lead \x1b[31m<b id='owned'>"
SHOWN: Final = "boom in lead \\u001b[31m<b id='owned'>"


class Broken(kactl.PartitionHandler):
    async def lead(self, leader: kactl.Leader) -> None:
        # A back-off that outlasts the test.
        raise kactl.NotReady(retry_after_ms=3_600_000, reason=REASON)


@contextlib.contextmanager
def failed_handler(folder: Path) -> Iterator[str]:
    """Yield the address of the admin API, when the controller has received the handler's report."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(_served(folder)) as url:
        yield url


@asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[str]:
    settings = {"node-id": 0, "cluster": "failed", "api.listen": "127.0.0.1:0", "security.folder": str(folder)}
    async with (
        kactl.Controller(0) as controller,
        kactl.Participant(1, store=controller.store, hub=controller.hub, handler=Broken),
        serve(controller, load(None, {}, settings)) as server,
    ):
        reports = controller.events(kinds=["handler"])
        await controller.create_topic("jobs", partitions=1, replication_factor=1, timeout_ms=0)
        async for _ in reports:
            break
        yield server.url
