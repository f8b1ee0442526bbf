"""Comparison of the results of forensics with the measured facts. Each disagreement is a sentence."""

import datetime
import math
from typing import Any, Final

from .facts import Cut, Facts, Kill
from .prober import Gap

# Between a leader's log line and its first response as a leader there are a lock and a scheduler, and log4j truncates
# milliseconds.
SLACK_S: Final = 0.25
# A planned change is shorter than the client can measure; its outage in the logs must be short too.
HANDOVER_MS: Final = 3000
# Records that a leader may accept in that time on a busy machine.
HANDOVER_RECORDS: Final = 500
FORCED: Final = ("broker-failure", "controller-change", "no-live-replica")

Row = dict[str, Any]
Span = tuple[float, float]


def outages(facts: Facts, rows: list[Row], *, explained: bool = True) -> list[str]:
    """Check that each gap is one outage within the gap's bounds, and that all other outages are planned changes.

    Args:
        explained: whether the logs contain the reason for moving a living leader. Otherwise the reason must stay open.
    """
    wrong = []
    outages_found = []
    for gap in facts.gaps:
        same = [row for row in rows if name(row) == gap.partition and _overlap(row, gap)]
        if len(same) != 1:
            wrong.append(f"{_say(gap)} is {len(same)} outages: {[_show(row) for row in same]}")
            continue
        outages_found.append(same[0])
        wrong += [f"{_say(gap)}: {difference} in {_show(same[0])}" for difference in _differences(facts, gap, same[0])]
        if not (_is_move(facts, same[0], explained) if _was_move(facts, gap) else _is_failure(same[0])):
            wrong.append(f"{_say(gap)}: it has another cause in {_show(same[0])}")
    for row in rows:
        if row not in outages_found and not _is_move(facts, row, explained):
            wrong.append(f"no client measured {_show(row)}")
    return wrong


def losses(facts: Facts, rows: list[Row]) -> list[str]:
    """Check that the losses of each dead broker's log are exact to the record, and that there are no others."""
    wrong = []
    matched = []
    for cut in facts.cuts:
        if cut.tail:
            same = [row for row in rows if _is_of(row, cut)]
            if len(same) != 1 or same[0]["tail_records"] != cut.tail:
                wrong.append(f"{cut} is reported as {[_show(row) for row in same]}")
            matched += same
    for row in rows:
        cuts = [cut for cut in facts.cuts if cut.partition == name(row) and cut.kept == _kept(row)]
        most = max((cut.log_end for cut in cuts), default=0)
        if row not in matched and not (_kept(row) < row["replica_log_end"] <= most or _is_handover(facts, row)):
            wrong.append(f"nothing was lost of {_show(row)}")
        committed = row["committed_records"] or 0
        least = facts.committed.get(name(row), 0) if row in matched and _is_last(facts, row) else 0
        if not least <= committed <= (row["tail_records"] if name(row) in facts.unclean else 0):
            wrong.append(f"{committed} committed records, and {least} at least, are gone in {_show(row)}")
    return wrong


def _kept(row: Row) -> int:
    """Return the offset where histories diverge: the end of the next leader's log, or the offset of truncation."""
    offset: int = row["truncated_to"] if row["log_end"] is None else row["log_end"]
    return offset


def name(row: Row) -> str:
    """Return the partition of a row."""
    return f"{row['topic']}-{row['partition']}"


def _differences(facts: Facts, gap: Gap, row: Row) -> list[str]:
    wrong = []
    begin, end = _span(row, "begin"), _span(row, "end")
    if not _meet(begin, _began(facts, gap)):
        wrong.append("the begin is outside of its bounds")
    if not _meet(end, (gap.end_low, gap.end_high)):
        wrong.append("the end is outside of its bounds")
    longest = (gap.end_high - gap.begin_low + SLACK_S) * 1000
    shortest = (gap.end_low - gap.begin_high - SLACK_S) * 1000
    if row["duration_min_ms"] > longest or (row["duration_max_ms"] or math.inf) < shortest:
        wrong.append("it was longer or shorter than it can have been")
    if not begin[0] - SLACK_S <= row["begin"].timestamp() <= begin[1] + SLACK_S:
        wrong.append("the best guess is not within the bounds")
    if (row["broker"], row["new_leader"]) != gap.leaders:
        wrong.append(f"the leaders were {gap.leaders}")
    if row["unclean"] is not None and row["unclean"] != (
        facts.unclean.get(gap.partition) == gap.leaders[1] and (_is_last_gap(facts, gap))
    ):
        wrong.append("who led afterwards was, or was not, in sync")
    return wrong


def _began(facts: Facts, gap: Gap) -> Span:
    """Return when the gap began: as measured by the client, and within the time of the kill."""
    kill = _kill(facts, gap)
    if kill is None:
        return gap.begin_low, gap.begin_high
    return max(gap.begin_low, kill.before), min(gap.begin_high, kill.after)


def _kill(facts: Facts, gap: Gap) -> Kill | None:
    """Return the kill that began the gap, or None."""
    for kill in facts.kills:
        if kill.broker == gap.leaders[0] and kill.before <= gap.begin_high and gap.begin_low <= kill.after:
            return kill
    return None


def _was_move(facts: Facts, gap: Gap) -> bool:
    """Return whether a living leader was moved on purpose; on a busy machine that can also take long enough for a
    gap."""
    within = any(change.begin <= gap.begin_high and gap.end_low <= change.end for change in facts.planned)
    return within and _kill(facts, gap) is None


def _is_failure(row: Row) -> bool:
    return row["cause"] in FORCED and row["planned"] is False


def _is_move(facts: Facts, row: Row, explained: bool) -> bool:
    """Return whether the outage is a short planned change at the time of one."""
    begin, end = _span(row, "begin"), _span(row, "end")
    return (
        (bool(row["planned"]) or (not explained and (row["planned"], row["cause"]) == (None, "unknown")))
        and row["unclean"] is not True
        and row["duration_ms"] < HANDOVER_MS
        and any(change.begin - SLACK_S <= begin[1] and end[0] <= change.end + SLACK_S for change in facts.planned)
    )


def _is_handover(facts: Facts, row: Row) -> bool:
    """Return whether the loss is a few records accepted by a living leader while the next one already led."""
    time_s = row["at"].timestamp()
    return (
        facts.was_planned(time_s, SLACK_S)
        and _kept(row) in facts.begins[name(row)]
        and 0 < row["tail_records"] <= HANDOVER_RECORDS
    )


def _is_of(row: Row, cut: Cut) -> bool:
    return (name(row), row["replica"], row["replica_log_end"], _kept(row)) == (
        cut.partition,
        cut.broker,
        cut.log_end,
        cut.kept,
    )


def _is_last(facts: Facts, row: Row) -> bool:
    """Return whether no later truncation occurred in the partition; the unclean election is the last one."""
    return all(cut.kept <= _kept(row) for cut in facts.cuts if cut.partition == name(row))


def _is_last_gap(facts: Facts, gap: Gap) -> bool:
    return gap == max(
        (other for other in facts.gaps if other.partition == gap.partition), key=lambda other: other.begin_low
    )


def _overlap(row: Row, gap: Gap) -> bool:
    begin, end = _span(row, "begin"), _span(row, "end")
    time_s = row["begin"].timestamp() if row["begin"] else begin[0]
    until = row["end"].timestamp() if row["end"] else end[1]
    return time_s < gap.end_low and until > gap.begin_high


def _span(row: Row, edge: str) -> Span:
    low, high = _seconds(row[f"{edge}_low"]), _seconds(row[f"{edge}_high"])
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def _meet(one: Span, other: Span) -> bool:
    return one[0] - SLACK_S <= other[1] and other[0] <= one[1] + SLACK_S


def _seconds(time: datetime.datetime | None) -> float | None:
    return None if time is None else time.timestamp()


def _say(gap: Gap) -> str:
    begin, end = (datetime.datetime.fromtimestamp(time_s, datetime.UTC) for time_s in (gap.begin_low, gap.end_high))
    return f"{gap.partition} {gap.leaders[0]}->{gap.leaders[1]} {begin:%H:%M:%S.%f} to {end:%H:%M:%S.%f}"


def _show(row: Row) -> str:
    return ", ".join(
        f"{key}={value:%H:%M:%S.%f}" if isinstance(value, datetime.datetime) else f"{key}={value}"
        for key, value in row.items()
        if value is not None
    )
