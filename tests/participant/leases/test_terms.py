"""Deadlines of leases, compared with a model of two clocks that drift."""

import dataclasses
from fractions import Fraction
from typing import Final

import hypothesis.strategies as st
import pytest
from hypothesis import find, given

from kactl.model.errors import BadRequest
from kactl.participant.leases.terms import NS_PER_MS, LeaseConfig, LeaseTerms, lease_terms
from kactl.stores.base import SessionBound

COUNTED = SessionBound(kind="counted")
WITNESSED = SessionBound(kind="witnessed")
SAME = SessionBound(kind="counted", same_clock=True)
SEGMENT_NS: Final = 500 * NS_PER_MS


@dataclasses.dataclass(frozen=True)
class TwoClocks:
    """A participant's clock and a store's, as functions of the true time. Both start anywhere, and change their rates.

    The rates of one segment differ by at most `drift`: 1 - drift <= participant / store <= 1 / (1 - drift).
    """

    drift: Fraction
    offsets_ns: tuple[int, int]
    rates: tuple[tuple[Fraction, Fraction], ...]  # of each segment; the last one has no end

    def participant(self, true_ns: Fraction) -> Fraction:
        return self._reading(true_ns, 0)

    def store(self, true_ns: Fraction) -> Fraction:
        return self._reading(true_ns, 1)

    def _reading(self, true_ns: Fraction, which: int) -> Fraction:
        reading, left = Fraction(self.offsets_ns[which]), true_ns
        for rates in self.rates[:-1]:
            step = min(left, Fraction(SEGMENT_NS))
            reading, left = reading + step * rates[which], left - step
        return reading + left * self.rates[-1][which]

    def when_store_shows(self, store_ns: Fraction) -> Fraction:
        """Returns the true time at which the store's clock shows a reading."""
        true_ns, reading = Fraction(0), Fraction(self.offsets_ns[1])
        for _, rate in self.rates[:-1]:
            if reading + SEGMENT_NS * rate >= store_ns:
                return true_ns + (store_ns - reading) / rate
            true_ns, reading = true_ns + SEGMENT_NS, reading + SEGMENT_NS * rate
        return true_ns + (store_ns - reading) / self.rates[-1][1]


@st.composite
def two_clocks(draw: st.DrawFn, drift: Fraction) -> TwoClocks:
    offsets = st.integers(0, 10**15)
    tenths = st.integers(0, 20).map(lambda step: Fraction(step, 20))
    rates = []
    for _ in range(draw(st.integers(1, 6))):
        store = 1 + (draw(tenths) - Fraction(1, 2)) / 5
        low, high = 1 - drift, 1 / (1 - drift)
        rates.append((store * (low + (high - low) * draw(tenths)), store))
    return TwoClocks(drift, (draw(offsets), draw(offsets)), tuple(rates))


@dataclasses.dataclass(frozen=True)
class Renewal:
    """A renewal in true time.

    Attributes:
        answered: whether its response reaches the participant.
    """

    sent_ns: int
    delay_ns: int
    answered: bool


renewals = st.lists(
    st.builds(
        Renewal,
        sent_ns=st.integers(0, 3_000 * NS_PER_MS),
        delay_ns=st.integers(0, 1_500 * NS_PER_MS),
        answered=st.booleans(),
    ),
    max_size=6,
).map(lambda drawn: [Renewal(0, 0, True), *drawn])


def configs(drift: Fraction) -> LeaseConfig:
    return LeaseConfig(clock_drift=float(drift))


def accepted_by_store(clocks: TwoClocks, sent: list[Renewal], timeout_ns: int) -> tuple[list[Renewal], Fraction]:
    """Returns the renewals that the store accepts, and the true time at which the session ends."""
    ends: Fraction | None = None
    accepted = []
    for one in sorted(sent, key=lambda one: one.sent_ns + one.delay_ns):
        received = Fraction(one.sent_ns + one.delay_ns)
        if ends is None or received < ends:
            ends = clocks.when_store_shows(clocks.store(received) + timeout_ns)
            accepted.append(one)
    assert ends is not None
    return accepted, ends


def read(clock_ns: Fraction) -> int:
    """A reading of a clock is a whole number, and never ahead of the clock."""
    return clock_ns.numerator // clock_ns.denominator


def last_counted(clocks: TwoClocks, sent: list[Renewal]) -> int:
    return max(read(clocks.participant(Fraction(one.sent_ns))) for one in sent if one.answered)


DRIFTS = (Fraction(0), Fraction(1, 10), Fraction(2, 5))


@pytest.mark.parametrize("drift", DRIFTS, ids=str)
@given(data=st.data())
def test_counted_session_outlives_the_bound(drift: Fraction, data: st.DataObject) -> None:
    clocks, sent = data.draw(two_clocks(drift)), data.draw(renewals)
    timeout_ms = data.draw(st.integers(600, 20_000))
    terms = lease_terms(timeout_ms, COUNTED, configs(drift))

    accepted, ended = accepted_by_store(clocks, sent, timeout_ms * NS_PER_MS)

    bound = terms.bound(last_counted(clocks, accepted))
    assert clocks.participant(ended) >= bound
    assert bound - terms.deadline(last_counted(clocks, accepted)) == terms.margin_ns


@pytest.mark.parametrize("drift", DRIFTS, ids=str)
@given(data=st.data())
def test_next_leader_waits_beyond_the_bound_of_a_witnessed_session(drift: Fraction, data: st.DataObject) -> None:
    """A renewal proves only that the session stood when it was received. It may end a moment later."""
    clocks, sent = data.draw(two_clocks(drift)), data.draw(renewals)
    wait_ms = data.draw(st.integers(500, 20_000))
    config = LeaseConfig(clock_drift=float(drift), handover_wait_ms=wait_ms, margin_ms=50)
    terms = lease_terms(30_000, WITNESSED, config)
    vanished = max(Fraction(one.sent_ns) for one in sent if one.answered)

    begins = clocks.when_store_shows(clocks.store(vanished) + wait_ms * NS_PER_MS)

    assert clocks.participant(begins) >= terms.bound(last_counted(clocks, sent))


def test_counting_from_the_response_would_overlap() -> None:
    """The model can tell a wrong rule from the right one."""
    drift = Fraction(1, 10)
    terms = lease_terms(2_000, COUNTED, configs(drift))

    def overlaps(case: tuple[TwoClocks, list[Renewal]]) -> bool:
        clocks, sent = case
        accepted, ended = accepted_by_store(clocks, sent, 2_000 * NS_PER_MS)
        answered = max(one.sent_ns + 2 * one.delay_ns for one in accepted if one.answered)
        return clocks.participant(ended) < terms.bound(read(clocks.participant(Fraction(answered))))

    assert find(st.tuples(two_clocks(drift), renewals), overlaps)


def test_ignoring_the_drift_would_overlap() -> None:
    drift = Fraction(1, 10)
    terms = lease_terms(2_000, SAME, configs(drift))

    def overlaps(case: tuple[TwoClocks, list[Renewal]]) -> bool:
        clocks, sent = case
        accepted, ended = accepted_by_store(clocks, sent, 2_000 * NS_PER_MS)
        return clocks.participant(ended) < terms.bound(last_counted(clocks, accepted))

    assert find(st.tuples(two_clocks(drift), renewals), overlaps)


@pytest.mark.parametrize(
    ("timeout_ms", "bound", "config", "length_ms", "margin_ms"),
    [
        (18_000, SAME, LeaseConfig(), 18_000, 1_800),
        (18_000, COUNTED, LeaseConfig(), 16_200, 1_800),
        (18_000, COUNTED, LeaseConfig(clock_drift=0), 18_000, 1_800),
        (18_000, WITNESSED, LeaseConfig(), 10_800, 1_800),
        (18_000, WITNESSED, LeaseConfig(handover_wait_ms=6_000), 5_400, 1_800),
        (500, SAME, LeaseConfig(), 500, 100),
        (200, SAME, LeaseConfig(), 200, 50),
        (500, SAME, LeaseConfig(margin_ms=20), 500, 20),
        (500, SessionBound(kind="counted", same_clock=True, resolution_ns=NS_PER_MS), LeaseConfig(), 499, 100),
    ],
)
def test_terms_of_a_session(
    timeout_ms: int, bound: SessionBound, config: LeaseConfig, length_ms: int, margin_ms: int
) -> None:
    terms = lease_terms(timeout_ms, bound, config)

    assert abs(terms.length_ns - length_ms * NS_PER_MS) <= 1  # a drift of 0.1 is no exact number
    assert terms.margin_ns == margin_ms * NS_PER_MS
    assert terms.deadline(7) == LeaseTerms(terms.length_ns, 0).bound(7) - terms.margin_ns


@pytest.mark.parametrize(
    ("field", "config"),
    [
        ("clock_drift", {"clock_drift": 0.5}),
        ("clock_drift", {"clock_drift": -0.1}),
        ("renewals", {"renewals": 3}),
        ("margin_ms", {"margin_ms": -1}),
        ("handover_wait_ms", {"handover_wait_ms": 0}),
    ],
)
def test_impossible_settings_are_rejected(field: str, config: dict[str, float]) -> None:
    with pytest.raises(BadRequest, match=field):
        LeaseConfig(**config)  # type: ignore[arg-type]


def test_margin_that_leaves_no_lease_is_rejected() -> None:
    with pytest.raises(BadRequest, match="a longer session_timeout_ms"):
        lease_terms(500, COUNTED, LeaseConfig(margin_ms=450))
