"""Workers of an ownership topic as processes over tcp: they come late, are killed, and are restarted in order."""

import itertools
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.processes import Process, free_port

from .ownership_program import PARTITIONS
from .process_cluster import PATIENCE_S, until

pytestmark = pytest.mark.slow

PROGRAM: Final = Path(__file__).with_name("ownership_program.py")


class Leadership(NamedTuple):
    """`end_ms`: infinite while it lasts."""

    worker: int
    name: str
    token: str
    begin_ms: float
    end_ms: float


class Workers:
    """A controller and its workers.

    Attributes:
        session_ms: of the workers that start from now on: long, so that none expires on a machine with other load.
    """

    session_ms = 60_000

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address = f"127.0.0.1:{free_port()}"
        self._starts = 0
        self.running: dict[int, Process] = {}
        self.all: list[tuple[int, Process]] = []
        self.controller = self._run("controller", 100)
        self.controller.wait_for_line("listens", PATIENCE_S)

    def _run(self, role: str, number: int, *options: str) -> Process:
        self._starts += 1
        arguments = [role, str(number), self._address, str(self._folder / "kactl.db"), *options]
        return Process(
            [sys.executable, str(PROGRAM), *arguments],
            output=self._folder / f"{role}-{number}-{self._starts}.log",
            env={"SESSION_MS": str(self.session_ms)},
        )

    def start(self, worker: int, prepare_s: float = 0.0, *groups: str) -> None:
        process = self.running[worker] = self._run("worker", worker, str(prepare_s), *groups)
        self.all.append((worker, process))
        process.wait_for_line("^works", PATIENCE_S)

    def stop(self, worker: int) -> None:
        process = self.running.pop(worker)
        process.signal(signal.SIGTERM)
        process.wait_for_line("^left", PATIENCE_S)

    def kill(self, worker: int) -> None:
        process = self.running.pop(worker)
        process.kill()

    def leaderships(self) -> list[Leadership]:
        """Returns all leaderships, those of killed workers with no end."""
        found: list[Leadership] = []
        for worker, process in self.all:
            begun: dict[tuple[str, str], Leadership] = {}
            for line in process.text.splitlines():
                match line.split():
                    case ["leads", name, token, begin]:
                        begun[name, token] = Leadership(worker, name, token, float(begin), float("inf"))
                    case ["led", name, token, _, end]:
                        begun[name, token] = begun[name, token]._replace(end_ms=float(end))
            found += begun.values()
        return sorted(found, key=lambda each: each.begin_ms)

    def owned(self) -> dict[int, int]:
        """How many partitions each running worker leads."""
        counts = dict.fromkeys(self.running, 0)
        for worker, process in self.running.items():
            words = Counter(
                line.split()[0] for line in process.text.splitlines() if line.startswith(("leads ", "led "))
            )
            counts[worker] = words["leads"] - words["led"]
        return counts

    def prepared(self, worker: int, name: str) -> list[float]:
        """When a worker has prepared a partition, in order."""
        lines = [line.split() for each, process in self.all if each == worker for line in process.text.splitlines()]
        return [float(words[2]) for words in lines if words[:2] == ["prepared", name]]

    def wait_for(self, *counts: int) -> None:
        """Wait until the workers own so many partitions each, in any order."""
        until(lambda: sorted(self.owned().values()) == sorted(counts), f"workers own {counts}")

    def close(self) -> None:
        for process in (*self.running.values(), self.controller):
            process.kill()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    started = Workers(tmp_path)
    yield started
    started.close()


def ended(workers: Workers) -> dict[int, int]:
    """How many leaderships of each worker have ended."""
    return Counter(each.worker for each in workers.leaderships() if each.end_ms != float("inf"))


def test_workers_that_come_late_share_the_work_without_a_needless_move(workers: Workers) -> None:
    workers.start(1)
    workers.wait_for(PARTITIONS)

    for worker in (2, 3):
        workers.start(worker)
    workers.wait_for(4, 4, 4)

    # Each move is to a worker that has come later, also where the third one comes after the second one got its share.
    by_name = sorted(workers.leaderships(), key=lambda each: each.name)
    for name, found in itertools.groupby(by_name, lambda each: each.name):
        owners = [each.worker for each in found]
        assert owners == sorted(set(owners)), name


def test_partitions_of_a_killed_worker_alone_move(workers: Workers) -> None:
    workers.session_ms = 6_000
    for worker in (1, 2, 3):
        workers.start(worker)
    workers.wait_for(4, 4, 4)
    before = ended(workers)

    workers.kill(1)
    workers.wait_for(6, 6)

    assert ended(workers) == before


def test_worker_owns_only_what_it_offers(workers: Workers) -> None:
    workers.start(1, 0.0, "mail", "jobs")
    workers.start(2, 0.0, "mail")
    workers.start(3)

    workers.wait_for(6, 6, 0)

    assert workers.owned()[2] == 0


def test_any_worker_takes_over_from_the_last_one(workers: Workers) -> None:
    workers.session_ms = 6_000
    workers.start(1)
    workers.wait_for(PARTITIONS)

    workers.kill(1)
    workers.start(2)

    workers.wait_for(PARTITIONS)


def test_rolling_restart_hands_over_when_the_next_owner_is_prepared(workers: Workers) -> None:
    for worker in (1, 2, 3):
        workers.start(worker, prepare_s=0.5)
    workers.wait_for(4, 4, 4)

    workers.stop(1)
    workers.wait_for(6, 6)

    moves = 0
    by_name = sorted(workers.leaderships(), key=lambda each: each.name)
    for _, found in itertools.groupby(by_name, lambda each: each.name):
        for former, following in itertools.pairwise(found):
            prepared = [at for at in workers.prepared(following.worker, former.name) if at <= following.begin_ms]
            assert prepared[-1] <= former.end_ms <= following.begin_ms
            moves += 1
    assert moves >= 12  # eight for those that came late, and four for the one that was stopped
