"""Renewals, and the lease that they extend."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from kactl.model import Broker
from kactl.model.errors import SessionExpired, StoreUnavailable
from kactl.participant.leases.events import LeaseAtRisk, LeaseEvent, LeaseLapsed, LeaseResumed, RiskCause
from kactl.participant.leases.lease import Lease
from kactl.participant.leases.pacemaker import Pacemaker
from kactl.participant.leases.terms import NS_PER_MS, LeaseConfig
from kactl.participant.pause_gate import PauseGate
from kactl.stores.base import SessionBound
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

TIMEOUT_MS = 6_000
RENEWAL_MS = TIMEOUT_MS / 6
LENGTH_MS = 5_400  # of a lease, with the drift
MARGIN_MS = 600


class SuspendableClock(ManualClock):
    """The clocks of a machine that may be suspended: timers stand still then, and the clock for leases does not."""

    suspended_ms = 0.0

    def lease_ns(self) -> int:
        return super().lease_ns() + int(self.suspended_ms * NS_PER_MS)


class FakeSession:
    """Answers each renewal as the test says: after a delay, or with an error."""

    def __init__(self, clock: ManualClock) -> None:
        self.sent_ns: list[int] = []
        self.delay_ms = 0.0
        self.error: Exception | None = None
        self.in_flight = 0
        self.in_flight_max = 0
        self._clock = clock

    @property
    def timeout_ms(self) -> int:
        return TIMEOUT_MS

    @property
    def bound(self) -> SessionBound:
        return SessionBound(kind="counted")

    async def register(self, broker: Broker) -> int:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def keep_alive(self) -> None:
        await self.renew(0)

    async def renew(self, sent_ns: int) -> None:
        self.sent_ns.append(sent_ns)
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            if self.delay_ms:
                await self._clock.sleep_ms(self.delay_ms)
        finally:
            self.in_flight -= 1
        if self.error is not None:
            raise self.error


class Bench:
    """A pacemaker with a fake session and a manual clock, and what it reports.

    Attributes:
        leases: those that began; `ended` counts those that ended.
    """

    def __init__(self) -> None:
        self.clock = SuspendableClock()
        self.session = FakeSession(self.clock)
        self.gate = PauseGate()
        self.leases: list[Lease] = []
        self.ended_at_ms: list[float] = []
        self.events: list[LeaseEvent] = []
        self.over = False
        self.pacemaker = Pacemaker(
            1,
            self.session,
            clock=self.clock,
            pause=self.gate,
            config=LeaseConfig(),
            holder=self,
            report=self.events.append,
        )

    def lease_began(self, lease: Lease) -> None:
        self.leases.append(lease)

    def lease_ended(self) -> None:
        self.ended_at_ms.append(self.clock.monotonic_ms())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async def run() -> None:
            await self.pacemaker.run()
            self.over = True

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await settle()
            yield
            tasks.cancel_scope.cancel()

    @property
    def ends_ms(self) -> float:
        return self.leases[-1].ends_ns / NS_PER_MS


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_lease_is_counted_from_sending(bench: Bench) -> None:
    bench.session.delay_ms = 400
    async with bench.running():
        assert bench.leases == []
        await bench.clock.advance(400)

        assert len(bench.leases) == 1
        assert bench.ends_ms == pytest.approx(LENGTH_MS - MARGIN_MS, abs=0.001)


async def test_lease_is_extended_while_renewals_succeed(bench: Bench) -> None:
    async with bench.running():
        await bench.clock.advance(10 * TIMEOUT_MS)

        assert len(bench.session.sent_ns) == 61
        assert bench.ends_ms == pytest.approx(10 * TIMEOUT_MS + LENGTH_MS - MARGIN_MS, abs=0.001)
        assert (len(bench.leases), bench.ended_at_ms, bench.events) == (1, [], [])


async def test_late_responses_overlap_and_count(bench: Bench) -> None:
    bench.session.delay_ms = RENEWAL_MS + 200
    async with bench.running():
        await bench.clock.advance(3 * TIMEOUT_MS)

        assert bench.session.in_flight_max == 2
        assert bench.ended_at_ms == []


async def test_response_after_a_quarter_of_the_timeout_does_not_count(bench: Bench) -> None:
    bench.session.delay_ms = TIMEOUT_MS / 4 + 1
    async with bench.running():
        await bench.clock.advance(3 * TIMEOUT_MS)

        assert bench.leases == []
        assert bench.session.in_flight_max == 2


async def test_lease_ends_at_its_deadline(bench: Bench) -> None:
    async with bench.running():
        bench.session.error = StoreUnavailable("the store is gone")
        await bench.clock.advance(LENGTH_MS - MARGIN_MS - 1)
        assert bench.ended_at_ms == []
        await bench.clock.advance(2)

        assert bench.ended_at_ms == [pytest.approx(LENGTH_MS - MARGIN_MS, abs=0.01)]
        assert isinstance(bench.events[-1], LeaseLapsed)
        assert bench.events[-1].late_ms < 1
        assert bench.pacemaker.lease.ends_ns <= bench.clock.lease_ns()


async def test_lease_at_risk_is_reported_once_per_timeout(bench: Bench) -> None:
    async with bench.running():
        bench.session.error = StoreUnavailable("the store is gone")
        await bench.clock.advance(LENGTH_MS - MARGIN_MS - 2 * MARGIN_MS + 1)

        (risk,) = bench.events
        assert isinstance(risk, LeaseAtRisk)
        assert risk.cause is RiskCause.STORE_SILENT
        assert risk.remaining_ms == pytest.approx(2 * MARGIN_MS, abs=0.01)
        await bench.clock.advance(MARGIN_MS)
        assert bench.events == [risk]


async def test_renewal_after_a_lapse_begins_another_lease(bench: Bench) -> None:
    """Whatever saw the first lease end must find it ended for ever."""
    async with bench.running():
        bench.session.error = StoreUnavailable("the store is gone")
        await bench.clock.advance(TIMEOUT_MS)
        bench.session.error = None
        await bench.clock.advance(RENEWAL_MS)

        first, second = bench.leases
        assert first.ends_ns < bench.clock.lease_ns() < second.ends_ns
        assert [type(event) for event in bench.events] == [LeaseAtRisk, LeaseLapsed, LeaseResumed]


async def test_late_pacemaker_ends_the_lease_before_it_counts_a_renewal(bench: Bench) -> None:
    """A blocked loop finds an answered renewal and a passed deadline at the same time."""
    async with bench.running():
        sent_ns = bench.clock.lease_ns()
        bench.clock._passed_ms += LENGTH_MS + 2_000  # nothing has run meanwhile

        bench.pacemaker.count(sent_ns + 4_000 * NS_PER_MS)

        assert len(bench.ended_at_ms) == 1
        assert len(bench.leases) == 2
        lapse = next(event for event in bench.events if isinstance(event, LeaseLapsed))
        assert lapse.late_ms == pytest.approx(2_000 + MARGIN_MS, abs=1)


async def test_renewal_that_is_too_old_begins_no_lease(bench: Bench) -> None:
    async with bench.running():
        sent_ns = bench.clock.lease_ns()
        bench.clock._passed_ms += TIMEOUT_MS

        bench.pacemaker.count(sent_ns)

        assert len(bench.leases) == len(bench.ended_at_ms) == 1


async def test_paused_participant_ends_its_lease_when_it_resumes(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench.running():
        bench.gate.pause()
        await bench.clock.advance(2 * TIMEOUT_MS)
        sent = len(bench.session.sent_ns)
        assert (bench.ended_at_ms, bench.events) == ([], [])
        bench.gate.resume()
        await settle()

        assert bench.ended_at_ms == [2 * TIMEOUT_MS]
        assert sent == 1
        assert isinstance(bench.events[0], LeaseAtRisk)
        assert bench.events[0].cause is RiskCause.LOOP_BLOCKED
        assert bench.events[0].blocked_ms > TIMEOUT_MS
        ended_s = -bench.events[0].remaining_ms / 1000
        assert f" ended {ended_s:.1f} s ago: " in caplog.text


async def test_lease_ends_soon_after_the_machine_was_suspended(bench: Bench) -> None:
    """All timers are as late as the suspend was long. The store is not reached again yet."""
    async with bench.running():
        bench.session.error = StoreUnavailable("the network is down")
        await bench.clock.advance(RENEWAL_MS / 2)
        bench.clock.suspended_ms = 10 * TIMEOUT_MS
        await bench.clock.advance(MARGIN_MS / 2)

        assert len(bench.ended_at_ms) == 1
        risk, lapse = bench.events
        assert isinstance(risk, LeaseAtRisk)
        assert risk.cause is RiskCause.CLOCK_JUMP
        assert isinstance(lapse, LeaseLapsed)


async def test_expired_session_ends_lease_and_pacemaker(bench: Bench) -> None:
    async with bench.running():
        bench.session.error = SessionExpired("too late")
        await bench.clock.advance(RENEWAL_MS)

        assert bench.over
        assert bench.ended_at_ms == [RENEWAL_MS]
        assert bench.pacemaker.lease.ends_ns < 0  # no leader waits for the planned end


async def test_cancelled_pacemaker_ends_its_lease(bench: Bench) -> None:
    async with bench.running():
        lease = bench.leases[0]

    assert len(bench.ended_at_ms) == 1
    assert lease.ends_ns < bench.clock.lease_ns()
