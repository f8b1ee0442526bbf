"""Reports to the controller about single partitions, repeated until it has received them."""

import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, Protocol, TypeVar

import anyio
import numpy as np

from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.broker import PartitionReport, ReportLeaders, ReportPartitions
from kactl.decide.messages.routes import LeaderRows
from kactl.decide.state.records import Names
from kactl.model import NO_EPOCH, ReplicaStatus, TopicPartition
from kactl.model.errors import KactlError
from kactl.participant.hosted_replicas import HostedReplicas
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger

log = logger(__name__)

T = TypeVar("T")

# Pause after a failure: a controller that has moved is known after some milliseconds, or after an election.
RETRY_MS: Final = 500
# Of one request: each may have a reason of a thousand characters, and a controller accepts 512 KiB.
REPORTS_MAX: Final = 100
# Of one request; a controller accepts twice as many topics.
LEADERS_MAX: Final = 10_000


class Controller(Protocol):
    """Client of the active controller, which is looked up for each attempt."""

    async def ask(self, request: ControllerRequest) -> object: ...


class Outbox(Generic[T]):
    """The newest report of each partition, sent in the order of the reports.

    Args:
        send: sends some reports. They are sent again after a KactlError, unless there are newer ones.
        at_once: number of reports that are sent together.
        what: noun for the log.
    """

    def __init__(
        self,
        broker: int,
        send: Callable[[dict[TopicPartition, T]], Awaitable[None]],
        *,
        at_once: int,
        what: str,
        clock: Clock,
    ) -> None:
        self._broker = broker
        self._send = send
        self._at_once = at_once
        self._what = what
        self._clock = clock
        self._waiting: dict[TopicPartition, T] = {}
        self._wake = anyio.Event()

    def put(self, name: TopicPartition, report: T) -> None:
        """Queue a report in place of an earlier one of the partition."""
        self._waiting.pop(name, None)
        self._waiting[name] = report
        self._wake.set()

    async def run(self) -> None:
        """Send reports until cancelled."""
        while True:
            while not self._waiting:
                self._wake = anyio.Event()
                await self._wake.wait()
            due = dict(itertools.islice(self._waiting.items(), self._at_once))
            self._waiting = {name: report for name, report in self._waiting.items() if name not in due}
            try:
                await self._send(due)
            except KactlError as error:
                log.info("broker %d could not report %d %s, and retries: %s", self._broker, len(due), self._what, error)
                self._waiting = {name: one for name, one in due.items() if name not in self._waiting} | self._waiting
                await self._clock.sleep_ms(RETRY_MS)


class LeaderReporter:
    """Reports which leaderships act: their `lead` has been called and has not been cancelled.

    Only spectators use these reports. A new controller knows none, so it receives all of them.

    Args:
        epoch: returns the broker epoch.
    """

    def __init__(self, broker: int, *, epoch: Callable[[], int], controller: Controller, clock: Clock) -> None:
        self._broker = broker
        self._epoch = epoch
        self._controller = controller
        self._leading: dict[TopicPartition, int] = {}
        self._outbox = Outbox(broker, self._send, at_once=LEADERS_MAX, what="leaderships", clock=clock)
        self.run = self._outbox.run

    def report(self, name: TopicPartition, leader_epoch: int, leads: bool) -> None:
        """Queue a report in place of an earlier one of the partition."""
        if leads:
            self._leading[name] = leader_epoch
        elif self._leading.pop(name, None) is None:
            return
        self._outbox.put(name, (leader_epoch, leads))

    def repeat(self) -> None:
        """Report everything again, because there is a new controller."""
        for name, leader_epoch in self._leading.items():
            self._outbox.put(name, (leader_epoch, True))

    async def _send(self, reports: dict[TopicPartition, tuple[int, bool]]) -> None:
        rows = LeaderRows(
            Names.of(list(reports)),
            np.array([leader_epoch for leader_epoch, _ in reports.values()], np.int32),
            np.array([leads for _, leads in reports.values()], np.bool_),
        )
        await self._controller.ask(ReportLeaders(self._broker, self._epoch(), rows.encoded()))


class Reporter:
    """Reports the status of replicas.

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
        self._outbox = Outbox(broker, self._send, at_once=REPORTS_MAX, what="states of replicas", clock=clock)
        self.leaders = LeaderReporter(broker, epoch=epoch, controller=controller, clock=clock)

    def add(self, report: PartitionReport) -> None:
        """Queue a report in place of an earlier one of the partition."""
        if self._holds(report):
            self._outbox.put(report.partition, report)

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
            await self._outbox.run()

    async def _send(self, reports: dict[TopicPartition, PartitionReport]) -> None:
        # The directory of a replica may have failed since its report was queued.
        if sent := tuple(filter(self._holds, reports.values())):
            await self._controller.ask(ReportPartitions(self._broker, self._epoch(), sent))
