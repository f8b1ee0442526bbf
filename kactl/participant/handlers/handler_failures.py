"""Failures of one handler: the pauses after them, and the reports of its status.

    failure ──FAILED, NOT_READY──▶ back-off ──READY──▶ no failure
       └──fourth in a row──▶ ERROR ──reset, deletion, next registration──▶ no failure

Handlers of ownership topics are called again after any number of failures: nothing is lost by trying.
`PartitionActor` carries out no order to lead during a back-off. In ERROR it only carries out stops.
"""

import logging
import math
from typing import Final

import msgspec

from kactl.decide.messages.broker import DETAIL_MAX, PartitionReport
from kactl.model import NO_EPOCH, ReplicaStatus, TopicPartition
from kactl.model.errors import NotReady
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger

from .environment import Environment
from .orders import Follow, Order, Stop

log = logger(__name__)

# After each failure in a row; the next one is permanent.
BACKOFFS_MS: Final = (1_000, 2_000, 4_000)
# The longest pause where none is permanent.
BACKOFF_MS_MAX: Final = 60_000
# A deletion that is made again would otherwise block the event loop, if it is never ready.
NOT_READY_MS_MIN: Final = 100
# No other report follows them by itself, so that they are repeated to each new controller.
_LASTING: Final = frozenset({ReplicaStatus.STUCK, ReplicaStatus.ERROR})


class BackOff:
    """The pause after a failure, in which no order to lead is carried out.

    Args:
        leader_epoch: of the order that has failed.
        earlier: the pause within which a stop has failed, which does not become shorter.
    """

    def __init__(self, leader_epoch: int, delay_ms: float, clock: Clock, earlier: "BackOff | None") -> None:
        self.leader_epoch = leader_epoch
        self._clock = clock
        end_ms = clock.monotonic_ms() + delay_ms
        self._end_ms: float = end_ms if earlier is None else max(end_ms, earlier._end_ms)

    @property
    def left_ms(self) -> float:
        return self._end_ms - self._clock.monotonic_ms()

    def end(self) -> None:
        self._end_ms = -math.inf

    def is_ended_by(self, order: Order | None) -> bool:
        """Whether a new order ends the pause: one to follow, a deletion, or a stop since the registration ends."""
        if isinstance(order, Stop):
            return order.deleted or order.leader_epoch == NO_EPOCH
        return isinstance(order, Follow)


class HandlerFailures:
    """The failures in a row of one handler, and the reports of its status.

    Attributes:
        back_off: the pause after the last failure; None if it is over, or if the handler is STUCK or in ERROR.
    """

    def __init__(self, name: TopicPartition, environment: Environment) -> None:
        self.back_off: BackOff | None = None
        self._name = name
        self._environment = environment
        self._count = 0
        # The report of STUCK or ERROR, and when it was made; None if the handler is in neither.
        self._lasting: tuple[PartitionReport, float] | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the next failure is not the first one in a row."""
        return self._count > 0

    def is_final(self, error: Exception) -> bool:
        """Whether the handler is in ERROR after a failure: it was before, or it has failed too often."""
        if self._lasting is not None:
            return True
        is_last = self._count >= len(BACKOFFS_MS) and not self._environment.heals(self._name)
        return is_last and not isinstance(error, NotReady)

    def add(self, leader_epoch: int, what: str, error: Exception) -> None:
        """Report a failure, and begin a back-off unless the failure is final.

        Args:
            leader_epoch: of the order that has failed.
            what: names the call.
        """
        detail = f"{what}: {error}" if str(error) else f"{what}: {error!r}"
        failed = self._environment.failure_log
        if self._lasting is not None:
            failed.add(logging.ERROR, error, "%s of the handler of %s has failed, which is in ERROR", what, self._name)
            self.report(leader_epoch, ReplicaStatus.ERROR, detail)
        elif self.is_final(error):
            failed.add(
                logging.ERROR,
                error,
                "%s of the handler of %s has failed, %d failures in a row: reset the replica to use it again",
                what,
                self._name,
                self._count + 1,
            )
            self.report(leader_epoch, ReplicaStatus.ERROR, detail)
        elif isinstance(error, NotReady):
            log.warning("the handler of %s is not ready to lead: %s", self._name, error)
            self.report(leader_epoch, ReplicaStatus.NOT_READY, detail, hold_ms=error.hold_ms)
            self._begin_back_off(leader_epoch, max(error.retry_after_ms, NOT_READY_MS_MIN))
        else:
            failed.add(logging.ERROR, error, "%s of the handler of %s has failed", what, self._name)
            self.report(leader_epoch, ReplicaStatus.FAILED, detail)
            self._begin_back_off(leader_epoch, min(BACKOFFS_MS[0] << min(self._count, 16), BACKOFF_MS_MAX))
            self._count += 1

    def _begin_back_off(self, leader_epoch: int, delay_ms: float) -> None:
        self.back_off = BackOff(leader_epoch, delay_ms, self._environment.clock, self.back_off)

    def end_back_off(self) -> None:
        """Report that the replica is ready, if there is a back-off."""
        back_off, self.back_off = self.back_off, None
        if back_off is not None:
            self.report(back_off.leader_epoch, ReplicaStatus.READY, recovered=True)

    def forget(self) -> None:
        """Count the next failure as the first one."""
        self._count = 0

    def end_error(self) -> None:
        """Do not repeat the report of ERROR any more, and begin a back-off after the next failure."""
        self._lasting = None

    def report(
        self,
        leader_epoch: int,
        status: ReplicaStatus,
        detail: str = "",
        *,
        age_ms: float = 0.0,
        recovered: bool = False,
        hold_ms: float = 0.0,
    ) -> None:
        """Report the status of the handler to the controller. STUCK and ERROR replace a back-off."""
        report = PartitionReport(
            self._name, leader_epoch, status, detail[:DETAIL_MAX], age_ms, recovered, hold_ms=hold_ms
        )
        if status in _LASTING:
            self.back_off = None
            self._lasting = report, self._environment.clock.monotonic_ms()
        self._environment.report(report)

    def repeat_report(self) -> None:
        """Report STUCK or ERROR again, to a controller that did not receive the report."""
        if self._lasting is not None:
            report, made_ms = self._lasting
            age_ms = report.age_ms + self._environment.clock.monotonic_ms() - made_ms
            self._environment.report(msgspec.structs.replace(report, age_ms=age_ms))
