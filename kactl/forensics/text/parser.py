"""Parser from records to events.

The format of a message is found by its first word, then by matching regular expressions. The texts of the groups are
collected until there are thousands of one format, and are then converted to columns at once.
"""

import collections
import datetime
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kactl.forensics.event_types import EventType, Kind, Role

from . import columns, settings, zone
from .broker_id import Prefixes
from .columns import column, mapped
from .dispatch import BY_HEAD, is_chatter, is_ours
from .format import Format
from .records import Records
from .source import CUT_LOGGER

CLOCK_BACK_US: Final = 1_000_000
# Shorter than any session: a shorter pause has no effect, and idle brokers are silent for longer.
SILENT_US: Final = 2_000_000
# The line after an error: the exception's class and message; for a failed election also the strategy.
_EXCEPTION: Final = re.compile(rb"(?:Caused by: )?(?P<error>[\w.$]+(?:Exception|Error))(?:: (?P<reason>.*))?")
_STRATEGY: Final = re.compile(rb"under strategy (\w+?)PartitionLeaderElectionStrategy")
_UNDERSTOOD_KINDS: Final = frozenset({Kind.STATE_CHANGE, Kind.CONTROLLER})


class Parser:
    """Parser of one file.

    Args:
        broker: id of the broker that wrote lines without an id of their own; None if it is not known. From the first
            line of another broker on it counts as unknown.
        time_zone: the zone of logged times.
        years_ahead: the number to subtract from their years.
    """

    def __init__(
        self, *, file_id: int, kind: Kind, broker: int | None, time_zone: datetime.tzinfo, years_ahead: int = 0
    ) -> None:
        self._file_id = file_id
        self._kind = kind
        self._broker = broker
        self._fold = zone.Fold(time_zone)
        self._years_ahead = years_ahead
        self._prefixes = Prefixes()
        self._is_understood: dict[bytes | None, bool] = {}
        self._own_until: int | None = None  # row of this chunk from which on several brokers write the file
        self._last_utc: int | None = None  # time of the last parsed record
        self._by_head = {
            head: [_Candidate(format.pattern.fullmatch, format, [], []) for format in formats]
            for head, formats in BY_HEAD.items()
        }
        self._candidates = [candidate for candidates in self._by_head.values() for candidate in candidates]

    def parse(self, records: Records) -> pa.RecordBatch:
        """Returns the events of records. Their order differs from that of the records; each has its offset."""
        chunk = _Chunk(records, self._fold, self._years_ahead, self._prefixes)
        self._own_until = None if self._broker is None else chunk.first_of_another(self._broker)
        rest = self._match(chunk)
        batches = []
        for candidate in self._candidates:
            if candidate.rows:
                batches.append(self._matched(candidate, chunk))
                candidate.rows.clear()
                candidate.groups.clear()
        batches += self._unmatched(rest, chunk)
        back, by_us = chunk.went_back(self._last_utc)
        if len(back):
            batches.append(self._step(EventType.CLOCK_BACK, back.tolist(), by_us, chunk))
        silent, for_us = chunk.was_silent(self._last_utc)
        if self._own_until is not None:
            silent, for_us = silent[silent < self._own_until], for_us[silent < self._own_until]
        if len(silent) and self._kind is Kind.SERVER and self._broker is not None:
            batches.append(self._step(EventType.SILENT, silent.tolist(), for_us, chunk))
        if records.settings:
            batches.append(self._configured(chunk))
        self._last_utc = int(chunk.utc[-1]) if chunk.known[-1] else None
        if self._own_until is not None:
            self._broker = None
        return columns.concatenated(batches)

    # -- records with a format -----------------------------------------------------------------------------------------

    def _match(self, chunk: "_Chunk") -> list[int]:
        """Finds the format of each record; returns the rows of records without one.

        All messages with the same first word are matched against one format after the other, rather than each message
        against all formats: the work per message is then done in the tightest possible loop.
        """
        by_first_word: dict[bytes | None, list[int]] = collections.defaultdict(list)
        for row, message in enumerate(chunk.messages):
            by_first_word[message.split(b" ", 1)[0]].append(row)
        rest: list[int] = []
        by_head, messages = self._by_head, chunk.messages
        headless = [row for head in by_first_word.keys() - by_head.keys() for row in by_first_word.pop(head)]
        for head, rows in (*by_first_word.items(), (None, sorted(headless))):
            left = [row for row in rows if chunk.whole[row]] if chunk.is_damaged else rows
            if chunk.is_damaged:
                rest += (row for row in rows if not chunk.whole[row])
            candidates = by_head[head]
            for fullmatch, form, candidate_rows, groups in candidates:
                eligible = [row for row in left if chunk.names_partition(row)] if form.by_prefix else left
                matches = [(row, match) for row in eligible if (match := fullmatch(messages[row])) is not None]
                if matches:
                    matching = [row for row, _ in matches]
                    candidate_rows += matching
                    groups += [match.groups() for _, match in matches]
                    left = sorted(set(left).difference(matching)) if len(matching) < len(left) else []
                if not left:
                    break
            # A file has the format of one version many times. No message has two formats, so the order is free.
            candidates.sort(key=lambda candidate: -len(candidate.rows))
            rest += left
        return sorted(rest)

    def _matched(self, candidate: "_Candidate", chunk: "_Chunk") -> pa.RecordBatch:
        _, form, rows, groups = candidate
        count = len(rows)
        names = ["speaker"]
        if form.role is Role.CONTROLLER:
            # A line about a controller may be about another one, or about none.
            names += ["controller_epoch"] if "controller" in form.fills else ["controller", "controller_epoch"]
        if form.by_prefix:
            names += ["topic", "partition"]
        given = chunk.from_prefixes(names, rows)
        groups_by_column = list(zip(*groups, strict=True))
        for name, numbers in form.fills.items():
            filled = column(name, groups_by_column[numbers[0] - 1])
            for further in numbers[1:]:
                filled = pc.coalesce(filled, column(name, groups_by_column[further - 1]))
            given[name] = pc.coalesce(filled, given[name]) if name in given else filled
        for name, value in form.constants.items():
            given[name] = columns.constant(name, value, count)
        if form.role is Role.CONTROLLER and "controller" in form.fills:
            given["speaker"] = pc.coalesce(given["speaker"], given["controller"])
        joined = [chunk.records.joined.get(row) for row in rows] if chunk.records.joined else []
        if any(joined):
            _add_joined(given, joined)
        given["role"] = columns.constant("role", form.role, count)
        given["format"] = columns.constant("format", form.id, count)
        return self._batch(form.type, given, rows, chunk)

    # -- records without a format --------------------------------------------------------------------------------------

    def _unmatched(self, rows: list[int], chunk: "_Chunk") -> list[pa.RecordBatch]:
        unparsed: list[int] = []
        others: dict[tuple[bytes | None, bytes], list[int]] = collections.defaultdict(list)
        harmless: dict[tuple[bytes | None, bytes], list[int]] = collections.defaultdict(list)
        for row in rows:
            ts, level, _, message, logger, *_ = chunk.records.fields[row]
            if ts is not None and not self._should_be_understood(logger):
                others[level, ts[:13]].append(row)
            elif ts is not None and is_chatter(message or b""):
                harmless[level, ts[:13]].append(row)
            elif message or ts is not None:
                unparsed.append(row)
            else:
                others[None, b""].append(row)
        batches = []
        if unparsed:
            batches.append(self._unparsed(unparsed, chunk))
        if others:
            batches.append(self._counted(list(others.values()), EventType.OTHER, chunk))
        if harmless:
            batches.append(self._counted(list(harmless.values()), EventType.HARMLESS, chunk))
        return batches

    def _should_be_understood(self, logger: bytes | None) -> bool:
        result = self._is_understood.get(logger)
        if result is None:
            result = is_ours(logger) if logger and logger != CUT_LOGGER else self._kind in _UNDERSTOOD_KINDS
            self._is_understood[logger] = result
        return result

    def _unparsed(self, rows: list[int], chunk: "_Chunk") -> pa.RecordBatch:
        fields = [chunk.records.fields[row] for row in rows]
        texts = [
            (b"[%b] " % prefix if prefix else b"") + (message or b"").split(b"\n", 1)[0]
            for _, _, prefix, message, *_ in fields
        ]
        given = chunk.from_prefixes(_WRITER, rows) | {"text": column("text", texts)}
        return self._batch(EventType.UNPARSED, given, rows, chunk)

    def _counted(self, groups: list[list[int]], type: EventType, chunk: "_Chunk") -> pa.RecordBatch:
        rows = [group[0] for group in groups]
        given = chunk.from_prefixes(_WRITER, rows)
        given["lines"] = pa.array([int(chunk.lengths[group].sum()) for group in groups], pa.int32())
        return self._batch(type, given, rows, chunk)

    def _step(self, type: EventType, rows: list[int], by_us: zone.Micros, chunk: "_Chunk") -> pa.RecordBatch:
        """Returns the events that time steps before records stand for; they represent no line."""
        given = chunk.from_prefixes(_WRITER, rows)
        given["lines"] = columns.constant("lines", 0, len(rows))
        given["took_ms"] = pa.array(by_us // 1000)
        return self._batch(type, given, rows, chunk)

    def _configured(self, chunk: "_Chunk") -> pa.RecordBatch:
        """Returns the settings of configuration dumps; they represent no line.

        A dump contains its broker's id, which in a stream of several brokers no other line has.
        """
        rows = [row for row in sorted(chunk.records.settings) if chunk.known[row]]
        texts = [b" ".join(chunk.records.settings[row]) for row in rows]
        given = chunk.from_prefixes(_WRITER, rows)
        brokers = [settings.broker(text) for text in texts]
        given["speaker"] = pc.coalesce(pa.array(brokers, pa.int32()), given["speaker"])
        given["lines"] = columns.constant("lines", 0, len(rows))
        given["text"] = column("text", texts)
        return self._batch(EventType.CONFIGURED, given, rows, chunk)

    def _batch(self, type: EventType, given: dict[str, Any], rows: list[int], chunk: "_Chunk") -> pa.RecordBatch:
        indices = np.array(rows, np.int64)
        given.update(columns.times(chunk.logged[indices], chunk.utc[indices], chunk.known[indices]))
        for name, value in (("type", type), ("file_id", self._file_id), ("kind", self._kind)):
            given[name] = columns.constant(name, value, len(rows))
        given["offset"] = pa.array(chunk.offsets[indices])
        given.setdefault("lines", pa.array(chunk.lengths[indices]))
        given["level"] = pc.take(chunk.level, pa.array(indices))
        if self._broker is None:
            pass
        elif self._own_until is None:
            given["speaker"] = pc.fill_null(given["speaker"], self._broker)
        else:
            own = pa.array(np.full(len(rows), self._broker, np.int32), mask=indices >= self._own_until)
            given["speaker"] = pc.coalesce(given["speaker"], own)
        return columns.batch(given, len(rows))


_WRITER: Final = ("speaker", "role")


class _Candidate(NamedTuple):
    """A format, the rows that matched it, and the texts of the groups in each."""

    fullmatch: Callable[[bytes], "re.Match[bytes] | None"]
    format: Format
    rows: list[int]
    groups: list[tuple[bytes | None, ...]]


class _Chunk:
    """Records with the columns that all formats share: offsets, times, levels, and values from the prefixes."""

    def __init__(self, records: Records, fold: zone.Fold, years_ahead: int, prefixes: Prefixes) -> None:
        self.records = records
        times, levels, self._texts, messages, loggers, zones, _ = zip(*records.fields, strict=True)
        self.messages: tuple[bytes, ...] = messages
        self.level = mapped(levels, lambda text: text, "level")
        self._prefixes = prefixes
        self._from_prefixes: dict[str, Any] = {}
        self.offsets = np.array(records.offsets, np.int64)
        self.lengths = np.array(records.lengths, np.int32)
        self.logged, is_time = zone.logged([text or _NEVER for text in times], years_ahead)
        self.known = is_time & np.array([text is not None for text in times], np.bool_)
        # Records with a time and a logger. A line without its logger is cut off, and so may be a number in it.
        self.whole = self.known
        if None in loggers:
            self.whole = self.known & np.array([logger is not None for logger in loggers], np.bool_)
        self.is_damaged = not self.whole.all()
        self.utc = fold.to_utc(self.logged, zones)

    def from_prefixes(self, names: Sequence[str], rows: list[int]) -> dict[str, Any]:
        """Returns the columns of these names, which are fields of `Prefix`, for some rows."""
        indices = pa.array(np.array(rows, np.int64))
        return {name: pc.take(self._from_prefix(name), indices) for name in names}

    def _from_prefix(self, name: str) -> Any:
        if name not in self._from_prefixes:
            self._from_prefixes[name] = mapped(self._texts, lambda text: getattr(self._prefixes[text], name), name)
        return self._from_prefixes[name]

    def first_of_another(self, broker: int) -> int | None:
        """Returns the first row whose prefix or configuration dump names another broker as its writer."""
        row = pc.index(pc.fill_null(pc.not_equal(self._from_prefix("speaker"), broker), False), True).as_py()
        rows = [] if row < 0 else [row]
        for dumped, found in self.records.settings.items():
            id = settings.broker(b" ".join(found))
            rows += [dumped] if id is not None and id != broker else []
        return min(rows, default=None)

    def names_partition(self, row: int) -> bool:
        """Returns whether the prefix of a message names a partition."""
        return self._prefixes[self._texts[row]].topic is not None

    def went_back(self, before_us: int | None) -> "tuple[np.ndarray[Any, Any], zone.Micros]":
        """Returns the rows before which time goes back by more than `CLOCK_BACK_US`, and the size of these steps.

        Smaller steps are caused by threads that wait for the logger.

        Args:
            before_us: time of the record before the first one; None if there is none or it has no time.
        """
        steps, known = self._steps(before_us)
        back = np.flatnonzero((steps < -CLOCK_BACK_US) & known)
        return back, -steps[back]

    def was_silent(self, before_us: int | None) -> "tuple[np.ndarray[Any, Any], zone.Micros]":
        """Returns the rows before which nothing was written for `SILENT_US`, and the lengths of the pauses."""
        steps, known = self._steps(before_us)
        silent = np.flatnonzero((steps > SILENT_US) & known)
        return silent, steps[silent]

    def _steps(self, before_us: int | None) -> "tuple[zone.Micros, np.ndarray[Any, Any]]":
        """Returns the step from each record's predecessor to it, and whether both have a time."""
        utc = np.concatenate(([0 if before_us is None else before_us], self.utc))
        known = np.concatenate(([before_us is not None], self.known))
        return np.diff(utc), known[1:] & known[:-1]


_NEVER: Final = b"1970-01-01 00:00:00,000"


def _add_joined(given: dict[str, Any], joined: list[bytes | None]) -> None:
    """Adds causes from the lines that followed; values from the messages themselves take precedence."""
    errors: list[bytes | None] = []
    reasons: list[bytes | None] = []
    strategies: list[bytes | None] = []
    for text in joined:
        exception = None if text is None else _EXCEPTION.fullmatch(text)
        strategy = None if text is None else _STRATEGY.search(text)
        errors.append(exception and exception["error"])
        reasons.append(exception["reason"] if exception else text)
        strategies.append(strategy and strategy[1])
    for name, texts in (("error", errors), ("reason", reasons), ("strategy", strategies)):
        joined_column = column(name, texts)
        given[name] = pc.coalesce(given[name], joined_column) if name in given else joined_column
