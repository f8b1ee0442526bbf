"""Controllers in one process, each with its own store of one SQLite file.

    python -m tests.environment.controllers FILE NODE[,NODE]

It prints JSON lines with `event`:

joined      `node` runs
active      `node` is the active controller under `epoch`
standby     it is no more
confirmed   the store has confirmed the `topic`
opened      the host program has read the file by a connection of its own, and closed it
stored      at the end: all `topics`
"""

import argparse
import contextlib
import itertools
import signal
import sqlite3

import anyio
from anyio.abc import TaskStatus

import kactl

from .worker import say

STEP_S = 0.05


async def control(node: int, file: str, *, task_status: TaskStatus[None]) -> None:
    """Run one controller, which creates topics while it is active."""
    async with kactl.Controller(node, store=kactl.SqliteStore(file, session_timeout_ms=5_000)) as controller:
        await controller.store.topics()  # a store that has been used holds its locks
        say("joined", node=node, epoch=0)
        task_status.started()
        was_active = False
        for number in itertools.count():
            if controller.is_active != was_active:
                was_active = not was_active
                say("active" if was_active else "standby", node=node, epoch=controller.snapshot().epoch)
            if was_active:
                await create(controller, f"of-{node}-{controller.snapshot().epoch}-{number}")
            await anyio.sleep(STEP_S)


async def create(controller: kactl.Controller, topic: str) -> None:
    with contextlib.suppress(kactl.KactlError):
        await controller.store.create_topic(kactl.TopicRef(topic), {0: kactl.Assignment((1,))}, {})
        say("confirmed", topic=topic)


async def main(options: argparse.Namespace) -> None:
    async with anyio.create_task_group() as tasks:
        for node in options.nodes.split(","):
            await tasks.start(control, int(node), options.file)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGUSR1) as signals:
            async for number in signals:
                if number == signal.SIGTERM:
                    break
                with contextlib.closing(sqlite3.connect(options.file)) as connection:
                    say("opened", tables=len(connection.execute("SELECT name FROM sqlite_master").fetchall()))
        tasks.cancel_scope.cancel()
    async with kactl.SqliteStore(options.file) as store:
        say("stored", topics=sorted(await store.topics()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("nodes", metavar="NODE[,NODE]")
    anyio.run(main, parser.parse_args())
