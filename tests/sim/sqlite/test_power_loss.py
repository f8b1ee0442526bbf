"""Commits survive a loss of power at any moment, and no change is found in part."""

import os
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kactl.testing.violations import Violation
from tests.sim.engine.worlds.sqlite.client import WRITING

from .broken_code import split_creation_of_topics
from .power_loss import Recording, check_drawn, check_syncs, record
from .recorded_disk import SECTOR_BYTES, Disk, RecordedDisk
from .recording_vfs import Connector

# `python -m tests.sim.sqlite.power_loss 100000` draws more.
POINTS: Final = int(os.environ.get("POWER_LOSS_POINTS", "500"))
SYNCS_OF_EACH_KIND: Final = 3


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record("tests")


def test_commits_survive_losses_of_power_at_drawn_points(recording: Recording) -> None:
    assert check_drawn(recording, POINTS, "tests") == POINTS


@pytest.mark.slow
def test_commits_survive_losses_of_power_at_the_syncs_of_every_operation(recording: Recording) -> None:
    seen = check_syncs(recording, "tests", each=SYNCS_OF_EACH_KIND)

    log, file = "kactl.db-wal", "kactl.db"
    operations = {*WRITING, "new_session", "register", "close", "session or maintenance"} - {"create_topics"}
    assert seen.keys() == {
        *((operation, log) for operation in operations),
        *((work, name) for work in ("checkpoint", "closing") for name in (log, file)),
        ("creation", "new file"),
        ("session or maintenance", "new file"),  # the new file's journal mode
    }


@pytest.mark.parametrize("mode", ["OFF", "NORMAL"])
def test_commit_that_is_reported_before_its_sync_is_found(mode: str) -> None:
    edited = record(0, duration_s=1.0, edits={"PRAGMA synchronous = FULL": f"PRAGMA synchronous = {mode}"})

    with pytest.raises(Violation, match="INV-08: power lost"):
        check_drawn(edited, 200, 0)


def test_operation_in_two_transactions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    split_creation_of_topics(monkeypatch)
    edited = record(0, duration_s=1.0)
    assert edited.parts

    with pytest.raises(Violation, match="INV-08: power lost"):
        check_drawn(edited, 2_000, 0)


def test_equal_seeds_record_equal_disks(recording: Recording) -> None:
    again = record("tests")

    assert again.states == recording.states
    # The name of a new file is drawn by the system.
    without_names = [[event._replace(name="") for event in each.disk.events] for each in (again, recording)]
    assert without_names[0] == without_names[1]


class TestDisk:
    """A disk that keeps all synced data, and any part of the rest."""

    @pytest.fixture
    def recorded(self, tmp_path: Path) -> RecordedDisk:
        disk = RecordedDisk()
        (tmp_path / "a").touch()
        file = disk.opened(str(tmp_path / "a"))
        disk.wrote(file, 0, b"x" * 2_000)
        disk.synced(file)
        disk.wrote(file, 1_000, b"y" * 2_000)
        disk.truncated(file, 500)
        return disk

    def states(self, recorded: RecordedDisk, position: int, survival: Any) -> Iterator[dict[str, bytes]]:
        for seed in range(200):
            disk = Disk(recorded.events)
            disk.advance(position)
            yield disk.lose_power(survival, random.Random(seed))

    def test_synced_writes_are_kept(self, recorded: RecordedDisk) -> None:
        assert next(self.states(recorded, len(recorded.events), "none")) == {"a": b"x" * 2_000}

    def test_all_unsynced_writes_may_be_kept(self, recorded: RecordedDisk) -> None:
        assert next(self.states(recorded, len(recorded.events), "all")) == {"a": b"x" * 500}

    def test_any_part_of_the_unsynced_writes_may_be_kept(self, recorded: RecordedDisk) -> None:
        found = {state["a"] for state in self.states(recorded, len(recorded.events), "some")}

        assert found == {b"x" * 2_000, b"x" * 500, b"x" * 1_000 + b"y" * 2_000}

    def test_last_kept_write_may_end_at_a_sector(self, recorded: RecordedDisk) -> None:
        found = {state["a"].count(b"y") for state in self.states(recorded, len(recorded.events) - 1, "some, torn")}

        assert found == {0, 2_000, *(end - 1_000 for end in range(2 * SECTOR_BYTES, 3_000, SECTOR_BYTES))}

    def test_name_of_a_file_that_was_never_synced_may_be_lost(self, recorded: RecordedDisk) -> None:
        assert next(self.states(recorded, 1, "none")) == {}
        assert {len(state) for state in self.states(recorded, 1, "some")} == {0, 1}


class TestConnection:
    """apsw has the interface of the store's connections."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        (tmp_path / "a.db").touch()
        return tmp_path / "a.db"

    @pytest.fixture
    def connector(self) -> Iterator[Connector]:
        connector = Connector(RecordedDisk(), random.Random(0))
        yield connector
        connector.close()

    def test_rows_and_counts_are_those_of_sqlite3(self, connector: Connector, path: Path) -> None:
        connection = connector(path)
        connection.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB); INSERT INTO t VALUES (7, x'00')")
        connection.execute("BEGIN")

        inserted = connection.execute("INSERT INTO t (data) VALUES (:data)", {"data": b"b"})

        assert connection.in_transaction
        assert (inserted.lastrowid, inserted.rowcount) == (8, 1)
        connection.execute("COMMIT")
        assert connection.execute("SELECT * FROM t").fetchall() == [(7, b"\0"), (8, b"b")]
        assert connection.execute("SELECT id FROM t WHERE id = ?", (9,)).fetchone() is None
        connection.close()
        assert path.exists()

    def test_errors_are_those_of_sqlite3(self, connector: Connector, path: Path) -> None:
        one, two = connector(path), connector(path)
        one.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        one.execute("BEGIN IMMEDIATE")

        with pytest.raises(sqlite3.OperationalError) as busy:
            two.execute("BEGIN IMMEDIATE")
        one.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError):
            one.execute("INSERT INTO t VALUES (1)")

        assert busy.value.sqlite_errorcode == sqlite3.SQLITE_BUSY
        one.close()
        two.close()
        path.write_bytes(b"no database" * 100)
        with pytest.raises(sqlite3.DatabaseError) as damaged:
            connector(path).execute("SELECT * FROM t")
        assert damaged.value.sqlite_errorcode == sqlite3.SQLITE_NOTADB
