"""Handlers of the statuses that participants report of their replicas, and of the reports of leaders.

A report has the effect of the same result in a response to LeaderAndIsr: a replica that its handler cannot serve counts
as one with a failed directory, so another one is elected. Kafka's brokers send no such reports. A handler that has
failed is called again after a pause, which an operator may end.
"""

import logging
from collections.abc import Callable
from typing import Final

import numpy as np

from kactl.decide.messages.admin import ResetReplica
from kactl.decide.messages.broker import DETAIL_MAX, PartitionReport, ReportLeaders, ReportPartitions
from kactl.decide.messages.control import ReplicaReset, StopReplica
from kactl.decide.messages.events import Event
from kactl.decide.messages.log import HandlerEvent
from kactl.decide.messages.routes import LeaderRows
from kactl.decide.outbound.batch import Addressed
from kactl.decide.state.cluster import FailedShard
from kactl.decide.state.replica_reports import ReplicaReport
from kactl.decide.state.rows import RowNumbers
from kactl.decide.state.table import NO_ROW
from kactl.model import EPOCH_DURING_DELETE, ReplicaStatus, TopicPartition, TopicRef
from kactl.model.errors import BadRequest, BrokerNotAvailable, NotFound, NothingToReset, StaleBrokerEpoch
from kactl.runtime.conditions import Conditions
from kactl.runtime.escaping import escaped
from kactl.runtime.logs import logger

from .base import ControllerContext, Handler, Handlers
from .offline import Offline
from .serving_replicas import ServingReplicas

log = logger(__name__)

# A longer hold is a mistake: what it concerns is forgotten by then.
HOLD_MS_MAX: Final = 86_400_000


class PartitionReports(Handlers):
    """Elects other leaders for replicas that cannot serve, and uses replicas that can serve again."""

    def __init__(self, context: ControllerContext, offline: Offline, serving: ServingReplicas) -> None:
        super().__init__(context)
        self._offline = offline
        self._conditions = Conditions(log, self.clock.monotonic_ms)
        self._serving = serving

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            ReportPartitions: self.on_report_partitions,
            ResetReplica: self.on_reset_replica,
        }

    async def on_report_partitions(self, event: ReportPartitions) -> None:
        registered = self.cluster.brokers.get(event.broker)
        if registered is None:
            raise BrokerNotAvailable(event.broker)
        if registered.epoch != event.broker_epoch:
            raise StaleBrokerEpoch(event.broker, event.broker_epoch, registered.epoch)
        for report in event.reports:
            self._note(event, report)
            if report.set_aside is not None and report.set_aside in self.cluster.deleted:
                self._delete(event, report.partition, report.set_aside)
        failed = self._rows(event, lambda report: report.status.is_failure)
        failed = np.union1d(failed, self._rows(event, self._is_unknown))
        await self._offline.directories_failed(event.broker, failed)
        await self._serving.serve(event.broker, self._rows(event, lambda report: report.status is ReplicaStatus.READY))

    async def on_reset_replica(self, event: ResetReplica) -> ReplicaReport:
        name, broker, cluster = event.partition, event.broker, self.cluster
        view = cluster.view(name)
        if view is None:
            raise NotFound("partition", name)
        if broker not in view.replicas:
            raise NotFound(f"replica of {name} on broker", broker)
        registered = cluster.brokers.get(broker)
        if registered is None:
            raise BrokerNotAvailable(broker)
        if not registered.incarnation:
            raise BadRequest("broker", f"{broker} is no participant, and has no handlers: restart the broker")
        report, replica = cluster.replica_report(name, broker), f"{name} on broker {broker}"
        if report is None or report.status is ReplicaStatus.BUSY:
            raise NothingToReset(replica, "its handler has not failed")
        if report.status is ReplicaStatus.STUCK:
            raise NothingToReset(replica, f"a call of its handler does not end ({report.detail}): restart the process")
        topic = cluster.table.topic(name.topic)
        assert topic is not None, "the partition is known"
        if not event.dry_run:
            own = cluster.controller_id, cluster.fence.epoch, registered.epoch
            self.channels.send([Addressed(broker, ReplicaReset(*own, topic.ref, name.partition))])
        return report

    def _delete(self, event: ReportPartitions, name: TopicPartition, topic: TopicRef) -> None:
        """Delete a replica of a deleted topic. The controller that was to stop it, since it was moved away, has ended.

        The present controller did not know of the replica when it deleted the topic.
        """
        log.info("broker %d deletes its replica of %s, which is of topic id %s", event.broker, name, topic.id.hex())
        one = np.zeros(1, np.int32)
        request = StopReplica(
            self.cluster.controller_id,
            self.cluster.fence.epoch,
            event.broker_epoch,
            topics=[topic],
            topic=one,
            partition=one + np.int32(name.partition),
            leader_epoch=one + np.int32(EPOCH_DURING_DELETE),
            delete=np.ones(1, np.bool_),
        )
        self.channels.send([Addressed(event.broker, request)])

    def _note(self, event: ReportPartitions, report: PartitionReport) -> None:
        """Keep a report for explanations, and record it."""
        name, status, detail = report.partition, report.status, escaped(report.detail, DETAIL_MAX)
        if self.cluster.table.row(name) == NO_ROW:
            return
        since_ms = self.clock.monotonic_ms() - max(report.age_ms, 0.0)
        before = self.cluster.replica_report(name, event.broker)
        reported = ReplicaReport(
            status,
            detail,
            since_ms,
            event.broker_epoch,
            report.failures,
            self.clock.monotonic_ms() + report.next_ms if report.next_ms > 0 else None,
        )
        self.cluster.replica_reports.put(event.broker, name, reported)
        fails = reported.fails or (before is not None and before.fails)
        view, is_shard = self.cluster.view(name), self.cluster.is_shard(name)
        is_owner = view is not None and view.leader == event.broker
        if (known := self.cluster.failed_shards.get(name)) is not None and known.has_healed:
            self._conditions.forget(name)
        if is_shard and fails and is_owner:
            self.cluster.failed_shards[name] = FailedShard(event.broker, since_ms)
        # The end of a shard that fails is known later, wherever it is then; see `Ownership`.
        self._log(name, event.broker, reported, is_over=name not in self.cluster.failed_shards)
        if report.hold_ms > 0:
            until_ms = self.clock.monotonic_ms() + min(report.hold_ms, HOLD_MS_MAX)
            requested = status is ReplicaStatus.NOT_READY
            self.cluster.resign(
                name, event.broker, broker_epoch=event.broker_epoch, until_ms=until_ms, requested=requested
            )
        if status is ReplicaStatus.READY:
            self.cluster.replica_reports.put_ready(event.broker, name, self.channels.last_number)
        self.history.add(
            HandlerEvent(
                topic=name.topic,
                partition=name.partition,
                broker=event.broker,
                leader_epoch=report.leader_epoch,
                status=status.name.lower(),
                detail=detail,
                controller_epoch=self.epoch,
            )
        )

    def _log(self, name: TopicPartition, broker: int, report: ReplicaReport, *, is_over: bool) -> None:
        """Log what is reported: the beginning of a failure, and its end. A shard has one of both, wherever it goes."""
        key = name if self.cluster.is_shard(name) else (name, broker)
        if report.fails:
            level = logging.WARNING if report.status.is_failure else logging.INFO
            text = "participant %d reports %s: %s (%s); it is tried again, there or elsewhere"
            values = broker, name, report.status.value, report.detail or "no detail"
            self._conditions.add(key, level, text, *values, kind=report.status)
        elif is_over and report.status is ReplicaStatus.READY:
            self._conditions.end(key, "participant %d can serve %s again", broker, name)
        else:
            log.debug("participant %d reports %s: %s (%s)", broker, name, report.status.value, report.detail)

    def _is_unknown(self, report: PartitionReport) -> bool:
        """Whether a replica is ready after a failure that was reported to an earlier controller, or not at all.

        It does not serve the leader epoch under which it has failed, and LeaderAndIsr does not start it again.
        """
        view = self.cluster.view(report.partition) if report.recovered else None
        return view is not None and view.leader_epoch == report.leader_epoch

    def _rows(self, event: ReportPartitions, wanted: Callable[[PartitionReport], bool]) -> RowNumbers:
        return self.cluster.table.rows_known(report.partition for report in event.reports if wanted(report))


class LeaderReports(Handlers):
    """Stores the reports of leaders that act beside the partition table.

    Spectators receive them as `ready`; no decision depends on them.
    """

    def handlers(self) -> dict[type[Event], Handler]:
        return {ReportLeaders: self.on_report_leaders}

    async def on_report_leaders(self, event: ReportLeaders) -> None:
        registered = self.cluster.brokers.get(event.broker)
        if registered is None:
            raise BrokerNotAvailable(event.broker)
        if registered.epoch != event.broker_epoch:
            raise StaleBrokerEpoch(event.broker, event.broker_epoch, registered.epoch)
        table, reported = self.cluster.table, LeaderRows.decoded(event.leaders)
        index = table.rows_at(reported.names)
        known = index != NO_ROW
        rows = table.rows(index[known])
        own = rows.leader == event.broker
        self.cluster.readiness.put(
            rows.index[own],
            rows.topic[own],
            rows.partition[own],
            reported.leader_epoch[known][own],
            reported.leads[known][own],
            now_ms=self.clock.monotonic_ms(),
        )
        self.history.wake()
