"""What is asked, and what comes of it: deaths, their outcomes, and sweeps over many of them.

All of it is plain values that the command line prints as JSON and a report as sentences.
"""

import enum
from typing import Final

import msgspec

from kactl.forensics.coverage import Coverage

# So many of a sweep are told of, unless more are asked for; so many topics of each.
TOP: Final = 10
TOPICS: Final = 5


class Kind(enum.StrEnum):
    """What dies together."""

    KILL = "kill"  # what was named
    BROKERS = "brokers"  # each broker by itself
    PAIRS = "pairs"  # any two brokers
    RACKS = "racks"  # each rack
    RACK_AND_BROKER = "rack+broker"  # each rack, and one broker more
    ROLLING = "rolling"  # one after the other, each back before the next one goes


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Brokers that die at once.

    Attributes:
        brokers: all of them, ascending, those of racks included; none of them was away before.
        racks: racks that die as a whole; `alone`: those that do not die with one.
    """

    brokers: tuple[int, ...]
    racks: tuple[str, ...] = ()
    alone: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """`3 and 4`, `rack a`, `rack a and 7`."""
        parts = [*(f"rack {rack}" for rack in self.racks), *map(str, self.alone)]
        if len(parts) < 2:
            return "".join(parts) or "nobody"
        return f"{', '.join(parts[:-1])} and {parts[-1]}"


class TopicShare(msgspec.Struct, frozen=True, kw_only=True):
    """How many of a topic's partitions."""

    topic: str
    partitions: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is so after some deaths, once the controller has done what it can. Counts are partitions.

    Attributes:
        offline: nobody leads them.
        recoverable: of those that these deaths make so, how many have a replica that lives: an unclean election could
            bring them back, and would lose what it did not have.
        lossy: led by a replica that was not in sync, as unclean elections are allowed: what it did not have is lost.
        under_min: fewer in sync than min.insync.replicas, those offline included: acks=all is refused.
        lone: led, and one failure from loss: nobody but the leader is in sync.
        moved: led by another broker than before.
        offline_more, under_min_more, lone_more: how many more than before; the last less than 0 where such go offline.
        busiest: the broker that leads most then; null if nobody leads anything.
        busiest_leads: how much it leads: partitions, or their weights if some were given; `busiest_led`: and before.
        topics: of how many topics partitions lose their last in-sync replica.
        worst_topics: those that lose most.
        explained: the same in a sentence or two.
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
    """Many scenarios, looked at one by one.

    Attributes:
        scenarios: how many.
        harmless: of them, those after which no more partitions are offline, or lose records, than before.
        writable: of those, the ones after which no more are under min.insync.replicas either.
        worst: the worst of all, the worst first.
        seconds: what it took.
    """

    kind: Kind
    scenarios: int
    harmless: int
    writable: int
    worst: tuple[Outcome, ...]
    seconds: float


class Rolling(msgspec.Struct, frozen=True, kw_only=True):
    """A rolling restart: brokers go and come back step by step, each back in all its ISRs before the next one goes.

    Leaders that moved stay where they are, as they do until somebody asks for preferred leaders.

    Attributes:
        order: in words.
        steps: how many.
        bad_steps: in how many of them partitions are offline that were not before.
        moves: how often a partition gets another leader, all steps together.
        worst: the worst moment.
        busiest, busiest_leads: who leads most when all is over.
    """

    order: str
    steps: int
    bad_steps: int
    moves: int
    worst: Outcome
    busiest: int | None
    busiest_leads: float
    explained: str = ""


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot, and how things are before anybody dies.

    Attributes:
        source: the file, or the folder of tables.
        at_us: of what time it is, microseconds since 1970; null if the snapshot does not say.
        partitions, topics: those that are looked at.
        unknown: partitions that are not, as their replicas or their ISR are not known.
        stuck: partitions without a leader although somebody in sync seems to be alive: taken as leaderless throughout.
        brokers: those that are alive; `away`: those that are not.
        racks: the brokers of each, as far as known.
        min_isr: min.insync.replicas where nothing else is known of a topic.
        outcome: how it is if nobody dies.
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
    """What it took: classes that were told apart, scenarios, seconds, and where the sums were made (here or Spark)."""

    classes: int
    scenarios: int
    seconds: float
    where: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was asked for.

    All counts are of known partitions; of the others nothing is claimed.

    Attributes:
        coverage: the partitions that the answer is about; it comes first wherever an answer is shown.
        notes: what to know before one relies on it, in sentences.
    """

    coverage: Coverage
    now: Now
    killed: tuple[Outcome, ...]
    sweeps: tuple[Sweep, ...]
    rolling: tuple[Rolling, ...]
    cost: Cost
    notes: tuple[str, ...]
