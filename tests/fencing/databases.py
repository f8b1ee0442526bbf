"""Real databases through real drivers: connections of each kind, with one vocabulary for the tests.

A driver that is not installed skips its tests, or fails them if KACTL_REQUIRE_INTEROP=1.
"""

import importlib
import inspect
import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import pytest

from kactl.fencing import fenced
from kactl.participant.leases.leader import Leader
from tests.support.jars import REQUIRE

RESOURCE: Final = "invoices"
TABLE: Final = "CREATE TABLE invoices (value TEXT)"
# Seconds that a writer of SQLite waits for another one.
_BUSY_S: Final = 60.0


def driver(name: str) -> Any:
    """Returns a module of a driver."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get(REQUIRE) == "1":
            raise
        pytest.skip(f"{name} is not installed: run make lint")


async def done(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


class Database:
    """One database, and one way to connect to it.

    Args:
        place: the file of SQLite, or the folder of PostgreSQL's server.
    """

    def __init__(self, kind: str, place: Path) -> None:
        self.kind = kind
        self.place = place
        self.dialect: Any = "sqlite" if "sqlite" in kind else "postgresql"
        self._closing: list[Callable[[], Any]] = []

    async def open(self, **settings: Any) -> Any:
        """Returns a new connection."""
        connection, close = await _OPENERS[self.kind](self.place, **settings)
        self._closing.append(close)
        return connection

    async def close(self) -> None:
        for close in reversed(self._closing):
            await done(close())

    async def run(self, connection: Any, statement: str) -> None:
        """Execute a statement, in a transaction if the driver begins one."""
        if self.kind.startswith("sqlalchemy"):
            await done(connection.execute(driver("sqlalchemy").text(statement)))
        else:
            await done(connection.execute(statement))

    async def run_and_commit(self, connection: Any, statement: str) -> None:
        await self.run(connection, statement)
        await done(connection.commit())

    async def write(
        self,
        connection: Any,
        leader: Leader,
        value: str,
        *,
        inside: Callable[[Any], Awaitable[None]] | None = None,
    ) -> None:
        """Insert a value in a fenced transaction, with the block that fits the driver.

        Args:
            inside: called in the block, after the insertion.
        """
        insertion = f"INSERT INTO invoices (value) VALUES ('{value}')"
        if is_async(connection):
            async with fenced(connection, leader, RESOURCE) as tx:
                await self.run(tx, insertion)
                if inside is not None:
                    await inside(tx)
        else:
            with fenced(connection, leader, RESOURCE) as tx:
                await self.run(tx, insertion)
                if inside is not None:
                    await inside(tx)

    async def write_beside(self, connection: Any, leader: Leader, value: str) -> None:
        """The same, in a thread if the driver blocks."""
        if is_async(connection):
            await self.write(connection, leader, value)
        else:
            await anyio.to_thread.run_sync(self._write_blocking, connection, leader, value)

    def _write_blocking(self, connection: Any, leader: Leader, value: str) -> None:
        with pytest.raises(StopIteration):
            self.write(connection, leader, value).send(None)

    def values(self) -> list[str]:
        """Returns the committed values, through a connection of its own."""
        return [value for (value,) in self.query("SELECT value FROM invoices ORDER BY value")]

    def query(self, statement: str) -> list[Any]:
        if self.dialect == "sqlite":
            connection: Any = sqlite3.connect(self.place)
        else:
            options = "-c lock_timeout=60s"
            connection = driver("psycopg").connect(conninfo(self.place), autocommit=True, options=options)
        try:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            if self.dialect == "sqlite":
                connection.commit()
            connection.close()


def is_async(connection: Any) -> bool:
    return hasattr(type(connection), "__aenter__") or type(connection).__module__.startswith("asyncpg")


def conninfo(folder: Path) -> str:
    return f"host={folder} user=postgres dbname=postgres"


# -- openers: (place, settings) -> a connection, and how to close it

Opened = tuple[Any, Callable[[], Any]]


async def _sqlite3(place: Path, **settings: Any) -> Opened:
    connection = sqlite3.connect(place, timeout=_BUSY_S, check_same_thread=False, **settings)
    return connection, connection.close


async def _sqlite3_no_isolation(place: Path, **settings: Any) -> Opened:
    return await _sqlite3(place, isolation_level=None, **settings)


async def _sqlite3_autocommit(place: Path, **settings: Any) -> Opened:
    _require_autocommit_attribute()
    return await _sqlite3(place, autocommit=True, **settings)


async def _sqlite3_no_autocommit(place: Path, **settings: Any) -> Opened:
    _require_autocommit_attribute()
    return await _sqlite3(place, autocommit=False, **settings)


def _require_autocommit_attribute() -> None:
    if sys.version_info < (3, 12):
        pytest.skip("connections of sqlite3 have no attribute autocommit before Python 3.12")


async def _aiosqlite(place: Path, **settings: Any) -> Opened:
    connection = await driver("aiosqlite").connect(place, timeout=_BUSY_S, **settings)
    return connection, connection.close


async def _aiosqlite_no_autocommit(place: Path, **settings: Any) -> Opened:
    _require_autocommit_attribute()
    return await _aiosqlite(place, autocommit=False, **settings)


async def _psycopg(place: Path, **settings: Any) -> Opened:
    connection = driver("psycopg").connect(conninfo(place), **settings)
    return connection, connection.close


async def _psycopg_autocommit(place: Path, **settings: Any) -> Opened:
    return await _psycopg(place, autocommit=True, **settings)


async def _psycopg_async(place: Path, **settings: Any) -> Opened:
    connection = await driver("psycopg").AsyncConnection.connect(conninfo(place), **settings)
    return connection, connection.close


async def _asyncpg(place: Path, **settings: Any) -> Opened:
    connection = await driver("asyncpg").connect(host=str(place), user="postgres", database="postgres", **settings)
    return connection, connection.close


async def _asyncpg_pool(place: Path, **settings: Any) -> Opened:
    pool = await driver("asyncpg").create_pool(host=str(place), user="postgres", database="postgres", min_size=1)
    return await pool.acquire(), pool.terminate


def _sqlalchemy(scheme: str, *, is_async: bool = False, is_session: bool = False) -> Callable[..., Awaitable[Opened]]:
    async def opener(place: Path, **settings: Any) -> Opened:
        sqlalchemy = driver("sqlalchemy.ext.asyncio" if is_async else "sqlalchemy")
        driver(scheme.partition("+")[2] or "sqlite3")
        is_sqlite = scheme.startswith("sqlite")
        url = f"{scheme}:///{place}" if is_sqlite else f"{scheme}://postgres@/postgres?host={place}"
        arguments = {"timeout": _BUSY_S} if is_sqlite else {}
        make = sqlalchemy.create_async_engine if is_async else sqlalchemy.create_engine
        engine = make(url, connect_args=arguments, **settings)
        if is_session:
            connection = sqlalchemy.AsyncSession(engine) if is_async else driver("sqlalchemy.orm").Session(engine)
        else:
            connection = await engine.connect() if is_async else engine.connect()

        async def close() -> None:
            await done(connection.close())
            await done(engine.dispose())

        return connection, close

    return opener


_OPENERS: Final[dict[str, Callable[..., Awaitable[Opened]]]] = {
    "sqlite3": _sqlite3,
    "sqlite3, isolation_level=None": _sqlite3_no_isolation,
    "sqlite3, autocommit=True": _sqlite3_autocommit,
    "sqlite3, autocommit=False": _sqlite3_no_autocommit,
    "aiosqlite": _aiosqlite,
    "aiosqlite, autocommit=False": _aiosqlite_no_autocommit,
    "psycopg": _psycopg,
    "psycopg, autocommit": _psycopg_autocommit,
    "psycopg, async": _psycopg_async,
    "asyncpg": _asyncpg,
    "asyncpg, pool": _asyncpg_pool,
    "sqlalchemy, psycopg": _sqlalchemy("postgresql+psycopg"),
    "sqlalchemy, psycopg, Session": _sqlalchemy("postgresql+psycopg", is_session=True),
    "sqlalchemy, psycopg, async": _sqlalchemy("postgresql+psycopg", is_async=True),
    "sqlalchemy, asyncpg": _sqlalchemy("postgresql+asyncpg", is_async=True),
    "sqlalchemy, asyncpg, AsyncSession": _sqlalchemy("postgresql+asyncpg", is_async=True, is_session=True),
    "sqlalchemy, sqlite": _sqlalchemy("sqlite"),
    "sqlalchemy, aiosqlite": _sqlalchemy("sqlite+aiosqlite", is_async=True),
}
KINDS: Final = tuple(_OPENERS)
POSTGRES_KINDS: Final = tuple(kind for kind in KINDS if "sqlite" not in kind)
