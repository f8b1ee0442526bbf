"""What a store does now and then to keep its files small, done when a test says so."""

from kactl.stores.sqlite import SqliteStore
from kactl.stores.sqlite.database import Database


async def tidy_once(store: SqliteStore) -> bool:
    """One step of it. Whether there is another one to do."""
    return await store._thread.run(_step, store._thread.database)


async def tidy(store: SqliteStore) -> None:
    """All that is due."""
    while await tidy_once(store):
        pass


def _step(database: Database) -> bool:
    more = database.tidy()
    database.checkpoint.wait()
    return more or database.checkpoint.is_moving
