"""Shards with one owner each: kactl, a consumer group of Kafka, elections of etcd, and leader locks of Patroni.

    python -m bench.ownership [--sizes 6x12,40x1000] [--contenders kactl,kafka,etcd,patroni] [--output FILE]

Workers are processes over tcp on this machine, with a session or lease of 6 s each: participants of kactl in a topic
of the kind ownership; consumers of a topic on three real brokers with the assignor cooperative-sticky; candidates of
all shards at the election service of etcd; threads with a leader key for each shard, by the library of Patroni 4.

* `join`: one worker more. `moved` shards went to it, `interrupted` counts the other ends of work.
* `deploy`: each worker is stopped in order and started again, one after the other; 5 s between two (`--step`).
  `changes` of the owner and `calls`, the begins of work, by shard; `gap`: without an owner, at each change.
* `kill`: kill -9 of the busiest worker, until all shards are owned.
* `away`: the database of the workers' code is away; `working`, the share of shards 10 s after its return. Of kactl
  only, which calls the code again: a program of the others has to try again itself.
* `restart`: kill -9 of all workers and the servers, which start again at once, until all shards are owned, with the
  time that the programs take to start. Of Kafka the workers only.
* `above`: how many shards the busiest worker owns above the average, the most of all looks 5 s after a change.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Protocol

from bench.figures import Found, Unit
from bench.run import main, module, say, words
from bench.tables import number, plain
from tests.support.processes import HarnessError, Process, free_port

from .ownership_fleet import LIMIT_S, Fleet, python_with, wait

NAME: Final = "ownership"
SIZES: Final = ("6x12", "40x1000")
CONTENDERS: Final = ("kactl", "kafka", "etcd", "patroni")
LEVEL: Final = "3.9"
# Workers that start at once: the first imports of forty would take all processors for longer than a session.
AT_ONCE: Final = 6
# Candidates of every shard are too many of them: connections and threads, for each worker and shard.
CANDIDACIES_MAX: Final = 1_000
FIGURES: Final[dict[str, Unit]] = {
    "join/moved": "count", "join/interrupted": "count", "deploy/changes mean": "count", "deploy/changes most": "count",
    "deploy/calls mean": "count", "deploy/gap median": "ms", "deploy/gap most": "ms", "kill": "ms",
    "away/working": "ratio", "restart": "ms", "above": "count", "twice": "count",
}  # fmt: skip


class Servers(Protocol):
    """What the workers of a contender connect to."""

    address: str

    def restart(self) -> None:
        """Kill the servers, and start them again without waiting for them."""


class KactlServers:
    """A controller of kactl over SQLite."""

    def __init__(self, folder: Path, stack: ExitStack, session_ms: int) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._folder = folder
        self._session_ms = session_ms
        self._start()
        self._process.wait_for_line("^ready", LIMIT_S)
        stack.callback(lambda: self._process.kill())

    def _start(self) -> None:
        arguments = ["controller", "100", self.address, str(self._folder / "kactl.db"), str(self._session_ms)]
        self._process = Process(
            [sys.executable, "-m", "bench.ownership_worker", *arguments], output=self._folder / "controller.log"
        )

    def restart(self) -> None:
        self._process.kill()
        self._start()


class KafkaServers:
    """Three brokers with Kafka's controller over one ZooKeeper."""

    def __init__(self, folder: Path, stack: ExitStack, shards: int) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        from tests.interop.brokers import Cluster
        from tests.support.zookeeper_server import ZooKeeperServer

        zookeeper = stack.enter_context(ZooKeeperServer(folder / "zookeeper"))
        cluster = stack.enter_context(Cluster(folder / "kafka", zookeeper=zookeeper.connect("/kafka"), ibp=LEVEL))
        self.address = cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic("shards", shards, 1)], operation_timeout=LIMIT_S)["shards"].result(LIMIT_S)

    def restart(self) -> None:
        pass


class EtcdServers:
    """One member of etcd, for its own elections and for Patroni."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        from tests.support.etcd_server import EtcdServer

        self._server = stack.enter_context(EtcdServer(folder / "etcd"))
        self.address = self._server.url

    def restart(self) -> None:
        self._server.kill()
        self._server.launch()


class Contest:
    """One run of one contender with some workers and shards."""

    def __init__(self, servers: Servers, fleet: Fleet, workers: int, asked: argparse.Namespace) -> None:
        self._servers = servers
        self._fleet = fleet
        self._workers = range(1, workers + 1)
        self._asked = asked
        self._above: list[float] = []
        self.figures: dict[str, float] = {}

    def run(self, kind: str) -> None:
        """Make all changes, one after the other.

        Raises:
            HarnessError: a worker ended, or shards had no owner for too long.
        """
        fleet = self._fleet
        for group in _groups(self._workers):
            for worker in group:
                fleet.launch(worker)
            fleet.wait_ready(*group)
        fleet.settle(self._asked.settle)
        self._join(len(self._workers) + 1)
        self._deploy()
        self._kill()
        if kind == "kactl":
            self._away()
        self._restart()
        self.figures["above"] = max(self._above)
        self.figures["twice"] = fleet.window(0).twice

    def _look(self) -> None:
        wait(self._fleet, self._asked.look)
        self._above.append(self._fleet.above_average())

    def _join(self, worker: int) -> None:
        fleet, begin_ms = self._fleet, _now_ms()
        fleet.launch(worker)
        fleet.wait_ready(worker)
        self._look()
        fleet.settle(self._asked.settle)
        self.figures["join/moved"], self.figures["join/interrupted"] = fleet.interrupted(begin_ms, worker)
        fleet.stop(worker)
        self._look()
        fleet.settle(self._asked.settle)

    def _deploy(self) -> None:
        fleet, begin_ms = self._fleet, _now_ms()
        for worker in self._workers:
            fleet.stop(worker)
            fleet.launch(worker)
            fleet.wait_ready(worker)
            wait(fleet, self._asked.step)
            if self._asked.step >= self._asked.look:
                self._above.append(fleet.above_average())
        fleet.settle(self._asked.settle)
        self._above.append(fleet.above_average())
        found = fleet.window(begin_ms)
        self.figures |= {
            "deploy/changes mean": found.changes.total() / fleet.shards,
            "deploy/changes most": max(found.changes.values(), default=0),
            "deploy/calls mean": found.calls.total() / fleet.shards,
            "deploy/gap median": sorted(found.gaps_ms)[len(found.gaps_ms) // 2],
            "deploy/gap most": max(found.gaps_ms),
        }

    def _kill(self) -> None:
        fleet, worker = self._fleet, self._fleet.busiest()
        killed_ms = fleet.kill(worker)
        self.figures["kill"] = fleet.until_owned() - killed_ms
        self._look()
        fleet.launch(worker)
        fleet.wait_ready(worker)
        fleet.settle(self._asked.settle)
        self._above.append(fleet.above_average())

    def _away(self) -> None:
        fleet = self._fleet
        fleet.signal(signal.SIGUSR1)
        wait(fleet, self._asked.away)
        fleet.signal(signal.SIGUSR2)
        wait(fleet, 10)
        self.figures["away/working"] = fleet.owned() / fleet.shards
        fleet.until_owned()

    def _restart(self) -> None:
        fleet = self._fleet
        killed_ms = fleet.kill(*self._workers)
        self._servers.restart()
        for worker in self._workers:
            fleet.launch(worker)
        self.figures["restart"] = fleet.until_owned() - killed_ms


def _groups(workers: range) -> Iterator[range]:
    for begin in range(0, len(workers), AT_ONCE):
        yield workers[begin : begin + AT_ONCE]


def _now_ms() -> float:
    return time.monotonic_ns() / 1e6


@contextmanager
def contest(kind: str, python: str, workers: int, shards: int, asked: argparse.Namespace) -> Iterator[Contest]:
    """Start the servers of a contender. What runs ends with the block."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kactl-bench-")))
        servers: Servers
        match kind:
            case "kactl":
                servers = KactlServers(folder, stack, asked.session)
            case "kafka":
                servers = KafkaServers(folder, stack, shards)
            case _:
                servers = EtcdServers(folder, stack)
        fleet = Fleet(kind, servers.address, shards, asked.session, folder, python)
        stack.callback(fleet.close)
        yield Contest(servers, fleet, workers, asked)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=words, default=SIZES, help="workers x shards, by commas")
    parser.add_argument("--contenders", type=words, default=CONTENDERS, help="by commas")
    parser.add_argument("--runs", type=int, default=3, help="of each contender, by turns")
    parser.add_argument("--session", type=int, default=6_000, help="timeout of sessions and leases, ms")
    parser.add_argument("--step", type=float, default=5.0, help="pause after each worker of a deploy, s")
    parser.add_argument("--look", type=float, default=5.0, help="pause after a change before shares are compared, s")
    parser.add_argument(
        "--settle", type=float, default=8.0, help="s without a move after which no other one is expected; kactl and "
        "consumer groups pause for 3 s"
    )  # fmt: skip
    parser.add_argument("--away", type=float, default=60.0, help="how long the database is away, s")
    parser.add_argument("--patroni-python", default=sys.executable, help="an interpreter that has patroni[etcd3]")
    parser.add_argument("--full", action="store_true", help="the sizes of a published run, which are the default")


async def measure(asked: argparse.Namespace, found: Found) -> None:
    patroni = python_with("patroni", asked.patroni_python) if "patroni" in asked.contenders else None
    found.settings.pop("patroni_python", None)  # a path of this machine
    for size in asked.sizes:
        workers, shards = (int(part) for part in size.split("x"))
        for run in range(asked.runs):
            for kind in asked.contenders:
                python = patroni if kind == "patroni" else sys.executable
                if python is None:
                    say("patroni is not measured: pip install 'patroni[etcd3]' in an interpreter, --patroni-python")
                elif kind in ("etcd", "patroni") and workers * shards > CANDIDACIES_MAX:
                    say(f"{size}, {kind} is not measured: it needs {workers * shards:,} connections or threads")
                else:
                    _one(size, kind, run, found, python=python, asked=asked)
        _report(size, asked, found)


def _one(size: str, kind: str, run: int, found: Found, *, python: str, asked: argparse.Namespace) -> None:
    workers, shards = (int(part) for part in size.split("x"))
    with contest(kind, python, workers, shards, asked) as one:
        try:
            one.run(kind)
        except HarnessError as error:
            say(f"{size}, {kind}, run {run + 1} was not completed: {error}")
    for name, value in one.figures.items():
        found.add(f"{size}/{kind}/{name}", FIGURES[name], value)
    say(f"{size}, {kind}, run {run + 1}: " + ", ".join(f"{name} {number(each)}" for name, each in one.figures.items()))
    if asked.output is not None:
        found.write(asked.output, loop="")


def _report(size: str, asked: argparse.Namespace, found: Found) -> None:
    figures, rows = found.figures(), []
    for name in FIGURES:
        spreads = [figures.get(f"{size}/{kind}/{name}") for kind in asked.contenders]
        if any(each is not None for each in spreads):
            rows.append(
                [
                    name,
                    *(
                        "-"
                        if each is None
                        else f"{number(each.median)} ({number(each.spread.least)}-{number(each.spread.greatest)})"
                        for each in spreads
                    ),
                ]
            )
    say(f"\n{size} workers x shards, session {asked.session:,} ms; median, least and greatest of {asked.runs} runs")
    say(plain(["", *asked.contenders], rows))


if __name__ == "__main__":
    main(module(__name__))
