"""All of a report: what it rests on, what was found, and what is to be said of it."""

import msgspec

from kactl.forensics.whatif.sweep import Answer

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
from .model import Asked, Incident, Lost, Objectives, Partition, Sums, Time


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file and what it can tell; see `files.FILE_COLUMNS`."""

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


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """How finely one broker wrote one kind of log: hours with TRACE lines, and hours with lines of any level."""

    speaker: int | None
    kind: str
    trace_hours: int
    hours: int


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What all of it rests on.

    Attributes:
        begin, end: of the logs; null if no line has a time.
        events: lines that were understood; `unparsed` those that should have been and were not.
        files: logs of Kafka or kactl among the files that were named, and `listed` the first of them.
        unreadable: files that were named and could not be read at all; `broken` these and those not read to the end.
        partitions, topics: that the logs know of.
        led: leaderships that the logs know of; `with_log_end` those where a line says where the leader's log ends.
        brokers: that the logs speak of, ascending; `silent` those of them without a line of their own.
        controllers_heard: brokers whose controller.log (or kactl's, or the metadata log) is there.
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
    levels: tuple[Spoken, ...]
    clocks: tuple[Clock, ...]
    partitions: int
    topics: int
    led: int
    with_log_end: int
    brokers: tuple[int, ...]
    silent: tuple[int, ...]
    kinds: tuple[str, ...]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found, before anything is said of it. Lists hold the worst, the worst first; counts say how many.

    Attributes:
        forced, planned, unexplained: outages after a leader was lost, those that somebody wanted, and those of leaders
            that were moved alive, and no line says why.
        moved: the partitions of the unexplained ones that were away for longest.
        objectives: null if the logs know of no partition.
        incidents: shown in full, in order of time; `incidents_all` is how many there were.
        others: the rest of them, in order of time, at the most `incidents.LISTED`.
        unclean_enabled: topics for which the logs say that unclean elections are allowed; "" is all by default.
        absences: of brokers, in order of time.
    """

    made_by: str
    asked: Asked
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
    """What to do, and what in the logs says so."""

    rule: str
    do: str
    because: str


class ReportCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """What the logs of a report cover. Shares are from 0 to 1.

    Attributes:
        stated: the same in words; the first line of every report.
        share: the least of the four shares below.
        is_partial: whether it is below 0.95, so that the command exits with 1 without `--partial`.
        brokers: brokers that the logs know of; `brokers_missing` those without a log of their own.
        brokers_share: of brokers with a log; 1 where the only logs are a controller's complete record.
        files: logs, those that could not be read included; `files_broken` those not read to their end.
        lines_share: of the lines that matter, those that were understood.
        begin, end: of the logs; null if no line has a time.
        time_share: of the time that was asked for, how much the logs reach.
        partitions: that the logs know of.
    """

    stated: str
    share: float
    is_partial: bool
    brokers: int
    brokers_missing: tuple[int, ...]
    brokers_share: float
    files: int
    files_broken: int
    files_share: float
    lines_share: float
    begin: Time | None
    end: Time | None
    time_share: float
    partitions: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Facts and what is to be said of them.

    Attributes:
        coverage: what the logs cover; it comes first wherever a report is shown.
        next: what would be offline if brokers died where the logs end; null if too little is known of the cluster.
        headline: one sentence.
        summary: sentences for whoever reads nothing else.
        limits: what the logs cannot tell, and what follows from that.
    """

    coverage: ReportCoverage
    headline: str
    summary: tuple[str, ...]
    limits: tuple[str, ...]
    advice: tuple[Advice, ...]
    facts: Facts
    next: Answer | None = None
