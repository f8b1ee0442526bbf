"""Handlers of responses and notifications from brokers.

Source: the classic controller's processIsrChangeNotification, processLogDirEventNotification,
processLeaderAndIsrResponseReceived.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

import numpy as np

from kactl.decide.messages.admin import AwaitEvents
from kactl.decide.messages.events import (
    Event,
    IsrChangeNotification,
    LeaderAndIsrResponseReceived,
    LogDirEventNotification,
    UpdateMetadataResponseReceived,
)
from kactl.decide.state.change import Change
from kactl.decide.state.rows import RowNumbers, common, some
from kactl.decide.state.table import NO_ROW
from kactl.model import ReplicaState
from kactl.model.errors import ControllerMoved, ErrorCode, StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Found, Notification

from .base import ControllerContext, Handler, Handlers
from .isr_proposals import count_operations, isr_sizes
from .offline import Offline
from .reassignments import Reassignments
from .serving_replicas import ServingReplicas

log = logger(__name__)


class BrokerAnswers(Handlers):
    """Process ISR and log directory notifications, and responses to LeaderAndIsr and UpdateMetadata."""

    def __init__(
        self, context: ControllerContext, offline: Offline, serving: ServingReplicas, reassignments: Reassignments
    ) -> None:
        super().__init__(context)
        self._offline = offline
        self._serving = serving
        self._reassignments = reassignments

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            IsrChangeNotification: self.on_isr_change_notification,
            LogDirEventNotification: self.on_log_dir_event_notification,
            LeaderAndIsrResponseReceived: self.on_leader_and_isr_response_received,
            UpdateMetadataResponseReceived: self.on_update_metadata_response_received,
            AwaitEvents: self.on_await_events,
        }

    async def on_isr_change_notification(self, event: IsrChangeNotification) -> None:
        notifications = await self.store.isr_notifications()
        names = sorted({name for notification in notifications for name in notification.partitions})
        row_numbers = self.cluster.table.rows_known(names)
        async with self._consumed(notifications, row_numbers):
            if len(row_numbers):
                await self._reload(row_numbers)
                await self._reassignments.check_complete(row_numbers)
                self.continue_drains(row_numbers)

    @contextlib.asynccontextmanager
    async def _consumed(self, notifications: Sequence[Notification], row_numbers: RowNumbers) -> AsyncIterator[None]:
        """Delete notifications at the end of the block.

        After an error of the store they stay: the event is retried, and needs them. After any other error, the rows
        that they concern are marked for a retry. If the notifications stayed, later ones could fail with them each
        time.
        """
        try:
            yield
        except StoreError:
            raise
        except Exception:
            self.cluster.mark_for_retry(row_numbers)
            await self.store.delete_notifications(notifications, self.cluster.fence)
            raise
        await self.store.delete_notifications(notifications, self.cluster.fence)

    async def _reload(self, row_numbers: RowNumbers) -> None:
        """Read leadership that leaders have written, and send it to all brokers.

        Raises:
            StoreError: some rows could not be read. The others are applied and sent.
        """
        table = self.cluster.table
        stored = await self.store.leaderships(table.names(row_numbers))
        known = table.rows(row_numbers)
        self.cluster.put_leaderships(row_numbers, stored)
        rows = table.rows(row_numbers)
        count_operations(self.context.isr_operations, isr_sizes(known.in_sync), isr_sizes(rows.in_sync))
        changed = rows.partition_epoch != known.partition_epoch
        self.history.add_partitions(Change.of(rows), table.refs, controller_epoch=self.epoch, which=changed)
        self.batch.begin()
        self.batch.update_metadata(self.cluster.brokers, table.rows(row_numbers))
        self.channels.send(self.batch.flush())
        unread = int(np.count_nonzero(stored.status == Found.FAILED))
        if unread:
            raise StoreError(f"the leadership of {unread} partitions could not be read")

    async def on_log_dir_event_notification(self, event: LogDirEventNotification) -> None:
        """Send the brokers all their replicas; the responses name those with a failed directory."""
        notifications = await self.store.log_dir_notifications()
        brokers = frozenset(notification.broker for notification in notifications)
        row_numbers = self.cluster.table.with_replica_on(brokers)
        # A retry sends LeaderAndIsr to all replicas of its rows, also to those on these brokers.
        async with self._consumed(notifications, row_numbers):
            # New replicas, of reassignments: they become ONLINE without a request, and only ONLINE ones receive one.
            rows = self.cluster.table.rows(row_numbers)
            is_new = np.isin(rows.replicas, sorted(brokers)) & (rows.replica_state == ReplicaState.NEW)
            await self.move_many_replicas(row_numbers[some(is_new)], ReplicaState.ONLINE, brokers)
            await self.move_many_replicas(row_numbers, ReplicaState.ONLINE, brokers)

    async def on_leader_and_isr_response_received(self, event: LeaderAndIsrResponseReceived) -> None:
        response, broker = event.response, event.broker
        registered = self.cluster.brokers.get(broker)
        if registered is None or registered.epoch != event.broker_epoch:
            log.info("broker %d responded under registration %d, which has ended", broker, event.broker_epoch)
            return
        if response.error != ErrorCode.NONE:
            self._refused(broker, "LeaderAndIsr", response.error)
            if response.error == ErrorCode.STALE_CONTROLLER_EPOCH:
                # It knows a later controller; the caller verifies that.
                raise ControllerMoved(ours=self.epoch)
            return
        if self.cluster.leads_later.get(broker) is not response.leads_later:
            self.cluster.leads_later[broker] = response.leads_later
            self.history.wake()
        if not len(response.partitions):
            return
        table, errors = self.cluster.table, response.partitions
        failed = errors.error == ErrorCode.KAFKA_STORAGE_ERROR
        before = table.dirs_offline(broker)
        if not failed.any() and not len(before):
            return
        row_numbers = table.rows_named_in(errors.topics, errors.topic, errors.partition)
        known = row_numbers != NO_ROW
        serving = common(np.unique(row_numbers[known & (errors.error == ErrorCode.NONE)]), before)
        failing = row_numbers[known & failed]
        if self.settings.parity and not registered.incarnation:
            table.mark_dirs(broker, serving, False)
        else:
            failing = np.setdiff1d(failing, self._ready_since(event))
            self._serving.answered(broker, serving, failing)
        await self._offline.directories_failed(broker, failing)

    def _ready_since(self, event: LeaderAndIsrResponseReceived) -> RowNumbers:
        """Returns the rows whose replicas were reported to be ready after the request was sent.

        The failure is over. Its report, and that of its end, have passed a response that waits for a large event.
        """
        if event.request is None:
            return np.empty(0, np.intp)
        ready = self.cluster.replica_reports.ready_after(event.broker, event.request.number)
        return self.cluster.table.rows_known(ready)

    async def on_update_metadata_response_received(self, event: UpdateMetadataResponseReceived) -> None:
        if event.response.error != ErrorCode.NONE:
            self._refused(event.broker, "UpdateMetadata", event.response.error)

    async def on_await_events(self, event: AwaitEvents) -> None: ...

    def _refused(self, broker: int, kind: str, error: int) -> None:
        """Log a request that a broker rejected; at INFO if the broker has only registered again."""
        name = ErrorCode(error).name if error in set(ErrorCode) else "unknown error"
        level = logging.INFO if error == ErrorCode.STALE_BROKER_EPOCH else logging.WARNING
        log.log(level, "broker %d rejected the %s: %s (%d)", broker, kind, name, error)
