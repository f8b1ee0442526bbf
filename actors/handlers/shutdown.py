"""Controlled shutdown and draining: move leadership off a broker before it stops.

    registered ──request──▶ shutting down ──its registration ends──▶ gone
        ▲                        │
        └──registers again, or ──┘
           stays for too long

A broker that is shutting down receives all requests as before, but is never added to an ISR, and never elected. The
mark is in memory only: after a takeover it is gone, and brokers that still want to stop send their request again. A
drained broker is treated alike, but its drain is stored, see `drains`, and it is elected where it is the last member of
an ISR: it may run and restart for weeks.

Source: the classic controller's processControlledShutdown. Unlike there, a broker that is still registered long after
its request becomes eligible again, and an operator can remove the mark. A broker repeats its request until it leads
nothing; a drain, which no broker repeats, goes on by itself when other replicas have come in sync.
"""

from collections.abc import Awaitable
from typing import Final, Protocol

import numpy as np

from kactl.actors.machines.machine import Move
from kactl.actors.priority_inbox import Timers
from kactl.decide.machines import draining
from kactl.decide.machines.election import Election
from kactl.decide.machines.partition import is_led_by
from kactl.decide.messages.admin import UndrainBroker
from kactl.decide.messages.broker import ControlledShutdown
from kactl.decide.messages.events import ControlledShutdownTimeout, DrainProgress, DrainTimeout, Event
from kactl.decide.state.rows import RowNumbers, common, holds, some
from kactl.model import NO_EPOCH, Broker, Drain, PartitionState, ReplicaState, TopicPartition
from kactl.model.errors import BrokerNotAvailable, StaleBrokerEpoch
from kactl.runtime.logs import logger

from .base import ControllerContext, Handler, Handlers
from .deletion import Deletion
from .drains import Drains
from .offline import StoppedReplicas
from .ownership import Ownership

log = logger(__name__)

# Names of the recorded events.
DRAINING: Final = "shutting-down"
RESTORED: Final = "restored"
# An epoch that differs from that of any registration, unlike NO_EPOCH in a drain.
NO_REGISTRATION: Final = 0
# Until a time limit that could not be carried out is tried again: long enough for a store to recover.
OVERDUE_RETRY_MS: Final = 5_000


class OnBrokerStartup(Protocol):
    """Sends brokers their state, and their registrations to the other brokers; records the event `kind`."""

    def __call__(self, brokers: list[int], kind: str) -> Awaitable[None]: ...


class Shutdowns(Handlers):
    """Marks brokers as shutting down, and moves leadership off them.

    Args:
        on_broker_startup: called for a broker that is eligible again.
        timers: remove the mark of a broker that stays registered.
        deletion: continues on a broker that does not stop.
        drains: are stored.
    """

    def __init__(
        self,
        context: ControllerContext,
        *,
        on_broker_startup: OnBrokerStartup,
        timers: Timers,
        deletion: Deletion,
        stopped: StoppedReplicas,
        drains: Drains,
        ownership: Ownership,
    ) -> None:
        super().__init__(context)
        self._ownership = ownership
        self._drains = drains
        self._deletion = deletion
        self._stopped = stopped
        self._on_broker_startup = on_broker_startup
        self._timers = timers

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            ControlledShutdown: self.on_controlled_shutdown,
            DrainProgress: self.on_drain_progress,
            DrainTimeout: self.on_drain_timeout,
            ControlledShutdownTimeout: self.on_controlled_shutdown_timeout,
            UndrainBroker: self.on_undrain_broker,
        }

    async def on_controlled_shutdown(self, event: ControlledShutdown) -> list[TopicPartition]:
        drained = event.broker_epoch == NO_EPOCH
        self.check_until(event.until_ms)
        if drained and event.broker not in self.cluster.brokers and event.broker in self.cluster.maintenance.drains:
            if not event.dry_run:
                await self._drains.begin(event.broker, self._drain(event, None))
            return []  # it has stopped meanwhile
        broker = self._registered(event)
        if event.dry_run:
            rows = draining.held_by(self.cluster, broker.id)
            unknown = np.zeros(len(rows), np.int32)
            effect = draining.preview(self.cluster, rows, broker.id, unknown)
            return sorted(self.cluster.table.names(np.concatenate((effect.remaining, effect.shards_kept))))
        if drained:
            await self._drains.begin(broker.id, self._drain(event, broker))
        else:
            self._ownership.member_stops(broker.id)
            self._mark(broker)
        await self._ownership.settle()
        # Selected before the elections, after which it also follows the partitions that it leads now.
        led, followed = self._hosted(broker.id)
        await self._hand_over(broker.id, led)
        await self._stop_following(broker.id, followed)
        handed = self._handed_over(broker.id)
        led_before = len(led) + len(handed)
        remaining = {*self.cluster.table.names(self.cluster.table.led_by(broker.id))} | handed
        log.info("broker %d is %s; it led %d partitions, and still leads %d",
                 broker.id, "drained" if drained else "shutting down", led_before, len(remaining))  # fmt: skip
        return sorted(remaining)

    def _handed_over(self, broker: int) -> set[TopicPartition]:
        """Returns the shards that the broker leads until their next owners have prepared. If all members stop, as after
        Ctrl-C in a terminal, there are none to wait for."""
        table, leaders = self.cluster.table, self.cluster.table.column("leader")
        handed = {name for name, each in self.cluster.handovers.items() if each.former == broker}
        stays = self.cluster.brokers.keys() - self.cluster.shutting_down
        return {name for name in handed if leaders[table.row(name)] in stays}

    async def on_drain_progress(self, event: DrainProgress) -> None:
        """Continue a drain: hand over the partitions that another replica can lead now, and leave the other ISRs."""
        if event.broker not in self.cluster.drained or event.broker not in self.cluster.brokers:
            return
        table = self.cluster.table
        led, followed = (table.rows(table.not_queued(numbers)) for numbers in self._hosted(event.broker))
        others = led.in_sync & self.cluster.live_brokers.live[led.replicas]
        await self._hand_over(event.broker, led.index[some(others)])
        follows = followed.assigned if event.stop_again else followed.in_sync
        await self._stop_following(event.broker, followed.index[some(holds(followed, event.broker) & follows)])

    async def _hand_over(self, broker: int, led: RowNumbers) -> None:
        await self.move_many(Move(led, PartitionState.ONLINE, Election.CONTROLLED_SHUTDOWN, wanted=is_led_by(broker)))

    def _registered(self, event: ControlledShutdown) -> Broker:
        """Returns the broker's registration. A higher epoch than the known one is a registration not yet processed."""
        broker = self.cluster.brokers.get(event.broker)
        if broker is None:
            raise BrokerNotAvailable(event.broker)
        if event.broker_epoch != NO_EPOCH and event.broker_epoch < broker.epoch:
            raise StaleBrokerEpoch(event.broker, event.broker_epoch, broker.epoch)
        return broker

    def _drain(self, event: ControlledShutdown, broker: Broker | None) -> Drain:
        registered = NO_REGISTRATION if broker is None else broker.epoch
        epoch = registered if event.until_restart else NO_EPOCH
        return Drain(self.clock.now_ms(), event.until_ms, event.by, event.reason, epoch)

    def _mark(self, broker: Broker) -> None:
        """Mark a broker as not live at its own request. One that is drained as well stays so until it is undrained."""
        marked = broker.id in self.cluster.shutting_down
        self._timers.set(ControlledShutdownTimeout(broker.id, broker.epoch), self.settings.shutdown_limit_ms)
        self.cluster.mark_shutting_down(broker.id)
        if not marked:
            self.history.add(self.broker_event(DRAINING, broker.id))

    def _hosted(self, broker: int) -> tuple[RowNumbers, RowNumbers]:
        """Returns the rows that the broker leads and those that it follows, among rows with more than one replica."""
        table = self.cluster.table
        hosted = common(table.with_replica_on([broker]), table.with_leadership())
        hosted = hosted[table.column("assigned")[:, hosted].sum(axis=0) > 1]
        leads = table.column("leader")[hosted] == broker
        return hosted[leads], hosted[~leads]

    async def _stop_following(self, broker: int, row_numbers: RowNumbers) -> None:
        """Send StopReplica before the replicas leave the ISRs, so that leaders do not add them again meanwhile."""
        self._stop(broker, row_numbers)
        await self.move_many_replicas(row_numbers, ReplicaState.OFFLINE, frozenset({broker}))

    def _stop(self, broker: int, row_numbers: RowNumbers) -> None:
        rows = self.cluster.table.rows(row_numbers)
        self._stopped.add(broker, rows)
        self.batch.begin()
        self.batch.stop(rows, holds(rows, broker), delete=False)
        self.channels.send(self.batch.flush())

    # -- brokers that stay ---------------------------------------------------------------------------------------------

    async def on_controlled_shutdown_timeout(self, event: ControlledShutdownTimeout) -> None:
        """Make a broker live again that requested a shutdown and did not stop; nothing else would.

        One that an operator drained as well is drained as before its request.
        """
        broker = self.cluster.brokers.get(event.broker)
        if broker is None or broker.epoch != event.broker_epoch or event.broker not in self.cluster.shutting_down:
            return
        if event.broker in self.cluster.maintenance.drains:
            self.cluster.mark_shutting_down(event.broker, False)
            # A drain does not go on while the broker's own request is pending, and replicas may have come in sync, or
            # were started.
            self._stop(event.broker, self._hosted(event.broker)[1])
            self.context.enqueue(DrainProgress(event.broker))
            await self._deletion.resume_on(frozenset({event.broker}))
            return
        try:
            await self._restore(event.broker)
        except Exception:
            self._timers.set(event, self.settings.shutdown_limit_ms)
            raise
        log.warning(
            "broker %d is still registered %d ms after its controlled shutdown; it is eligible as a leader again",
            event.broker, self.settings.shutdown_limit_ms,
        )  # fmt: skip

    async def on_undrain_broker(self, event: UndrainBroker) -> bool:
        broker, drains = self.cluster.brokers.get(event.broker), self.cluster.maintenance.drains
        if broker is None and event.broker not in drains:
            raise BrokerNotAvailable(event.broker)
        if event.broker not in self.cluster.shutting_down | drains.keys():
            return False
        if not event.dry_run:
            await self._undrain(event.broker, f"undone by {event.by}" if event.by else "undone")
            if broker is not None:
                self._timers.cancel(ControlledShutdownTimeout(broker.id, broker.epoch))
        return True

    async def on_drain_timeout(self, event: DrainTimeout) -> None:
        """End a drain whose time limit has passed, also that of a broker that is not registered."""
        drain = self.cluster.maintenance.drains.get(event.broker)
        if drain is None:
            return
        if not drain.is_over(self.clock.now_ms(), None):
            self._drains.watch(event.broker)
            return
        try:
            await self._undrain(event.broker, "its time limit has passed")
        except Exception:
            self._timers.set(event, OVERDUE_RETRY_MS)
            raise

    async def _undrain(self, broker: int, why: str) -> None:
        if broker in self.cluster.brokers:
            await self._restore(broker, why)
        else:
            await self._drains.end([broker], why)

    async def _restore(self, broker: int, why: str = "") -> None:
        """Make a broker live again: it follows its partitions, and leads those that have no leader.

        The broker counts as before if this raises, so that the call can be repeated.

        Raises:
            StoreError: leader epochs, or the end of the drain, could not be written.
        """
        followed = self.cluster.table.rows(self._hosted(broker)[1])
        # A drained broker is stopped under each leader epoch that it receives, also by an earlier controller.
        self._stopped.add(broker, followed.take(~some(holds(followed, broker) & followed.in_sync)))
        await self._stopped.raise_epochs(broker, followed.index)
        before = self.cluster.maintenance
        if broker in before.drains:
            await self._drains.end([broker], why)
        leaves = broker in self.cluster.shutting_down
        self.cluster.mark_shutting_down(broker, False)
        try:
            await self._on_broker_startup([broker], RESTORED)
        except Exception:
            self.cluster.set_maintenance(before)
            self.cluster.mark_shutting_down(broker, leaves)
            raise
        self.continue_drains(self._hosted(broker)[1])  # it can lead what it follows
