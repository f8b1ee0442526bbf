"""What a store does now and then to keep its files small, done when a test says so."""

from kactl.stores.sqlite import SqliteStore
from kactl.stores.sqlite.database import Database


async def run_maintenance_step(store: SqliteStore) -> bool:
    """One step of it. Whether there is another one to do."""
    return await store._thread.run(_step, store._thread.database)


async def run_maintenance(store: SqliteStore) -> None:
    """All that is due."""
    while await run_maintenance_step(store):
        pass


def _step(database: Database) -> bool:
    more = database.run_maintenance()
    database.checkpoint.wait()
    return more or database.checkpoint.is_moving
