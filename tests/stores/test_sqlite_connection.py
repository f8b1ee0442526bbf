"""All connections are opened by the given function, and the poll interval is a setting."""

import sqlite3
import threading
from collections import Counter
from pathlib import Path

import pytest

from kactl.model import TopicPartition
from kactl.model.errors import StoreUnavailable
from kactl.stores.base import Changed
from kactl.stores.sqlite import Connection, SqliteStore, connect, database, journal
from kactl.stores.sqlite.connection import Access
from tests.support.clocks import ManualClock
from tests.support.store_clients import EventRecorder, create_and_lead, new_write

from .maintenance import run_maintenance

pytestmark = pytest.mark.anyio


class Connector:
    """Opens connections and counts them, by name of the file, access and thread."""

    def __init__(self) -> None:
        self.opened: Counter[tuple[str, Access]] = Counter()
        self.threads: list[str] = []
        self.fails = False

    def __call__(self, path: Path, access: Access = "read-write") -> Connection:
        self.opened[path.suffix, access] += 1
        self.threads.append(threading.current_thread().name)
        if self.fails:
            raise sqlite3.OperationalError("unable to open database file")
        return connect(path, access)


async def test_every_connection_is_opened_by_the_given_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = Connector()
    monkeypatch.setattr(database, "LOG_BYTES_MAX", 0)
    monkeypatch.setattr(journal, "CHANGES_MAX", 1)

    async with SqliteStore(tmp_path / "kactl.db", clock=ManualClock(), connect=connector) as store:
        fence = await create_and_lead(store)
        await store.commit(new_write([TopicPartition("orders", 0)], leader_epoch=1, expected=0), fence)
        await run_maintenance(store)

    assert connector.opened[".new", "read-write"] == 1  # the new file
    assert connector.opened[".db", "unchanging"] == 2  # the header and the check of an unused file
    assert connector.opened[".db", "read-write"] > 1  # the store's own, and those of checkpoints
    assert {name.rpartition("_")[0] for name in connector.threads} == {"kactl-sqlite", "kactl-sqlite-checkpoint"}


async def test_failed_checkpoint_is_reported_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connector = Connector()
    monkeypatch.setattr(database, "LOG_BYTES_MAX", 1)
    async with SqliteStore(tmp_path / "kactl.db", clock=ManualClock(), connect=connector) as store:
        await create_and_lead(store)
        connector.fails = True
        with pytest.raises(StoreUnavailable, match="unable to open"):
            await run_maintenance(store)
        connector.fails = False
        before = connector.opened[".db", "read-write"]

        await run_maintenance(store)

        assert connector.opened[".db", "read-write"] == before + 1


async def test_changes_of_other_processes_are_noticed_at_the_poll_interval(tmp_path: Path) -> None:
    clock, other = ManualClock(), ManualClock()
    async with (
        SqliteStore(tmp_path / "kactl.db", clock=clock, poll_ms=400) as store,
        SqliteStore(store.path, clock=other) as writer,
    ):
        recorder = EventRecorder(store)
        await store.topics()
        await create_and_lead(writer)

        await clock.advance(399)
        assert recorder.events == []

        await clock.advance(1)

        await recorder.wait_for(Changed.TOPICS)
