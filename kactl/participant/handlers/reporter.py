"""Reports of replicas to the controller, repeated until it has received them."""

import itertools
from collections.abc import Callable, Iterable
from typing import Final

import anyio

from kactl.decide.messages.broker import PartitionReport, ReportPartitions
from kactl.model import NO_EPOCH, ReplicaStatus, TopicPartition
from kactl.model.errors import KactlError
from kactl.participant.hosted_replicas import HostedReplicas
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger

from .leader_reporter import RETRY_MS, Controller, LeaderReporter

log = logger(__name__)

# Of one request: each may have a reason of a thousand characters, and a controller accepts 512 KiB.
REPORTS_MAX: Final = 100


class Reporter:
    """Sends the last report of each partition, in the order of the reports.

    Args:
        hosted: the replicas of the same registration.
        epoch: returns the broker epoch.

    Attributes:
        leaders: reports the leaderships that act.
    """

    def __init__(
        self,
        broker: int,
        hosted: HostedReplicas,
        *,
        epoch: Callable[[], int],
        controller: Controller,
        clock: Clock,
    ) -> None:
        self._broker = broker
        self._hosted = hosted
        self._epoch = epoch
        self._controller = controller
        self._clock = clock
        self._waiting: dict[TopicPartition, PartitionReport] = {}
        self._wake = anyio.Event()
        self.leaders = LeaderReporter(broker, epoch=epoch, controller=controller, clock=clock)

    def add(self, report: PartitionReport) -> None:
        """Queue a report in place of an earlier one of the partition."""
        if self._holds(report):
            self._waiting.pop(report.partition, None)
            self._waiting[report.partition] = report
            self._wake.set()

    def _holds(self, report: PartitionReport) -> bool:
        """Whether a report may be true.

        A replica whose directory has failed cannot be started. It is not READY or BUSY, whatever its handler does.
        """
        view = None if report.status.is_failure else self._hosted.view(report.partition)
        return view is None or not view.failed

    def add_failed(self, names: Iterable[TopicPartition]) -> None:
        """Queue reports of replicas whose directory has failed."""
        for name in names:
            view = self._hosted.view(name)
            epoch = NO_EPOCH if view is None else view.leader_epoch
            self.add(PartitionReport(name, epoch, ReplicaStatus.FAILED, "its directory has failed"))

    async def run(self) -> None:
        """Send reports until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.leaders.run)
            await self._send_statuses()

    async def _send_statuses(self) -> None:
        while True:
            while not self._waiting:
                self._wake = anyio.Event()
                await self._wake.wait()
            # The directory of a replica may have failed since its report was queued.
            due = dict(itertools.islice(self._waiting.items(), REPORTS_MAX))
            self._waiting = {name: report for name, report in self._waiting.items() if name not in due}
            sent = {name: report for name, report in due.items() if self._holds(report)}
            if not sent:
                continue
            try:
                await self._controller.ask(ReportPartitions(self._broker, self._epoch(), tuple(sent.values())))
            except KactlError as error:
                log.info("broker %d could not report the status of %d replicas, and retries: %s", self._broker,
                         len(sent), error)  # fmt: skip
                # A newer report of a partition replaces the one that was not received.
                self._waiting = {name: one for name, one in sent.items() if name not in self._waiting} | self._waiting
                await self._clock.sleep_ms(RETRY_MS)
