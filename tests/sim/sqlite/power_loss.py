"""Loss of power at drawn points of a store's life, and the content of the file afterwards.

    real store ──▶ SQLite (apsw) ──▶ recorded file operations ──▶ files after a loss of power ──▶ sqlite3, the store

Two processes use one file at random. Each transaction that was reported as committed is durable from then on: after a
loss of power at any moment, the file must contain a state between the last transaction that was reported before that
moment and the one that was being committed.

`python -m tests.sim.sqlite.power_loss POINTS [SEED]` draws that many points.
"""

import asyncio
import contextlib
import dataclasses
import functools
import hashlib
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from unittest import mock

from kactl.model.errors import KactlError
from kactl.runtime.clock import SystemClock
from kactl.stores.sqlite import database, journal, schema, snapshot
from kactl.stores.sqlite.database import Database
from kactl.testing import SimLoop, sim
from kactl.testing.history import History
from kactl.testing.violations import Violation
from tests.sim.engine.worlds.sqlite import SqliteWorld
from tests.sim.engine.worlds.sqlite.content import Execute
from tests.sim.engine.worlds.sqlite.recorder import OPERATION, CommitRecorder
from tests.sim.engine.worlds.sqlite.world import MEMORY
from tests.testing.running import this_loop

from .recorded_disk import SURVIVALS, Disk, RecordedDisk, Survival, write_files
from .recording_vfs import Connector
from .workload import OPERATIONS, Hosts

FILE: Final = "kactl.db"
NO_FILE: Final = ""
NO_EDITS: Final[Mapping[str, str]] = {}
# One reopened file in this many is also opened by the store itself, which checks and migrates.
STORE_OPENS: Final = 10
# Low limits, so that snapshots and checkpoints are frequent.
LIMITS: Final[tuple[tuple[Any, str, int], ...]] = (
    (journal, "CHANGES_MAX", 7),
    (snapshot, "PART_ROWS", 3),
    (database, "LOG_BYTES_MAX", 128 << 10),
)


@dataclasses.dataclass
class Recording:
    """A recorded life of a file.

    Attributes:
        states: digest of the file's tables after each transaction, in commit order; empty for none.
        parts: states that are parts of an operation: another transaction of it follows.
        reported: for each state, the number of disk events when its transaction was reported as committed.
    """

    disk: RecordedDisk = dataclasses.field(default_factory=RecordedDisk)
    states: list[str] = dataclasses.field(default_factory=list)
    parts: set[int] = dataclasses.field(default_factory=set)
    reported: list[int] = dataclasses.field(default_factory=list)
    done: Counter[str] = dataclasses.field(default_factory=Counter)

    def allowed(self, position: int, first: int) -> tuple[int, set[str]]:
        """Returns the number of states reported before a position, from `first` on, and the states allowed there."""
        while first < len(self.reported) and self.reported[first] <= position:
            first += 1
        indexes = range(max(0, first - 1), min(first + 1, len(self.states)))
        allowed = {self.states[index] for index in indexes if index not in self.parts}
        return first, allowed if first else allowed | {NO_FILE, _empty_state()}


class StateRecorder(CommitRecorder):
    """Also records the whole state of the file after each transaction."""

    def __init__(self, recording: Recording, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._recording = recording
        self._last_of: dict[int, int] = {}  # last state by operation

    def committed(self, execute: Execute) -> None:
        recording = self._recording
        recording.states.append(state_of(execute))
        recording.reported.append(len(recording.disk.events))
        operation = OPERATION.get()
        if operation is not None:
            if operation.txn in self._last_of:
                recording.parts.add(self._last_of[operation.txn])
            self._last_of[operation.txn] = len(recording.states) - 1
        super().committed(execute)


class NotedConnector:
    """Opens connections that note, for each disk event, the operation that causes it.

    Args:
        edits: statements that are replaced by others: errors of the store, for tests of the checks.
    """

    def __init__(self, inner: Connector, disk: RecordedDisk, edits: Mapping[str, str]) -> None:
        self._inner = inner
        self._disk = disk
        self._edits = edits

    def __call__(self, path: Path, access: Any = "read-write") -> Any:
        self._disk.note = _current()
        return _Noted(self._inner(path, access), self._disk, self._edits)


class _Noted:
    def __init__(self, inner: Any, disk: RecordedDisk, edits: Mapping[str, str]) -> None:
        self._inner = inner
        self._disk = disk
        self._edits = edits

    @property
    def in_transaction(self) -> bool:
        return bool(self._inner.in_transaction)

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        self._disk.note = "checkpoint" if "wal_checkpoint" in sql else _current()
        return self._inner.execute(self._edits.get(sql, sql), parameters)

    def executescript(self, sql_script: str, /) -> object:
        self._disk.note = "creation"
        return self._inner.executescript(sql_script)

    def close(self) -> None:
        self._disk.note = "closing"
        self._inner.close()


def _current() -> str:
    operation = OPERATION.get()
    return "session or maintenance" if operation is None else operation.name


def state_of(execute: Execute) -> str:
    """Returns a digest of all tables of the store."""
    digest = hashlib.blake2b(digest_size=16)
    tables = [name for (name,) in execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    for table in tables:
        if not table.startswith("sqlite_"):
            digest.update(table.encode())
            order = "1, 2" if table == "stamps" else "1"
            for row in execute(f"SELECT * FROM {table} ORDER BY {order}"):
                digest.update(repr(row).encode())
    return digest.hexdigest()


@functools.cache
def _empty_state() -> str:
    """Returns the state of a new file."""
    with tempfile.TemporaryDirectory(prefix="kactl-power-") as folder:
        path = Path(folder) / FILE
        schema.create(path)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            execute: Any = connection.execute
            return state_of(execute)


def record(seed: int | str, *, duration_s: float = 6.0, edits: Mapping[str, str] = NO_EDITS) -> Recording:
    """Run two processes over a recorded disk; one of them is killed and started again, and at the end both leave.

    Args:
        edits: see `NotedConnector`.
    """
    recording = Recording()
    connector = Connector(recording.disk, random.Random(f"salt {seed}"))

    async def main() -> None:
        loop = this_loop()
        history = History(lambda: loop.now_s * 1000)
        connect: Any = NotedConnector(connector, recording.disk, edits)
        with SqliteWorld(loop, history, poll_ms=50, connect=connect) as world:
            world.recorder = StateRecorder(
                recording, history, boot_time=world.clock.boot_time, on_violation=lambda violation: None
            )
            await _use(loop, world, recording, duration_s)

    try:
        with contextlib.ExitStack() as stack:
            for module, name, limit in LIMITS:
                stack.enter_context(mock.patch.object(module, name, limit))
            sim.run(main, seed=seed, allowed=(__name__,))
    finally:
        connector.close()
    return recording


async def _use(loop: SimLoop, world: SqliteWorld, recording: Recording, duration_s: float) -> None:
    hosts = Hosts(world, loop, 2, pause_ms=30, first=OPERATIONS)
    await asyncio.sleep(duration_s / 2)
    loop.kill(hosts.nodes[0])
    world.bury_killed()
    hosts.restart_killed()
    await asyncio.sleep(duration_s / 2)
    for node in hosts.nodes:
        loop.stop_node(node)
    await asyncio.sleep(5)
    assert not hosts.errors, hosts.errors
    recording.done = hosts.done


class Reopener:
    """Opens files after losses of power, and judges their content."""

    def __init__(self, recording: Recording, rng: random.Random) -> None:
        self._recording = recording
        self._rng = rng
        self._disk = Disk(recording.disk.events)
        self._first = 0
        self.points = 0

    def __enter__(self) -> "Reopener":
        self._stack = contextlib.ExitStack()
        parent = str(MEMORY) if MEMORY.is_dir() else None
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="kactl-power-", dir=parent)))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check(self, position: int, survival: Survival) -> None:
        """Lose power before the disk event at a position; positions only advance.

        Raises:
            Violation: the file cannot be opened, or has another content than any that is allowed.
        """
        self._disk.advance(position)
        self._first, allowed = self._recording.allowed(position, self._first)
        files = self._disk.lose_power(survival, self._rng)
        write_files(self._folder, {name: data for name, data in files.items() if name.startswith(FILE)})
        self.points += 1
        found = self._reopen(position, survival)
        if found not in allowed:
            known = self._recording.states.index(found) if found in self._recording.states else "unknown"
            raise self._violation(position, survival, f"state {known}, expected {self._first - 1} or the next")

    def _reopen(self, position: int, survival: Survival) -> str:
        path = self._folder / FILE
        if not path.exists():
            return NO_FILE
        try:
            if self._rng.randrange(STORE_OPENS) == 0:
                with contextlib.closing(Database(path, SystemClock())):
                    pass
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
                execute: Any = connection.execute
                return state_of(execute)
        except (sqlite3.Error, KactlError) as error:
            raise self._violation(position, survival, f"{type(error).__name__}: {error}") from error

    def _violation(self, position: int, survival: Survival, text: str) -> Violation:
        events = self._recording.disk.events
        note = events[min(position, len(events) - 1)].note
        return Violation("INV-08", f"power lost at disk event {position} ({note}), unsynced writes: {survival}: {text}")


def check_drawn(recording: Recording, points: int, seed: int | str) -> int:
    """Lose power at drawn points. Returns their number."""
    rng = random.Random(f"power {seed}")
    positions = sorted(rng.randrange(len(recording.disk.events) + 1) for _ in range(points))
    with Reopener(recording, rng) as reopener:
        for position in positions:
            reopener.check(position, rng.choice(SURVIVALS))
        return reopener.points


def check_syncs(recording: Recording, seed: int | str, *, each: int) -> Counter[tuple[str, str]]:
    """Lose power directly before and after the first syncs of each kind, with each survival.

    Args:
        each: number of syncs of each kind. A kind is the operation of the program, and the file.

    Returns:
        the number of syncs by kind.
    """
    rng = random.Random(f"syncs {seed}")
    seen: Counter[tuple[str, str]] = Counter()
    names: dict[int, str] = {}
    with Reopener(recording, rng) as reopener:
        for index, event in enumerate(recording.disk.events):
            if event.kind == "name":
                names[event.file] = event.name
            elif event.kind == "sync":
                kind = event.note, names[event.file] if names[event.file].startswith(FILE) else "new file"
                seen[kind] += 1
                if seen[kind] > each:
                    continue
                for position in (index, index + 1):
                    for survival in SURVIVALS:
                        reopener.check(position, survival)
    return seen


def main(points: int, seed: int) -> None:
    began_s, cpu_s, done, lives = time.monotonic(), time.process_time(), 0, 0
    while done < points:
        recording = record(f"{seed}/{lives}")
        done += check_drawn(recording, min(1_000, points - done), f"{seed}/{lives}")
        lives += 1
        print(
            f"seed {seed}: {done} losses of power in {lives} recorded lives, no violation; "
            f"{time.process_time() - cpu_s:.0f} CPU-s, {time.monotonic() - began_s:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
