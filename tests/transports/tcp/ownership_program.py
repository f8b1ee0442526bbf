"""A program of a cluster of an ownership topic: ownership_program.py ROLE ID ADDRESS STORE [PREPARE_S [GROUP ...]]

ROLE is `controller` or `worker`. A worker prints, with times in ms of the boot time, `prepared <partition> <time>`,
`leads <partition> <token> <time>` and `led <partition> <token> <begin> <end>`. SIGTERM ends it in order.
"""

import asyncio
import logging
import os
import signal
import sys
import time

import anyio

import kactl

TOPIC, PARTITIONS = "jobs", 12
SESSION_MS = int(os.environ.get("SESSION_MS", "6000"))
# The topics that a worker offers; None: all.
GROUPS = sys.argv[6:] or None


def now_ms() -> float:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6


def say(*words: object) -> None:
    print(*words, flush=True)


class Shard(kactl.PartitionHandler):
    prepare_s = 0.0

    async def prepare(self, leader: kactl.Leader) -> None:
        await anyio.sleep(self.prepare_s)
        say("prepared", self.partition, now_ms())

    async def lead(self, leader: kactl.Leader) -> None:
        began = now_ms()
        say("leads", self.partition, leader.token, began)
        try:
            await anyio.sleep_forever()
        finally:
            say("led", self.partition, leader.token, began, now_ms())


async def until_terminated() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


async def main(role: str, number: int, address: str, store: str) -> None:
    if role == "controller":
        network = kactl.TcpNetwork(listen=address)
        async with kactl.Controller(number, store=kactl.SqliteStore(store), network=network):
            say("listens")
            await until_terminated()
        return
    network = kactl.TcpNetwork(controllers=[address])
    async with kactl.Participant(
        number, network=network, handler=Shard, session_timeout_ms=SESSION_MS, groups=GROUPS
    ) as worker:
        await worker.ensure_topic(TOPIC, partitions=PARTITIONS, kind="ownership", standby=1, timeout_ms=60_000)
        say("works")
        await until_terminated()
    say("left")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    if len(sys.argv) > 5:
        Shard.prepare_s = float(sys.argv[5])
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]))
