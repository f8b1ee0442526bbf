"""Sessions expire by the clock, in the process that checks first. A process that is delayed too long detects it."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from kactl.model import Assignment, TopicRef
from kactl.model.errors import ControllerMoved, IllegalState, SessionExpired, StoreError, StoreUnavailable
from kactl.runtime.clock import UNKNOWN_BOOT
from kactl.stores.base import Changed, Store
from kactl.stores.sqlite import Connection, Cursor, SqliteStore, connection
from kactl.stores.sqlite.connection import Access
from kactl.stores.sqlite.lease import POLL_MS
from tests.support.clocks import ManualClock
from tests.support.store_clients import WAIT_S, EventRecorder, broker_info

from .maintenance import poll_for

pytestmark = pytest.mark.anyio

TIMEOUT_MS = 6_000


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(tmp_path / "kactl.db", clock=clock, session_timeout_ms=TIMEOUT_MS) as store:
        yield store


async def test_controllership_lasts_while_its_holder_lives(store: SqliteStore, clock: ManualClock) -> None:
    recorder = EventRecorder(store)
    await store.contest(1)

    await poll_for(clock, 3 * TIMEOUT_MS, store)

    assert await store.controller() is not None
    assert recorder.events == []


async def test_session_is_renewed_in_time_and_not_too_often(store: SqliteStore, clock: ManualClock) -> None:
    expiries = set()
    for _ in range(TIMEOUT_MS // POLL_MS):
        await poll_for(clock, POLL_MS, store)
        expiries.add(await store._thread.run(store._thread.database.one, "SELECT expires_ms FROM leases"))
        assert min(expiries) > 0
        assert max(expiries) > clock.boot_time().ms

    assert len(expiries) in (3, 4)


async def test_standby_is_elected_after_the_holder_was_killed(store: SqliteStore, clock: ManualClock) -> None:
    recorder = EventRecorder(store)
    killed = SqliteStore(store.path, clock=clock, session_timeout_ms=TIMEOUT_MS)
    await killed._thread.open()
    await killed._lease.open()  # without renewals
    old = await killed.contest(1)
    await store.controller()

    await poll_for(clock, TIMEOUT_MS - POLL_MS, store)
    with pytest.raises(ControllerMoved):
        await store.contest(2)
    await poll_for(clock, 2 * POLL_MS, store)

    await recorder.wait_for(Changed.CONTROLLER_GONE)
    assert (await store.contest(2)).epoch == old.epoch + 1
    with pytest.raises(SessionExpired):
        await killed.contest(1, take_over=True)
    await killed._close()


async def test_expired_controllership_is_vacant_without_a_poll(tmp_path: Path) -> None:
    clock = ManualClock()
    path = tmp_path / "kactl.db"
    killed = SqliteStore(path, clock=clock, session_timeout_ms=TIMEOUT_MS)
    await killed._thread.open()
    await killed._lease.open()
    await killed.contest(1)
    await killed._thread.close()
    await clock.advance(TIMEOUT_MS)

    async with SqliteStore(path, clock=clock) as store:
        assert await store.controller() is None
        assert (await store.contest(2)).epoch == 2


async def test_process_that_slept_too_long_loses_its_session(store: SqliteStore, clock: ManualClock) -> None:
    recorder = EventRecorder(store)
    await store.contest(1)
    first = store.session_id

    clock._passed_ms += TIMEOUT_MS  # nothing ran meanwhile
    await poll_for(clock, 2 * POLL_MS, store)

    await recorder.wait_for(Changed.SESSION_LOST)
    await recorder.wait_for(Changed.SESSION_OPENED)
    assert store.session_id > first
    assert await store.controller() is None


@pytest.mark.parametrize("kept_alive", [True, False])
async def test_renewed_broker_session_does_not_expire(store: SqliteStore, clock: ManualClock, kept_alive: bool) -> None:
    session = await store.new_session(1_000)
    await session.register(broker_info(1))

    for _ in range(5):
        await poll_for(clock, 900, store)
        if kept_alive:
            await session.keep_alive()

    assert (1 in await store.brokers()) is kept_alive


async def test_id_of_an_expired_broker_is_free_immediately(store: SqliteStore, clock: ManualClock) -> None:
    silent, next_one = await store.new_session(1_000), await store.new_session(60_000)
    epoch = await silent.register(broker_info(1))

    clock._passed_ms += 1_000

    assert await next_one.register(broker_info(1)) > epoch


async def test_closing_the_store_ends_all_sessions(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "kactl.db") as store:
        async with SqliteStore(store.path) as leaving:
            session = await leaving.new_session(60_000)
            await session.register(broker_info(1))
            await leaving.contest(1)

        assert await store.brokers() == {}
        assert await store.controller() is None
        with pytest.raises(SessionExpired):
            await session.keep_alive()
        await session.close()


async def test_busy_file_is_retried(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.0)
    async with SqliteStore(tmp_path / "kactl.db", clock=clock, session_timeout_ms=TIMEOUT_MS) as store:
        with closing(sqlite3.connect(store.path, isolation_level=None)) as blocking:
            blocking.execute("BEGIN IMMEDIATE")

            with pytest.raises(StoreError, match="nothing was changed"):
                await store.contest(1)
            await poll_for(clock, TIMEOUT_MS / 2, store)
            assert store.trouble.endswith("database is locked: nothing was changed; try again")
        await poll_for(clock, POLL_MS, store)

        assert store.trouble == ""
        told = [record.message for record in caplog.records if record.levelname == "ERROR"]
        assert len(told) == 2
        assert "retrying every" in told[0]
        assert told[1] == "the store can be used again"
        assert (await store.contest(1)).epoch == 1


class FailsOnce:
    """A connection on which one statement fails once with an I/O error."""

    def __init__(self, real: Connection, begin: str) -> None:
        self.real = real
        self.begin = begin
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def execute(self, query: str, *values: Any) -> Cursor:
        if query.startswith(self.begin) and not self.failed:
            self.failed = True
            raise sqlite3.OperationalError("disk I/O error")
        return self.real.execute(query, *values)


@pytest.mark.parametrize("begin", ["SELECT 1 FROM leases WHERE id", "SELECT 1 FROM leases WHERE (expires_ms"])
async def test_read_error_of_one_poll_is_retried(store: SqliteStore, clock: ManualClock, begin: str) -> None:
    held, failing = store._thread.database, FailsOnce(store._thread.database.connection, begin)
    held.connection = cast(Connection, failing)

    await poll_for(clock, POLL_MS, store)
    assert failing.failed
    assert "disk I/O error" in store.trouble
    await poll_for(clock, POLL_MS, store)

    held.connection = failing.real
    assert store.trouble == ""
    assert (await store.contest(1)).epoch == 1


async def test_no_change_is_missed_if_a_poll_fails(store: SqliteStore, clock: ManualClock) -> None:
    recorder = EventRecorder(store)
    await store.topics()
    async with SqliteStore(store.path, clock=clock, session_timeout_ms=TIMEOUT_MS) as other:
        await other.create_topic(TopicRef("orders"), {0: Assignment((1,))}, {})
        held, failing = store._thread.database, FailsOnce(store._thread.database.connection, "SELECT controller FROM")
        held.connection = cast(Connection, failing)

        await poll_for(clock, POLL_MS, store)
        await poll_for(clock, POLL_MS, store)

        assert failing.failed
        held.connection = failing.real
        assert [event.what for event in recorder.events] == [Changed.TOPICS]


async def test_write_to_a_full_disk_is_rejected_with_a_remedy(store: SqliteStore) -> None:
    await store._thread.run(store._thread.database.one, "PRAGMA max_page_count = 1")  # as many as there are
    many = {at: Assignment((1,)) for at in range(100_000)}

    with pytest.raises(StoreUnavailable, match="is full: make room on its disk"):
        await store.create_topic(TopicRef("large"), many, {})

    assert await store.topics() == []


class Fails:
    """A connection on which some statements fail. As after most errors, SQLite has rolled back the transaction then."""

    def __init__(self, real: Connection, begin: str, code: int, text: str) -> None:
        self.real = real
        self._begin = begin
        self._error = sqlite3.OperationalError(text)
        self._error.sqlite_errorcode = code

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def execute(self, query: str, *values: Any) -> Cursor:
        if query.startswith(self._begin):
            if self.real.in_transaction:
                self.real.execute("ROLLBACK")
            raise self._error
        return self.real.execute(query, *values)


@pytest.mark.parametrize(
    ("code", "text", "remedy"),
    [
        (sqlite3.SQLITE_BUSY, "database is locked", "nothing was changed; try again"),
        (sqlite3.SQLITE_READONLY_DBMOVED, "attempt to write a readonly database", "let the user that kactl runs as"),
        (sqlite3.SQLITE_FULL, "database or disk is full", "make room on its disk"),
        (sqlite3.SQLITE_IOERR_WRITE, "disk I/O error", "check its disk"),
    ],
)
async def test_rejected_write_names_its_remedy(store: SqliteStore, code: int, text: str, remedy: str) -> None:
    held = store._thread.database
    real = held.connection
    held.connection = cast(Connection, Fails(real, "BEGIN IMMEDIATE", code, text))

    with pytest.raises(StoreError, match=f"{text}: .*{remedy}") as raised:
        await store.mark_deletion("orders")

    held.connection = real
    assert not isinstance(raised.value, StoreUnavailable)
    assert await store.deletions() == []


async def test_failed_read_names_its_cause(store: SqliteStore) -> None:
    held = store._thread.database
    real = held.connection
    held.connection = cast(Connection, Fails(real, "SELECT topic", sqlite3.SQLITE_IOERR_READ, "disk I/O error"))

    with pytest.raises(StoreUnavailable, match="disk I/O error: check its disk"):
        await store.deletions()

    held.connection = real
    assert await store.deletions() == []


async def test_store_rejects_calls_outside_its_block(tmp_path: Path) -> None:
    store: Store = SqliteStore(tmp_path / "kactl.db")

    with pytest.raises(IllegalState):
        await store.topics()
    with pytest.raises(IllegalState):
        await store.__aexit__(None, None, None)
    assert list(tmp_path.iterdir()) == []


async def test_store_works_after_a_cancelled_call(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "kactl.db") as store:
        for _ in range(20):
            with anyio.move_on_after(0):
                await store.contest(1, take_over=True)
        with anyio.fail_after(WAIT_S):
            fence = await store.contest(1, take_over=True)

        held = await store.controller()
        assert held is not None
        assert held.epoch == fence.epoch


async def test_error_in_the_block_is_raised(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with SqliteStore(tmp_path / "kactl.db"):
            raise ZeroDivisionError


async def test_late_renewal_suspends_the_session_until_renewed(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.0)
    async with SqliteStore(tmp_path / "kactl.db", clock=clock, session_timeout_ms=TIMEOUT_MS) as store:
        events: list[Changed] = []
        store.subscribe(lambda event: events.append(event.what))
        with closing(sqlite3.connect(store.path, isolation_level=None)) as blocking:
            blocking.execute("BEGIN IMMEDIATE")

            await poll_for(clock, TIMEOUT_MS * 0.7, store)
            assert events == []
            await poll_for(clock, TIMEOUT_MS * 0.2, store)
            assert events == [Changed.SUSPENDED]
        await poll_for(clock, POLL_MS, store)

        assert events == [Changed.SUSPENDED, Changed.CONNECTED]


async def register_remote(store: SqliteStore) -> None:
    """Register broker 3 in a session with the controller, whose registration has no lease."""
    fence = await store.contest(1)
    await store.register_remote(broker_info(3), bytes(16), TIMEOUT_MS, fence)


async def test_store_that_opens_no_session_ends_no_registration(store: SqliteStore, clock: ManualClock) -> None:
    await register_remote(store)

    def failing(path: Path, access: Access = "read-write") -> Connection:
        return cast(Connection, FailsOnce(connection.connect(path, access), "INSERT INTO leases"))

    with pytest.raises(StoreUnavailable, match="disk I/O error"):
        async with SqliteStore(store.path, clock=clock, connect=failing):
            pass

    assert list(await store.brokers()) == [3]


async def test_store_that_is_closed_after_a_lost_session_ends_no_registration(
    store: SqliteStore, clock: ManualClock
) -> None:
    await register_remote(store)
    async with SqliteStore(store.path, clock=clock, session_timeout_ms=TIMEOUT_MS) as leaving:
        recorder = EventRecorder(leaving)
        held, failing = leaving._thread.database, FailsOnce(leaving._thread.database.connection, "INSERT INTO leases")
        held.connection = cast(Connection, failing)
        await leaving._thread.run(leaving._thread.sessions.close_sessions, [leaving.session_id])
        await poll_for(clock, POLL_MS, leaving)
        await recorder.wait_for(Changed.SESSION_LOST)
        while not leaving.trouble:
            await leaving._thread.run(int)

    assert failing.failed
    assert list(await store.brokers()) == [3]


@pytest.mark.parametrize("fraction_ms", [0.0, 0.001, 0.5, 0.999])
async def test_session_of_a_broker_outlives_the_bound_of_its_renewal(
    store: SqliteStore, clock: ManualClock, fraction_ms: float
) -> None:
    """Times are stored in whole milliseconds, so a session may end early by less than the stated resolution."""
    session = await store.new_session(TIMEOUT_MS)
    await session.register(broker_info(1))
    await clock.advance(100 + fraction_ms)
    sent_ns = clock.lease_ns()
    await session.renew(sent_ns)

    bound = session.bound
    bound_ns = sent_ns + TIMEOUT_MS * 1_000_000 - bound.resolution_ns
    await clock.advance((bound_ns - 1_000 - clock.lease_ns()) / 1_000_000)
    await store._thread.run(store._thread.sessions.end_silent_sessions)
    alive = await store.brokers()
    await clock.advance(2)
    await store._thread.run(store._thread.sessions.end_silent_sessions)

    assert (bound.kind, bound.same_clock) == ("counted", True)
    assert list(alive) == [1]
    assert await store.brokers() == {}


async def test_session_without_a_boot_id_is_only_witnessed(store: SqliteStore, clock: ManualClock) -> None:
    clock.boot = UNKNOWN_BOOT

    session = await store.new_session(TIMEOUT_MS)

    assert session.bound.kind == "witnessed"
