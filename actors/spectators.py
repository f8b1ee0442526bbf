"""Responses to spectators, which follow the routing metadata.

They do not pass the controller's queue: a response reads the table between two events, as queries do. A controller that
another one has replaced would respond with old data, so each response states when this instance was last known to be
the active one.
"""

import asyncio
import math
from collections.abc import Coroutine
from typing import Any, Final

from kactl.decide.machines.route_log import RouteLog
from kactl.decide.messages.routes import RouteMessage, Version, Watch
from kactl.decide.state.cluster import Cluster
from kactl.model import Fence
from kactl.model.errors import ControllerMoved, NotController, StoreError
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.stores.base import Store
from kactl.telemetry.event_log import EventLog

from .controller import ControllerLoop

log = logger(__name__)

# The longest wait for a change. Longer ones would keep the requests of spectators that are gone.
WAIT_MS_MAX: Final = 30_000
# A look at a hundred thousand partitions takes a millisecond; a burst of changes is sent in parts that are this far
# apart.
PAUSE_MS: Final = 20
# Spectators that poll at about the same time share one check of the controllership.
CONFIRMED_FOR_MS: Final = 200


class Spectators:
    """Publishes the changes of the metadata while this instance is the active controller."""

    def __init__(
        self, loop: ControllerLoop, cluster: Cluster, *, history: EventLog, store: Store, clock: Clock
    ) -> None:
        self._loop = loop
        self._cluster = cluster
        self._history = history
        self._store = store
        self._clock = clock
        self._log: RouteLog | None = None
        self._fence: Fence | None = None  # of the controllership that `_log` belongs to
        self._confirmed_ms: float | None = None
        self._checking = asyncio.Lock()
        self._looked_ms = -math.inf

    async def watch(self, asked: Watch) -> RouteMessage:
        """Returns what has changed since a version. If nothing has, waits for a change as long as the request allows.

        Raises:
            NotController: this instance is not the active controller, or its takeover is not complete.
            StoreError: the store could not confirm yet that it is.
        """
        fence = self._present()
        began_ms = self._clock.monotonic_ms()
        if not asked.wait_ms or self._confirmed_ms is None:
            await self._confirm(fence)
        changes = self._look(fence)
        while Version(fence.epoch, changes.seq) == asked.after:
            rest_ms = began_ms + min(asked.wait_ms, WAIT_MS_MAX) - self._clock.monotonic_ms()
            if rest_ms <= 0 or not await self._changed(rest_ms):
                break
            await self._clock.sleep_ms(self._looked_ms + PAUSE_MS - self._clock.monotonic_ms())
            changes = self._look(fence)
        assert self._confirmed_ms is not None, "set above, and reset only with the controllership"
        age_ms = self._clock.monotonic_ms() - self._confirmed_ms
        return changes.since(fence.epoch, asked.after, asked.topics, age_ms=age_ms)

    def _present(self) -> Fence:
        """Returns the fence of the controllership. Forgets what belongs to an earlier one."""
        if not (self._loop.is_active and self._loop.controllership.ready):
            raise NotController() if self._loop.is_active else self._not_controller()
        if self._fence != self._cluster.fence:
            self._fence, self._confirmed_ms, self._log = self._cluster.fence, None, None
        return self._cluster.fence

    def _not_controller(self) -> NotController:
        return NotController(self._loop.active_id, self._loop.active_address)

    def _look(self, fence: Fence) -> RouteLog:
        """Returns the changes up to now.

        Raises:
            NotController: this controllership has ended.
        """
        if self._present() != fence:
            raise self._not_controller()
        if self._log is None or self._log.table is not self._cluster.table:
            self._log = RouteLog(self._cluster.table)
        self._looked_ms = self._clock.monotonic_ms()
        self._log.update(self._cluster.brokers, self._cluster.readiness)
        return self._log

    async def _confirm(self, fence: Fence) -> None:
        """Check that this instance is the controller, unless that was checked a moment ago.

        A store that does not respond makes the data older, and is an error only before the first check.
        """
        async with self._checking:
            now_ms = self._clock.monotonic_ms()
            confirmed_ms = self._confirmed_ms
            if self._fence == fence and confirmed_ms is not None and now_ms - confirmed_ms < CONFIRMED_FOR_MS:
                return
            try:
                await self._store.check(fence)
            except ControllerMoved:
                raise NotController(None) from None
            except StoreError as error:
                if self._confirmed_ms is None:
                    raise
                log.info("the controllership cannot be confirmed to spectators: %s", error)
                return
            if self._present() == fence:
                self._confirmed_ms = now_ms

    async def _changed(self, limit_ms: float) -> bool:
        """Wait until something may have changed. Returns False if the time limit has passed before."""
        loop = asyncio.get_running_loop()

        def start(work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
            return loop.create_task(work)

        changed, late = start(self._history.changed()), start(self._clock.sleep_ms(limit_ms))
        try:
            await asyncio.wait({changed, late}, return_when=asyncio.FIRST_COMPLETED)
            return changed.done()
        finally:
            changed.cancel()
            late.cancel()
            await asyncio.wait({changed, late})  # not `asyncio.gather`: see `kactl.actors.machines.machine`
