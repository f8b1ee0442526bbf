"""Time without a leader after kill -9 of a process with participants, over tcp.

    python -m bench.outage [--partitions 1000] [--layouts 3x1,4x25] [--session 6000] [--runs 5]

A layout of 4x25 is four processes with 25 participants each. This process has the controller, which keeps the sessions
and a store in memory; all connections go over loopback. Each partition has three replicas in different processes. In
each run one process is killed, in turn, started again, and given its leaderships back.

* `all led`: from the kill until every partition has a leader that lives and whose `lead` has been called under a valid
  lease, as it reports to the controller.
* `first led`: the same for the first partition that the killed process has led.
* `beyond timeout`: `all led` without the session timeout. A session ends up to a sixth of the timeout earlier, because
  that much may have passed since the last heartbeat.
* `processor`: of this process, from the kill to `all led`.
"""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

import kactl
from bench import goals
from bench.figures import Found
from bench.run import main, module, numbers, say, words
from bench.tables import number, plain

NAME: Final = "outage"
TOPIC: Final = "orders"
REPLICAS: Final = 3
LAYOUTS: Final = ("3x1", "4x25")
FIGURES: Final = ("first led", "all led", "beyond timeout", "processor")
# Time limit of each wait.
LIMIT_S = 600


class Layout(NamedTuple):
    """Processes, and participants in each."""

    processes: int
    participants: int

    @classmethod
    def parse(cls, text: str) -> "Layout":
        processes, _, participants = text.partition("x")
        return cls(int(processes), int(participants))

    def ids(self, process: int) -> range:
        """Returns the broker ids of a process."""
        return range(process * self.participants + 1, (process + 1) * self.participants + 1)


class Cluster:
    """A controller in this process, and processes with participants."""

    def __init__(self, controller: kactl.Controller, address: str, layout: Layout, session_ms: int) -> None:
        self.controller = controller
        self._address = address
        self._layout = layout
        self._session_ms = session_ms
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    async def start(self, process: int) -> None:
        """Start a process, and wait until its participants have registered."""
        ids = ",".join(map(str, self._layout.ids(process)))
        arguments = ("-m", "bench.participants_program", f"rack-{process}", ids, self._address, str(self._session_ms))
        started = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
        self._processes[process] = started
        assert started.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            line = await started.stdout.readline()
        assert line == b"registered\n", f"process {process} has not started: {line!r}"

    def kill(self, process: int) -> None:
        self._processes[process].send_signal(signal.SIGKILL)

    async def reap(self, process: int) -> None:
        await self._processes.pop(process).wait()

    async def close(self) -> None:
        for process in list(self._processes):
            self.kill(process)
            await self.reap(process)

    def lost(self, dead: range) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
        """Returns the rows that brokers lead which are to be killed."""
        return np.flatnonzero(np.isin(self.controller.cluster.table.column("leader"), list(dead)))

    def acting(self, dead: range) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Returns bool[P]: the partitions with a living leader whose `lead` has been called."""
        cluster = self.controller.cluster
        table = cluster.table
        leader, epoch = table.column("leader"), table.column("leader_epoch")
        lives = (leader >= 0) & ~np.isin(leader, list(dead))
        acts: np.ndarray[tuple[int], np.dtype[np.bool_]] = lives & cluster.readiness.of(
            table.column("topic"), table.column("partition"), epoch
        )
        return acts

    async def until(self, condition: Callable[[], bool]) -> float:
        """Wait for a condition, which is looked at after each change. Returns when it held."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                await self.controller.history.changed()
        return time.perf_counter()

    async def settle(self, partitions: int) -> None:
        """Wait until all replicas are in sync, and give the leaderships back to the preferred replicas.

        A process may lose its session on a machine with other load, so this is repeated until nothing is left to do.
        """
        cluster = self.controller.cluster
        while len(cluster.table.under_replicated()) or cluster.imbalance_count or not self._all_act(partitions):
            await self.until(lambda: not len(cluster.table.under_replicated()))
            await self.controller.elect("preferred")
            await self.until(lambda: self._all_act(partitions))

    def _all_act(self, partitions: int) -> bool:
        return int(self.acting(range(0)).sum()) == partitions


async def outage(cluster: Cluster, layout: Layout, process: int, session_ms: int) -> dict[str, float]:
    """Kill a process. Returns the figures, in ms."""
    dead = layout.ids(process)
    lost = cluster.lost(dead)
    assert len(lost), "the process has led nothing"
    used, began = time.process_time(), time.perf_counter()
    cluster.kill(process)
    first = await cluster.until(lambda: bool(cluster.acting(dead)[lost].any()))
    every = await cluster.until(lambda: bool(cluster.acting(dead)[lost].all()))
    used = time.process_time() - used
    await cluster.reap(process)
    values = (first - began, every - began, every - began - session_ms / 1000, used)
    return {name: value * 1000 for name, value in zip(FIGURES, values, strict=True)}


async def one_layout(text: str, partitions: int, *, session_ms: int, runs: int, found: Found) -> list[str]:
    """Measure one layout. Returns its line of the table."""
    layout = Layout.parse(text)
    network = kactl.TcpNetwork(listen="127.0.0.1:0")
    async with kactl.Controller(1_000, network=network, auto_balance=False) as controller:
        await controller.wait_active()
        cluster = Cluster(controller, str(network.address), layout, session_ms)
        try:
            for process in range(layout.processes):
                await cluster.start(process)
            await controller.create_topic(
                TOPIC, partitions=partitions, replication_factor=REPLICAS, timeout_ms=LIMIT_S * 1000
            )
            await cluster.settle(partitions)
            for run in range(runs):
                process = run % layout.processes
                measured = await outage(cluster, layout, process, session_ms)
                found.add_all(f"{text}/{partitions}", "ms", measured)
                say(f"{text}, {partitions:,} partitions, kill {run + 1}: all led after {measured['all led']:,.0f} ms")
                await cluster.start(process)
                await cluster.settle(partitions)
        finally:
            await cluster.close()
    spreads = (found.figures()[f"{text}/{partitions}/{name}"].spread for name in FIGURES)
    cells = (f"{number(each.median)} ({number(each.least)}-{number(each.greatest)})" for each in spreads)
    return [f"{layout.processes} processes of {layout.participants}", *cells]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partitions", type=numbers, default=(1_000,), help="by commas")
    parser.add_argument("--layouts", type=words, default=LAYOUTS, help="processes x participants in each, by commas")
    parser.add_argument("--session", type=int, default=6_000, help="session timeout of participants, ms")
    parser.add_argument("--runs", type=int, default=5, help="kills in each layout")
    parser.add_argument("--full", action="store_true", help="the sizes of a published run, which are the default")


async def measure(asked: argparse.Namespace, found: Found) -> None:
    for partitions in asked.partitions:
        rows = [
            await one_layout(text, partitions, session_ms=asked.session, runs=asked.runs, found=found)
            for text in asked.layouts
        ]
        say(f"\n{partitions:,} partitions, {REPLICAS} replicas, session timeout {asked.session:,} ms; kill -9; ms")
        say(plain(["", *FIGURES], rows))
    say(f"\n{goals.printed(found.figures(), NAME)}")


if __name__ == "__main__":
    main(module(__name__))
