"""The deprecated guard without a block, and the statement that creates the table."""

import gc
import inspect
import subprocess
import sys
from typing import get_type_hints

import pytest

from kactl.fencing import ddl, fenced, sql_guard
from kactl.model.errors import BadRequest, LeadershipLost, StaleToken

from .databases import RESOURCE, Database, done
from .leaders import OTHER_ID, leader

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:sql_guard is replaced:DeprecationWarning")]

INSERTION = "INSERT INTO invoices (value) VALUES ('value')"
each_driver = pytest.mark.parametrize(
    "kind", ["sqlite3", "aiosqlite", "psycopg", "psycopg, async", "sqlalchemy, psycopg"]
)
blocking = pytest.mark.parametrize("kind", ["sqlite3", "psycopg"])
asynchronous = pytest.mark.parametrize("kind", ["aiosqlite", "psycopg, async", "asyncpg", "sqlalchemy, asyncpg"])


@blocking
async def test_guard_that_is_not_awaited_guards_a_blocking_driver(database: Database) -> None:
    connection = await database.open()
    sql_guard(connection, leader(1, 6), RESOURCE)
    connection.commit()

    with pytest.raises(StaleToken):
        sql_guard(connection, leader(1, 5), RESOURCE)

    connection.rollback()
    assert database.query("SELECT token FROM kactl_fence") == [(leader(1, 6).token.as_int(),)]


@each_driver
async def test_guard_may_be_awaited(database: Database) -> None:
    connection = await database.open()
    await sql_guard(connection, leader(1, 6), RESOURCE)
    await database.run(connection, INSERTION)
    await done(connection.commit())

    with pytest.raises(StaleToken, match=r"1\.5 is behind 1\.6"):
        await sql_guard(connection, leader(1, 5), RESOURCE)

    await done(connection.rollback())
    await sql_guard(connection, leader(1, 0, topic_id=OTHER_ID), RESOURCE)
    assert database.values() == ["value"]


@asynchronous
async def test_guard_of_an_asynchronous_driver_fails_if_it_is_not_awaited(database: Database) -> None:
    connection = await database.open()

    sql_guard(connection, leader(1, 5), RESOURCE)
    gc.collect()

    with pytest.raises(Exception):  # noqa: B017, PT011  # each driver has its own
        await database.run_and_commit(connection, INSERTION)
    assert database.values() == []


@pytest.mark.parametrize("kind", ["sqlite3, isolation_level=None", "psycopg, autocommit", "asyncpg"])
async def test_guard_outside_of_a_transaction_is_refused(database: Database) -> None:
    connection = await database.open()

    with pytest.raises(BadRequest, match="autocommit"):
        await sql_guard(connection, leader(1, 5), RESOURCE)


@each_driver
async def test_leader_without_a_lease_sends_nothing(database: Database) -> None:
    connection = await database.open()

    with pytest.raises(LeadershipLost):
        await sql_guard(connection, leader(1, 0, valid=False), RESOURCE)

    assert database.query("SELECT * FROM kactl_fence") == []


@pytest.mark.parametrize("kind", ["sqlite3"])
async def test_use_of_the_old_guard_warns(database: Database) -> None:
    connection = await database.open()

    with pytest.warns(DeprecationWarning, match="`with fenced"):
        sql_guard(connection, leader(1, 0), RESOURCE)


def test_signatures_show_what_is_awaited() -> None:
    assert not inspect.iscoroutinefunction(sql_guard)
    assert "Awaitable" in str(get_type_hints(sql_guard)["return"])
    assert {"__enter__", "__aenter__"} <= set(dir(inspect.signature(fenced).return_annotation.__origin__))


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql"])
def test_command_prints_the_table(dialect: str) -> None:
    command = [sys.executable, "-m", "kactl.fencing", "ddl", "--dialect", dialect]

    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert printed == ddl(dialect) + "\n"  # type: ignore[arg-type]
    assert "PRIMARY KEY (resource, topic_id)" in printed


def test_unknown_dialect_is_rejected() -> None:
    with pytest.raises(BadRequest, match="choose one of sqlite"):
        ddl("oracle")  # type: ignore[arg-type]
