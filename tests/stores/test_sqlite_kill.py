"""A process is killed with SIGKILL at random moments: committed changes are stored, and no change is stored in part."""

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import numpy as np
import pytest

from kactl.model import NO_EPOCH, NO_VERSION
from kactl.stores.base import Leaderships
from kactl.stores.sqlite import SqliteStore
from tests.support import tree
from tests.support.marks import kept_and_long

from .sqlite_child import NAMES, begin, changed_rows, write_of

pytestmark = pytest.mark.anyio

# Another seed kills at other moments. The moments also depend on the machine.
SEED: Final = os.environ.get("KACTL_TEST_SEED", "2026")
# Kills in `make test` and in `make truth`.
ROUNDS: Final = (60, 400)
# Maximum number of changes before a child's remaining time begins. One child in four waits for no change, and is killed
# while it opens the file or is elected.
CHANGES_MAX: Final = 20
LIFE_S_MAX: Final = 0.03
# A busy machine may take this long to start an interpreter or to reap a child. A limit, not a measurement.
PATIENCE_S: Final = 60.0


class Victims:
    """Processes that commit to one file and are killed, one after another."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._commands: IO[bytes] = process.stdin
        self._said = process.stdout.fileno()
        self._rest = b""

    def live(self, changes: int, life_s: float) -> int:
        """Runs one process for some changes and a short time longer, then kills it.

        Returns:
            the last change that it reported as committed; 0 if there is none.
        """
        self._commands.write(b"go\n")
        self._commands.flush()
        begun = next(self._lines(PATIENCE_S))
        assert begun[0] == "begun", begun
        kept = self._read_kept(PATIENCE_S, changes) if changes else 0
        kept = self._read_kept(life_s) or kept
        os.kill(int(begun[1]), signal.SIGKILL)
        for word, number in self._lines(PATIENCE_S):
            if word == "gone":
                return kept
            kept = int(number)
        raise AssertionError("a child that was killed is still there")

    def _read_kept(self, patience_s: float, count: int | None = None) -> int:
        """Returns the last of `count` changes, or of all that are reported in time; 0 if there is none."""
        kept = seen = 0
        for word, number in self._lines(patience_s):
            assert word == "kept", f"the child ended by itself: {word}"
            kept, seen = int(number), seen + 1
            if seen == count:
                break
        return kept

    def _lines(self, patience_s: float) -> Iterator[tuple[str, str]]:
        """Yields lines of output until the time limit."""
        deadline = time.monotonic() + patience_s
        while True:
            while b"\n" in self._rest:
                line, self._rest = self._rest.split(b"\n", 1)
                word, _, number = line.decode().partition(" ")
                yield word, number
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self._said], [], [], left_s)[0]:
                return
            read = os.read(self._said, 65_536)
            assert read, "the process that starts the children has died"
            self._rest += read


@contextmanager
def victims(path: Path, mode: str) -> Iterator[Victims]:
    command = [sys.executable, "-m", "tests.stores.sqlite_child", str(path), mode]
    with subprocess.Popen(command, cwd=tree.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Victims(process)
        finally:
            process.kill()


class Expected:
    """The expected content of the file after some changes."""

    def __init__(self) -> None:
        self.change = 0
        self.leader_epoch = np.full(len(NAMES), NO_EPOCH, np.int32)
        self.version = np.full(len(NAMES), NO_VERSION, np.int32)

    def go_on(self) -> None:
        self.change += 1
        rows = changed_rows(self.change)
        self.leader_epoch[rows] = self.change
        self.version[rows] += 1

    def fault(self, found: Leaderships, kept: int) -> str | None:
        """Returns a difference from the content found after a child that reported `kept`; None if there is none."""
        while self.change < kept:
            self.go_on()
        there = int(found.leader_epoch.max()) if found.found.any() else 0
        if there < self.change:
            return f"change {kept} was said to be kept, and the last that is there is {there}"
        if there > self.change + 1:
            return f"change {there} is there, and no more than {self.change + 1} was begun"
        if there == self.change + 1:
            self.go_on()  # committed, and killed before the report
        if not (found.leader_epoch == self.leader_epoch).all() or not (found.partition_epoch == self.version).all():
            return f"of change {there} there is a part, and a part is missing"
        rows = np.flatnonzero(found.found).astype(np.int32)
        for change in np.unique(found.leader_epoch[rows]).tolist():
            some = rows[found.leader_epoch[rows] == change]
            wrote, now = write_of(some, change, some), found.take(np.isin(np.arange(len(NAMES)), some))
            if not (now.leader == wrote.leader).all() or not (now.isr == wrote.isr).all():
                return f"the columns of change {change} do not fit each other"
            if not (now.recovering == wrote.recovering).all():
                return f"the columns of change {change} do not fit each other"
        return None


async def hunt(path: Path, *, mode: str, rounds: int) -> AsyncIterator[tuple[int, str | None]]:
    """Yields for each round the last stored change, and its fault."""
    chance = random.Random(f"kill {SEED}")
    await begin(str(path))
    expected, epoch = Expected(), 0
    with victims(path, mode) as children:
        for _ in range(rounds):
            changes = chance.choice([0, *chance.choices(range(1, CHANGES_MAX), k=3)])
            kept = children.live(changes, chance.uniform(0, LIFE_S_MAX))
            async with SqliteStore(path) as store:
                found = await store.leaderships(NAMES)
                held = await store.controller()
                assert held is None or held.epoch >= epoch
                epoch = held.epoch if held else epoch
            yield expected.change, expected.fault(found, kept)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", kept_and_long(ROUNDS, ROUNDS[:1]))
async def test_acknowledged_changes_survive_sigkill_completely(tmp_path: Path, rounds: int) -> None:
    last = deaths = 0
    async for change, fault in hunt(tmp_path / "kactl.db", mode="honest", rounds=rounds):
        assert fault is None, f"seed {SEED}, round {deaths}: {fault}"
        last, deaths = change, deaths + 1

    print(f"seed {SEED}: {deaths} kills, {last} changes")
    assert deaths == rounds
    assert last > rounds  # otherwise they were killed before any change


@pytest.mark.parametrize("mode", ["early", "halves"])
async def test_lost_acknowledged_change_is_detected(tmp_path: Path, mode: str) -> None:
    faults = [fault async for _, fault in hunt_until_found(tmp_path / "kactl.db", mode)]

    assert faults[-1] is not None


async def hunt_until_found(path: Path, mode: str) -> AsyncIterator[tuple[int, str | None]]:
    async for change, fault in hunt(path, mode=mode, rounds=50):
        yield change, fault
        if fault:
            return
