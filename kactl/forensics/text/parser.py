"""Parser from records to events.

The format of a message is found by its first word, then by matching regular expressions. The texts of the groups are
collected until there are thousands of one format, and are then converted to columns at once.
"""

import collections
import datetime
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kactl.forensics.event_types import EventType, Kind, Role

from . import batch, settings, zone
from . import broker_id as speaker
from .columns import column, of_texts
from .dispatch import BY_HEAD, is_chatter, is_ours
from .format import Format
from .records import Records
from .source import CUT_LOGGER

CLOCK_BACK_US: Final = 1_000_000
# Shorter than any session: brokers that are paused for less are not missed, and quiet ones are silent for longer.
SILENT_US: Final = 2_000_000
# What follows an error: the exception's class and what it says; of a failed election also how a leader was sought.
_EXCEPTION: Final = re.compile(rb"(?:Caused by: )?(?P<error>[\w.$]+(?:Exception|Error))(?:: (?P<reason>.*))?")
_STRATEGY: Final = re.compile(rb"under strategy (\w+?)PartitionLeaderElectionStrategy")
_FILE_KINDS_OF_OURS: Final = frozenset({Kind.STATE_CHANGE, Kind.CONTROLLER})


class Parser:
    """The parser of one file.

    Args:
        broker: who speaks where a line does not say; None if that is not known.
        time_zone: in which times were logged.
    """

    def __init__(self, *, file_id: int, kind: Kind, broker: int | None, time_zone: datetime.tzinfo) -> None:
        self._file_id = file_id
        self._kind = kind
        self._broker = broker
        self._zone = time_zone
        self._prefixes = speaker.Prefixes()
        self._is_ours: dict[bytes | None, bool] = {}
        self._last_utc: int | None = None  # of the last record that was parsed
        self._by_head = {
            head: [_Candidate(each.pattern.fullmatch, each, [], []) for each in formats]
            for head, formats in BY_HEAD.items()
        }
        self._candidates = [each for candidates in self._by_head.values() for each in candidates]

    def parse(self, records: Records) -> pa.RecordBatch:
        """The events of some records; in another order, but each with its offset."""
        common = _Common(records, self._zone, self._prefixes)
        rest = self._understand(common)
        made = []
        for each in self._candidates:
            if each.rows:
                made.append(self._format(each, common))
                each.rows.clear()
                each.groups.clear()
        made += self._rest(rest, common)
        back, by_us = common.went_back(self._last_utc)
        if len(back):
            made.append(self._step(EventType.CLOCK_BACK, back.tolist(), by_us, common))
        silent, for_us = common.was_silent(self._last_utc)
        if len(silent) and self._kind is Kind.SERVER and self._broker is not None:
            made.append(self._step(EventType.SILENT, silent.tolist(), for_us, common))
        if records.settings:
            made.append(self._configured(common))
        self._last_utc = int(common.utc[-1]) if common.known[-1] else None
        return batch.together(made)

    # -- understood ----------------------------------------------------------------------------------------------------

    def _understand(self, common: "_Common") -> list[int]:
        """Find the format of each record; those that have none are returned.

        All messages with the same first word are held against one format after the other, rather than each message
        against all: so what is done for a message is done in a loop that does nothing else.
        """
        alike: dict[bytes | None, list[int]] = collections.defaultdict(list)
        for at, message in enumerate(common.messages):
            alike[message.split(b" ", 1)[0]].append(at)
        rest: list[int] = []
        by_head, messages = self._by_head, common.messages
        headless = [at for head in alike.keys() - by_head.keys() for at in alike.pop(head)]
        for head, rows in (*alike.items(), (None, sorted(headless))):
            left = [at for at in rows if common.known[at]] if common.is_untimed else rows
            if common.is_untimed:
                rest += (at for at in rows if not common.known[at])
            candidates = by_head[head]
            for fullmatch, form, found, groups in candidates:
                asked = [at for at in left if common.names_partition(at)] if form.by_prefix else left
                matches = [(at, matched) for at in asked if (matched := fullmatch(messages[at])) is not None]
                if matches:
                    here = [at for at, _ in matches]
                    found += here
                    groups += [matched.groups() for _, matched in matches]
                    left = sorted(set(left).difference(here)) if len(here) < len(left) else []
                if not left:
                    break
            # One version writes one of them time and again; no message has two, so that order is free.
            candidates.sort(key=lambda each: -len(each.rows))
            rest += left
        return sorted(rest)

    def _format(self, found: "_Candidate", common: "_Common") -> pa.RecordBatch:
        _, form, rows, groups = found
        count = len(rows)
        given = self._from_prefix(form, common.places(rows), common)
        groups_by_column = list(zip(*groups, strict=True))
        for name, numbers in form.fills.items():
            filled = column(name, groups_by_column[numbers[0] - 1])
            for further in numbers[1:]:
                filled = pc.coalesce(filled, column(name, groups_by_column[further - 1]))
            given[name] = pc.coalesce(filled, given[name]) if name in given else filled
        for name, value in form.says.items():
            given[name] = batch.same(name, value, count)
        if form.role is Role.CONTROLLER and "controller" in form.fills:
            given["speaker"] = pc.coalesce(given["speaker"], given["controller"])
        joined = [common.records.joined.get(at) for at in rows] if common.records.joined else []
        if any(joined):
            _add_joined(given, joined)
        given["role"] = batch.same("role", form.role, count)
        given["format"] = batch.same("format", form.id, count)
        given["type"] = batch.same("type", form.type, count)
        return self._finish(given, rows, common)

    def _from_prefix(self, form: Format, which: Any, common: "_Common") -> dict[str, Any]:
        """What the brackets before the messages say, as far as it concerns messages of this format."""
        names = ["speaker"]
        if form.role is Role.CONTROLLER:
            names += ["controller", "controller_epoch"]
        if form.by_prefix:
            names += ["topic", "partition"]
        return {name: pc.take(common.said(name), which) for name in names}

    # -- not understood, or of no interest -----------------------------------------------------------------------------

    def _rest(self, rows: list[int], common: "_Common") -> list[pa.RecordBatch]:
        unparsed: list[int] = []
        others: dict[tuple[bytes | None, bytes], list[int]] = collections.defaultdict(list)
        harmless: dict[tuple[bytes | None, bytes], list[int]] = collections.defaultdict(list)
        for at in rows:
            ts, level, _, message, logger = common.records.fields[at]
            if ts is not None and not self._should_be_understood(logger):
                others[level, ts[:13]].append(at)
            elif ts is not None and is_chatter(message or b""):
                harmless[level, ts[:13]].append(at)
            elif message or ts is not None:
                unparsed.append(at)
            else:
                others[None, b""].append(at)
        made = []
        if unparsed:
            made.append(self._unparsed(unparsed, common))
        if others:
            made.append(self._others(list(others.values()), EventType.OTHER, common))
        if harmless:
            made.append(self._others(list(harmless.values()), EventType.HARMLESS, common))
        return made

    def _should_be_understood(self, logger: bytes | None) -> bool:
        known = self._is_ours.get(logger)
        if known is None:
            ours = is_ours(logger) if logger and logger != CUT_LOGGER else self._kind in _FILE_KINDS_OF_OURS
            known = self._is_ours[logger] = ours
        return known

    def _unparsed(self, rows: list[int], common: "_Common") -> pa.RecordBatch:
        fields = [common.records.fields[at] for at in rows]
        texts = [(b"[%b] " % prefix if prefix else b"") + (message or b"") for _, _, prefix, message, _ in fields]
        given = self._spoken(rows, common)
        given["text"] = column("text", texts)
        given["type"] = batch.same("type", EventType.UNPARSED, len(rows))
        return self._finish(given, rows, common)

    def _others(self, groups: list[list[int]], type: EventType, common: "_Common") -> pa.RecordBatch:
        """One row for all lines of a level and hour."""
        rows = [group[0] for group in groups]
        given = self._spoken(rows, common)
        given["lines"] = pa.array([int(common.lengths[group].sum()) for group in groups], pa.int32())
        given["type"] = batch.same("type", type, len(rows))
        return self._finish(given, rows, common)

    def _step(self, type: EventType, rows: list[int], by_us: zone.Micros, common: "_Common") -> pa.RecordBatch:
        """What a step in time before each of some records means; it stands for no line."""
        given = self._spoken(rows, common)
        given["lines"] = batch.same("lines", 0, len(rows))
        given["type"] = batch.same("type", type, len(rows))
        given["took_ms"] = pa.array(by_us // 1000)
        return self._finish(given, rows, common)

    def _configured(self, common: "_Common") -> pa.RecordBatch:
        """Settings of configuration dumps, at the time of the record before each; they stand for no line.

        A dump names its broker. In a stream of several brokers that is the only thing that does.
        """
        rows = [at for at in sorted(common.records.settings) if common.known[at]]
        texts = [b" ".join(common.records.settings[at]) for at in rows]
        given = self._spoken(rows, common)
        named = [settings.broker(text) for text in texts]
        given["speaker"] = pc.coalesce(pa.array(named, pa.int32()), given["speaker"])
        given["lines"] = batch.same("lines", 0, len(rows))
        given["type"] = batch.same("type", EventType.CONFIGURED, len(rows))
        given["text"] = column("text", texts)
        return self._finish(given, rows, common)

    def _spoken(self, rows: list[int], common: "_Common") -> dict[str, Any]:
        which = common.places(rows)
        return {name: pc.take(common.said(name), which) for name in ("speaker", "role")}

    def _finish(self, given: dict[str, Any], rows: list[int], common: "_Common") -> pa.RecordBatch:
        """A batch of what is given and what every row has."""
        which = np.array(rows, np.int64)
        given.update(batch.times(common.logged[which], common.utc[which], common.known[which]))
        given["file_id"] = batch.same("file_id", self._file_id, len(rows))
        given["offset"] = pa.array(common.offsets[which])
        given.setdefault("lines", pa.array(common.lengths[which]))
        given["level"] = pc.take(common.level, common.places(rows))
        given["kind"] = batch.same("kind", self._kind, len(rows))
        if self._broker is not None:
            given["speaker"] = pc.fill_null(given["speaker"], self._broker)
        return batch.batch(given, len(rows))


class _Candidate(NamedTuple):
    """A format, and what was found of it: rows, and what the groups held in each."""

    fullmatch: Callable[[bytes], "re.Match[bytes] | None"]
    format: Format
    rows: list[int]
    groups: list[tuple[bytes | None, ...]]


class _Common:
    """What all formats take from the same records: places, times, levels, and who speaks."""

    def __init__(self, records: Records, time_zone: datetime.tzinfo, prefixes: speaker.Prefixes) -> None:
        self.records = records
        times, levels, self._texts, messages, _ = zip(*records.fields, strict=True)
        self.messages: tuple[bytes, ...] = messages
        self.level = of_texts(levels, lambda text: text, "level")
        self._prefixes = prefixes
        self._said: dict[str, Any] = {}
        self.offsets = np.array(records.offsets, np.int64)
        self.lengths = np.array(records.lengths, np.int32)
        self.logged, is_time = zone.logged([text or _NEVER for text in times])
        self.known = is_time & np.array([text is not None for text in times], np.bool_)
        self.is_untimed = not self.known.all()  # whether some have no time
        self.utc = zone.to_utc(self.logged, time_zone)

    def said(self, name: str) -> Any:
        """What the brackets before each message say: a field of `speaker.Prefix`, as the column of that name."""
        if name not in self._said:
            self._said[name] = of_texts(self._texts, lambda text: getattr(self._prefixes[text], name), name)
        return self._said[name]

    @staticmethod
    def places(rows: list[int]) -> Any:
        """Row numbers, to take columns by."""
        return pa.array(np.array(rows, np.int64))

    def names_partition(self, at: int) -> bool:
        """Whether the brackets before a message name a partition."""
        return self._prefixes[self._texts[at]].topic is not None

    def went_back(self, before_us: int | None) -> "tuple[np.ndarray[Any, Any], zone.Micros]":
        """The records before which time went back, by more than threads that wait for the logger explain; by how much.

        Args:
            before_us: the time of the record before the first of these; None if there is none, or it has none.
        """
        steps, known = self._steps(before_us)
        back = np.flatnonzero((steps < -CLOCK_BACK_US) & known)
        return back, -steps[back]

    def was_silent(self, before_us: int | None) -> "tuple[np.ndarray[Any, Any], zone.Micros]":
        """The records before which nothing was written for some time; for how long. `before_us` is as above."""
        steps, known = self._steps(before_us)
        silent = np.flatnonzero((steps > SILENT_US) & known)
        return silent, steps[silent]

    def _steps(self, before_us: int | None) -> "tuple[zone.Micros, np.ndarray[Any, Any]]":
        """From each record's predecessor to it; and whether both have a time."""
        utc = np.concatenate(([0 if before_us is None else before_us], self.utc))
        known = np.concatenate(([before_us is not None], self.known))
        return np.diff(utc), known[1:] & known[:-1]


_NEVER: Final = b"1970-01-01 00:00:00,000"


def _add_joined(given: dict[str, Any], joined: list[bytes | None]) -> None:
    """Why, from the lines that followed; what the messages said themselves stands."""
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
        said = column(name, texts)
        given[name] = pc.coalesce(given[name], said) if name in given else said
