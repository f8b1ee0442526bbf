"""Maintenance of a store's files, run when a test requests it."""

from kactl.stores.sqlite import SqliteStore
from kactl.stores.sqlite.database import Database


async def run_maintenance_step(store: SqliteStore) -> bool:
    """Run one step. Returns whether another step is due."""
    return await store._thread.run(_step, store._thread.database)


async def run_maintenance(store: SqliteStore) -> None:
    """Run all steps that are due."""
    while await run_maintenance_step(store):
        pass


def _step(database: Database) -> bool:
    more = database.run_maintenance()
    database.checkpoint.wait()
    return more or database.checkpoint.is_moving
