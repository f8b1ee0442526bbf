"""Stored drains: they begin by an order of an operator, and end by another, by their time limit, or by a registration.

    live ──drain──▶ drained ──undo, time limit, or a new registration if the operator asked for that──▶ live

The store is written first. A drain belongs to the id of a broker, so it outlives registrations and controllers.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kactl.actors.priority_inbox import Timers
from kactl.decide.messages.events import DrainProgress, DrainTimeout
from kactl.model import Broker, Drain, Maintenance
from kactl.runtime.logs import logger

from .base import ControllerContext, Handlers

log = logger(__name__)

# Names of the recorded events.
DRAINED: Final = "drained"
UNDRAINED: Final = "undrained"
# A time limit counts by the wall clock, which an operator may set: it is compared once a minute.
CHECK_MS_MAX: Final = 60_000


class Drains(Handlers):
    """Writes the drains of the cluster, and watches their time limits.

    Args:
        timers: of the time limits.
    """

    def __init__(self, context: ControllerContext, timers: Timers) -> None:
        super().__init__(context)
        self._timers = timers

    async def take_over(self, maintenance: Maintenance) -> None:
        """Adopt what is stored, and end the drains that ended without a controller. Registrations are known."""
        self.cluster.set_maintenance(maintenance)
        await self.brokers_came(self.cluster.brokers.values())
        for broker, drain in self.cluster.maintenance.drains.items():
            self._watch(broker, drain)
            log.info("broker %d is drained %s", broker, drain)

    async def begin(self, broker: int, drain: Drain) -> None:
        """Store a drain. It replaces an earlier one of the broker, except for the time of its beginning."""
        drains = self.cluster.maintenance.drains
        if broker in drains:
            drain = msgspec.structs.replace(drain, since_ms=drains[broker].since_ms)
        await self._write({**drains, broker: drain})
        self._watch(broker, drain)
        self.history.add(self.broker_event(DRAINED, broker, str(drain)))

    async def end(self, brokers: Iterable[int], why: str) -> None:
        """Remove drains. The caller lets brokers that are registered already lead again."""
        ended, left = sorted(brokers), dict(self.cluster.maintenance.drains)
        for broker in ended:
            del left[broker]
        await self._write(left)
        for broker in ended:
            self._timers.cancel(DrainTimeout(broker))
            log.info("broker %d is not drained any more: %s", broker, why)
            self.history.add(self.broker_event(UNDRAINED, broker, why))

    async def brokers_came(self, brokers: Iterable[Broker]) -> None:
        """End the drains that these registrations, or time limits, end. The brokers are not used yet."""
        drains, now_ms = self.cluster.maintenance.drains, self.clock.now_ms()
        over = [broker.id for broker in brokers if broker.id in drains and drains[broker.id].is_over(now_ms, broker)]
        if over:
            await self.end(over, "it has registered anew, or its time limit has passed")

    def brokers_started(self, brokers: Iterable[int]) -> None:
        """Hand over what drained brokers lead after their start, as the last members of ISRs."""
        for broker in sorted(self.cluster.drained.intersection(brokers)):
            self.context.enqueue(DrainProgress(broker))

    def watch(self, broker: int) -> None:
        """Compare the time limit of a drain again later."""
        self._watch(broker, self.cluster.maintenance.drains[broker])

    def _watch(self, broker: int, drain: Drain) -> None:
        self._timers.cancel(DrainTimeout(broker))
        if drain.until_ms is not None:
            delay_ms = min(max(drain.until_ms - self.clock.now_ms(), 0), CHECK_MS_MAX)
            self._timers.set(DrainTimeout(broker), delay_ms)

    async def _write(self, drains: Mapping[int, Drain]) -> None:
        await self.write_maintenance(
            msgspec.structs.replace(self.cluster.maintenance, drains=dict(sorted(drains.items())))
        )
