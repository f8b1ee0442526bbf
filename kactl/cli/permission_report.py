"""Daily check of the permissions of a cluster's nodes in ZooKeeper."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol

from kactl.model.errors import SessionExpired, StoreError, StoreUnavailable
from kactl.runtime.background import Background
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger

log = logger(__name__)

INTERVAL_S: Final = 24 * 3600.0
# After a check that ZooKeeper did not answer.
RETRY_S: Final = 60.0


class HasPermissions(Protocol):
    """The part of a store that is checked. Opening it has been the first check."""

    async def check_permissions(self) -> None: ...


class PermissionReport:
    """Repeats the check of a store's permissions, which logs what it finds.

    A right that this instance has lost is logged, too: it does not end the process, since the store reports each write
    that fails.

    Args:
        sleep: waits for a number of seconds.
    """

    def __init__(self, store: HasPermissions, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._store = store
        self._conditions = Conditions(log)
        self._sleep = sleep

    async def run(self) -> None:
        """Check each day until cancelled."""
        pause_s = INTERVAL_S
        while True:
            await self._sleep(pause_s)
            pause_s = INTERVAL_S if await self.look() else RETRY_S

    async def look(self) -> bool:
        """Check once. Returns whether ZooKeeper has answered."""
        try:
            await self._store.check_permissions()
        except (SessionExpired, StoreUnavailable) as error:
            text = "the permissions in ZooKeeper could not be checked, trying again soon: %s"
            self._conditions.add("", logging.WARNING, text, error)
            return False
        except StoreError as error:
            log.error("%s", error)
        self._conditions.end("", "the permissions in ZooKeeper have been checked")
        return True


@contextlib.asynccontextmanager
async def reporting_permissions(store: HasPermissions) -> AsyncIterator[None]:
    """Check the permissions each day while the block runs."""
    async with Background("the permissions in ZooKeeper") as tasks:
        tasks.start_soon(PermissionReport(store).run, name="permissions in ZooKeeper")
        yield
