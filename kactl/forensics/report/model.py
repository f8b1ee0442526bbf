"""Values of a report about outages; `kactl forensics report -o json` prints them.

Times are in UTC. Null means that the logs do not show the value.
"""

import msgspec

from kactl.forensics.wording import Time, known_name


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Requested scope of a report; null: no restriction.

    Attributes:
        begin, end: only what happened between them.
        topic: only topics whose whole name it matches, as a regular expression.
    """

    begin: Time | None = None
    end: Time | None = None
    topic: str | None = None


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of one kind of time, milliseconds; null if it is never known.

    Attributes:
        known: number of outages for which it is known.
    """

    known: int
    p50: int | None = None
    p90: int | None = None
    p99: int | None = None
    max: int | None = None


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """Aggregate of many outages. Milliseconds are sums over partitions: a minute of two partitions is two minutes.

    Attributes:
        observed, inferred, bounded: number of outages known to that degree, by the weaker of their two ends.
        open: number of outages that had not ended where the logs end.
        unclean: number that ended with a leader that was not in sync.
        attempts_failed: elections that failed during them.
        least_ms: lower bound of the time.
        most_ms: upper bound; null if unbounded.
        duration, and detection to apply: the time of one outage, and of its parts.
    """

    outages: int
    partitions: int
    topics: int
    observed: int
    inferred: int
    bounded: int
    open: int
    unclean: int
    attempts_failed: int
    total_ms: int
    least_ms: int
    most_ms: int | None
    duration: Percentiles
    detection: Percentiles
    queue: Percentiles
    waiting: Percentiles
    election: Percentiles
    send: Percentiles
    apply: Percentiles


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Share of one topic, broker or cause."""

    name: str
    outages: int
    partitions: int
    total_ms: int
    longest_ms: int


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One outage of one partition, as it is drawn; see the columns of job `outages`."""

    begin: Time
    begin_low: Time | None
    begin_high: Time | None
    begin_kind: str
    end: Time | None
    end_low: Time | None
    end_high: Time | None
    end_kind: str
    duration_ms: int
    cause: str
    broker: int | None
    new_leader: int | None
    unclean: bool | None


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition and its longest outages within an incident.

    Attributes:
        life: number of the topic of this name, from 0.
        outages: total number of outages, including those that are not in `bars`.
    """

    topic: str
    partition: int
    life: int
    outages: int
    total_ms: int
    bars: tuple[Bar, ...]

    @property
    def name(self) -> str:
        return known_name(self.topic, self.partition, self.life)


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """Outages of about one length, and the mean of their parts; milliseconds.

    Attributes:
        name: name of the band, from the shortest outages on.
        unknown_ms: part of the time that is unknown; with it the parts add up to `mean_ms`.
    """

    name: str
    outages: int
    mean_ms: float
    detection_ms: float
    queue_ms: float
    waiting_ms: float
    election_ms: float
    send_ms: float
    apply_ms: float
    unknown_ms: float

    def part_ms(self, part: str) -> float:
        """Returns the mean of a part, such as 'detection' or 'unknown'."""
        mean: float = getattr(self, f"{part}_ms")
        return mean


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Error budget of an availability objective, and its consumption.

    Attributes:
        objective: the share of time for which a partition is to have a leader.
        minutes: allowed time without a leader, in partition-minutes (added up over partitions).
        used: used share of it; above 1 if exceeded.
        partitions_over: number of partitions that exceed the allowance of a single partition.
    """

    objective: float
    minutes: float
    used: float
    partitions_over: int


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Time without a leader, compared with availability objectives.

    Attributes:
        topic: null: all topics together.
        partitions: number in the logs; the budgets are theirs.
        lost_minutes: partition-minutes.
        budgets: one for each objective, the least strict first.
    """

    topic: str | None
    partitions: int
    lost_minutes: float
    budgets: tuple[Budget, ...]


class Objectives(msgspec.Struct, frozen=True, kw_only=True):
    """Consumption of error budgets in the report, by cause.

    Each list begins with the value of all topics, followed by the topics that used most of their own budget; it is
    empty if nothing was used.

    Attributes:
        period_ms: period of the objectives: 30 days, or the time of the logs if that is longer.
        partitions: number in the logs.
    """

    period_ms: int
    partitions: int
    forced: tuple[Spent, ...] = ()
    planned: tuple[Spent, ...] = ()
    unexplained: tuple[Spent, ...] = ()


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """An incident in slots of equal width; every tuple has one number for each.

    Attributes:
        observed, guessed: outages in progress in the slot, by whether both ends were observed.
        elections: leaders that took over.
        losses, unclean: partitions that lost records, unclean elections.
    """

    begin: Time
    slot_ms: float
    observed: tuple[int, ...]
    guessed: tuple[int, ...]
    elections: tuple[int, ...]
    losses: tuple[int, ...]
    unclean: tuple[int, ...]

    @property
    def peak(self) -> int:
        return max((a + b for a, b in zip(self.observed, self.guessed, strict=True)), default=0)


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """Lost records, added up over partitions. For each partition and epoch only the replica with the largest loss
    counts.

    Attributes:
        committed: records below a known high watermark; a lower bound.
        tail: all removed records.
        committed_sure, tail_sure: those of replicas with their own history in the logs.
        unsized: number of removals of unknown size.
    """

    partitions: int = 0
    committed: int = 0
    tail: int = 0
    committed_sure: int = 0
    tail_sure: int = 0
    unsized: int = 0


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """Failures within one interval; see `incidents`.

    Attributes:
        number: from 1, in order of time.
        sums: of forced outages; null if the incident has only losses or unclean elections.
        causes, topics, brokers: the worst first; `brokers` are those that lost leaderships.
        partitions: those that were unavailable for longest.
        spent: consumption of 30-day budgets; in all, then by the worst topics.
        series, bands: see there; of incidents that are shown in full.
    """

    number: int
    begin: Time
    end: Time
    sums: Sums | None
    lost: Lost
    unclean: int
    causes: tuple[Share, ...] = ()
    topics: tuple[Share, ...] = ()
    brokers: tuple[Share, ...] = ()
    partitions: tuple[Partition, ...] = ()
    spent: tuple[Spent, ...] = ()
    series: Series | None = None
    bands: tuple[Band, ...] = ()

    @property
    def span_ms(self) -> int:
        return round((self.end - self.begin).total_seconds() * 1000)
