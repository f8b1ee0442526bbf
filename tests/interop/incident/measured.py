"""Comparison of the time without leaders, as estimated from logs, with the clients' measurement.

Gaps of a partition that follow each other within RETURN_S count as one time without a leader: with KRaft, a paused
broker leads for a moment until it has read the metadata log.
"""

import datetime
from collections.abc import Iterable
from typing import Any, Final

from .agreement import FORCED, name
from .facts import Facts
from .prober import Gap

# Largest relative error of the estimate for a whole incident.
SHARE_MAX: Final = 0.15
RETURN_S: Final = 10.0
# Clients send fifty requests a second, and responses are late on a busy machine.
SLACK_S: Final = 0.5

Row = dict[str, Any]
Span = tuple[float, float]


def measured_s(gaps: Iterable[Gap]) -> float:
    """Return the seconds without a leader as measured by clients, summed over partitions."""
    return sum(gap.end_high - gap.begin_low for gap in gaps)


def headline(facts: Facts, rows: list[Row]) -> list[str]:
    """Check that the estimated total is near the measurement and that its bounds contain it. Returns the errors."""
    forced = [row for row in rows if row["planned"] is False]
    real = measured_s(facts.gaps)
    guess, least = (sum(row[key] for row in forced) / 1000 for key in ("duration_ms", "duration_min_ms"))
    most = sum(row["duration_max_ms"] or 0 for row in forced) / 1000
    wrong = []
    if abs(guess - real) > SHARE_MAX * real:
        wrong.append(f"the best guess is {guess:.1f} s, and clients measured {real:.1f} s")
    if not least - SLACK_S <= real:
        wrong.append(f"no less than {least:.1f} s, and clients measured {real:.1f} s")
    if all(row["duration_max_ms"] is not None for row in forced) and real > most + SLACK_S * len(forced):
        wrong.append(f"no more than {most:.1f} s, and clients measured {real:.1f} s")
    return wrong


def bounds(facts: Facts, rows: list[Row]) -> list[str]:
    """Check that each time without a leader is one outage whose bounds contain its begin and end. Returns the
    errors."""
    wrong = []
    for partition, begin, end in _spans(facts):
        same = [row for row in rows if name(row) == partition and _at(row["begin"]) < end[0] and begin[1] < _until(row)]
        if len(same) != 1:
            wrong.append(f"{partition} from {begin} to {end} is {len(same)} outages")
            continue
        (row,) = same
        if row["cause"] not in FORCED:
            wrong.append(f"{partition} from {begin} to {end} is {row['cause']}")
        for edge, (low, high) in (("begin", begin), ("end", end)):
            least = None if row[f"{edge}_low"] is None else _at(row[f"{edge}_low"])
            most = None if row[f"{edge}_high"] is None else _at(row[f"{edge}_high"])
            if (least is not None and least > high + SLACK_S) or (most is not None and most < low - SLACK_S):
                wrong.append(f"{partition}: the {edge} {low:.3f} to {high:.3f} is not within {least} and {most}")
    return wrong


def too_late(facts: Facts, rows: list[Row]) -> list[str]:
    """Return outages whose latest end is before a paused leader could be used again."""
    wrong = []
    for pause in facts.pauses:
        for row in rows:
            if row["broker"] != pause.broker or not _at(row["begin"]) < pause.resumed_before < _until(row) + SLACK_S:
                continue
            first = min((gap.end_high for gap in facts.gaps if _is_end(gap, row, pause.resumed_before)), default=None)
            if first is not None and _at(row["end_low"]) > first:
                wrong.append(f"{name(row)} ended at {first:.3f}, not {_at(row['end_low']) - first:.3f} s later")
    return wrong


def claimed(rows: list[Row]) -> list[str]:
    """Return outages with a begin claimed as observed, although a killed broker logs nothing."""
    return [
        f"{name(row)} at {row['begin']}" for row in rows if row["planned"] is False and row["begin_kind"] == "observed"
    ]


def _is_end(gap: Gap, row: Row, resumed: float) -> bool:
    return gap.partition == name(row) and gap.begin_low < resumed and gap.end_high > resumed - SLACK_S


def _spans(facts: Facts) -> list[tuple[str, Span, Span]]:
    """Return when each partition lost its leader, and when it was available again, each between two times."""
    spans: list[tuple[str, Span, Span]] = []
    for gap in sorted(facts.gaps, key=lambda gap_: (gap_.partition, gap_.begin_low)):
        begin, end = (gap.begin_low, gap.begin_high), (gap.end_low, gap.end_high)
        if spans and spans[-1][0] == gap.partition and gap.begin_low - spans[-1][2][1] < RETURN_S and _same(gap):
            _, first, ended = spans.pop()
            # It was available within the first of the two, or permanently only after the second.
            spans.append((gap.partition, first, (ended[0], end[1])))
        else:
            spans.append((gap.partition, begin, end))
    return spans


def _same(gap: Gap) -> bool:
    return gap.leaders[0] == gap.leaders[1]


def _at(time: datetime.datetime) -> float:
    return time.timestamp()


def _until(row: Row) -> float:
    return float("inf") if row["end"] is None else _at(row["end"])
