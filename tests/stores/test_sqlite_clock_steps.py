"""Leases of the SQLite store when the wall clock is set, the host reboots, or a process loses its folder's lock."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Final

import anyio
import pytest

from kactl.model.errors import BrokerIdTaken, ControllerMoved, SessionExpired
from kactl.runtime.clock import UNKNOWN_BOOT
from kactl.stores.base import Changed
from kactl.stores.sqlite import NO_HOLDER, Holder, SqliteStore
from kactl.stores.sqlite.lease import POLL_MS
from tests.support.clocks import ManualClock, SteppedClock
from tests.support.store_clients import WAIT_S, EventRecorder, broker_info

from .maintenance import poll_for

pytestmark = pytest.mark.anyio

TIMEOUT_MS: Final = 6_000
HOUR_MS: Final = 3_600_000
STEPS: Final = [HOUR_MS, -HOUR_MS]
# Longer than a busy machine delays a process.
CHILD_TIMEOUT_MS: Final = 2_000


@asynccontextmanager
async def killed_store(path: Path, clock: ManualClock, holder: Holder = NO_HOLDER) -> AsyncIterator[SqliteStore]:
    """Returns the store of a killed process: no session is renewed or closed."""
    store = SqliteStore(path, clock=clock, session_timeout_ms=TIMEOUT_MS, holder=holder)
    await store._thread.open()
    await store._lease.open()
    try:
        yield store
    finally:
        await store._thread.close()


@pytest.mark.parametrize("step_ms", STEPS)
async def test_wall_clock_step_ends_no_session(tmp_path: Path, step_ms: int) -> None:
    clock = ManualClock()
    async with SqliteStore(tmp_path / "kactl.db", clock=clock, session_timeout_ms=TIMEOUT_MS) as store:
        recorder = EventRecorder(store)
        session = await store.new_session(TIMEOUT_MS)
        await session.register(broker_info(1))
        await store.contest(1)

        clock.step_ms = step_ms
        for _ in range(4):
            await poll_for(clock, TIMEOUT_MS / 2, store)
            await session.keep_alive()

        assert list(await store.brokers()) == [1]
        assert await store.controller() is not None
        assert not {Changed.SESSION_LOST, Changed.SUSPENDED, Changed.CONTROLLER_GONE} & {
            event.what for event in recorder.events
        }


@pytest.mark.parametrize("step_ms", STEPS)
async def test_wall_clock_step_does_not_move_the_end_of_a_lease(tmp_path: Path, step_ms: int) -> None:
    clock, path = ManualClock(), tmp_path / "kactl.db"
    async with SqliteStore(path, clock=clock) as store, killed_store(path, clock) as dead:
        session = await dead.new_session(TIMEOUT_MS)
        await session.register(broker_info(1))
        await dead.contest(1)

        clock.step_ms = step_ms
        await poll_for(clock, TIMEOUT_MS - POLL_MS, store)
        with pytest.raises(ControllerMoved):
            await store.contest(2)
        await poll_for(clock, 2 * POLL_MS, store)

        assert (await store.contest(2)).epoch == 2
        assert await store.brokers() == {}


async def test_leases_of_an_earlier_boot_have_ended(tmp_path: Path) -> None:
    clock, path = ManualClock(), tmp_path / "kactl.db"
    async with killed_store(path, clock) as dead:
        session = await dead.new_session(HOUR_MS)
        await session.register(broker_info(1))
        await dead.contest(1)

    clock.boot = "second boot"
    async with SqliteStore(path, clock=clock) as store:
        assert await store.brokers() == {}
        assert (await store.contest(2)).epoch == 2


async def test_lease_of_an_earlier_boot_cannot_be_renewed(tmp_path: Path) -> None:
    clock = ManualClock()
    async with killed_store(tmp_path / "kactl.db", clock) as store:
        session = await store.new_session(HOUR_MS)

        clock.boot = "second boot"

        with pytest.raises(SessionExpired):
            await session.keep_alive()


async def test_unnamed_boot_lease_ends_when_the_clock_is_behind_it(tmp_path: Path) -> None:
    before, after, path = ManualClock(), ManualClock(), tmp_path / "kactl.db"
    before.boot = after.boot = UNKNOWN_BOOT
    await before.advance(HOUR_MS)
    async with killed_store(path, before) as dead:
        session = await dead.new_session(TIMEOUT_MS)
        await session.register(broker_info(1))

    async with SqliteStore(path, clock=after) as store:
        assert await store.brokers() == {}


async def test_process_without_boot_id_ends_no_session_of_others(tmp_path: Path) -> None:
    clock, nameless, path = ManualClock(), ManualClock(), tmp_path / "kactl.db"
    nameless.boot = UNKNOWN_BOOT
    async with SqliteStore(path, clock=clock) as one, SqliteStore(path, clock=nameless) as two:
        await one.contest(1)
        session = await two.new_session(TIMEOUT_MS)
        await session.register(broker_info(2))

        await poll_for(clock, 4 * POLL_MS, one)
        await poll_for(nameless, 4 * POLL_MS, two)

        assert await two.controller() is not None
        assert list(await one.brokers()) == [2]


async def test_sessions_of_an_earlier_lock_holder_end_immediately(tmp_path: Path) -> None:
    clock, path = ManualClock(), tmp_path / "kactl.db"
    async with killed_store(path, clock, Holder("lock", "first")) as dead:
        session = await dead.new_session(HOUR_MS)
        await session.register(broker_info(1))
        await dead.contest(1)

    async with SqliteStore(path, clock=clock, holder=Holder("lock", "second")) as store:
        assert await store.brokers() == {}
        assert (await store.contest(2)).epoch == 2


@pytest.mark.parametrize("theirs", [Holder("lock", "ours"), Holder("another lock", "first"), NO_HOLDER])
async def test_sessions_of_the_same_turn_or_other_locks_stay(tmp_path: Path, theirs: Holder) -> None:
    clock, path = ManualClock(), tmp_path / "kactl.db"
    async with killed_store(path, clock, theirs) as other:
        session = await other.new_session(HOUR_MS)
        await session.register(broker_info(1))

        async with SqliteStore(path, clock=clock, holder=Holder("lock", "ours")) as store:
            assert list(await store.brokers()) == [1]
            with pytest.raises(BrokerIdTaken):
                await (await store.new_session(HOUR_MS)).register(broker_info(1))


# -- several processes with one file, each with another wall clock ---------------------------------------------------


CHILD: Final = f"""
import sys, anyio
from kactl.stores.sqlite import SqliteStore
from tests.support.clocks import SteppedClock
from tests.support.store_clients import broker_info

async def main() -> None:
    path, step_ms = sys.argv[1], int(sys.argv[2])
    async with SqliteStore(path, clock=SteppedClock(step_ms), session_timeout_ms={CHILD_TIMEOUT_MS}) as store:
        session = await store.new_session({HOUR_MS})
        await session.register(broker_info(7))
        fence = await store.contest(7)
        print(store.session_id, flush=True)
        while await anyio.to_thread.run_sync(sys.stdin.readline):
            await store.check(fence)
            print(store.session_id, flush=True)

anyio.run(main)
"""


class Child:
    """A process with another clock than the test's. It is the controller and has broker 7."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.session_at_first = self._read()

    def session(self) -> int:
        """Returns the current session, while it is still the controller."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> int:
        output: IO[str] | None = self.process.stdout
        assert output is not None
        return int(output.readline())


@contextmanager
def child(path: Path, step_ms: int) -> Iterator[Child]:
    command = [sys.executable, "-c", CHILD, str(path), str(step_ms)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


@pytest.mark.parametrize("step_ms", STEPS)
async def test_different_wall_clocks_keep_each_others_sessions(tmp_path: Path, step_ms: int) -> None:
    path = tmp_path / "kactl.db"
    async with SqliteStore(path, clock=SteppedClock(0), session_timeout_ms=HOUR_MS // 2) as store:
        recorder, ours = EventRecorder(store), store.session_id
        with child(path, step_ms) as other:
            assert list(await store.brokers()) == [7]
            expiries = {await lease_end(store, other.session_at_first)}
            with anyio.fail_after(WAIT_S):
                while len(expiries) < 4:  # three renewals by the child: more than its timeout
                    await anyio.sleep(POLL_MS / 1000)
                    expiries.add(await lease_end(store, other.session_at_first))

            assert other.session() == other.session_at_first
            assert list(await store.brokers()) == [7]
            assert store.session_id == ours
        assert Changed.SESSION_LOST not in {event.what for event in recorder.events}


@pytest.mark.parametrize("step_ms", STEPS)
async def test_killed_process_with_another_wall_clock_expires_in_time(tmp_path: Path, step_ms: int) -> None:
    path = tmp_path / "kactl.db"
    async with SqliteStore(path, clock=SteppedClock(0)) as store:
        recorder = EventRecorder(store)
        with child(path, step_ms):
            assert await store.controller() is not None

        await recorder.wait_for(Changed.CONTROLLER_GONE)
        assert (await store.contest(2)).epoch == 2


async def lease_end(store: SqliteStore, session: int) -> int | None:
    """Returns the end of a lease; None if there is no such session."""
    found: int | None = await store._thread.run(
        store._thread.database.one, "SELECT expires_ms FROM leases WHERE id = ?", session
    )
    return found
