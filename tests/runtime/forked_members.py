"""Members that a program makes before it forks: python forked_members.py STORE KIND ADDRESS

STORE is as in `forking_program`, KIND shards, unnamed or named. Each of three children enters what the parent has made,
and prints "SHARD PID TOKEN TIME" for each check that has passed; TIME is read before it, and so is within the lease.
The parent kills the first child that has worked for a while, and ends once another one owns all shards.
"""

import multiprocessing
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from typing import Any

import anyio

import kactl

from .forking_program import store_of

SHARDS = 3
ACTS = 20


async def act(shard: int, owner: Any) -> None:
    while True:
        time_s = time.monotonic()
        owner.check()
        os.write(ACTED[1], f"{shard} {os.getpid()} {owner.token} {time_s}\n".encode())
        await anyio.sleep(0.05)


class Acts(kactl.PartitionHandler):
    async def lead(self, leader: kactl.Leader) -> None:
        await act(leader.partition.partition, leader)


async def work(shard: kactl.Shard) -> None:
    await act(shard.number, shard)


async def enter() -> None:
    if isinstance(made, kactl.Participant):
        async with store, made:
            await made.ensure_topic("jobs", partitions=SHARDS, kind="ownership")
            await anyio.sleep_forever()
    async with made:
        await anyio.sleep_forever()


async def control() -> None:
    network = kactl.TcpNetwork(listen=sys.argv[3])
    async with kactl.Controller(100, store=store_of(sys.argv[1]), network=network):
        await anyio.sleep_forever()


def forked(main: Any) -> int:
    pid = os.fork()
    if pid == 0:
        anyio.run(main)
        os._exit(0)
    return pid


def watch(children: set[int]) -> None:
    killed, acts = 0, Counter[int]()
    owned: dict[int, set[str]] = defaultdict(set)
    for line in os.fdopen(ACTED[0]):
        print(line, end="")
        shard, pid = line.split()[0], int(line.split()[1])
        acts[pid] += 1
        if not killed and acts[pid] == ACTS:
            os.kill(pid, signal.SIGKILL)
            killed = pid
        if killed and pid != killed:
            owned[pid].add(shard)
            if len(set().union(*owned.values())) == SHARDS and min(acts[each] for each in owned) >= ACTS:
                return


if __name__ == "__main__":
    ACTED = os.pipe()
    store = store_of(sys.argv[1])
    name = "worker-a" if sys.argv[2] == "named" else None
    made: Any
    if sys.argv[2] == "shards":
        made = kactl.shards("jobs", SHARDS, work, store=store)
    else:
        made = kactl.Participant(
            name=name, store=store, network=kactl.TcpNetwork(controllers=[sys.argv[3]]), handler=Acts
        )
    controllers = [] if sys.argv[2] == "shards" else [forked(control)]
    by_multiprocessing = multiprocessing.get_context("fork").Process(target=anyio.run, args=[enter])
    by_multiprocessing.start()
    members = {forked(enter), forked(enter), by_multiprocessing.pid or 0}
    try:
        watch(members)
    finally:
        for pid in (*members, *controllers):
            os.kill(pid, signal.SIGKILL)
