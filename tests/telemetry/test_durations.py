"""How long something took, time and again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.telemetry.durations import Durations, Summary


def test_nothing_counted_is_zeros() -> None:
    assert Durations().summary(now_ms=5) == Summary()


@given(st.lists(st.floats(0.002, 3_600_000), min_size=1, max_size=50))
def test_percentiles_are_off_by_a_tenth_at_the_most(taken: list[float]) -> None:
    durations = Durations()
    for each in taken:
        durations.add(each, now_ms=0)

    found = durations.summary(now_ms=0)

    assert (found.count, found.min_ms, found.max_ms) == (len(taken), min(taken), max(taken))
    assert found.total_ms == pytest.approx(sum(taken))
    for share, value in ((50, found.p50_ms), (99, found.p99_ms)):
        assert value == pytest.approx(np.percentile(taken, share, method="inverted_cdf"), rel=0.1)


@pytest.mark.parametrize("taken", [0.0, 1e-9, 1e12])
def test_what_lies_outside_the_bins_counts_at_their_ends(taken: float) -> None:
    durations = Durations()

    durations.add(taken, now_ms=0)

    assert durations.summary(now_ms=0).p50_ms == taken


def test_the_past_is_forgotten_after_a_rest() -> None:
    durations = Durations(idle_ms=300_000)
    durations.add(7, now_ms=0)

    assert durations.summary(now_ms=299_999).count == 1
    assert durations.summary(now_ms=300_000) == Summary()

    durations.add(1, now_ms=300_001)
    durations.add(2, now_ms=700_000)
    assert durations.summary(now_ms=700_000).min_ms == 2
