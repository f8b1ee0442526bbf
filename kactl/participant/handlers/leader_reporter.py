"""Reports to the controller which leaderships act: their `lead` has been called and has not been cancelled.

Only spectators use these reports. A new controller knows none, so it receives all of them.
"""

import itertools
from collections.abc import Callable
from typing import Final, Protocol

import anyio
import numpy as np

from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.broker import ReportLeaders
from kactl.decide.messages.routes import LeaderRows
from kactl.decide.state.records import Names
from kactl.model import TopicPartition
from kactl.model.errors import KactlError
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger

log = logger(__name__)

# Pause after a failure: a controller that has moved is known after some milliseconds, or after an election.
RETRY_MS: Final = 500
# Of one request; a controller accepts twice as many topics.
ROWS_MAX: Final = 10_000


class Controller(Protocol):
    """Client of the active controller, which is looked up for each attempt."""

    async def ask(self, request: ControllerRequest) -> object: ...


class LeaderReporter:
    """Sends the newest report of each partition.

    Args:
        epoch: returns the broker epoch.
    """

    def __init__(self, broker: int, *, epoch: Callable[[], int], controller: Controller, clock: Clock) -> None:
        self._broker = broker
        self._epoch = epoch
        self._controller = controller
        self._clock = clock
        self._leading: dict[TopicPartition, int] = {}
        self._waiting: dict[TopicPartition, tuple[int, bool]] = {}
        self._wake = anyio.Event()

    def report(self, name: TopicPartition, leader_epoch: int, leads: bool) -> None:
        """Queue a report in place of an earlier one of the partition."""
        if leads:
            self._leading[name] = leader_epoch
        elif self._leading.pop(name, None) is None:
            return
        self._waiting[name] = leader_epoch, leads
        self._wake.set()

    def repeat(self) -> None:
        """Report everything again, because there is a new controller."""
        if self._leading:
            self._waiting |= {name: (leader_epoch, True) for name, leader_epoch in self._leading.items()}
            self._wake.set()

    async def run(self) -> None:
        """Send reports until cancelled."""
        while True:
            while not self._waiting:
                self._wake = anyio.Event()
                await self._wake.wait()
            sent = dict(itertools.islice(self._waiting.items(), ROWS_MAX))
            self._waiting = {name: one for name, one in self._waiting.items() if name not in sent}
            rows = LeaderRows(
                Names.of(list(sent)),
                np.array([leader_epoch for leader_epoch, _ in sent.values()], np.int32),
                np.array([leads for _, leads in sent.values()], np.bool_),
            )
            try:
                await self._controller.ask(ReportLeaders(self._broker, self._epoch(), rows.encoded()))
            except KactlError as error:
                log.info("broker %d could not report %d leaderships, and retries: %s", self._broker, len(sent), error)
                self._waiting = sent | self._waiting
                await self._clock.sleep_ms(RETRY_MS)
