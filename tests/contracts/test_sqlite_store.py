"""The store contract over a SQLite file, each client with its own connection."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio.to_thread
import pytest

from kactl.stores.base import Session, Store
from kactl.stores.sqlite import SqliteSession, SqliteStore
from kactl.testing.contracts.store import SESSION_MS, StoreContract, Stores


class SqliteStores:
    """Clients of one file. Expiry is forced by writing into the lease table."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open_client(self) -> Store:
        return SqliteStore(self._path, session_timeout_ms=SESSION_MS)

    async def expire(self, client: Store) -> None:
        assert isinstance(client, SqliteStore)
        await anyio.to_thread.run_sync(self._run_out, client.session_id)

    async def expire_session(self, session: Session) -> None:
        assert isinstance(session, SqliteSession)
        await anyio.to_thread.run_sync(self._run_out, session.id)

    def _run_out(self, session: int) -> None:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute("UPDATE leases SET expires_ms = 0 WHERE id = ?", (session,))


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return SqliteStores(tmp_path / "kactl.db")


class TestSqliteStore(StoreContract):
    pass
