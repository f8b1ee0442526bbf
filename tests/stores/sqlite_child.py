"""A process that can be killed at any moment: it commits changes in a loop and reports each committed change.

`python -m tests.stores.sqlite_child FILE MODE` imports everything once and then, for each line on its input, forks a
child that continues where the file ends. On its output: `begun PID` from the child, `kept N` after each committed
change, and `gone` after the child has died. The parent has no thread and no event loop, so it can be forked.
"""

import os
import sys
from collections.abc import Iterator
from typing import Final

import anyio
import numpy as np

from kactl.decide.state.rows import Ints
from kactl.model import Assignment, TopicPartition, TopicRef
from kactl.stores.base import Names, Write
from kactl.stores.sqlite import SqliteStore, database, journal, snapshot

TOPICS: Final = 4
PARTITIONS: Final = 50
POLL_MS: Final = 3
NAMES: Final = Names.of([TopicPartition(f"t{topic}", at) for topic in range(TOPICS) for at in range(PARTITIONS)])


def changed_rows(change: int) -> Ints:
    """Returns the partitions that a change writes: all of them in the first change, and some in all others."""
    if change == 1:
        return np.arange(len(NAMES), dtype=np.int32)
    chance = np.random.default_rng(change)
    return np.sort(chance.choice(len(NAMES), chance.integers(2, len(NAMES)), replace=False)).astype(np.int32)


def write_of(rows: Ints, change: int, expected: Ints) -> Write:
    """Returns a write in which each row has the change's number as leader epoch and, in part, as leader and ISR."""
    count = len(rows)
    leader = np.full(count, change % 100, np.int32)
    return Write(
        names=Names(NAMES.topics, NAMES.topic[rows], NAMES.partition[rows]),
        leader=leader,
        leader_epoch=np.full(count, change, np.int32),
        isr=np.stack([leader, leader + 1]),
        recovering=np.full(count, change % 2 == 0, np.bool_),
        expected=expected,
    )


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # one write of a short line: a reader receives the whole line or nothing


async def begin(path: str) -> None:
    """Creates the topics."""
    async with SqliteStore(path) as store:
        for topic in range(TOPICS):
            assignment = {at: Assignment((1, 2, 3)) for at in range(PARTITIONS)}
            await store.create_topic(TopicRef(f"t{topic}"), assignment, {})


async def commit_for_ever(path: str, mode: str) -> None:
    async with SqliteStore(path, poll_ms=POLL_MS) as store:
        fence = await store.contest(os.getpid(), take_over=True)
        stored = await store.leaderships(NAMES)
        version = stored.partition_epoch.copy()
        change = max(int(stored.leader_epoch.max()), 0)
        while True:
            change += 1
            rows = changed_rows(change)
            if mode == "early":
                say(f"kept {change}")
            for some in halves(rows) if mode == "halves" else [rows]:
                committed = await store.commit(write_of(some, change, version[some]), fence)
                assert committed.committed.all()
                version[some] = committed.version
            if mode != "early":
                say(f"kept {change}")


def halves(rows: Ints) -> Iterator[Ints]:
    yield rows[: len(rows) // 2]
    yield rows[len(rows) // 2 :]


def main(path: str, mode: str) -> None:
    # Low limits: rare maintenance becomes frequent, so that kills interrupt it.
    journal.CHANGES_MAX = 7  # type: ignore[misc]
    snapshot.PART_ROWS = 3  # type: ignore[misc]
    database.LOG_BYTES_MAX = 256 << 10  # type: ignore[misc]
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            say(f"begun {os.getpid()}")
            anyio.run(commit_for_ever, path, mode)
        os.waitpid(child, 0)
        say("gone")


if __name__ == "__main__":
    main(*sys.argv[1:])
