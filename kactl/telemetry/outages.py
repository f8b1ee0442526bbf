"""Time that partitions spend without a leader, as columns by row of the table.

A partition is without a leader from the detection of the failure until the broker that leads it next has acknowledged
all requests of the event that elected it. For a planned move the time begins with the commit: the old leader serves
until then. The time between the failure and its detection is not known here, and first leaders are not counted.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kactl.decide.messages.log import Outage
from kactl.decide.state.change import Change
from kactl.decide.state.rows import Bytes, Ints, RowNumbers
from kactl.model import PartitionState

from .event_record import EventRecord, Led

Times = np.ndarray[tuple[int], np.dtype[np.float64]]

# Upper bounds of the buckets, in seconds.
BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_BOUNDS_MS: Final = np.array(BOUNDS_S) * 1000
_US: Final = 1000
# Changes that are kept until they are evaluated; they hold their columns.
NOTED_MAX: Final = 64


class Histogram:
    """Counts and sums of durations in buckets. Any number of durations is added at once, and read at a collection.

    OpenTelemetry's histograms take one value at a time, which is too long for all partitions of a broker while its
    event is handled, and would need memory where nothing collects.
    """

    def __init__(self) -> None:
        # Two rows, counts and sums in ms, so that a collection in another thread reads both at the same moment.
        self._added = np.zeros((2, len(BOUNDS_S) + 1), np.float64)  # the last column: longer than all bounds
        self._read = self._added.copy()

    @property
    def counts(self) -> Times:
        """float64[buckets], whole numbers."""
        counts: Times = self._added[0]
        return counts

    def add(self, durations_ms: Times) -> None:
        bucket, size = np.searchsorted(_BOUNDS_MS, durations_ms), self._added.shape[1]
        self._added += np.stack(
            [np.bincount(bucket, minlength=size), np.bincount(bucket, weights=durations_ms, minlength=size)]
        )

    def unread(self, count_max: int) -> list[tuple[float, int]]:
        """Returns (mean in ms, count) of each bucket with durations that were not read yet, `count_max` at the most.

        A mean lies in the bucket of its durations, so counts and sum of what is recorded from it are exact.
        """
        result: list[tuple[float, int]] = []
        unread = self._added - self._read
        for bucket in np.flatnonzero(unread[0]).tolist():
            count, total_ms = unread[:, bucket].tolist()
            taken = min(int(count), count_max)
            count_max -= taken
            if taken:
                mean_ms = total_ms / count
                self._read[:, bucket] += (taken, taken * mean_ms)
                result.append((mean_ms, taken))
        return result


class _Change(NamedTuple):
    """A change of n rows that is not part of the columns yet; `before` is their state before."""

    rows: RowNumbers
    before: Bytes
    leader_before: Ints
    leader: Ints
    target: PartitionState
    event: EventRecord
    time_ms: float


class Outages:
    """Partitions without a leader, and the outages that have ended.

    The path of an election only notes its changes. They are evaluated once brokers have acknowledged an event, or when
    the columns are read.

    Attributes:
        planned, forced: durations of ended outages.
    """

    def __init__(self) -> None:
        self._since_ms: Times = np.zeros(0, np.float64)  # by row; NaN if it has a leader, or the begin is not known
        self._noted: list[_Change] = []
        self.planned = Histogram()
        self.forced = Histogram()

    def clear(self) -> None:
        """Forget the partitions without a leader: another instance may have elected one meanwhile."""
        self._since_ms = np.zeros(0, np.float64)
        self._noted.clear()

    def note(self, change: Change, target: PartitionState, event: EventRecord, time_ms: float) -> None:
        """Note that an event has moved all partitions of an applied change to a state."""
        rows = change.rows
        self._noted.append(_Change(rows.index, rows.state, rows.leader, change.leader, target, event, time_ms))
        if len(self._noted) >= NOTED_MAX:
            self._evaluate()

    def oldest_ms(self, now_ms: float) -> float:
        """Returns for how long a partition has been without a leader; 0 if none is known to be."""
        self._evaluate()
        since_ms = self._since_ms[~np.isnan(self._since_ms)]
        return now_ms - float(since_ms.min()) if len(since_ms) else 0.0

    def ended(self, event: EventRecord) -> Outage | None:
        """Count the outages that an event has ended. Returns their summary; None if there are none."""
        if not event.notified:
            return None
        self._evaluate()
        if not event.chunks_led:
            return None
        leader, since_ms, planned = (_joined(event.chunks_led, field) for field in range(3))
        durations_ms = _acked_ms(event, leader) - since_ms
        # A leader that failed before it could acknowledge ended no outage.
        counted = ~np.isnan(durations_ms)
        durations_ms, planned = np.maximum(durations_ms[counted], 0.0), planned[counted]
        if not len(durations_ms):
            return None
        self.planned.add(durations_ms[planned])
        self.forced.add(durations_ms[~planned])
        return Outage(
            len(durations_ms),
            int(np.count_nonzero(planned)),
            round(float(np.median(durations_ms)) * _US),
            round(float(durations_ms.max()) * _US),
        )

    def _evaluate(self) -> None:
        noted, self._noted = self._noted, []
        for one in noted:
            rows = one.rows
            self._make_room(rows)
            if one.target == PartitionState.ONLINE:
                self._came(one)
            elif one.target == PartitionState.OFFLINE:
                since_ms = self._since_ms[rows]
                self._since_ms[rows] = np.where(np.isnan(since_ms), one.event.detected_ms, since_ms)
            else:
                self._since_ms[rows] = np.nan  # created or deleted

    def _came(self, one: _Change) -> None:
        """Give the partitions that have a leader to the event, which waits for the acknowledgement."""
        led = one.leader >= 0
        had_none = (one.before == PartitionState.OFFLINE) | (one.leader != one.leader_before)
        which = np.flatnonzero(led & had_none & (one.before != PartitionState.NEW))
        rows, planned = one.rows[which], one.before[which] == PartitionState.ONLINE
        since_ms = np.where(planned, one.time_ms, self._since_ms[rows])
        one.event.chunks_led.append(Led(one.leader[which], since_ms, planned))
        self._since_ms[one.rows[led]] = np.nan

    def _make_room(self, rows: RowNumbers) -> None:
        missing = int(rows.max(initial=-1)) + 1 - len(self._since_ms)
        if missing > 0:
            self._since_ms = np.concatenate([self._since_ms, np.full(missing + len(self._since_ms), np.nan)])


def _joined(chunks: Sequence[Led], field: int) -> Any:
    return np.concatenate([chunk[field] for chunk in chunks])


def _acked_ms(event: EventRecord, leader: Ints) -> Times:
    """Returns for each leader when it had acknowledged all requests of an event; NaN if it has not."""
    acked = {broker: one.acked_ms for broker, one in event.notified.items() if one.acked_ms is not None}
    brokers = np.array(sorted(acked), np.int32)
    if not len(brokers):
        return np.full(len(leader), np.nan)
    times = np.array([acked[broker] for broker in brokers.tolist()])
    found = np.minimum(np.searchsorted(brokers, leader), len(brokers) - 1)
    result: Times = np.where(brokers[found] == leader, times[found], np.nan)
    return result
