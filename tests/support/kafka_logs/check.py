"""The pipeline's answers held against the truth. What is wrong is said in a line each; nothing said is nothing wrong.

Times of answers are on the reference's clock, and so the truth is put on it as well. Logs have milliseconds, and so has
what is allowed. `complete` says that all brokers' logs were read: then everything has to be found; in any case, nothing
may be found that never was, and no bound may be wrong.
"""

import datetime
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Any, Final

import msgspec

from .truth import Loss, Outage, Truth

Rows = Iterable[Mapping[str, Any]]
# A line is stamped with the millisecond before; so is the other one that it is compared with.
ALLOWED_MS: Final = 2.0
# What is shorter than what clocks tell apart need not be seen.
SHORT_MS: Final = 5.0

_Key = tuple[str, int, int]
_Led = tuple[str, int, int, int, int]


class Clock:
    """The reference's clock; nobody's is that of the metadata log."""

    def __init__(self, truth: Truth, skew: Rows) -> None:
        self._truth = truth
        self.reference = min((row["reference"] for row in skew if row["reference"] is not None), default=truth.dump)

    def shows(self, time_ms: float) -> float:
        return time_ms if self.reference is None else self._truth.logged(self.reference, time_ms)


def skew(truth: Truth, rows: Rows) -> list[str]:
    """Whether each clock is as far from the reference's as it says."""
    said = []
    for row in rows:
        broker, reference = (truth.dump if row[name] is None else row[name] for name in ("broker", "reference"))
        if broker not in truth.offsets_ms or reference not in truth.offsets_ms or row["how"] == "contradictory":
            continue
        is_ = (truth.offsets_ms[broker] - truth.offsets_ms[reference]) * 1000
        low, high = row["low_us"], row["high_us"]
        if (low is not None and is_ < low - ALLOWED_MS * 1000) or (high is not None and is_ > high + ALLOWED_MS * 1000):
            said.append(f"the clock of {broker} is {is_} us from that of {reference}, not within {low} and {high}")
    return said


def outages(truth: Truth, rows: Rows, clock: Clock, *, complete: bool = True) -> list[str]:
    """Whether every forced outage is found within its bounds, and none that was not."""
    if not complete:
        truth, rows = _without_lives(truth, rows)
    found: dict[_Key, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        found[_key(row)].append(row)
    led = {(each.topic, each.partition, each.life, each.leader_epoch, each.leader) for each in truth.led}
    said = []
    used: set[int] = set()
    for real in truth.outages:
        if real.deleted or (real.end is not None and real.end - real.begin < SHORT_MS):
            continue
        mine = [row for row in found[real.topic, real.partition, real.life] if _same(real, row)]
        if not mine:
            if complete and not real.planned:
                said.append(f"not found: {_outage(real)}")
            continue
        rows_of = [] if complete else found[real.topic, real.partition, real.life]
        begun = [row for row in rows_of if _is_begin(real, row, led)]
        used.update(id(row) for row in (*mine, *begun))
        if len(mine) > 1:
            said.append(f"found {len(mine)} times: {_outage(real)}")
        lost = {real.broker, *(row["new_leader"] for row in begun)}
        said += [f"{wrong}: {_outage(real)}" for row in mine for wrong in _wrong(real, row, clock, lost, complete)]
        said += [f"{wrong}: {_outage(real)}" for row in begun for wrong in _wrong_at_first(real, row, clock)]
    for rows_of in found.values():
        for row in rows_of:
            if id(row) not in used and not row["planned"] and not _excused(truth, row, led):
                said.append(
                    f"invented: {row['topic']}-{row['partition']} life {row['life']} from {row['begin']} to "
                    f"{row['end']}, epoch {row['leader_epoch']}, {row['cause']}, {row['begin_kind']}"
                )
    return said


def _without_lives(truth: Truth, rows: Rows) -> tuple[Truth, Rows]:
    """All topics of one name are one: without the controllers' logs nobody may know that one was deleted."""
    outages = [msgspec.structs.replace(each, life=0) for each in truth.outages]
    led = [msgspec.structs.replace(each, life=0) for each in truth.led]
    return msgspec.structs.replace(truth, outages=outages, led=led), [{**row, "life": 0} for row in rows]


def _same(real: Outage, row: Mapping[str, Any]) -> bool:
    if real.end is None:
        return row["end"] is None
    return row["end"] is not None and row["leader_epoch"] == real.leader_epoch


def _is_begin(real: Outage, row: Mapping[str, Any], led: Collection[_Led]) -> bool:
    """Whether a row is of an outage up to the election of somebody who was dead by then, and so did not end it.

    Of whom there is no line, nobody can know that.
    """
    if real.leader_epoch is None or row["leader_epoch"] is None or row["new_leader"] in (None, real.broker):
        return False
    before = max((epoch for *key, epoch, _ in led if tuple(key) == _key(row) and epoch < real.leader_epoch), default=-1)
    return bool(before < row["leader_epoch"] < real.leader_epoch)


def _excused(truth: Truth, row: Mapping[str, Any], led: Collection[_Led]) -> bool:
    """Whether it was real, but too short to be asked for, or ended with its topic.

    A change of leaders that no line explains is no outage by itself; but it has to be one, and claim nothing more.
    """
    if row["planned"] is None and not row["duration_min_ms"]:
        return (*_key(row), row["leader_epoch"], row["new_leader"]) in led
    return any(
        (real.topic, real.partition, real.life) == _key(row) and (real.deleted or _same(real, row))
        for real in truth.outages
    )


def _beyond(name: str, is_: float, row: Mapping[str, Any], clock: Clock) -> list[str]:
    """What is wrong with the bounds of `begin` or `end`."""
    shown = clock.shows(is_)
    low, high = _ms(row[f"{name}_low"]), _ms(row[f"{name}_high"])
    said = []
    if low is not None and shown < low - ALLOWED_MS:
        said.append(f"{name} is {low - shown:.1f} ms before its lower bound ({row[f'{name}_kind']})")
    if high is not None and shown > high + ALLOWED_MS:
        said.append(f"{name} is {shown - high:.1f} ms after its upper bound ({row[f'{name}_kind']})")
    return said


def _wrong_at_first(real: Outage, row: Mapping[str, Any], clock: Clock) -> list[str]:
    said = _beyond("begin", real.begin, row, clock) + ([] if real.end is None else _beyond("end", real.end, row, clock))
    if row["broker"] not in (None, real.broker):
        said.append(f"it was not {row['broker']} that was lost at first")
    return said


def _wrong(real: Outage, row: Mapping[str, Any], clock: Clock, lost: Container[int], complete: bool) -> list[str]:
    said = _beyond("begin", real.begin, row, clock) + ([] if real.end is None else _beyond("end", real.end, row, clock))
    # Of a planned one it may be unknown why it was; that a leader was lost has to be seen, unless lines are missing.
    if row["planned"] is not real.planned and (row["planned"] is not None or (complete and not real.planned)):
        said.append(f"planned is {row['planned']}, by {row['cause']}")
    if row["broker"] is not None and row["broker"] not in lost:
        said.append(f"it was not {row['broker']} that was lost")
    if real.new_leader is not None and row["new_leader"] not in (None, real.new_leader):
        said.append(f"it was not {row['new_leader']} that led then")
    least, most = row["duration_min_ms"], row["duration_max_ms"]
    if real.end is not None:
        took = real.end - real.begin
        if least is not None and took < least - 2 * ALLOWED_MS:
            said.append(f"it took {took:.1f} ms, not at least {least}")
        if most is not None and took > most + 2 * ALLOWED_MS:
            said.append(f"it took {took:.1f} ms, not at most {most}")
    return said


def losses(truth: Truth, rows: Rows, *, complete: bool = True, silent: Iterable[int] = ()) -> list[str]:
    """Whether every loss is found with its right tail, no more of it called committed than was, and none invented.

    Args:
        silent: brokers whose version says nothing of where logs end.
    """
    said = []
    real: dict[tuple[str, int, int, int], list[Loss]] = defaultdict(list)
    for each in truth.losses:
        real[each.topic, each.partition, each.life, each.replica].append(each)
    matched: set[int] = set()
    for row in rows:
        theirs = [each for each in real[(*_key(row), row["replica"])] if _fits(each, row)]
        name = f"{row['topic']}-{row['partition']} at {row['replica']}, {row['tail_records']} from {row['log_end']} on"
        if not theirs:
            said.append(f"invented: {name} ({row['evidence']}), epoch {row['leader_epoch']}")
            continue
        matched.update(id(each) for each in theirs)
        committed = max(each.committed for each in theirs)
        if (row["committed_records"] or 0) > committed:
            said.append(f"{row['committed_records']} were not committed, {committed} were: {name}")
    if complete:
        for each in truth.losses:
            if each.seen and each.replica not in silent and id(each) not in matched:
                said.append(
                    f"not found: {each.topic}-{each.partition} life {each.life} at {each.replica} lost {each.tail}, "
                    f"{each.committed} of them committed, after epoch {each.after_epoch}, from {each.log_end} on"
                )
    return said


def _fits(real: Loss, row: Mapping[str, Any]) -> bool:
    if row["evidence"] == "leader":  # what an old leader said last may be less than what it had in the end
        return bool((row["tail_records"] or 0) <= real.tail and row["log_end"] >= real.log_end)
    # Without the leader's log, where its own began is only known from where the replica cut.
    end = row["truncated_to"] if row["log_end"] is None else row["log_end"]
    return bool(end == real.log_end and row["tail_records"] in (None, real.tail))


def unclean(truth: Truth, rows: Rows, *, complete: bool = True) -> list[str]:
    """Whether all unclean elections are found, and none that was not is certain."""
    real = {(each.topic, each.partition, each.life, each.leader_epoch) for each in truth.unclean}
    found = {(*_key(row), row["leader_epoch"]): row for row in rows}
    said = [f"not found: {each}" for each in sorted(real - found.keys())] if complete else []
    return said + [f"invented: {each}" for each, row in found.items() if each not in real and row["certain"]]


def controllers(truth: Truth, rows: Rows) -> list[str]:
    """Whether all controllerships are found, and no other."""
    real = {(each.controller, each.epoch) for each in truth.controllers}
    found = {(row["controller"], row["controller_epoch"]) for row in rows}
    return [f"not found: {each}" for each in sorted(real - found)] + [f"invented: {each}" for each in found - real]


def flapping(truth: Truth, rows: Rows) -> list[str]:
    """Whether what moved most is found, with the right counts of what leaders did with ISRs."""
    said = []
    found = {_key(row): row for row in rows}
    for real in truth.moves:
        row = found.get((real.topic, real.partition, real.life))
        if row is None:
            if real.shrinks + real.elections > 1:
                said.append(f"not found: {real}")
        elif row["shrinks"] < real.shrinks or row["expands"] < real.expands:
            said.append(f"{row['shrinks']} shrinks and {row['expands']} expands: {real}")
    return said


def _key(row: Mapping[str, Any]) -> _Key:
    return (row["topic"], row["partition"], row["life"])


def _ms(time_ms: datetime.datetime | None) -> float | None:
    return None if time_ms is None else time_ms.replace(tzinfo=time_ms.tzinfo or datetime.UTC).timestamp() * 1000


def _outage(real: Outage) -> str:
    begin = datetime.datetime.fromtimestamp(real.begin / 1000, datetime.UTC)
    took = "to the end" if real.end is None else f"{real.end - real.begin:.0f} ms"
    return (
        f"{real.topic}-{real.partition} life {real.life} of {real.broker} at {begin:%H:%M:%S.%f} for {took}, then "
        f"{real.new_leader} in epoch {real.leader_epoch}{', planned' if real.planned else ''}"
    )
