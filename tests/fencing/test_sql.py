"""The SQL guard, against SQLite and, where it is installed, PostgreSQL."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from kactl.errors import BadRequest, LeadershipLost, StaleToken
from kactl.fencing import ddl, sql_guard
from tests.support.jars import REQUIRE

from .leaders import OTHER_ID, leader

pytestmark = pytest.mark.anyio

RESOURCE = "invoices"


class PsqlConnection:
    """A connection in a `psql` process, with the methods of a driver that blocks."""

    def __init__(self, folder: Path) -> None:
        command = ["psql", "-h", str(folder), "-U", "postgres", "-d", "postgres", "-AtqX"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._rows: list[str] = []

    async def cursor(self) -> "PsqlConnection":
        return self

    async def execute(self, statement: str, values: tuple[object, ...] = ()) -> None:
        for value in values:
            statement = statement.replace("%s", f"'{value}'", 1)
        await anyio.to_thread.run_sync(self._run, statement)

    def _run(self, statement: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{statement};\n\\echo done\n")
        self._process.stdin.flush()
        self._rows = list(iter(lambda: self._process.stdout.readline().strip(), "done"))  # type: ignore[union-attr]

    def fetchone(self) -> tuple[int, ...]:
        return tuple(int(value) for value in self._rows[0].split("|"))

    def close(self) -> None:
        return

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Path]:
    """A server, which listens in its folder only. The folder is outside of pytest's, which other users cannot enter."""
    if not all(map(shutil.which, ("initdb", "pg_ctl", "psql"))):
        reason = "there is no PostgreSQL: install Debian's postgresql, and put its initdb and pg_ctl on PATH"
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="kactl-postgres-", ignore_cleanup_errors=True) as name:
        yield from _running(Path(name))


def _running(folder: Path) -> Iterator[Path]:
    user: dict[str, Any] = {}
    if os.geteuid() == 0:  # the server refuses to run as root
        user = {"user": "nobody"}
        shutil.chown(folder, "nobody")
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "check": True, "cwd": folder, **user}
    data = folder / "data"
    subprocess.run(["initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N"], **quiet)
    settings = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    subprocess.run(["pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", settings, "start"], **quiet)
    try:
        yield folder
    finally:
        subprocess.run(["pg_ctl", "-D", data, "-m", "immediate", "stop"], **quiet)


async def guard(connection: Any, *epochs: int, **settings: Any) -> None:
    await sql_guard(connection, leader(*epochs, **settings), RESOURCE)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        connection.executescript(ddl("sqlite") + "CREATE TABLE invoices (id INTEGER PRIMARY KEY, by TEXT)")
        yield connection


async def test_delayed_write_of_an_old_leader_is_rejected(database: sqlite3.Connection) -> None:
    for epochs in ((1, 5), (1, 5), (1, 6), (2, 0)):
        with database:
            await guard(database, *epochs)
            database.execute("INSERT INTO invoices (by) VALUES (?)", (str(epochs),))

    async def write_late() -> None:
        with database:
            await guard(database, 1, 6)
            database.execute("INSERT INTO invoices (by) VALUES ('late')")

    with pytest.raises(StaleToken, match=r"token 1\.6 is behind 2\.0"):
        await write_late()

    assert database.execute("SELECT count(*) FROM invoices").fetchone() == (4,)


async def test_rolled_back_guard_has_no_effect(database: sqlite3.Connection) -> None:
    await guard(database, 9, 9)
    database.rollback()

    with database:
        await guard(database, 1, 0)


async def test_tokens_of_other_topics_and_resources_are_not_compared(database: sqlite3.Connection) -> None:
    with database:
        await guard(database, 5, 5)
        await guard(database, 1, 0, topic_id=OTHER_ID)
        await sql_guard(database, leader(1, 0), "orders")


async def test_leader_without_a_lease_sends_nothing(database: sqlite3.Connection) -> None:
    with pytest.raises(LeadershipLost):
        await guard(database, 1, 0, valid=False)

    assert not database.in_transaction


@pytest.mark.parametrize("resource", ["", "r" * 256])
async def test_impossible_resource_is_rejected(database: sqlite3.Connection, resource: str) -> None:
    with pytest.raises(BadRequest):
        await sql_guard(database, leader(1, 0), resource)


async def test_unknown_driver_has_to_be_described() -> None:
    with pytest.raises(BadRequest, match="pass dialect="):
        await guard(object(), 1, 0)


async def test_waiting_transaction_of_an_old_leader_is_rejected(postgres: Path) -> None:
    """The guard of the later leader holds the row, so the earlier one waits for its commit."""
    settings: dict[str, Any] = {"dialect": "postgresql", "placeholder": "%s"}
    later, earlier = PsqlConnection(postgres), PsqlConnection(postgres)
    rejected = anyio.Event()

    async def write_late() -> None:
        await earlier.execute("BEGIN")
        with pytest.raises(StaleToken, match=r"1\.5 is behind 1\.6"):
            await sql_guard(earlier, leader(1, 5), RESOURCE, **settings)
        await earlier.execute("ROLLBACK")
        rejected.set()

    try:
        await later.execute(ddl("postgresql").rstrip(";"))
        await sql_guard(later, leader(1, 5), RESOURCE, **settings)
        await later.execute("BEGIN")
        await sql_guard(later, leader(1, 6), RESOURCE, **settings)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write_late)
            await wait_until_blocked(postgres)
            assert not rejected.is_set()
            await later.execute("COMMIT")
        assert rejected.is_set()
        await sql_guard(later, leader(1, 6), RESOURCE, **settings)
    finally:
        later.end()
        earlier.end()


async def wait_until_blocked(folder: Path) -> None:
    """Wait until a connection waits for a lock."""
    third = PsqlConnection(folder)
    give_up_at = time.monotonic() + 30
    while time.monotonic() < give_up_at:
        await third.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        if third.fetchone() != (0,):
            break
    third.end()


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql"])
def test_command_prints_the_table(dialect: str) -> None:
    command = [sys.executable, "-m", "kactl.fencing", "ddl", "--dialect", dialect]

    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert printed == ddl(dialect) + "\n"  # type: ignore[arg-type]
    assert "PRIMARY KEY (resource, topic_id)" in printed


def test_unknown_dialect_is_rejected() -> None:
    with pytest.raises(BadRequest, match="choose one of sqlite"):
        ddl("oracle")  # type: ignore[arg-type]


class Recorder:
    """A driver that records statements; `kind` is its module."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    async def execute(self, statement: str, *values: object) -> None:
        self.statements.append(statement)

    async def fetchval(self, statement: str, *values: object) -> int:
        self.statements.append(statement)
        return 0


async def test_placeholders_of_asyncpg_are_numbered() -> None:
    connection = type("Connection", (Recorder,), {"__module__": "asyncpg.connection"})()

    await guard(connection, 1, 0)

    assert "VALUES ($1, $2, $3)" in connection.statements[0]
    assert connection.statements[1].endswith("resource = $1 AND topic_id = $2 FOR UPDATE")
