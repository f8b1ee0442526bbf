"""Handler of the statuses that participants report of their replicas.

A report has the effect of the same result in a response to LeaderAndIsr: a replica whose handler cannot serve it counts
as one with a failed directory, so another one is elected. Kafka's brokers send no such reports.
"""

import numpy as np

from kactl.errors import BrokerNotAvailable, StaleBrokerEpoch
from kactl.messages.broker import PartitionsReported
from kactl.messages.events import Event
from kactl.model import ReplicaState
from kactl.runtime.logs import logger
from kactl.state.rows import RowNumbers, common
from kactl.state.table import NO_ROW

from .base import ControllerContext, Handler, Handlers
from .deletion import Deletion
from .offline import Offline
from .reassignments import Reassignments

log = logger(__name__)


class PartitionReports(Handlers):
    """Elects other leaders for replicas that cannot serve, and uses replicas that can serve again."""

    def __init__(
        self, context: ControllerContext, offline: Offline, *, deletion: Deletion, reassignments: Reassignments
    ) -> None:
        super().__init__(context)
        self._offline = offline
        self._deletion = deletion
        self._reassignments = reassignments

    def handlers(self) -> dict[type[Event], Handler]:
        return {PartitionsReported: self.on_partitions_reported}

    async def on_partitions_reported(self, event: PartitionsReported) -> None:
        registered = self.cluster.brokers.get(event.broker)
        if registered is None:
            raise BrokerNotAvailable(event.broker)
        if registered.epoch != event.broker_epoch:
            raise StaleBrokerEpoch(event.broker, event.broker_epoch, registered.epoch)
        for report in event.reports:
            log.info("broker %d reports %s: %s (%s)", event.broker, report.partition, report.status.value,
                     report.detail or "no detail")  # fmt: skip
        before = self.cluster.table.dirs_offline(event.broker)
        await self._failed(event.broker, self._rows(event, failed=True), before)
        await self._ready(event.broker, common(self._rows(event, failed=False), before))

    def _rows(self, event: PartitionsReported, *, failed: bool) -> RowNumbers:
        table = self.cluster.table
        rows = (table.row(report.partition) for report in event.reports if report.status.is_failure is failed)
        return np.array([row for row in rows if row != NO_ROW], np.intp)

    async def _failed(self, broker: int, rows: RowNumbers, before: RowNumbers) -> None:
        fresh = np.setdiff1d(rows, before)
        if len(fresh):
            self.cluster.table.mark_dirs(broker, fresh, True)
            self.history.add(self.broker_event("directory-failed", broker))
            await self._offline.replicas_offline(fresh, frozenset({broker}))

    async def _ready(self, broker: int, rows: RowNumbers) -> None:
        if not len(rows):
            return
        ids = frozenset({broker})
        self.cluster.table.mark_dirs(broker, rows, False)
        await self.move_many_replicas(rows, ReplicaState.ONLINE, ids)
        await self.elect_offline()
        await self._reassignments.resume_on(ids)
        await self._deletion.resume_on(ids)
