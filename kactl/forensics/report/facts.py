"""Values of a report: sources, facts, and the sentences about them."""

from typing import Literal

import msgspec

from kactl.decide.whatif.outcomes import Answer
from kactl.forensics.wording import Time

from .findings import (
    Absence,
    Churn,
    Clock,
    Controllership,
    Deletion,
    Finding,
    Flapping,
    Loss,
    Reassignment,
    Requests,
    Unclean,
)
from .gaps import Gap
from .model import Incident, Lost, Objectives, Partition, Scope, Sums


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file and what can be read from it; see `tables.FILE_COLUMNS`."""

    path: str
    kind: str
    broker: int | None
    version: str | None
    levels: tuple[str, ...]
    begin: Time | None
    end: Time | None
    lines: int
    unparsed: int
    coverage: float | None
    warnings: tuple[str, ...]
    error: str | None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is no log of Kafka, and why."""

    path: str
    reason: str


class LogDetail(msgspec.Struct, frozen=True, kw_only=True):
    """Detail of one kind of log of one broker: hours with TRACE lines, and hours with lines of any level."""

    speaker: int | None
    kind: str
    trace_hours: int
    hours: int


class Jump(msgspec.Struct, frozen=True, kw_only=True):
    """A clock that was set back: the time after it in UTC, and the size of the step."""

    broker: int
    at: Time
    ms: int


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Sources of a report.

    Attributes:
        begin, end: of the logs; null if no line has a time.
        events: recognised lines; `unparsed` lines that should have been recognised and were not.
        files: logs of Kafka or kactl among the given files; `listed` the first of them.
        unreadable: given files that could not be read at all; `broken` these and those not read to the end.
        partitions, topics: number that occur in the logs.
        led: number of leaderships in the logs; `with_log_end` those with a known end of the leader's log.
        brokers: those in the logs, ascending; `silent` those of them without a line of their own.
        kinds: kinds of the logs, ascending; see `event_types.Kind`.
        gaps: time without lines of brokers that have a log, see `gaps`.
        epochs_missing: leader epochs between known ones that are in no log: changes of leaders or ISRs that no line
            shows; `epochs_missing_of` the partitions with most of them.
        unnamed: changes of partitions that controllers with KRaft made in lines that do not name the partitions, where
            no line names any, as at INFO.
        jumps: the largest steps back of brokers' clocks.
        with_detections: whether any line shows that a controller noticed a broker that came or went.
        not_understood: the first files with lines of Kafka in an unknown layout; also in `unreadable`.
        left_out: the first of the `left_out_all` other files, which are no logs of Kafka.
    """

    begin: Time | None
    end: Time | None
    time_zone: str
    lines: int
    events: int
    unparsed: int
    files: int
    unreadable: int
    broken: int
    listed: tuple[File, ...]
    levels: tuple[LogDetail, ...]
    clocks: tuple[Clock, ...]
    partitions: int
    topics: int
    led: int
    with_log_end: int
    brokers: tuple[int, ...]
    silent: tuple[int, ...]
    kinds: tuple[str, ...]
    gaps: tuple[Gap, ...] = ()
    epochs_missing: int = 0
    epochs_missing_of: tuple[str, ...] = ()
    unnamed: int = 0
    jumps: tuple[Jump, ...] = ()
    with_detections: bool = False
    not_understood: tuple[str, ...] = ()
    left_out_all: int = 0
    left_out: tuple[LeftOut, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All facts of a report, without sentences. Lists hold the worst rows, the worst first; counts are of all rows.

    Attributes:
        forced, planned, unexplained: outages after the loss of a leader, requested ones, and those of live leaders that
            were moved without a line that gives the reason.
        moved: the partitions of the unexplained ones that were unavailable for longest.
        objectives: null if the logs contain no partition.
        incidents: shown in full, in order of time; `incidents_all` is their total number.
        others: the rest of them, in order of time, at most `incidents.LISTED`.
        unclean_enabled: topics that allow unclean elections according to the logs; "" is all by default.
        absences: of brokers, in order of time.
    """

    made_by: str
    asked: Scope
    sources: Sources
    forced: Sums
    planned: Sums
    unexplained: Sums
    moved: tuple[Partition, ...]
    objectives: Objectives | None
    incidents_all: int
    incidents: tuple[Incident, ...]
    others: tuple[Incident, ...]
    lost: Lost
    losses: tuple[Loss, ...]
    lost_topics: tuple[tuple[str, Lost], ...]
    unclean_all: int
    unclean_sure: int
    unclean: tuple[Unclean, ...]
    unclean_enabled: tuple[str, ...]
    flapping_all: int
    flapping: tuple[Flapping, ...]
    churn: tuple[Churn, ...]
    controllers: tuple[Controllership, ...]
    requests: tuple[Requests, ...]
    absences: tuple[Absence, ...]
    deletions_all: int
    deletions: tuple[Deletion, ...]
    reassignments_all: int
    reassignments: tuple[Reassignment, ...]
    audit: tuple[Finding, ...]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Advice, and the evidence for it."""

    rule: str
    do: str
    because: str


class ReportCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """Coverage of a report. Shares are from 0 to 1.

    Attributes:
        stated: the same as a sentence; the first line of every report.
        share: the least of the five shares below.
        is_partial: whether it is below 0.95, so that the command exits with 1 without `--partial`.
        brokers: brokers that occur in the logs; `brokers_missing` those without a log of their own.
        brokers_share: of brokers with a log; 1 if the only logs are a controller's complete record.
        files: logs, including unreadable ones; `files_broken` those not read to their end, `files_not_understood` the
            first of those in an unknown layout.
        lines_share: share of relevant lines that were recognised.
        begin, end: of the logs; null if no line has a time.
        time_share: share of the requested time that the logs cover, averaged over the brokers that have a log.
        epochs_missing: leader epochs in no log; `epochs_share` the share of those that are in one.
        partitions: number that occur in the logs.
    """

    stated: str
    share: float
    is_partial: bool
    brokers: int
    brokers_missing: tuple[int, ...]
    brokers_share: float
    files: int
    files_broken: int
    files_not_understood: tuple[str, ...]
    files_share: float
    lines_share: float
    begin: Time | None
    end: Time | None
    time_share: float
    epochs_missing: int
    epochs_share: float
    partitions: int


Severity = Literal["critical", "major", "minor", "none", "unknown"]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A question and its answer."""

    name: str
    text: str


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """The five lines.

    Attributes:
        severity: see `brief.severity`.
        is_over: whether all partitions had a leader where the logs end; null if the logs cannot show it.
    """

    severity: Severity
    is_over: bool | None
    lines: tuple[Line, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Facts and the sentences about them.

    Attributes:
        coverage: coverage of the logs; the first part of every report.
        brief: severity, whether it is over, and the lines for readers of nothing else.
        next: partitions that further broker failures would take offline where the logs end; null if too little is known
            of the cluster.
        headline: one sentence.
        summary: the most important sentences.
        limits: facts that the logs cannot show, and the consequences.
    """

    coverage: ReportCoverage
    brief: Brief
    headline: str
    summary: tuple[str, ...]
    limits: tuple[str, ...]
    advice: tuple[Advice, ...]
    facts: Facts
    next: Answer | None = None
