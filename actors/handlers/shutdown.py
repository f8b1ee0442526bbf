"""Brokers that are about to stop, or are to be left alone: their partitions are led elsewhere before they go.

    registered ──asked, or drained──▶ shutting down ──its registration ends──▶ gone
        ▲                                  │
        └──registers anew, is undrained, ──┘
           or stays for too long

A broker that is shutting down is told everything as before, but is elected for nothing and gets into no ISR. The mark
is kept in memory only: a controller that takes over knows nothing of it, and brokers that still want to stop ask again.

Source: the classic controller's processControlledShutdown. Unlike there, a broker that is still registered long after
it has asked is counted on again, and an operator can take the mark away.
"""

from collections.abc import Awaitable
from typing import Final, Protocol

import numpy as np

from kactl.actors.machines.messages import Move
from kactl.errors import BrokerNotAvailable, StaleBrokerEpoch
from kactl.machines import draining
from kactl.machines.election import Election
from kactl.messages.admin import UndrainRequested
from kactl.messages.broker import ControlledShutdownRequested
from kactl.messages.events import Event, ShutdownOverdue
from kactl.model import NO_EPOCH, Broker, PartitionState, ReplicaState, TopicPartition
from kactl.runtime.logs import logger
from kactl.state.rows import RowNumbers, common, holds

from .base import ControllerContext, Handler, Handlers
from .timers import Timers

log = logger(__name__)

# The events of a broker's life that begin and end here, as they are recorded.
DRAINING: Final = "shutting-down"
RESTORED: Final = "restored"


class Welcome(Protocol):
    """Tells brokers what they have to know, and everybody else of them; `what` is recorded."""

    def __call__(self, brokers: list[int], what: str) -> Awaitable[None]: ...


class Shutdowns(Handlers):
    """See the module.

    Args:
        welcome: what is done for a broker that can be counted on again.
        timers: end the mark of a broker that stays.
    """

    def __init__(self, context: ControllerContext, *, on_broker_startup: Welcome, timers: Timers) -> None:
        super().__init__(context)
        self._welcome = on_broker_startup
        self._timers = timers

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            ControlledShutdownRequested: self.on_controlled_shutdown_requested,
            ShutdownOverdue: self.on_shutdown_overdue,
            UndrainRequested: self.on_undrain_requested,
        }

    async def on_controlled_shutdown_requested(self, event: ControlledShutdownRequested) -> list[TopicPartition]:
        broker = self._registered(event)
        if event.dry_run:
            held = draining.held_by(self.cluster, broker.id)
            unknown = np.zeros(len(held), np.int32)
            effect = draining.preview(self.cluster, held, broker.id, unknown)
            return sorted(self.cluster.table.names(effect.remaining))
        self._mark(broker, drained=event.broker_epoch == NO_EPOCH)
        # What it followed is decided before it follows what it led until now.
        led, followed = self._hosted(broker.id)
        await self.move_many(
            Move(
                led,
                PartitionState.ONLINE,
                Election.CONTROLLED_SHUTDOWN,
                wanted=lambda rows: rows.leader == broker.id,
            )
        )
        await self._stop_following(broker.id, followed)
        remaining = self.cluster.table.names(self.cluster.table.led_by(broker.id))
        log.info("broker %d is shutting down; it led %d partitions, and still leads %d",
                 broker.id, len(led), len(remaining))  # fmt: skip
        return sorted(remaining)

    def _registered(self, event: ControlledShutdownRequested) -> Broker:
        """The registration that is meant. A higher epoch than ours is one that we have yet to hear of."""
        broker = self.cluster.brokers.get(event.broker)
        if broker is None:
            raise BrokerNotAvailable(event.broker)
        if event.broker_epoch != NO_EPOCH and event.broker_epoch < broker.epoch:
            raise StaleBrokerEpoch(event.broker, event.broker_epoch, broker.epoch)
        return broker

    def _mark(self, broker: Broker, *, drained: bool) -> None:
        """From now on the broker is not live. One that was drained by an operator stays so until it is undrained."""
        overdue = ShutdownOverdue(broker.id, broker.epoch)
        marked = broker.id in self.cluster.shutting_down
        if drained:
            self._timers.cancel(overdue)
        elif not marked or self._timers.is_set(overdue):
            self._timers.set(overdue, self.settings.shutdown_limit_ms)
        self.cluster.mark_shutting_down(broker.id, drained=drained)
        if not marked:
            self.history.add(self.broker_event(DRAINING, broker.id))

    def _hosted(self, broker: int) -> tuple[RowNumbers, RowNumbers]:
        """What the broker leads, and what it follows: with leadership, and with more than one replica."""
        table = self.cluster.table
        hosted = common(table.with_replica_on([broker]), table.with_leadership())
        hosted = hosted[table.column("assigned")[:, hosted].sum(axis=0) > 1]
        leads = table.column("leader")[hosted] == broker
        return hosted[leads], hosted[~leads]

    async def _stop_following(self, broker: int, at: RowNumbers) -> None:
        """Tell the broker to stop before its replicas leave the ISRs, lest it gets into them again meanwhile."""
        rows = self.cluster.table.rows(at)
        self.batch.begin()
        self.batch.stop(rows, holds(rows, broker), delete=False)
        self.channels.send(self.batch.flush())
        await self.move_many_replicas(at, ReplicaState.OFFLINE, frozenset({broker}))

    # -- those that stay -----------------------------------------------------------------------------------------------

    async def on_shutdown_overdue(self, event: ShutdownOverdue) -> None:
        """A broker that asked to stop, and did not: nothing else would ever make it live again."""
        broker = self.cluster.brokers.get(event.broker)
        if broker is None or broker.epoch != event.broker_epoch or event.broker not in self.cluster.shutting_down:
            return
        await self._restore(event.broker)
        log.warning(
            "broker %d asked to be shut down and is still there after %d ms; it is counted on again",
            event.broker, self.settings.shutdown_limit_ms,
        )  # fmt: skip

    async def on_undrain_requested(self, event: UndrainRequested) -> bool:
        broker = self.cluster.brokers.get(event.broker)
        if broker is None:
            raise BrokerNotAvailable(event.broker)
        if event.broker not in self.cluster.shutting_down:
            return False
        if not event.dry_run:
            self._timers.cancel(ShutdownOverdue(broker.id, broker.epoch))
            await self._restore(event.broker)
            log.info("broker %d is not shut down after all", event.broker)
        return True

    async def _restore(self, broker: int) -> None:
        """The broker is live again: it follows what it stopped following, and leads what nobody else can."""
        self.cluster.mark_shutting_down(broker, False)
        await self._welcome([broker], RESTORED)
