"""Evidence in logs around the loss of a broker: its own lines, and requests that it left without a response.

Brokers write many lines. They are split at few times: those at which losses were detected, and those at which the
broker had fallen silent. Only the first and the last line of each part are read.

    ───part 0───│───part 1───│───part 2───│───part 3───
              high        detected      high ...

Session timeouts and start times of brokers are read from server.log (`Sessions`).
"""

import bisect
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from kactl.forensics.event_types import NO_LINE, EventType, Role
from kactl.forensics.tables import of_tuples
from kactl.forensics.text.settings import HEARTBEAT_INTERVAL, KRAFT_SESSION, ZOOKEEPER_SESSION, value

from . import membership
from .expressions import all_known, is_a
from .membership import Absence
from .silence import CONFIGURED, HEARTBEAT_US, NEGOTIATED, OTHERS, Session, Signs, agreed, default, unanswered

_MS: Final = 1_000
# Only the first of many insignificant lines has a time. A starting broker writes some lines, including that of a
# ZooKeeper session, before its stop may have been detected.
_NO_SIGN: Final = (EventType.OTHER, EventType.HARMLESS, EventType.UNPARSED, EventType.SESSION_NEGOTIATED, *NO_LINE)
# Requests without a response are searched from this long before a loss: longer than a fetch waits before it times out
# (`replica.socket.timeout.ms`, 30 s), and than most sessions last.
FETCHES_US: Final = 60_000_000
_SECOND_US: Final = 1_000_000
_TIMES: Final = pa.list_(pa.int64())


class Lost(NamedTuple):
    """A loss: broker, detection time, and the time by which it had fallen silent."""

    broker: int
    detected_us: int
    high_us: int


class Part(NamedTuple):
    """Lines of a broker in a part: the first, the last, and the first gap without any line that ends in it.

    `first_role_us` is the first line that it wrote as a broker. A starting KRaft controller writes others earlier.
    """

    first_us: int | None = None
    last_us: int | None = None
    error_us: int | None = None
    slept_from_us: int | None = None
    slept_until_us: int | None = None
    first_role_us: int | None = None


class Own(NamedTuple):
    """A broker's last line before a loss was detected, its first one after that, and the error of their times."""

    last_us: int | None
    first_us: int | None
    error_us: int | None


class Around:
    """Evidence around some losses.

    Args:
        parts: by broker and number; see `boundaries`.
        fetches: of each broker, intervals as `silence.unanswered` returns them, ascending.
    """

    def __init__(
        self, losses: Sequence[Lost], parts: dict[tuple[int, int], Part], fetches: dict[int, list[tuple[int, int]]]
    ) -> None:
        self._parts = parts
        self._fetches = fetches
        self._boundaries = boundaries(losses)
        self._detected: dict[int, list[int]] = defaultdict(list)
        for loss in losses:
            self._detected[loss.broker].append(loss.detected_us)

    def own(self, broker: int, detected_us: int | None) -> Own:
        """Returns the lines around a loss; `detected_us` None: around a time before the logs."""
        number = 0 if detected_us is None else self._number(broker, detected_us)
        before = [] if detected_us is None else self._of(broker, self._begin(broker, detected_us), number)
        after = self._of(broker, number, self._end(broker, detected_us))
        errors = [part.error_us for part in (*before, *after) if part.error_us is not None]
        return Own(_last(before), _first(after), max(errors, default=None))

    def signs(self, lost: Lost, starts: Sequence[int], since_us: int | None) -> Signs:
        """Returns all signs of a loss. `since_us` is the earliest time for restarts and unanswered requests."""
        begin, end = self._begin(lost.broker, lost.detected_us), self._end(lost.broker, lost.detected_us)
        cut = self._number(lost.broker, lost.high_us)
        before, after = self._of(lost.broker, begin, cut), self._of(lost.broker, cut, end)
        slept = next((part for part in after if part.slept_until_us is not None), Part())
        spans = slept.slept_from_us is not None and slept.slept_from_us <= lost.high_us
        # The line before a silence is the last one, whatever its type.
        last = [_last(before), slept.slept_from_us if spans else None]
        later = self._later(lost.broker, lost.detected_us)
        low = lost.detected_us - FETCHES_US if since_us is None else since_us
        return Signs(
            last_us=max((time_us for time_us in last if time_us is not None), default=None),
            last_detected_us=self.own(lost.broker, lost.detected_us).last_us,
            first_us=_first(after),
            first_role_us=min((part.first_role_us for part in after if part.first_role_us is not None), default=None),
            slept_from_us=slept.slept_from_us if spans else None,
            slept_until_us=slept.slept_until_us if spans else None,
            starts_us=[start for start in starts if low < start and (later is None or start < later)],
            fetches=[fetch for fetch in self._fetches.get(lost.broker, []) if low <= fetch[1] <= lost.detected_us],
        )

    def _of(self, broker: int, begin: int, end: int) -> list[Part]:
        return [self._parts[broker, number] for number in range(begin, end) if (broker, number) in self._parts]

    def _number(self, broker: int, at_us: int) -> int:
        return bisect.bisect_right(self._boundaries.get(broker, []), at_us)

    def _begin(self, broker: int, detected_us: int) -> int:
        earlier = [time_us for time_us in self._detected[broker] if time_us < detected_us]
        return self._number(broker, max(earlier)) if earlier else 0

    def _end(self, broker: int, detected_us: int | None) -> int:
        later = self._later(broker, detected_us)
        return len(self._boundaries.get(broker, [])) + 1 if later is None else self._number(broker, later)

    def _later(self, broker: int, detected_us: int | None) -> int | None:
        """When the next loss of the broker was detected."""
        times_us = [time_us for time_us in self._detected[broker] if detected_us is None or time_us > detected_us]
        return min(times_us, default=None)


def boundaries(losses: Sequence[Lost]) -> dict[int, list[int]]:
    """Returns the times between the parts of each broker: a line belongs to the part after all times that are no later
    than it.
    """
    by_broker: dict[int, set[int]] = defaultdict(set)
    for loss in losses:
        by_broker[loss.broker] |= {loss.detected_us, loss.high_us}
    return {broker: sorted(times) for broker, times in by_broker.items()}


def read(timed: DataFrame, losses: Sequence[Lost], brokers: Sequence[int]) -> Around:
    """Reads the broker logs; brokers of `brokers` without a loss have one part."""
    spark = timed.sparkSession
    known = boundaries(losses)
    parted = [(broker, known.get(broker, [])) for broker in sorted({*known, *brokers})]
    times = of_tuples(spark, pa.schema([("speaker", pa.int32()), ("boundaries", _TIMES)]), parted)
    us = f.unix_micros("at")
    is_silent = f.col("type") == EventType.SILENT
    lines = timed.where((~is_a(*_NO_SIGN) | is_silent) & all_known("at", "speaker"))
    number = f.size(f.filter("boundaries", lambda time: time <= f.col("us")))
    slept = f.struct(
        f.col("us").alias("slept_until_us"), (f.col("us") - f.col("took_ms") * 1000).alias("slept_from_us")
    )
    rows = (
        lines.select("speaker", us.alias("us"), "at_error_us", "took_ms", "role", is_silent.alias("is_silent"))
        .join(f.broadcast(times), "speaker")
        .groupBy("speaker", number.alias("number"))
        .agg(
            f.min(f.when(~f.col("is_silent"), f.col("us"))).alias("first_us"),
            f.max(f.when(~f.col("is_silent"), f.col("us"))).alias("last_us"),
            f.max("at_error_us").alias("error_us"),
            f.min(f.when(f.col("is_silent"), slept)).alias("slept"),
            f.min(f.when(~f.col("is_silent") & (f.col("role") == Role.BROKER), f.col("us"))).alias("first_role_us"),
        )
        .select("*", "slept.*")
        .collect()
    )
    parts = {(row["speaker"], row["number"]): Part(*(row[name] for name in Part._fields)) for row in rows}
    return Around(losses, parts, _fetches(timed, losses))


def _fetches(timed: DataFrame, losses: Sequence[Lost]) -> dict[int, list[tuple[int, int]]]:
    """For each lost broker, the first request without a response in each second before a loss was detected."""
    if not losses:
        return {}
    by_broker: dict[int, list[int]] = defaultdict(list)
    for loss in losses:
        by_broker[loss.broker].append(loss.detected_us)
    schema = pa.schema([("broker", pa.int32()), ("detected", _TIMES)])
    detected = of_tuples(timed.sparkSession, schema, list(by_broker.items()))
    us, waited = f.unix_micros("at"), f.coalesce(f.col("took_ms") * 1000, f.lit(0))
    rows = (
        timed.where(is_a(EventType.FETCH_UNANSWERED) & f.col("at").isNotNull())
        .select("broker", us.alias("us"), "took_ms", (us - waited).alias("sent"))
        .join(f.broadcast(detected), "broker")
        .where(
            f.exists("detected", lambda time_us: (f.col("sent") <= time_us) & (f.col("sent") > time_us - FETCHES_US))
        )
        .groupBy("broker", f.expr(f"sent div {_SECOND_US}").alias("second"))
        .agg(f.min(f.struct("sent", "us", "took_ms")).alias("first"))
        .collect()
    )
    intervals: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        took_ms = row["first"]["took_ms"]
        intervals[row["broker"]].append(unanswered(row["first"]["us"], None if took_ms is None else took_ms * 1000))
    return {broker: sorted(of_broker) for broker, of_broker in intervals.items()}


def _first(parts: Sequence[Part]) -> int | None:
    return min((part.first_us for part in parts if part.first_us is not None), default=None)


def _last(parts: Sequence[Part]) -> int | None:
    return max((part.last_us for part in parts if part.last_us is not None), default=None)


# -- sessions ----------------------------------------------------------------------------------------------------------


class SessionLine(NamedTuple):
    """Session lines of a broker's log: first time, negotiated ms, or settings."""

    broker: int
    first_us: int
    negotiated_ms: int | None
    settings: str


class Sessions:
    """All session lines."""

    def __init__(
        self, lines: Sequence[SessionLine], starts: dict[int, list[int]], versions: dict[int | None, set[str]]
    ) -> None:
        """`told` has one element for each different value; `versions` are those of brokers' files, None for files of no
        broker.
        """
        self._told = sorted(lines, key=lambda line: line.first_us)
        self._starts = starts
        self._versions = versions

    @classmethod
    def read(cls, timed: DataFrame, files: DataFrame | None) -> "Sessions":
        """Read the lines. Their number is that of starts and different values, whatever was logged in between."""
        known = all_known("speaker", "at")
        lines = timed.where(is_a(EventType.SESSION_NEGOTIATED, EventType.CONFIGURED) & known)
        rows = (
            lines.groupBy("speaker", "took_ms", "text")
            .agg(f.min(f.unix_micros("at")).alias("first"), f.collect_set(f.unix_micros("at")).alias("at"))
            .collect()
        )
        starts: dict[int, list[int]] = {}
        for row in rows:
            if row["text"] is not None:
                starts.setdefault(row["speaker"], []).extend(row["at"])
        versions: dict[int | None, set[str]] = {}
        for row in [] if files is None else _versions(files):
            versions.setdefault(row["broker"], set()).add(row["version"])
        told = [SessionLine(row["speaker"], row["first"], row["took_ms"], row["text"] or "") for row in rows]
        return cls(told, {broker: sorted(times) for broker, times in starts.items()}, versions)

    def starts(self, broker: int) -> list[int]:
        """Returns when a broker was started, ascending, in microseconds."""
        return self._starts.get(broker, [])

    def of(self, loss: Absence) -> Session:
        """Returns the session that ended with a loss."""
        if loss.how == membership.FENCED:
            return self._kraft(loss.broker, loss.controller)
        own_lines = self._latest(loss.broker)
        for ms, by in (
            (next((line.negotiated_ms for line in own_lines if line.negotiated_ms), None), NEGOTIATED),
            (self._setting(own_lines, ZOOKEEPER_SESSION), CONFIGURED),
            (agreed(line.negotiated_ms for line in self._told if line.negotiated_ms), OTHERS),
            (agreed(self._of_all(ZOOKEEPER_SESSION)), OTHERS),
        ):
            if ms:
                return Session(ms * _MS, by)
        return default(self._versions.get(loss.broker) or self._versions.get(loss.controller) or (), is_kraft=False)

    def _kraft(self, broker: int, controller: int | None) -> Session:
        """The controller's setting, and the heartbeat interval of the broker."""
        interval = self._setting(self._latest(broker), HEARTBEAT_INTERVAL) or agreed(self._of_all(HEARTBEAT_INTERVAL))
        heartbeat_us = HEARTBEAT_US if interval is None else interval * _MS
        own = None if controller is None else self._setting(self._latest(controller), KRAFT_SESSION)
        if own:
            return Session(own * _MS, CONFIGURED, heartbeat_us)
        others = agreed(self._of_all(KRAFT_SESSION))
        return Session(others * _MS, OTHERS, heartbeat_us) if others else default((), is_kraft=True)

    def _latest(self, broker: int) -> list[SessionLine]:
        """Settings of a broker, the latest first. Timeouts change seldom, and hardly between a start and a loss."""
        return [line for line in reversed(self._told) if line.broker == broker]

    @staticmethod
    def _setting(lines: Sequence[SessionLine], name: str) -> int | None:
        return next((setting for line in lines if (setting := value(line.settings, name)) is not None), None)

    def _of_all(self, name: str) -> list[int]:
        return [setting for line in self._told if (setting := value(line.settings, name)) is not None]


def _versions(files: DataFrame) -> list[Row]:
    return files.where("version is not null").select("broker", "version").collect()
