"""Comparison of the pipeline's results with the history. Functions return one line per error.

Times of results are on the reference clock, so times of the history are converted to it. Logs have a resolution of
milliseconds, which determines the tolerance. With `complete`, the logs of all brokers were read, and everything must be
found. In any case, no result may be invented and no bound may be wrong.
"""

import datetime
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Any, Final

import msgspec

from .truth import Loss, Outage, Truth

Rows = Iterable[Mapping[str, Any]]
# Times are truncated to milliseconds, in both of the lines that are compared.
ALLOWED_MS: Final = 2.0
# A shorter outage cannot be resolved by the clocks.
SHORT_MS: Final = 5.0

_Key = tuple[str, int, int]
_Led = tuple[str, int, int, int, int]


class Clock:
    """The reference clock; without a reference, that of the metadata log."""

    def __init__(self, truth: Truth, skew: Rows) -> None:
        self._truth = truth
        self.reference = min((row["reference"] for row in skew if row["reference"] is not None), default=truth.dump)

    def shows(self, time_ms: float) -> float:
        return time_ms if self.reference is None else self._truth.logged(self.reference, time_ms)


def skew(truth: Truth, rows: Rows) -> list[str]:
    """Compares the offsets of clocks from the reference clock."""
    errors = []
    for row in rows:
        broker, reference = (truth.dump if row[name] is None else row[name] for name in ("broker", "reference"))
        if broker not in truth.offsets_ms or reference not in truth.offsets_ms or row["how"] == "contradictory":
            continue
        is_ = (truth.offsets_ms[broker] - truth.offsets_ms[reference]) * 1000
        low, high = row["low_us"], row["high_us"]
        if (low is not None and is_ < low - ALLOWED_MS * 1000) or (high is not None and is_ > high + ALLOWED_MS * 1000):
            errors.append(f"the clock of {broker} is {is_} us from that of {reference}, not within {low} and {high}")
    return errors


def outages(truth: Truth, rows: Rows, clock: Clock, *, complete: bool = True) -> list[str]:
    """Checks that every unplanned outage is found within its bounds, and no other."""
    if not complete:
        truth, rows = _without_lives(truth, rows)
    by_partition: dict[_Key, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_partition[_key(row)].append(row)
    led = {(item.topic, item.partition, item.life, item.leader_epoch, item.leader) for item in truth.led}
    errors = []
    used: set[int] = set()
    for real in truth.outages:
        if real.deleted or (real.end is not None and real.end - real.begin < SHORT_MS):
            continue
        matching = [row for row in by_partition[real.topic, real.partition, real.life] if _same(real, row)]
        if not matching:
            if complete and not real.planned:
                errors.append(f"not found: {_outage(real)}")
            continue
        same_partition = [] if complete else by_partition[real.topic, real.partition, real.life]
        begun = [row for row in same_partition if _is_begin(real, row, led)]
        used.update(id(row) for row in (*matching, *begun))
        if len(matching) > 1:
            errors.append(f"found {len(matching)} times: {_outage(real)}")
        lost = {real.broker, *(row["new_leader"] for row in begun)}
        errors += [
            f"{wrong}: {_outage(real)}" for row in matching for wrong in _wrong(real, row, clock, lost, complete)
        ]
        errors += [f"{wrong}: {_outage(real)}" for row in begun for wrong in _wrong_at_first(real, row, clock)]
    for same_partition in by_partition.values():
        for row in same_partition:
            if id(row) not in used and not row["planned"] and not _excused(truth, row, led):
                errors.append(
                    f"invented: {row['topic']}-{row['partition']} life {row['life']} from {row['begin']} to "
                    f"{row['end']}, epoch {row['leader_epoch']}, {row['cause']}, {row['begin_kind']}"
                )
    return errors


def _without_lives(truth: Truth, rows: Rows) -> tuple[Truth, Rows]:
    """Treats topics of the same name as one: without controller logs, deletions may not be known."""
    outages = [msgspec.structs.replace(item, life=0) for item in truth.outages]
    led = [msgspec.structs.replace(item, life=0) for item in truth.led]
    return msgspec.structs.replace(truth, outages=outages, led=led), [{**row, "life": 0} for row in rows]


def _same(real: Outage, row: Mapping[str, Any]) -> bool:
    if real.end is None:
        return row["end"] is None
    return row["end"] is not None and row["leader_epoch"] == real.leader_epoch


def _is_begin(real: Outage, row: Mapping[str, Any], led: Collection[_Led]) -> bool:
    """Returns whether a row is the first part of an outage, up to the election of a broker that was already dead.

    If there is no line of that broker, its election seems to end the outage.
    """
    if real.leader_epoch is None or row["leader_epoch"] is None or row["new_leader"] in (None, real.broker):
        return False
    before = max((epoch for *key, epoch, _ in led if tuple(key) == _key(row) and epoch < real.leader_epoch), default=-1)
    return bool(before < row["leader_epoch"] < real.leader_epoch)


def _excused(truth: Truth, row: Mapping[str, Any], led: Collection[_Led]) -> bool:
    """Returns whether a row was real but too short to be required, or ended with its topic.

    A change of leader that no line explains is no outage by itself, but it must have happened and must claim no
    duration.
    """
    if row["planned"] is None and not row["duration_min_ms"]:
        return (*_key(row), row["leader_epoch"], row["new_leader"]) in led
    return any(
        (real.topic, real.partition, real.life) == _key(row) and (real.deleted or _same(real, row))
        for real in truth.outages
    )


def _beyond(name: str, is_: float, row: Mapping[str, Any], clock: Clock) -> list[str]:
    """Returns the errors in the bounds of `begin` or `end`."""
    shown = clock.shows(is_)
    low, high = _ms(row[f"{name}_low"]), _ms(row[f"{name}_high"])
    errors = []
    if low is not None and shown < low - ALLOWED_MS:
        errors.append(f"{name} is {low - shown:.1f} ms before its lower bound ({row[f'{name}_kind']})")
    if high is not None and shown > high + ALLOWED_MS:
        errors.append(f"{name} is {shown - high:.1f} ms after its upper bound ({row[f'{name}_kind']})")
    return errors


def _wrong_at_first(real: Outage, row: Mapping[str, Any], clock: Clock) -> list[str]:
    errors = _beyond("begin", real.begin, row, clock) + (
        [] if real.end is None else _beyond("end", real.end, row, clock)
    )
    if row["broker"] not in (None, real.broker):
        errors.append(f"the first broker lost was not {row['broker']}")
    return errors


def _wrong(real: Outage, row: Mapping[str, Any], clock: Clock, lost: Container[int], complete: bool) -> list[str]:
    errors = _beyond("begin", real.begin, row, clock) + (
        [] if real.end is None else _beyond("end", real.end, row, clock)
    )
    # The cause of a planned outage may be unknown. The loss of a leader must be recognised unless lines are missing.
    if row["planned"] is not real.planned and (row["planned"] is not None or (complete and not real.planned)):
        errors.append(f"planned is {row['planned']}, by {row['cause']}")
    if row["broker"] is not None and row["broker"] not in lost:
        errors.append(f"the broker lost was not {row['broker']}")
    if real.new_leader is not None and row["new_leader"] not in (None, real.new_leader):
        errors.append(f"the new leader was not {row['new_leader']}")
    least, most = row["duration_min_ms"], row["duration_max_ms"]
    if real.end is not None:
        took = real.end - real.begin
        if least is not None and took < least - 2 * ALLOWED_MS:
            errors.append(f"it took {took:.1f} ms, not at least {least}")
        if most is not None and took > most + 2 * ALLOWED_MS:
            errors.append(f"it took {took:.1f} ms, not at most {most}")
    return errors


def losses(truth: Truth, rows: Rows, *, complete: bool = True, silent: Iterable[int] = ()) -> list[str]:
    """Checks that every loss is found with the right tail, without too many committed records, and no other.

    Args:
        silent: brokers of a version that does not log the ends of logs.
    """
    errors = []
    real: dict[tuple[str, int, int, int], list[Loss]] = defaultdict(list)
    for loss in truth.losses:
        real[loss.topic, loss.partition, loss.life, loss.replica].append(loss)
    matched: set[int] = set()
    for row in rows:
        matching = [item for item in real[(*_key(row), row["replica"])] if _fits(item, row)]
        name = f"{row['topic']}-{row['partition']} at {row['replica']}, {row['tail_records']} from {row['log_end']} on"
        if not matching:
            errors.append(f"invented: {name} ({row['evidence']}), epoch {row['leader_epoch']}")
            continue
        matched.update(id(item) for item in matching)
        committed = max(item.committed for item in matching)
        if (row["committed_records"] or 0) > committed:
            errors.append(f"{row['committed_records']} were not committed, {committed} were: {name}")
    if complete:
        for item in truth.losses:
            if item.seen and item.replica not in silent and id(item) not in matched:
                errors.append(
                    f"not found: {item.topic}-{item.partition} life {item.life} at {item.replica} lost {item.tail}, "
                    f"{item.committed} of them committed, after epoch {item.after_epoch}, from {item.log_end} on"
                )
    return errors


def _fits(real: Loss, row: Mapping[str, Any]) -> bool:
    if row["evidence"] == "leader":  # the last logged end of an old leader may be below its real end
        return bool((row["tail_records"] or 0) <= real.tail and row["log_end"] >= real.log_end)
    # Without the leader's log, the offset is only known from the replica's truncation.
    end = row["truncated_to"] if row["log_end"] is None else row["log_end"]
    return bool(end == real.log_end and row["tail_records"] in (None, real.tail))


def unclean(truth: Truth, rows: Rows, *, complete: bool = True) -> list[str]:
    """Checks that all unclean elections are found, and that no other one is certain."""
    real = {(item.topic, item.partition, item.life, item.leader_epoch) for item in truth.unclean}
    found = {(*_key(row), row["leader_epoch"]): row for row in rows}
    errors = [f"not found: {item}" for item in sorted(real - found.keys())] if complete else []
    return errors + [f"invented: {item}" for item, row in found.items() if item not in real and row["certain"]]


def controllers(truth: Truth, rows: Rows) -> list[str]:
    """Checks that exactly the controllerships of the history are found."""
    real = {(item.controller, item.epoch) for item in truth.controllers}
    found = {(row["controller"], row["controller_epoch"]) for row in rows}
    return [f"not found: {item}" for item in sorted(real - found)] + [f"invented: {item}" for item in found - real]


def flapping(truth: Truth, rows: Rows) -> list[str]:
    """Checks that the partitions that moved most are found, with the ISR changes of their leaders."""
    errors = []
    found = {_key(row): row for row in rows}
    for real in truth.moves:
        row = found.get((real.topic, real.partition, real.life))
        if row is None:
            if real.shrinks + real.elections > 1:
                errors.append(f"not found: {real}")
        elif row["shrinks"] < real.shrinks or row["expands"] < real.expands:
            errors.append(f"{row['shrinks']} shrinks and {row['expands']} expands: {real}")
    return errors


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
