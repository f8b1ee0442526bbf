"""Histograms of durations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.telemetry.event_records import Durations, Summary


def test_empty_histogram_has_zeros() -> None:
    assert Durations().summary(now_ms=5) == Summary()


@given(st.lists(st.floats(0.002, 3_600_000), min_size=1, max_size=50))
def test_percentiles_are_within_ten_percent(taken: list[float]) -> None:
    durations = Durations()
    for value in taken:
        durations.add(value, now_ms=0)

    summary = durations.summary(now_ms=0)

    assert (summary.count, summary.min_ms, summary.max_ms) == (len(taken), min(taken), max(taken))
    assert summary.total_ms == pytest.approx(sum(taken))
    for share, value in ((50, summary.p50_ms), (99, summary.p99_ms)):
        assert value == pytest.approx(np.percentile(taken, share, method="inverted_cdf"), rel=0.1)


@pytest.mark.parametrize("taken", [0.0, 1e-9, 1e12])
def test_values_outside_the_bins_count_in_the_outer_bins(taken: float) -> None:
    durations = Durations()

    durations.add(taken, now_ms=0)

    assert durations.summary(now_ms=0).p50_ms == taken


def test_old_values_are_discarded_after_a_pause() -> None:
    durations = Durations(idle_ms=300_000)
    durations.add(7, now_ms=0)

    assert durations.summary(now_ms=299_999).count == 1
    assert durations.summary(now_ms=300_000) == Summary()

    durations.add(1, now_ms=300_001)
    durations.add(2, now_ms=700_000)
    assert durations.summary(now_ms=700_000).min_ms == 2
