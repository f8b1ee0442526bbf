"""Time and maintenance of SQLite stores, driven by a test."""

from kactl.stores.sqlite import SqliteStore
from kactl.stores.sqlite.database import Database
from kactl.stores.sqlite.lease import POLL_MS
from tests.support.clocks import ManualClock


async def poll_for(clock: ManualClock, total_ms: float, *stores: SqliteStore) -> None:
    """Advances the clock in steps of one poll interval. After each step, waits until the stores' threads are idle."""
    for _ in range(int(total_ms / POLL_MS)):
        await clock.advance(POLL_MS)
        for store in stores:
            await store._thread.run(int)


async def run_maintenance_step(store: SqliteStore) -> bool:
    """Runs one step. Returns whether another step is due."""
    return await store._thread.run(_step, store._thread.database)


async def run_maintenance(store: SqliteStore) -> None:
    """Runs all steps that are due."""
    while await run_maintenance_step(store):
        pass


def _step(database: Database) -> bool:
    more = database.run_maintenance()
    database.checkpoint.wait()
    return more or database.checkpoint.is_moving
