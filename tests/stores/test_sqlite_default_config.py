"""Tests of the configuration of all brokers in the file of a SQLite store."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kactl.model.errors import StoreDamaged
from kactl.stores.sqlite import SqliteStore

pytestmark = pytest.mark.anyio


@pytest.fixture
async def config_file(tmp_path: Path) -> Path:
    """Returns the file of a cleanly closed store with a configuration of all brokers."""
    path = tmp_path / "kactl.db"
    async with SqliteStore(path) as store:
        for value in ("1", "2"):
            await store.set_default_config({"a": value})
    return path


async def test_default_config_is_kept_by_the_file(config_file: Path) -> None:
    async with SqliteStore(config_file) as store:
        assert await store.default_config() == {"a": "2"}


async def test_damaged_default_config_is_detected_and_unchanged(config_file: Path) -> None:
    with closing(sqlite3.connect(config_file)) as connection, connection:
        connection.execute("UPDATE default_config SET data = x'00112233445566778899'")
    before = config_file.read_bytes()

    with pytest.raises(StoreDamaged, match="the configuration of all brokers is damaged"):
        async with SqliteStore(config_file):
            pass

    assert config_file.read_bytes() == before
