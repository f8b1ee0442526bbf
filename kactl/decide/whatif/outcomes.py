"""Failure scenarios, their outcomes, and answers, as values that are printed as JSON, text or HTML."""

import enum
from typing import Final

import msgspec

from .coverage import Coverage

# Default number of outcomes per sweep, and limit of topics per outcome.
TOP: Final = 10
TOPICS: Final = 5


class Kind(enum.StrEnum):
    """Kind of a set of scenarios."""

    KILL = "kill"  # named brokers
    BROKERS = "brokers"  # each broker alone
    PAIRS = "pairs"  # any two brokers
    RACKS = "racks"  # each rack
    RACK_AND_BROKER = "rack+broker"  # each rack and one more broker
    ROLLING = "rolling"  # one after the other, each back before the next one stops


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Brokers that fail at the same time.

    Attributes:
        brokers: all of them, ascending, including those of racks; all are alive before.
        racks: racks that fail as a whole; `alone`: brokers that fail without their rack.
    """

    brokers: tuple[int, ...]
    racks: tuple[str, ...] = ()
    alone: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Text such as `3 and 4`, `rack a` or `rack a and 7`."""
        parts = [*(f"rack {rack}" for rack in self.racks), *map(str, self.alone)]
        if len(parts) < 2:
            return "".join(parts) or "no broker"
        return f"{', '.join(parts[:-1])} and {parts[-1]}"


class TopicShare(msgspec.Struct, frozen=True, kw_only=True):
    """Number of affected partitions of a topic."""

    topic: str
    partitions: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """State after failures and the elections that follow. Counts are numbers of partitions.

    Attributes:
        offline: without a leader.
        recoverable: of those that these failures take offline, partitions with a live replica. An unclean election
            could elect it and would lose the records that it lacks.
        lossy: led by a replica that was not in sync, because unclean elections are allowed; records are lost.
        under_min: fewer in-sync replicas than min.insync.replicas, including offline partitions; acks=all is rejected.
        lone: led, but one failure from loss, because only the leader is in sync.
        moved: led by another broker than before.
        offline_more, under_min_more, lone_more: difference from before; the last is negative if such partitions go
            offline.
        busiest: the broker with the highest leader load; null if no partition has a leader.
        busiest_leads: its load, in partitions or, if weights are given, in weights; `busiest_led`: its load before.
        topics: number of topics with partitions that lose their last in-sync replica.
        worst_topics: the topics with most such partitions.
        explained: the outcome in sentences.
    """

    scenario: Scenario
    offline: int
    recoverable: int
    lossy: int
    under_min: int
    lone: int
    moved: int
    offline_more: int
    under_min_more: int
    lone_more: int
    busiest: int | None
    busiest_leads: float
    busiest_led: float
    topics: int = 0
    worst_topics: tuple[TopicShare, ...] = ()
    explained: str = ""


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """Evaluation of many scenarios.

    Attributes:
        scenarios: number of scenarios.
        harmless: scenarios after which no more partitions are offline than before, and none loses records.
        writable: harmless scenarios after which no more partitions are under min.insync.replicas than before.
        worst: the worst outcomes, the worst first.
        seconds: duration of the evaluation.
    """

    kind: Kind
    scenarios: int
    harmless: int
    writable: int
    worst: tuple[Outcome, ...]
    seconds: float


class Rolling(msgspec.Struct, frozen=True, kw_only=True):
    """A rolling restart: brokers stop step by step, each back in all its ISRs before the next one stops.

    Leaders that moved do not move back, as without an election of preferred leaders.

    Attributes:
        order: description of the order.
        steps: number of steps.
        bad_steps: steps during which more partitions are offline than before.
        moves: number of changes of leader in all steps.
        worst: the worst step.
        busiest, busiest_leads: the broker with the highest leader load after the restart.
    """

    order: str
    steps: int
    bad_steps: int
    moves: int
    worst: Outcome
    busiest: int | None
    busiest_leads: float
    explained: str = ""


class RestartStep(msgspec.Struct, frozen=True, kw_only=True):
    """Brokers that restart at the same time, and the state while they are down. Counts are numbers of partitions.

    Attributes:
        racks: the racks that these brokers are in, as far as known.
        harmless: nothing is lost or rejected because of this step.
        offline_more, under_min_more: without a leader, and under min.insync.replicas, in addition to those before.
        lossy: led by a replica that was not in sync.
        moved: led by another broker than before the step.
    """

    brokers: tuple[int, ...]
    racks: tuple[str, ...]
    harmless: bool
    offline_more: int
    under_min_more: int
    lossy: int
    moved: int


class RestartPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A rolling restart.

    Attributes:
        together: the limit of brokers per step that the plan was made for.
        order: how the steps are ordered, which of the tried orders moves the fewest leaders.
        moves: number of changes of leader in all steps.
        harmful: steps that are not harmless; each has a single broker, which no order can help.
    """

    together: int
    order: str
    steps: tuple[RestartStep, ...]
    moves: int
    harmful: int


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot, and the state before any failure.

    Attributes:
        source: the file, or the folder of tables.
        at_us: time of the snapshot in microseconds since 1970; null if it is not known.
        partitions, topics: numbers of those that are analysed.
        unknown: partitions that are not analysed, because leader, replicas or ISR are not known.
        stuck: partitions without a leader although an in-sync replica seems to be alive; assumed to stay so.
        brokers: live brokers; `away`: the others.
        racks: brokers of each rack, as far as known.
        min_isr: min.insync.replicas of topics without another value.
        outcome: the state without further failures.
    """

    source: str
    at_us: int | None
    partitions: int
    topics: int
    unknown: int
    stuck: int
    brokers: tuple[int, ...]
    away: tuple[int, ...]
    racks: dict[str, tuple[int, ...]]
    min_isr: int
    outcome: Outcome


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of an answer: partition classes, scenarios, and seconds."""

    classes: int
    scenarios: int
    seconds: float


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an analysis. All counts are of known partitions; unknown ones are not covered.

    Attributes:
        coverage: the partitions that are covered; every representation begins with it.
        notes: limits of the answer, in sentences.
    """

    coverage: Coverage
    now: Now
    killed: tuple[Outcome, ...]
    sweeps: tuple[Sweep, ...]
    rolling: tuple[Rolling, ...]
    cost: Cost
    notes: tuple[str, ...]
