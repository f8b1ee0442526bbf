"""Duration statistics: count, extremes and percentiles.

The bins widen by a tenth from one to the next, from a microsecond up: a percentile is off by five per cent at the most,
and counting costs the same however much was counted.
"""

import math
from typing import Final

import msgspec

# Between two bins; 240 of them reach from a microsecond to a good two hours, longer ones count as that.
_STEP: Final = math.log(1.1)
_BINS: Final = 240
_MIN_MS: Final = 0.001


class Summary(msgspec.Struct, frozen=True):
    """Summary of the recorded durations; zeros if there are none."""

    count: int = 0
    total_ms: float = 0.0
    min_ms: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0


class Durations:
    """Statistics of durations that are added one at a time.

    Args:
        idle_ms: counts are cleared when nothing was added for so long, so that they describe the present; None keeps
            all.
    """

    def __init__(self, *, idle_ms: float | None = None) -> None:
        self._idle_ms = idle_ms
        self._last_ms = 0.0
        self._clear()

    def _clear(self) -> None:
        self._bins = [0] * _BINS
        self._count = 0
        self._total_ms = 0.0
        self._min_ms = math.inf
        self._max_ms = 0.0

    def add(self, duration_ms: float, *, now_ms: float) -> None:
        """Count one. `now_ms` is of a clock that never goes back."""
        self._forget_the_past(now_ms)
        self._last_ms = now_ms
        self._bins[_bin(duration_ms)] += 1
        self._count += 1
        self._total_ms += duration_ms
        self._min_ms = min(self._min_ms, duration_ms)
        self._max_ms = max(self._max_ms, duration_ms)

    def summary(self, *, now_ms: float) -> Summary:
        self._forget_the_past(now_ms)
        if not self._count:
            return Summary()
        return Summary(
            self._count, self._total_ms, self._min_ms, self._percentile(0.5), self._percentile(0.99), self._max_ms
        )

    def _forget_the_past(self, now_ms: float) -> None:
        if self._idle_ms is not None and self._count and now_ms - self._last_ms >= self._idle_ms:
            self._clear()

    def _percentile(self, share: float) -> float:
        """The middle of the bin in which it lies, within what was really counted."""
        wanted, seen = math.ceil(self._count * share), 0
        for at, count in enumerate(self._bins):
            seen += count
            if seen >= wanted:
                middle = _MIN_MS * math.exp((at + 0.5) * _STEP)
                return min(max(middle, self._min_ms), self._max_ms)
        return self._max_ms


def _bin(duration_ms: float) -> int:
    if duration_ms <= _MIN_MS:
        return 0
    return min(int(math.log(duration_ms / _MIN_MS) / _STEP), _BINS - 1)
