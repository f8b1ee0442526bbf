"""Controlled shutdown and draining: move leadership off a broker before it stops.

    registered ──request, or drain──▶ shutting down ──its registration ends──▶ gone
        ▲                                  │
        └──registers again, is undrained, ─┘
           or stays for too long

A broker that is shutting down receives all requests as before, but is never elected and never added to an ISR. The mark
is in memory only: after a takeover it is gone, and brokers that still want to stop send their request again.

Source: the classic controller's processControlledShutdown. Unlike there, a broker that is still registered long after
its request becomes eligible again, and an operator can remove the mark.
"""

from collections.abc import Awaitable
from typing import Final, Protocol

import numpy as np

from kactl.actors.machines.commit import Committer
from kactl.actors.machines.messages import Move
from kactl.errors import BrokerNotAvailable, StaleBrokerEpoch, StoreError
from kactl.machines import draining
from kactl.machines.election import Election
from kactl.machines.reassignment import raise_epoch
from kactl.messages.admin import UndrainRequested
from kactl.messages.broker import ControlledShutdownRequested
from kactl.messages.events import Event, ShutdownOverdue
from kactl.model import NO_EPOCH, Broker, PartitionState, ReplicaState, TopicPartition
from kactl.runtime.logs import logger
from kactl.state.change import Change, Refusal
from kactl.state.rows import RowNumbers, Rows, common, holds

from .base import ControllerContext, Handler, Handlers
from .timers import Timers

log = logger(__name__)

# Names of the recorded events.
DRAINING: Final = "shutting-down"
RESTORED: Final = "restored"


class OnBrokerStartup(Protocol):
    """Sends brokers their state, and their registrations to the other brokers; records the event `kind`."""

    def __call__(self, brokers: list[int], kind: str) -> Awaitable[None]: ...


class Shutdowns(Handlers):
    """Marks brokers as shutting down, and moves leadership off them.

    Args:
        on_broker_startup: called for a broker that is eligible again.
        timers: remove the mark of a broker that stays registered.
    """

    def __init__(self, context: ControllerContext, *, on_broker_startup: OnBrokerStartup, timers: Timers) -> None:
        super().__init__(context)
        self._committer = Committer(context.cluster, context.store)
        # Of each broker that is shutting down, the leader epochs under which it was sent StopReplica.
        self._stopped: dict[int, dict[TopicPartition, int]] = {}
        self._on_broker_startup = on_broker_startup
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
            rows = draining.held_by(self.cluster, broker.id)
            unknown = np.zeros(len(rows), np.int32)
            effect = draining.preview(self.cluster, rows, broker.id, unknown)
            return sorted(self.cluster.table.names(effect.remaining))
        self._mark(broker, drained=event.broker_epoch == NO_EPOCH)
        # Selected before the elections, after which it also follows the partitions that it leads now.
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
        """Returns the broker's registration. A higher epoch than the known one is a registration not yet processed."""
        broker = self.cluster.brokers.get(event.broker)
        if broker is None:
            raise BrokerNotAvailable(event.broker)
        if event.broker_epoch != NO_EPOCH and event.broker_epoch < broker.epoch:
            raise StaleBrokerEpoch(event.broker, event.broker_epoch, broker.epoch)
        return broker

    def _mark(self, broker: Broker, *, drained: bool) -> None:
        """Mark a broker as not live. A broker that an operator drained stays so until it is undrained."""
        overdue = ShutdownOverdue(broker.id, broker.epoch)
        marked = broker.id in self.cluster.shutting_down
        if drained:
            self._timers.cancel(overdue)
        elif not marked or self._timers.is_set(overdue):
            self._timers.set(overdue, self.settings.shutdown_limit_ms)
        self.cluster.mark_shutting_down(broker.id, drained=drained)
        if not marked:
            self._stopped.pop(broker.id, None)
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
        rows = self.cluster.table.rows(row_numbers)
        names = self.cluster.table.names(row_numbers)
        self._stopped.setdefault(broker, {}).update(zip(names, rows.leader_epoch.tolist(), strict=True))
        self.batch.begin()
        self.batch.stop(rows, holds(rows, broker), delete=False)
        self.channels.send(self.batch.flush())
        await self.move_many_replicas(row_numbers, ReplicaState.OFFLINE, frozenset({broker}))

    # -- brokers that stay ---------------------------------------------------------------------------------------------

    async def on_shutdown_overdue(self, event: ShutdownOverdue) -> None:
        """Make a broker live again that requested a shutdown and did not stop; nothing else would."""
        broker = self.cluster.brokers.get(event.broker)
        if broker is None or broker.epoch != event.broker_epoch or event.broker not in self.cluster.shutting_down:
            return
        try:
            await self._restore(event.broker)
        except StoreError:
            self._timers.set(event, self.settings.shutdown_limit_ms)
            raise
        log.warning(
            "broker %d is still registered %d ms after its controlled shutdown; it is eligible as a leader again",
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
            log.info("broker %d is undrained", event.broker)
        return True

    async def _restore(self, broker: int) -> None:
        """Make a broker live again: it follows its partitions, and leads those that have no leader."""
        await self._raise_epochs(broker)
        self.cluster.mark_shutting_down(broker, False)
        await self._on_broker_startup([broker], RESTORED)

    async def _raise_epochs(self, broker: int) -> None:
        """Raise the leader epochs that are still those of the StopReplica that the broker was sent.

        That is where it was not in the ISR, or where the smaller ISR could not be written. A broker does not start a
        replica under the leader epoch under which it was stopped.

        Raises:
            StoreError: some epochs could not be written. The broker stays marked.
        """
        stopped = self._stopped.get(broker, {})
        _, followed = self._hosted(broker)
        epochs = self.cluster.table.column("leader_epoch")[followed].tolist()
        names = self.cluster.table.names(followed)
        followed = followed[[stopped.get(name) == epoch for name, epoch in zip(names, epochs, strict=True)]]

        async def plan(rows: Rows) -> Change:
            return raise_epoch(rows, np.ones(len(rows), np.bool_), controller_epoch=self.epoch)

        rows = self.cluster.table.rows(followed)
        if not len(rows):
            return
        async for _, change in self._committer.commit_until_settled(rows, plan):
            committed = change.take(change.refusal == Refusal.NONE)
            self.cluster.apply(committed)
            self.history.add_partitions(committed, self.cluster.table.refs, controller_epoch=self.epoch)
            self.batch.begin()
            # The broker itself receives everything next, in one request.
            after = committed.after()
            self.batch.lead_and_follow(after, after.assigned & ~holds(after, broker))
            self.channels.send(self.batch.flush())
            if (change.refusal == Refusal.STORE_FAILED).any():
                raise StoreError(f"broker {broker} cannot serve again: leader epochs could not be written")
