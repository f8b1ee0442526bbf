"""Eight shards of jobs, each worked on by one of several processes.

    python examples/controller.py 127.0.0.1:7373 cluster.db
    NODE=1 python examples/sharded_scheduler.py jobs.db 127.0.0.1:7373      # and NODE=2, NODE=3

Each job is marked as done in a transaction that also compares the fencing token of the shard. A process that was
suspended and still believes that it leads cannot mark jobs any more. A process that is stopped (Ctrl-C, SIGTERM) hands
its shards over first.
"""

import contextlib
import os
import sqlite3
import sys

import anyio
import anyio.to_thread

import kactl

SHARDS = 8
JOBS = "CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, shard INTEGER, done_by TEXT)"
NEXT = "SELECT id FROM jobs WHERE shard = ? AND done_by IS NULL LIMIT 1"


class Shard(kactl.PartitionHandler):
    file = ""

    async def lead(self, leader: kactl.Leader) -> None:
        print(f"leads {self.partition} with token {leader.token}", flush=True)
        while True:
            # In a thread: sqlite3 blocks, and a blocked event loop renews no lease.
            await anyio.to_thread.run_sync(self.work, leader)
            await anyio.sleep(0.2)

    def work(self, leader: kactl.Leader) -> None:
        """Mark one job of this shard as done."""
        shard = self.partition.partition
        with (
            contextlib.closing(sqlite3.connect(self.file, timeout=10)) as jobs,
            kactl.fencing.fenced(jobs, leader, f"shard-{shard}") as tx,
        ):
            tx.execute(f"UPDATE jobs SET done_by = ? WHERE id = ({NEXT})", (str(leader.token), shard))


async def main(file: str, *controllers: str) -> None:
    Shard.file = file
    with sqlite3.connect(file, timeout=10) as jobs:
        jobs.executescript(f"{JOBS}; {kactl.fencing.ddl('sqlite')}")
    network = kactl.TcpNetwork(controllers=controllers)
    async with kactl.Participant(int(os.environ["NODE"]), network=network, handler=Shard) as node:
        await node.ensure_topic("shards", partitions=SHARDS, replication_factor=3)
        await node.wait_closed()


if __name__ == "__main__":
    kactl.run(main, *sys.argv[1:])
