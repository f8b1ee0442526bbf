"""Renewals of a participant's session, and the lease that they extend.

    LAPSED ──renewal counted──▶ VALID ──renewal counted──▶ VALID
       ▲                          │
       └────── deadline passed ───┘

One pacemaker serves all leaderships of a participant. It sends a renewal several times per session timeout, whether
earlier ones have been answered or not, and has one timer, which is set to the end of the lease. Everything that runs in
a late callback, after a blocked loop or a suspended process, first looks at the clock. Timers do not count the time for
which the machine is suspended, so the clock is read twice in each margin as well.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import Final, Protocol

import anyio
import anyio.abc

from kactl.model.errors import ControllerUnreachable, SessionExpired, StoreError
from kactl.participant.pause_gate import PauseGate
from kactl.runtime import forks
from kactl.runtime.clock import Clock, SystemClock
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.runtime.time_limit import limited
from kactl.stores.base import Session

from .events import LeaseAtRisk, LeaseEvent, LeaseLapsed, LeaseResumed, RiskCause
from .lease import ENDED, Lease
from .loop_watch import watched
from .terms import NS_PER_MS, LeaseConfig, LeaseTerms, lease_terms

log = logger(__name__)

# A renewal that takes longer than this part of the timeout is given up.
_RENEWAL_LIMIT_SHARE: Final = 4
# A lease is at risk if less than this many margins remain.
_RISK_MARGINS: Final = 2
# Readings of the clock in each margin, unless it is so short that they would cost more than they are worth.
_LOOKS_PER_MARGIN: Final = 2
_LOOK_NS_MIN: Final = 50 * NS_PER_MS
# Timers fire a little before or after their time, by the resolution of the clocks.
_SLEEP_NS_MIN: Final = 1_000


class LeaseHolder(Protocol):
    """Receives the beginning and the end of leases. Both methods are called in the event loop, and must not wait."""

    def lease_began(self, lease: Lease) -> None:
        """Begin what may only run under a lease."""

    def lease_ended(self) -> None:
        """End everything that runs under the lease."""


class Pacemaker:
    """Keeps the session of one registration alive, and the lease of its leaderships.

    Args:
        report: receives the events of the lease; must not raise.
        extended: called with the bound of the lease, each time that it moves.

    Attributes:
        lease: the current lease; one that has ended while there is none.
        terms: what a renewal is worth.
        attempted: set when the first renewal has succeeded or failed.

    Raises:
        BadRequest: the session is too short for the margin.
    """

    def __init__(
        self,
        broker: int,
        session: Session,
        *,
        clock: Clock,
        pause: PauseGate,
        config: LeaseConfig,
        holder: LeaseHolder,
        report: Callable[[LeaseEvent], None],
        extended: Callable[[int], None] = lambda bound_ns: None,
    ) -> None:
        self.lease = ENDED
        self.terms: LeaseTerms = lease_terms(session.timeout_ms, session.bound, config)
        self.attempted = anyio.Event()
        self._broker = broker
        self._session = session
        self._clock = clock
        self._pause = pause
        self._config = config
        self._holder = holder
        self._report = report
        self._extended = extended
        self._valid = False
        self._renewed = anyio.Event()  # replaced by each renewal that counts
        self._risk_reported_ns: int | None = None
        self._conditions = Conditions(log, clock.monotonic_ms)
        self._tasks: anyio.abc.TaskGroup | None = None  # while it runs
        self._home = forks.share(self)

    @property
    def margin_ms(self) -> float:
        return self.terms.margin_ns / NS_PER_MS

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`: no lease of this process lasts in a child."""
        self.lease.ends_ns = ENDED.ends_ns

    async def run(self) -> None:
        """Renew until the session is lost. The lease has ended on return, also after a cancellation."""
        watch: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self._config.watch_loop and isinstance(self._clock, SystemClock):
            watch = watched(self._broker, self.terms.margin_ns)
        try:
            with watch:
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    tasks.start_soon(self._watch)
                    await self._send_renewals(tasks)
        finally:
            self._tasks = None
            self._end(late_ns=None)

    # -- renewals

    async def _send_renewals(self, tasks: anyio.abc.TaskGroup) -> None:
        while True:
            tasks.start_soon(self._renew, tasks.cancel_scope)
            await self._clock.sleep_ms(self._session.timeout_ms / self._config.renewals)
            await self._pause.wait_open()

    def renew_now(self) -> None:
        """Send one renewal more, at a moment at which it is likely to succeed. No effect unless this runs."""
        if self._tasks is not None and not self._tasks.cancel_scope.cancel_called:
            self._tasks.start_soon(self._renew, self._tasks.cancel_scope)

    async def _renew(self, session_scope: anyio.CancelScope) -> None:
        """Send one renewal, and count it if it succeeds."""
        # Read before anything that could delay the request. Only what the store does after this moment counts.
        sent_ns = self._clock.lease_ns()
        try:
            limit_ms = self._session.timeout_ms / _RENEWAL_LIMIT_SHARE
            late = StoreError(f"no response to the renewal within {limit_ms:.0f} ms")
            await limited(self._clock, limit_ms, lambda: self._session.renew(sent_ns), late)
        except SessionExpired:
            session_scope.cancel()
        except (StoreError, ControllerUnreachable) as error:
            text = "broker %d could not renew its session, and retries: %s"
            self._conditions.add("renewal", logging.WARNING, text, self._broker, error)
        else:
            self._conditions.end("renewal", "broker %d renews its session again", self._broker)
            await self._pause.wait_open()
            self.count(sent_ns)
        self.attempted.set()

    def count(self, sent_ns: int) -> None:
        """Extend the lease by a renewal that was sent at `sent_ns` and has succeeded, or begin another lease.

        A success that arrives after the end of the lease does not extend it: something may have seen it end.
        """
        now_ns, deadline_ns = self._clock.lease_ns(), self.terms.deadline(sent_ns)
        if self._home.left:
            return
        if self._valid and now_ns >= self.lease.ends_ns:
            self._end(late_ns=now_ns - self.lease.ends_ns)
        if deadline_ns <= now_ns:
            return
        ends_ns = max(self.lease.ends_ns, deadline_ns)
        self._extended(ends_ns + self.terms.margin_ns)
        if self._valid:
            self.lease.ends_ns = ends_ns
        else:
            self._begin(Lease(deadline_ns))
        self._renewed.set()
        self._renewed = anyio.Event()

    # -- the lease

    def _begin(self, lease: Lease) -> None:
        resumed = self.lease is not ENDED
        self._valid, self.lease = True, lease
        if resumed:
            log.warning("broker %d has a lease again, and resumes its leaderships", self._broker)
            self._report(LeaseResumed(self._broker))
        self._holder.lease_began(lease)

    def _end(self, *, late_ns: int | None) -> None:
        """End the lease. `late_ns` is the time since its deadline, None if it ends before."""
        if not self._valid:
            return
        self._valid = False
        if late_ns is None:
            self.lease.ends_ns = ENDED.ends_ns  # no leader may act until the deadline that was planned
        else:
            late_ms = late_ns / NS_PER_MS
            log.warning(
                "the lease of broker %d has lapsed %.0f ms ago: its leaderships have to stop", self._broker, late_ms
            )
            self._report(LeaseLapsed(self._broker, late_ms))
        self._holder.lease_ended()

    async def _watch(self) -> None:
        """End the lease at its deadline, and report before that if it is at risk."""
        while True:
            if not self._valid:
                await self._renewed.wait()
                continue
            remaining_ns = self.lease.ends_ns - self._clock.lease_ns()
            if remaining_ns <= 0:
                self._end(late_ns=-remaining_ns)
                continue
            risk_ns = remaining_ns - _RISK_MARGINS * self.terms.margin_ns
            look_ns = max(self.terms.margin_ns // _LOOKS_PER_MARGIN, _LOOK_NS_MIN)
            await self._sleep(min(risk_ns if risk_ns > 0 else remaining_ns, look_ns))

    async def _sleep(self, delay_ns: int) -> None:
        """Sleep, and report if the lease is at risk afterwards."""
        clock, planned_ns = self._clock, max(delay_ns, _SLEEP_NS_MIN)
        begin_ns, begin_ms = clock.lease_ns(), clock.monotonic_ms()
        await clock.sleep_ms(planned_ns / NS_PER_MS)
        await self._pause.wait_open()
        late_ns = clock.lease_ns() - begin_ns - planned_ns
        suspended_ns = clock.lease_ns() - begin_ns - int((clock.monotonic_ms() - begin_ms) * NS_PER_MS)
        self._report_risk(late_ns, suspended_ns)

    def _report_risk(self, late_ns: int, suspended_ns: int) -> None:
        now_ns, margin_ns = self._clock.lease_ns(), self.terms.margin_ns
        remaining_ns = self.lease.ends_ns - now_ns
        if not self._valid or remaining_ns > _RISK_MARGINS * margin_ns:
            return
        if self._risk_reported_ns is not None and now_ns - self._risk_reported_ns < self._timeout_ns:
            return
        self._risk_reported_ns = now_ns
        if suspended_ns > margin_ns / 2:
            cause = RiskCause.CLOCK_JUMP
        elif late_ns > margin_ns / 2:
            cause = RiskCause.LOOP_BLOCKED
        else:
            cause = RiskCause.STORE_SILENT
        risk = LeaseAtRisk(self._broker, cause, remaining_ns / NS_PER_MS, max(0, late_ns) / NS_PER_MS)
        ends = f"ends in {risk.remaining_ms:.0f} ms"
        if remaining_ns < 0:
            ends = f"ended {-risk.remaining_ms / 1000:.1f} s ago"
        log.warning("the lease of broker %d %s: %s (the event loop was %.0f ms late)",
                    self._broker, ends, cause.value, risk.blocked_ms)  # fmt: skip
        self._report(risk)

    @property
    def _timeout_ns(self) -> int:
        return self._session.timeout_ms * NS_PER_MS
