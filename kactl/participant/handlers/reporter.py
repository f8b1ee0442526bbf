"""Reports of replicas to the controller, repeated until it has received them."""

from collections.abc import Callable
from typing import Final, Protocol

import anyio

from kactl.clock import Clock
from kactl.errors import KactlError
from kactl.messages.admin import ControllerRequest
from kactl.messages.broker import PartitionReport, PartitionsReported
from kactl.model import TopicPartition
from kactl.runtime.logs import logger

log = logger(__name__)

# Pause after a failure: a controller that has moved is known after some milliseconds, or after an election.
RETRY_MS: Final = 500


class Controller(Protocol):
    """Client of the active controller, which is looked up for each attempt."""

    async def ask(self, request: ControllerRequest) -> object: ...


class Reporter:
    """Sends the last report of each partition, in the order of the reports.

    Args:
        epoch: returns the broker epoch.
    """

    def __init__(self, broker: int, *, epoch: Callable[[], int], controller: Controller, clock: Clock) -> None:
        self._broker = broker
        self._epoch = epoch
        self._controller = controller
        self._clock = clock
        self._waiting: dict[TopicPartition, PartitionReport] = {}
        self._wake = anyio.Event()

    def add(self, report: PartitionReport) -> None:
        """Queue a report in place of an earlier one of the partition."""
        self._waiting.pop(report.partition, None)
        self._waiting[report.partition] = report
        self._wake.set()

    async def run(self) -> None:
        """Send reports until cancelled."""
        while True:
            while not self._waiting:
                self._wake = anyio.Event()
                await self._wake.wait()
            sent, self._waiting = self._waiting, {}
            try:
                await self._controller.ask(PartitionsReported(self._broker, self._epoch(), tuple(sent.values())))
            except KactlError as error:
                log.info("broker %d could not report the status of %d replicas, and retries: %s", self._broker,
                         len(sent), error)  # fmt: skip
                # A newer report of a partition replaces the one that was not received.
                self._waiting = {name: one for name, one in sent.items() if name not in self._waiting} | self._waiting
                await self._clock.sleep_ms(RETRY_MS)
