"""Grouping of failures into incidents, without Spark."""

from hypothesis import given
from hypothesis import strategies as st

from kactl.forensics.report.incidents import QUIET_US, SLOTS, Interval, merge, slot_us

MINUTE = 60_000_000
_SPANS = st.lists(
    st.tuples(st.integers(0, 500 * MINUTE), st.integers(0, 30 * MINUTE)).map(lambda span: (span[0], sum(span))),
    min_size=1,
    max_size=40,
)


def by_bucket(spans: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Returns the sums of each bucket, as Spark computes them."""
    buckets: dict[int, list[tuple[int, int]]] = {}
    for begin, end in spans:
        buckets.setdefault(begin // QUIET_US, []).append((begin, end))
    return [(bucket, min(spans)[0], max(end for _, end in spans)) for bucket, spans in buckets.items()]


def by_hand(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the incidents by comparing each span with all before it."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin - merged[-1][1] < QUIET_US:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


@given(_SPANS)
def test_incidents_by_bucket_equal_incidents_by_span(spans: list[tuple[int, int]]) -> None:
    merged = merge(by_bucket(spans))

    assert [(interval.begin, interval.end) for interval in merged] == by_hand(spans)
    buckets = [bucket for interval in merged for bucket in interval.buckets]
    assert len(buckets) == len(set(buckets))  # a row belongs to one incident by its bucket
    assert set(buckets) == {begin // QUIET_US for begin, _ in spans}


@given(st.integers(0, 10**15), st.integers(0, 10**13))
def test_slots_contain_all_of_an_incident(begin: int, length: int) -> None:
    slot = slot_us(Interval(begin, begin + length, (0,)))

    assert slot >= 1000
    assert length // slot < SLOTS
