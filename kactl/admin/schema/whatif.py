"""Failure simulation of the running cluster."""

from typing import Annotated, Literal

from msgspec import Meta

from kactl.decide.whatif.outcomes import TOP, RestartPlan
from kactl.decide.whatif.outcomes import Answer as Analysis

from .brokers import SomePartitions
from .common import Answer, AsOf, Int32, Question

SETS_MAX = 100
TOP_MAX = 100
TOGETHER_MAX = 1000

SweepName = Literal["brokers", "pairs", "racks", "rack+broker", "rolling"]


class FailureSet(Question, frozen=True):
    """Brokers and whole racks that fail at the same time."""

    brokers: Annotated[list[Int32], Meta(max_length=1000)] = []
    racks: Annotated[list[str], Meta(max_length=1000)] = []


class WhatIfRequest(Question, frozen=True):
    """Failures to simulate. Without any, each broker, each pair, and each rack if racks are known.

    Attributes:
        kill: sets of brokers; each set is simulated by itself.
        sweeps: every case of a kind.
        restart: plan a rolling restart with at most this number of brokers at a time.
        top: number of worst cases that are explained for each sweep.
    """

    kill: Annotated[list[FailureSet], Meta(max_length=SETS_MAX)] = []
    sweeps: Annotated[list[SweepName], Meta(max_length=5)] | None = None
    restart: Annotated[int, Meta(ge=1, le=TOGETHER_MAX)] | None = None
    top: Annotated[int, Meta(ge=1, le=TOP_MAX)] = TOP


class ShardOutcome(Answer, frozen=True):
    """What failures do to the shards of ownership topics, which are not partitions of the analysis.

    Attributes:
        brokers: the participants that fail; none for the present state.
        moved: shards that other participants would own. `unowned`: shards that none could own, until a participant that
            offers their topics starts.
        explained: the outcome in sentences.
    """

    brokers: tuple[int, ...]
    moved: SomePartitions
    unowned: SomePartitions
    explained: str


class WhatIf(Answer, frozen=True):
    """Outcomes of the simulated failures. `restart`: null unless the request asked for a plan.

    `shards`: the present state, and then one outcome for each set of `kill`; empty without shards.
    """

    analysis: Analysis
    restart: RestartPlan | None
    as_of: AsOf
    shards: tuple[ShardOutcome, ...] = ()


class Stoppable(Answer, frozen=True):
    """Whether a broker can stop now without harm.

    Attributes:
        stoppable: no partition would lose its leader or a record, or fall below `min.insync.replicas`.
        state: of the broker now. A broker that is not live can stop.
        offline: partitions that would have no leader; `lossy`: that a replica out of sync would lead, because unclean
            elections are allowed; `under_min_isr`: that would reject writes with acks=all.
        unowned: shards of ownership topics that no other participant could own.
        last_in_sync: partitions that would have a single in-sync replica; they do not prevent the stop.
        explained: the outcome in sentences.
    """

    broker: int
    stoppable: bool
    state: Literal["live", "fenced", "drained", "shutting_down", "dead"]
    offline: SomePartitions
    lossy: SomePartitions
    under_min_isr: SomePartitions
    last_in_sync: SomePartitions
    explained: str
    as_of: AsOf
    unowned: SomePartitions = SomePartitions(count=0, first=())
