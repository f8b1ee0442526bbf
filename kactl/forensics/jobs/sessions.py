"""Session timeouts and start times of brokers, from server.log."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType
from kactl.forensics.text.settings import HEARTBEAT_INTERVAL, KRAFT_SESSION, ZOOKEEPER_SESSION, value

from . import membership
from .lines import is_a
from .membership import Absence
from .silence import CONFIGURED, HEARTBEAT_US, NEGOTIATED, OTHERS, Session, agreed, default

_MS: Final = 1_000


class SessionLine(NamedTuple):
    """Session lines of a broker's log: first time, negotiated ms, or settings."""

    broker: int
    first_us: int
    negotiated_ms: int | None
    settings: str


class Sessions:
    """All session lines."""

    def __init__(
        self, told: Sequence[SessionLine], starts: dict[int, list[int]], versions: dict[int | None, set[str]]
    ) -> None:
        """`told` has one element for each different value; `versions` are those of brokers' files, None for files of no
        broker.
        """
        self._told = sorted(told, key=lambda line: line.first_us)
        self._starts = starts
        self._versions = versions

    @classmethod
    def read(cls, timed: DataFrame, files: DataFrame | None) -> "Sessions":
        """Read the lines. Their number is that of starts and different values, whatever was logged in between."""
        known = f.col("speaker").isNotNull() & f.col("at").isNotNull()
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
        mine = self._latest(loss.broker)
        for ms, by in (
            (next((each.negotiated_ms for each in mine if each.negotiated_ms), None), NEGOTIATED),
            (self._setting(mine, ZOOKEEPER_SESSION), CONFIGURED),
            (agreed(each.negotiated_ms for each in self._told if each.negotiated_ms), OTHERS),
            (agreed(self._of_all(ZOOKEEPER_SESSION)), OTHERS),
        ):
            if ms:
                return Session(ms * _MS, by)
        return default(self._versions.get(loss.broker) or self._versions.get(loss.controller) or (), is_kraft=False)

    def _kraft(self, broker: int, controller: int | None) -> Session:
        """The controller's setting, and the heartbeat interval of the broker."""
        interval = self._setting(self._latest(broker), HEARTBEAT_INTERVAL) or agreed(self._of_all(HEARTBEAT_INTERVAL))
        heartbeat_us = HEARTBEAT_US if interval is None else interval * _MS
        mine = None if controller is None else self._setting(self._latest(controller), KRAFT_SESSION)
        if mine:
            return Session(mine * _MS, CONFIGURED, heartbeat_us)
        others = agreed(self._of_all(KRAFT_SESSION))
        return Session(others * _MS, OTHERS, heartbeat_us) if others else default((), is_kraft=True)

    def _latest(self, broker: int) -> list[SessionLine]:
        """Settings of a broker, the latest first. Timeouts change seldom, and hardly between a start and a loss."""
        return [each for each in reversed(self._told) if each.broker == broker]

    @staticmethod
    def _setting(told: Sequence[SessionLine], name: str) -> int | None:
        return next((found for each in told if (found := value(each.settings, name)) is not None), None)

    def _of_all(self, name: str) -> list[int]:
        return [found for each in self._told if (found := value(each.settings, name)) is not None]


def _versions(files: DataFrame) -> list[Row]:
    return files.where("version is not null").select("broker", "version").collect()
