"""Cost of one health check by role.

    python -m bench.roles [--requests 2000] [--runs 5]

* `answer`: processor time of one GET of `/roles/orders/0` of the leader over an open connection. The client is
  a plain stream in the same process, and its time is contained.
* `topic`: the same for `/roles/orders`, of a topic with 1,000 partitions that the process leads.
"""

import argparse
import asyncio
import time
from typing import Final

from aiohttp import web

import kactl
from bench.figures import Found
from bench.run import main, module, undisturbed
from kactl import admin

NAME: Final = "roles"
PARTITIONS: Final = 1_000


class Counted(kactl.PartitionHandler):
    """Leads, and counts how many partitions do."""

    leading = 0
    all_lead = asyncio.Event()

    async def lead(self, leader: kactl.Leader) -> None:
        Counted.leading += 1
        if Counted.leading == PARTITIONS:
            Counted.all_lead.set()


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=2_000, help="requests in each run")
    parser.add_argument("--runs", type=int, default=5)


async def spent_ms(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, requests: int) -> float:
    """Returns the processor time of one request."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    began_s = time.process_time()
    for _ in range(requests):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
    return (time.process_time() - began_s) * 1000 / requests


async def measure(asked: argparse.Namespace, found: Found) -> None:
    async with (
        kactl.Controller(0) as controller,
        kactl.Participant(1, store=controller.store, hub=controller.hub, handler=Counted) as participant,
    ):
        await controller.wait_active()
        await controller.create_topic("orders", partitions=PARTITIONS, replication_factor=1)
        await Counted.all_lead.wait()
        runner = web.AppRunner(admin.roles(participant), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
        for run in range(asked.runs + 1):
            for name, path in (("answer", "/roles/orders/0"), ("topic", "/roles/orders")):
                with undisturbed():
                    took = await spent_ms(reader, writer, path, asked.requests)
                if run:  # the first one is a warm-up
                    found.add(name, "ms", took)
        writer.close()
        await runner.cleanup()


if __name__ == "__main__":
    main(module(__name__))
