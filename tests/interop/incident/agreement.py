"""Whether what was read from logs agrees with what was seen; each disagreement is a sentence."""

import datetime
import math
from typing import Any, Final

from .facts import Cut, Facts, Kill
from .prober import Gap

# Between the line in which a leader says that it leads and its first answer as one there are a lock and a scheduler,
# and log4j cuts milliseconds off.
SLACK_S: Final = 0.25
# Of a planned change the client sees less than it can measure; what the logs make of it may not be long either.
HANDOVER_MS: Final = 3000
# What a leader may take in that time, on a busy machine.
HANDOVER_RECORDS: Final = 500
FORCED: Final = ("broker-failure", "controller-change", "no-live-replica")

Row = dict[str, Any]
Span = tuple[float, float]


def outages(facts: Facts, rows: list[Row], *, explained: bool = True) -> list[str]:
    """Each gap is one outage, whose bounds it keeps; and there is no other one, but for planned changes.

    Args:
        explained: whether anything that was read says why a living leader is moved; else that has to stay open.
    """
    wrong = []
    found = []
    for gap in facts.gaps:
        same = [row for row in rows if name(row) == gap.partition and _overlap(row, gap)]
        if len(same) != 1:
            wrong.append(f"{_say(gap)} is {len(same)} outages: {[_show(row) for row in same]}")
            continue
        found.append(same[0])
        wrong += [f"{_say(gap)}: {each} in {_show(same[0])}" for each in _differences(facts, gap, same[0])]
        if not (_is_move(facts, same[0], explained) if _was_move(facts, gap) else _is_failure(same[0])):
            wrong.append(f"{_say(gap)}: it has another cause in {_show(same[0])}")
    for row in rows:
        if row not in found and not _is_move(facts, row, explained):
            wrong.append(f"nobody saw {_show(row)}")
    return wrong


def losses(facts: Facts, rows: list[Row]) -> list[str]:
    """What is gone of each dead broker's log is told to the record, and nothing else is."""
    wrong = []
    matched = []
    for cut in facts.cuts:
        if cut.tail:
            same = [row for row in rows if _is_of(row, cut)]
            if len(same) != 1 or same[0]["tail_records"] != cut.tail:
                wrong.append(f"{cut} is told as {[_show(row) for row in same]}")
            matched += same
    for row in rows:
        cuts = [each for each in facts.cuts if each.partition == name(row) and each.kept == _kept(row)]
        most = max((each.log_end for each in cuts), default=0)
        if row not in matched and not (_kept(row) < row["replica_log_end"] <= most or _is_handover(facts, row)):
            wrong.append(f"nothing was lost of {_show(row)}")
        committed = row["committed_records"] or 0
        least = facts.committed.get(name(row), 0) if row in matched and _is_last(facts, row) else 0
        if not least <= committed <= (row["tail_records"] if name(row) in facts.unclean else 0):
            wrong.append(f"{committed} committed records, and {least} at least, are gone in {_show(row)}")
    return wrong


def _kept(row: Row) -> int:
    """From where on history differs: where the next leader's log ended, or where this one was cut to."""
    kept: int = row["truncated_to"] if row["log_end"] is None else row["log_end"]
    return kept


def name(row: Row) -> str:
    """The partition of a row."""
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
    """When it began: as the client saw it, and within the time of the kill."""
    kill = _kill(facts, gap)
    if kill is None:
        return gap.begin_low, gap.begin_high
    return max(gap.begin_low, kill.before), min(gap.begin_high, kill.after)


def _kill(facts: Facts, gap: Gap) -> Kill | None:
    """The kill with which it began, if it did with one."""
    for kill in facts.kills:
        if kill.broker == gap.leaders[0] and kill.before <= gap.begin_high and gap.begin_low <= kill.after:
            return kill
    return None


def _was_move(facts: Facts, gap: Gap) -> bool:
    """Whether a living leader was moved on purpose: on a busy machine that, too, may take long enough to be a gap."""
    within = any(each.begin <= gap.begin_high and gap.end_low <= each.end for each in facts.planned)
    return within and _kill(facts, gap) is None


def _is_failure(row: Row) -> bool:
    return row["cause"] in FORCED and row["planned"] is False


def _is_move(facts: Facts, row: Row, explained: bool) -> bool:
    """Whether it is told as a change that somebody wanted, at that time, and short."""
    begin, end = _span(row, "begin"), _span(row, "end")
    return (
        (bool(row["planned"]) or (not explained and (row["planned"], row["cause"]) == (None, "unknown")))
        and row["unclean"] is not True
        and row["duration_ms"] < HANDOVER_MS
        and any(each.begin - SLACK_S <= begin[1] and end[0] <= each.end + SLACK_S for each in facts.planned)
    )


def _is_handover(facts: Facts, row: Row) -> bool:
    """Whether it is what a living leader took while the next one led already: some few, at the begin of an epoch."""
    at = row["at"].timestamp()
    return (
        facts.was_planned(at, SLACK_S)
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
    """Whether nothing was cut later in this partition; the unclean election is the last one of all."""
    return all(each.kept <= _kept(row) for each in facts.cuts if each.partition == name(row))


def _is_last_gap(facts: Facts, gap: Gap) -> bool:
    return gap == max((each for each in facts.gaps if each.partition == gap.partition), key=lambda each: each.begin_low)


def _overlap(row: Row, gap: Gap) -> bool:
    begin, end = _span(row, "begin"), _span(row, "end")
    at = row["begin"].timestamp() if row["begin"] else begin[0]
    until = row["end"].timestamp() if row["end"] else end[1]
    return at < gap.end_low and until > gap.begin_high


def _span(row: Row, what: str) -> Span:
    low, high = _seconds(row[f"{what}_low"]), _seconds(row[f"{what}_high"])
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def _meet(one: Span, other: Span) -> bool:
    return one[0] - SLACK_S <= other[1] and other[0] <= one[1] + SLACK_S


def _seconds(at: datetime.datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _say(gap: Gap) -> str:
    begin, end = (datetime.datetime.fromtimestamp(at, datetime.UTC) for at in (gap.begin_low, gap.end_high))
    return f"{gap.partition} {gap.leaders[0]}->{gap.leaders[1]} {begin:%H:%M:%S.%f} to {end:%H:%M:%S.%f}"


def _show(row: Row) -> str:
    return ", ".join(
        f"{key}={value:%H:%M:%S.%f}" if isinstance(value, datetime.datetime) else f"{key}={value}"
        for key, value in row.items()
        if value is not None
    )
