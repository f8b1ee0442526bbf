"""What belongs together, without Spark."""

from hypothesis import given
from hypothesis import strategies as st

from kactl.forensics.report.incidents import QUIET_US, SLOTS, Interval, merge, slot_us

MINUTE = 60_000_000
spans = st.lists(
    st.tuples(st.integers(0, 500 * MINUTE), st.integers(0, 30 * MINUTE)).map(lambda each: (each[0], sum(each))),
    min_size=1,
    max_size=40,
)


def by_bucket(found: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """As Spark sums them up."""
    buckets: dict[int, list[tuple[int, int]]] = {}
    for begin, end in found:
        buckets.setdefault(begin // QUIET_US, []).append((begin, end))
    return [(bucket, min(each)[0], max(end for _, end in each)) for bucket, each in buckets.items()]


def by_hand(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Each span against all before it."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(found):
        if merged and begin - merged[-1][1] < QUIET_US:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


@given(spans)
def test_buckets_give_the_same_incidents_as_every_span_by_itself(found: list[tuple[int, int]]) -> None:
    merged = merge(by_bucket(found))

    assert [(each.begin, each.end) for each in merged] == by_hand(found)
    buckets = [bucket for each in merged for bucket in each.buckets]
    assert len(buckets) == len(set(buckets))  # so a row finds one incident by its bucket
    assert set(buckets) == {begin // QUIET_US for begin, _ in found}


@given(st.integers(0, 10**15), st.integers(0, 10**13))
def test_all_of_an_incident_lies_in_its_slots(begin: int, length: int) -> None:
    slot = slot_us(Interval(begin, begin + length, (0,)))

    assert slot >= 1000
    assert length // slot < SLOTS
