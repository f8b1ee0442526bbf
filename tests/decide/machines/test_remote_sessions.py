"""Sessions with the controller: grants, expiry, and a model of clocks that drift, in which no lease outlives its
session."""

import dataclasses
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from kactl.decide.machines import remote_sessions
from kactl.decide.machines.remote_sessions import LATE_SHARE, NS_PER_MS, TOGETHER_SHARE, Phase, SessionTable, Verdict
from kactl.model import Broker
from kactl.participant.leases.terms import LeaseConfig, lease_terms
from kactl.stores.base import SessionBound
from tests.support.marks import at_most

T: Final = 6_000
T_NS: Final = T * NS_PER_MS
INCARNATION = bytes(16)


def stored(number: int = 1, epoch: int = 7, timeout_ms: int = T) -> Broker:
    return Broker(number, 0).in_remote_session(INCARNATION, timeout_ms, epoch=epoch)


def ms(count: float) -> int:
    return int(count * NS_PER_MS)


def table_with_session(*, confirmed: bool = True) -> SessionTable:
    table = SessionTable(0)
    table.begin(stored(), now_ns=0)
    if confirmed:
        table.confirm(0)
    return table


def beat(table: SessionTable, received_ns: int, now_ns: int | None = None) -> Verdict:
    return table.heartbeat(1, 7, received_ns=received_ns, now_ns=received_ns if now_ns is None else now_ns)


# -- rules -------------------------------------------------------------------------------------------------------------


def test_session_lasts_for_its_timeout_from_the_receipt_of_a_heartbeat() -> None:
    table = table_with_session()
    assert beat(table, ms(1_000), now_ns=ms(1_500)) is Verdict.GRANTED

    assert table.expire(now_ns=ms(1_000) + T_NS - 1) == []
    (ended,) = table.expire(now_ns=ms(1_000) + T_NS)

    assert (ended.broker, ended.phase) == (1, Phase.ENDING)
    assert table.expire(now_ns=ms(1_000) + T_NS) == []


def test_heartbeat_that_was_received_earlier_does_not_shorten_a_session() -> None:
    table = table_with_session()
    beat(table, ms(1_000))
    beat(table, ms(500), now_ns=ms(1_000))

    assert table.next_end_ns() == ms(1_000) + T_NS


def test_nothing_is_granted_once_the_end_is_decided() -> None:
    table = table_with_session()
    table.confirm(T_NS)
    table.expire(now_ns=T_NS)

    assert beat(table, T_NS) is Verdict.EXPIRED


@pytest.mark.parametrize(("broker", "epoch"), [(1, 6), (1, 8), (2, 7)])
def test_heartbeat_of_another_registration_is_not_granted(broker: int, epoch: int) -> None:
    table = table_with_session()

    assert table.heartbeat(broker, epoch, received_ns=1, now_ns=1) is Verdict.EXPIRED


def test_nothing_is_granted_without_a_recent_check() -> None:
    table = table_with_session(confirmed=False)
    assert beat(table, 0) is Verdict.UNCONFIRMED
    table.confirm(ms(100))
    table.confirm(ms(50))  # its answer has arrived later

    assert beat(table, ms(2_100)) is Verdict.GRANTED
    assert beat(table, ms(2_100) + 1) is Verdict.UNCONFIRMED
    assert table.next_end_ns() == ms(2_100) + T_NS


def test_evicted_session_is_not_granted_and_expires() -> None:
    table = table_with_session()
    table.evict(1, 6)
    assert beat(table, 1) is Verdict.GRANTED
    table.evict(1, 7)

    assert beat(table, 2) is Verdict.EXPIRED
    assert [session.broker for session in table.expire(now_ns=1 + T_NS)] == [1]


def test_session_that_was_taken_over_lasts_for_the_grace_at_least() -> None:
    table = SessionTable(ms(100))
    table.take_over(stored(), now_ns=ms(150))
    table.confirm(ms(100))
    assert table.next_end_ns() == ms(100 + 1.5 * T)

    beat(table, ms(200))
    assert table.next_end_ns() == ms(100 + 1.5 * T)  # the predecessor may have granted a later heartbeat
    table.confirm(ms(5_000))
    beat(table, ms(5_000))

    assert table.next_end_ns() == ms(5_000 + T)


def test_evicted_session_that_was_taken_over_is_not_granted() -> None:
    table = SessionTable(0)
    table.confirm(0)
    broker = stored()
    table.take_over(msgspec.structs.replace(broker, evicted=True), now_ns=0)

    assert beat(table, 1) is Verdict.EXPIRED


def test_time_in_which_the_event_loop_was_blocked_is_added() -> None:
    table = table_with_session()
    table.begin(stored(2, 8, 60_000), now_ns=0)

    assert table.delay(T_NS // 4) == []
    assert [session.broker for session in table.delay(T_NS // 4 + 1)] == [1]

    assert table.next_end_ns() == T_NS + T_NS // 4 + 1


def test_sessions_that_expire_one_after_the_other_are_ended_together() -> None:
    table = SessionTable(0)
    step_ns = T_NS // TOGETHER_SHARE
    for broker in (1, 2, 3):
        table.begin(stored(broker, broker), now_ns=broker * step_ns)
    table.begin(stored(4, 4), now_ns=4 * step_ns + 1)

    assert table.expire(now_ns=3 * step_ns + T_NS - 1) == []
    assert [session.broker for session in table.expire(now_ns=3 * step_ns + T_NS)] == [1, 2, 3]
    assert [session.broker for session in table.expire(now_ns=4 * step_ns + 1 + T_NS)] == [4]


def test_session_that_has_expired_waits_no_longer_than_an_interval_between_heartbeats() -> None:
    table = SessionTable(0)
    count = TOGETHER_SHARE // LATE_SHARE + 2
    for broker in range(count):
        table.begin(stored(broker, broker), now_ns=broker * T_NS // TOGETHER_SHARE)

    due_ns = table.next_end_ns()

    assert due_ns == T_NS + T_NS // LATE_SHARE
    assert [session.broker for session in table.expire(now_ns=due_ns)] == list(range(count - 1))


def test_heartbeat_of_a_session_that_waits_for_others_is_granted() -> None:
    table = table_with_session()
    table.begin(stored(2, 8), now_ns=T_NS // TOGETHER_SHARE)
    table.confirm(T_NS)
    assert table.expire(now_ns=T_NS) == []

    assert beat(table, T_NS) is Verdict.GRANTED

    assert [session.broker for session in table.expire(now_ns=T_NS + T_NS // TOGETHER_SHARE)] == [2]


def test_stored_registrations_are_compared_with_sessions() -> None:
    table = table_with_session()
    table.begin(stored(2, 8), now_ns=10)
    table.begin(stored(3, 9), now_ns=20)
    others = {4: stored(4, 11), 5: Broker(5, 12), 3: stored(3, 10)}

    unknown, gone = table.compare(others, read_ns=20)

    assert [broker.id for broker in unknown] == [4]
    assert [session.broker for session in gone] == [1, 2]  # 3 began after the read


def test_registration_that_has_ended_is_not_found_again() -> None:
    table = table_with_session()
    session = table.get(1)
    assert session is not None
    ended, later = stored(1, session.epoch), stored(1, session.epoch + 1)
    table.remove(session)

    assert table.compare({1: ended}, read_ns=20) == ([], [])
    assert table.compare({1: later}, read_ns=20) == ([later], [])


# -- a model of drifting clocks ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Clock:
    """A clock that starts anywhere and runs at one rate. `read` is rounded down, as readings are."""

    offset_ns: int
    rate: Fraction

    def read(self, true_ns: int | Fraction) -> int:
        reading = self.offset_ns + true_ns * self.rate
        return reading.numerator // reading.denominator

    def when(self, reading_ns: int) -> Fraction:
        """Returns the true time from which on the clock shows a reading."""
        return Fraction(reading_ns - self.offset_ns) / self.rate


@dataclasses.dataclass(frozen=True)
class Check:
    """A check of the predecessor's controllership, which reads the store at a moment in between."""

    sent_ms: int
    there_ms: int
    back_ms: int


@dataclasses.dataclass(frozen=True)
class Beat:
    sent_ms: int
    delay_ms: int
    to_successor: bool


@dataclasses.dataclass(frozen=True)
class Run:
    """One participant, the controller that it registered with, and the next one, in true time."""

    participant: Clock
    predecessor: Clock
    successor: Clock
    elected_ms: int
    answer_ms: int  # until the successor learns that it was elected
    checks: tuple[Check, ...]
    beats: tuple[Beat, ...]


@st.composite
def runs(draw: st.DrawFn, drift: Fraction) -> Run:
    def clock() -> Clock:
        part = Fraction(draw(st.integers(0, 4)), 4)
        return Clock(draw(st.integers(0, 10**12)), 1 + (1 / (1 - drift) - 1) * part)

    moments, delays = st.integers(0, 4 * T // 100).map(lambda at: 100 * at), st.integers(0, 40).map(lambda at: 50 * at)
    checks = st.lists(st.builds(Check, moments, delays, delays), max_size=5)
    beats = st.lists(st.builds(Beat, moments, delays, st.booleans()), min_size=1, max_size=6)
    return Run(clock(), clock(), clock(), draw(moments), draw(delays), tuple(draw(checks)), tuple(draw(beats)))


def steps(run: Run) -> Iterator[tuple[int, int, Check | Beat]]:
    """Yields the answers of checks and the arrivals of heartbeats, with their times, in order."""
    answered = [(check.sent_ms + check.there_ms + check.back_ms, check) for check in run.checks]
    arrived = [(one.sent_ms + one.delay_ms, one) for one in run.beats]
    events: list[tuple[int, Check | Beat]] = [*answered, *arrived]
    for order, (at_ms, event) in enumerate(sorted(events, key=lambda pair: pair[0])):
        yield at_ms, order, event


def ended_and_bound(run: Run, drift: Fraction) -> tuple[Fraction, int]:
    """Returns the true time at which the successor ends the session, and the bound of the last lease."""
    terms = lease_terms(T, SessionBound(kind="counted"), LeaseConfig(clock_drift=float(drift)))
    before, after = SessionTable(run.predecessor.read(0)), None
    before.begin(stored(), now_ns=run.predecessor.read(0))
    elected_ms = run.elected_ms + run.answer_ms
    bounds, ended = [0], None
    for at_ms, _, event in [*steps(run), (10 * T, 0, Beat(10 * T, 0, True))]:
        if after is None and at_ms >= elected_ms:
            now_ns = run.successor.read(ms(elected_ms))
            after = SessionTable(now_ns)
            after.take_over(stored(), now_ns=now_ns)
        if after is not None and ended is None:
            ends_ns = after.next_end_ns()
            assert ends_ns is not None
            if run.successor.when(ends_ns) <= ms(at_ms):
                ended = run.successor.when(ends_ns)
                after.expire(now_ns=ends_ns)
        if isinstance(event, Check):
            if event.sent_ms + event.there_ms < run.elected_ms:
                before.confirm(run.predecessor.read(ms(event.sent_ms)))
            continue
        if event.sent_ms == 10 * T or (event.to_successor and after is None):
            continue
        table, clock = (after, run.successor) if event.to_successor and after is not None else (before, run.predecessor)
        if table is after:
            table.confirm(clock.read(ms(at_ms)))  # the successor stays in office
        if beat(table, clock.read(ms(at_ms))) is Verdict.GRANTED:
            bounds.append(terms.bound(run.participant.read(ms(event.sent_ms))))
    assert ended is not None
    return ended, max(bounds)


def overlaps(run: Run, drift: Fraction) -> bool:
    ended, bound = ended_and_bound(run, drift)
    return run.participant.read(ended) < bound


@pytest.mark.parametrize("drift", [Fraction(0), Fraction(1, 10), Fraction(1, 3)], ids=str)
@given(data=st.data())
@settings(max_examples=at_most(200), deadline=None)
def test_successor_ends_no_session_before_the_last_lease(drift: Fraction, data: st.DataObject) -> None:
    assert not overlaps(data.draw(runs(drift)), drift)


def latest(drift: Fraction, *beats: Beat) -> Run:
    """Returns a run with the latest grant that a check allows, and the clocks that leave the least time after it."""
    slow, fast = Clock(0, Fraction(1)), Clock(0, 1 / (1 - drift))
    check, last = Check(6_000, 50, 0), Beat(6_000 + T // 3, 0, False)
    return Run(slow, slow, fast, 6_051, 0, (check,), (*beats, last))


TENTH: Final = Fraction(1, 10)


@pytest.mark.parametrize(("drift", "expected"), [(TENTH, False), (Fraction(1, 3), False), (Fraction(2, 5), True)])
def test_grace_covers_a_drift_of_a_third(drift: Fraction, expected: bool) -> None:
    assert overlaps(latest(drift), drift) is expected


def test_grace_of_one_timeout_would_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_sessions, "GRACE", Fraction(1))

    assert overlaps(latest(TENTH), TENTH)


def test_grants_without_checks_would_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    run = latest(TENTH, Beat(12_000, 0, False))
    assert not overlaps(run, TENTH)

    monkeypatch.setattr(SessionTable, "is_confirmed", lambda self, timeout_ns, *, now_ns: True)

    assert overlaps(run, TENTH)


def test_grants_after_the_decision_would_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    run = latest(TENTH, Beat(18_000, 0, True))
    assert not overlaps(run, TENTH)
    original = SessionTable.heartbeat

    def heartbeat(self: SessionTable, broker: int, epoch: int, *, received_ns: int, now_ns: int) -> Verdict:
        for session in self:
            session.phase = Phase.LIVE
        return original(self, broker, epoch, received_ns=received_ns, now_ns=now_ns)

    monkeypatch.setattr(SessionTable, "heartbeat", heartbeat)

    assert overlaps(run, TENTH)


def test_forgetting_the_grace_at_the_first_heartbeat_would_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The participant may have sent the predecessor a later heartbeat than the successor's first one."""
    run = latest(TENTH, Beat(6_060, 0, True))
    assert not overlaps(run, TENTH)
    original = SessionTable.heartbeat

    def heartbeat(self: SessionTable, broker: int, epoch: int, *, received_ns: int, now_ns: int) -> Verdict:
        for session in self:
            session.ends_ns = received_ns
        return original(self, broker, epoch, received_ns=received_ns, now_ns=now_ns)

    monkeypatch.setattr(SessionTable, "heartbeat", heartbeat)

    assert overlaps(run, TENTH)
