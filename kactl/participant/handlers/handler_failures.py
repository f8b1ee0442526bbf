"""Failures of one handler: the pauses after them, and the reports of its status.

    failure ──RETRYING──▶ pause ──▶ the same order again ──it runs──READY──▶ no failure
       └──third in a row, NotReady, too slow──FAILED──▶ back-off ──READY──▶ the controller starts the replica anew

The first failures in a row leave the leadership where it is. After the third one the controller elects another replica,
if there is one, and this one is tried three times again when it is its turn. Nothing here is final: a database that
was away is back at some time, and then each partition works.
"""

import logging
import math
import zlib
from typing import Final

import msgspec

from kactl.decide.messages.broker import DETAIL_MAX, PartitionReport
from kactl.model import NO_EPOCH, ReplicaStatus, TopicPartition
from kactl.model.errors import NotReady
from kactl.participant.leases.leader import RESIGN_HOLD_MS
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger

from .environment import Environment
from .handler_calls import CallTooLong
from .orders import Follow, Order, Stop

log = logger(__name__)

# Failures in a row after which another replica is tried.
TRIES_HERE: Final = 3
PAUSE_MS_MIN: Final = 1_000.0
PAUSE_MS_MAX: Final = 60_000.0
# Of the time that was spent in pauses: an outage that is over costs no more than this part of its duration.
PAUSE_SHARE: Final = 1 / 8
# A pause is longer by up to this part, so that partitions that failed at once are not tried again at once.
PAUSE_SPREAD: Final = 0.25
# A call that ran for longer is no failure in a row. Longer than drivers wait for a connection.
FORGET_MS: Final = 60_000.0
# Automatic balancing would otherwise return the leadership at once to where it fails: a minute after three failures.
HOLD_MS_EACH: Final = 20_000.0
# A deletion that is made again would otherwise block the event loop, if it is never ready.
NOT_READY_MS_MIN: Final = 100


def pause_ms(name: TopicPartition, count: int, paused_ms: float) -> float:
    """Returns the pause after a failure.

    Args:
        count: of failures in a row.
        paused_ms: the pauses after the earlier ones.
    """
    spread = PAUSE_SPREAD * zlib.crc32(f"{name} {count}".encode()) / 2**32
    return min(max(PAUSE_MS_MIN, paused_ms * PAUSE_SHARE) * (1 + spread), PAUSE_MS_MAX)


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
        """Whether a new order ends the pause: one to follow a leader, or a stop since the registration ends.

        Without a leader, a replica that is ready is elected at once, and would fail again without a pause.
        """
        if isinstance(order, Follow):
            return order.leader is not None
        return isinstance(order, Stop) and order.leader_epoch == NO_EPOCH


class HandlerFailures:
    """The failures in a row of one handler, and the reports of its status.

    Attributes:
        back_off: the pause after the last failure, in which the replica counts as failed; None if there is none.
        retry: the pause before the order in progress is carried out again; None if there was none since the last READY.
    """

    def __init__(self, name: TopicPartition, environment: Environment) -> None:
        self.back_off: BackOff | None = None
        self.retry: BackOff | None = None
        self._name = name
        self._environment = environment
        self._count = 0
        self._paused_ms = 0.0
        self._failed: set[str] = set()  # calls whose failures have not ended, for the log
        # The last report, if it was not READY or BUSY, and when it was made.
        self._lasting: tuple[PartitionReport, float] | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the next failure is not the first one in a row."""
        return self._count > 0

    def tries_again(self, error: Exception) -> bool:
        """Whether the order that has failed is carried out again here, before another replica is tried."""
        return not isinstance(error, NotReady | CallTooLong) and (self._count + 1) % TRIES_HERE != 0

    def add_retry(self, leader_epoch: int, what: str, error: Exception) -> BackOff:
        """Report a failure after which the order is carried out again. Returns the pause before it."""
        pause = self._next_pause_ms(what, error)
        self.retry = BackOff(leader_epoch, pause, self._environment.clock, None)
        self.report(leader_epoch, ReplicaStatus.RETRYING, _detail(what, error), next_ms=pause)
        return self.retry

    def add(self, leader_epoch: int, what: str, error: Exception) -> None:
        """Report a failure after which another replica is tried, and begin a back-off.

        Args:
            leader_epoch: of the order that has failed.
            what: names the call.
        """
        if isinstance(error, NotReady):
            log.warning("the handler of %s is not ready to lead: %s", self._name, error)
            status, hold_ms = ReplicaStatus.NOT_READY, float(error.hold_ms)
            pause = float(max(error.retry_after_ms, NOT_READY_MS_MIN))
        else:
            pause = self._next_pause_ms(what, error)
            status, hold_ms = ReplicaStatus.FAILED, min(self._count * HOLD_MS_EACH, RESIGN_HOLD_MS)
        self._begin_back_off(leader_epoch, status, _detail(what, error), pause, hold_ms=hold_ms)

    def stuck_call_ended(self, leader_epoch: int) -> None:
        """Report that a stuck call has ended, and begin a back-off."""
        detail = "a call that did not end when it was cancelled has ended"
        self._begin_back_off(leader_epoch, ReplicaStatus.FAILED, detail, PAUSE_MS_MIN)

    def _next_pause_ms(self, what: str, error: Exception) -> float:
        """Count and log a failure. Returns the pause after it."""
        text = "%s of the handler of %s has failed; it is called again, here or elsewhere"
        self._failed.add(what)
        self._environment.failure_log.add(logging.ERROR, error, text, what, self._name)
        self._count += 1
        pause = pause_ms(self._name, self._count, self._paused_ms)
        self._paused_ms += pause
        return pause

    def _begin_back_off(
        self, leader_epoch: int, status: ReplicaStatus, detail: str, pause: float, *, hold_ms: float = 0.0
    ) -> None:
        self.back_off = BackOff(leader_epoch, pause, self._environment.clock, self.back_off)
        self.report(leader_epoch, status, detail, hold_ms=hold_ms, next_ms=self.back_off.left_ms)

    def end_back_off(self) -> None:
        """Report that the replica is ready, if there is a back-off."""
        back_off, self.back_off = self.back_off, None
        if back_off is not None:
            self.report(back_off.leader_epoch, ReplicaStatus.READY, recovered=True)

    def end_retry(self, leader_epoch: int) -> None:
        """Report that the replica is ready, if it was tried again."""
        if self.retry is not None:
            self.report(leader_epoch, ReplicaStatus.READY)

    def has_begun(self, leader_epoch: int, what: str) -> None:
        """A call that has failed before runs. `lead` follows `prepare`."""
        ended = set(self._failed) if what == "lead" else self._failed & {what}
        for each in sorted(ended):
            self._environment.failure_log.end("%s of the handler of %s has not failed again", each, self._name)
        self._failed -= ended
        self.end_retry(leader_epoch)

    def end_pause(self) -> None:
        """End the pause after the last failure."""
        for pause in (self.back_off, self.retry):
            if pause is not None:
                pause.end()

    def has_run(self, time_ms: float) -> None:
        """Count the next failure as the first one, if a call has run for long."""
        if time_ms > FORGET_MS:
            self.forget()

    def forget(self) -> None:
        """Count the next failure as the first one."""
        self._count, self._paused_ms = 0, 0.0

    def report(
        self,
        leader_epoch: int,
        status: ReplicaStatus,
        detail: str = "",
        *,
        age_ms: float = 0.0,
        recovered: bool = False,
        hold_ms: float = 0.0,
        next_ms: float = 0.0,
    ) -> None:
        """Report the status of the handler to the controller. STUCK replaces a back-off."""
        report = PartitionReport(
            self._name,
            leader_epoch,
            status,
            detail[:DETAIL_MAX],
            age_ms,
            recovered,
            hold_ms=hold_ms,
            failures=self._count if status in (ReplicaStatus.FAILED, ReplicaStatus.RETRYING) else 0,
            next_ms=next_ms,
        )
        if status is ReplicaStatus.STUCK:
            self.back_off = None
        if status is not ReplicaStatus.RETRYING:
            self.retry = None
        is_over = status in (ReplicaStatus.READY, ReplicaStatus.BUSY)
        self._lasting = None if is_over else (report, self._environment.clock.monotonic_ms())
        self._environment.report(report)

    def repeat_report(self) -> None:
        """Report a failure that lasts again, to a controller that did not receive the report."""
        if self._lasting is not None:
            report, made_ms = self._lasting
            past_ms = self._environment.clock.monotonic_ms() - made_ms
            next_ms = max(report.next_ms - past_ms, 0.0)
            self._environment.report(msgspec.structs.replace(report, age_ms=report.age_ms + past_ms, next_ms=next_ms))


def _detail(what: str, error: Exception) -> str:
    return f"{what}: {error}" if str(error) else f"{what}: {error!r}"
