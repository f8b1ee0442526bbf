"""What a report says of outages, as plain values; `kactl forensics report -o json` prints them.

Times are in UTC. Null means that the logs do not say it.
"""

import datetime

import msgspec

Time = datetime.datetime


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the report is about; null: all of it.

    Attributes:
        begin, end: only what was going on between them.
        topic: only topics whose whole name it matches, as a regular expression.
    """

    begin: Time | None = None
    end: Time | None = None
    topic: str | None = None


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Of one kind of time, milliseconds; null where it is never known.

    Attributes:
        known: of how many outages it is known.
    """

    known: int
    p50: int | None = None
    p90: int | None = None
    p99: int | None = None
    max: int | None = None


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """Many outages in numbers. Milliseconds are sums over partitions: a minute of two partitions is two minutes.

    Attributes:
        observed, inferred, bounded: how many outages are known how well, by the worse of their two ends.
        open: how many had not ended where the logs end.
        unclean: how many ended with a leader that was not in sync.
        attempts_failed: elections that failed meanwhile.
        least_ms: no less than this, by the outages' bounds.
        most_ms: no more than this; null if that is not bounded.
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
    """What fell to one topic, broker or cause."""

    name: str
    outages: int
    partitions: int
    total_ms: int
    longest_ms: int


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One outage of one partition, as it is drawn; see the columns of `jobs/outages.py`."""

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
    """A partition and its outages within an incident, the longest of them.

    Attributes:
        life: which topic of this name, from 0 on.
        outages: how many there were, also of those that are not in `bars`.
    """

    topic: str
    partition: int
    life: int
    outages: int
    total_ms: int
    bars: tuple[Bar, ...]

    @property
    def name(self) -> str:
        again = f" (life {self.life + 1})" if self.life else ""
        return f"{self.topic}-{self.partition}{again}"


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """Outages of about one length, and where their time went on average; milliseconds.

    Attributes:
        name: which they are, from the shortest on.
        unknown_ms: what of it cannot be told; with it the parts add up to `mean_ms`.
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


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What an objective of availability allows, and how much of it was taken.

    Attributes:
        objective: the share of time for which a partition is to have a leader.
        minutes: without a leader that it allows, added up over partitions: partition-minutes.
        used: the share of them that was taken; above 1, more than all.
        partitions_over: those that alone were away for longer than the objective allows each of them.
    """

    objective: float
    minutes: float
    used: float
    partitions_over: int


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Time without a leader, against objectives of availability.

    Attributes:
        topic: whose; null: of all topics together.
        partitions: that the logs know of; the budgets are theirs.
        lost_minutes: partition-minutes.
        budgets: one for each objective, the mildest first.
    """

    topic: str | None
    partitions: int
    lost_minutes: float
    budgets: tuple[Budget, ...]


class Objectives(msgspec.Struct, frozen=True, kw_only=True):
    """What all that is in the report took of what objectives allow, by why it was taken.

    Each begins with that of all topics, and then has the topics that took most of their own; it is empty if nothing
    was taken.

    Attributes:
        period_ms: what the objectives are about: 30 days, or the time of the logs if that is longer.
        partitions: that the logs know of.
    """

    period_ms: int
    partitions: int
    forced: tuple[Spent, ...] = ()
    planned: tuple[Spent, ...] = ()
    unexplained: tuple[Spent, ...] = ()


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """An incident in slots of time of equal width; every tuple has one number for each.

    Attributes:
        observed, guessed: outages that were going on at some time in the slot, by whether both ends were observed.
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
    """Records lost, over partitions; of each partition and epoch the replica that had most counts, and no other.

    Attributes:
        committed: below a known high watermark; no less than this.
        tail: all that was cut off.
        committed_sure, tail_sure: of them, where the replica's own history is in the logs.
        unsized: how often something was cut off, and no line says how much.
    """

    partitions: int = 0
    committed: int = 0
    tail: int = 0
    committed_sure: int = 0
    tail_sure: int = 0
    unsized: int = 0


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """What happened within one stretch of time; see `incidents.py`.

    Attributes:
        number: from 1 on, in order of time.
        sums: of forced outages; null if none is in it, but a loss or an unclean election.
        causes, topics, brokers: the worst of them, the worst first; `brokers` are those whose leaderships were lost.
        partitions: those that were away for longest.
        spent: of what objectives of availability allow in 30 days; in all, then by the worst topics.
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
