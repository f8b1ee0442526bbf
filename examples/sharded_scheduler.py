"""Eight shards of jobs, each worked on by one of several processes.

    python examples/sharded_scheduler.py jobs.db      # as often as you want, in one folder

Each job is marked as done in a transaction that also compares the fencing token of the shard. A process that was
suspended and still believes that it owns the shard cannot mark jobs any more. A process that is stopped (Ctrl-C,
SIGTERM) hands its shards over first.
"""

import contextlib
import functools
import sqlite3
import sys
import time

import kactl

SHARDS = 8
JOBS = "CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, shard INTEGER, done_by TEXT)"
NEXT = "SELECT id FROM jobs WHERE shard = ? AND done_by IS NULL LIMIT 1"


def work(file: str, shard: kactl.Shard) -> None:
    """Mark the jobs of one shard as done. A plain function, since sqlite3 blocks: kactl runs it in a thread."""
    print(f"owns {shard.name} with token {shard.token}", flush=True)
    with contextlib.closing(sqlite3.connect(file, timeout=10)) as jobs:
        while shard.is_owned:
            with shard.fenced(jobs) as tx:
                tx.execute(f"UPDATE jobs SET done_by = ? WHERE id = ({NEXT})", (str(shard.token), shard.number))
            time.sleep(0.2)


def main(file: str) -> None:
    with contextlib.closing(sqlite3.connect(file, timeout=10)) as jobs:
        jobs.executescript(f"{JOBS}; {kactl.fencing.ddl('sqlite')}")
    kactl.run(kactl.shards("shards", SHARDS, functools.partial(work, file)))


if __name__ == "__main__":
    main(sys.argv[1])
