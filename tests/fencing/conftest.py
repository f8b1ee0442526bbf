"""A PostgreSQL server for each process of the test run, and a database for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kactl.fencing import ddl
from tests.support.postgres_server import running_postgres

from .databases import TABLE, Database


@pytest.fixture(scope="session")
def postgres() -> Iterator[Path]:
    with running_postgres() as folder:
        yield folder


@pytest.fixture
async def database(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """A database with the tables of the guard and of the test, for the parameter `kind`."""
    place = tmp_path / "app.db" if "sqlite" in kind else request.getfixturevalue("postgres")
    database = Database(kind, place)
    for statement in ("DROP TABLE IF EXISTS invoices", "DROP TABLE IF EXISTS kactl_fence", TABLE):
        database.query(statement)
    database.query(ddl(database.dialect))
    yield database
    await database.close()
