"""Analysis of a snapshot: evaluate failure scenarios, rank their outcomes, and explain the worst."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from kactl.decide.state.rows import Bools, RowNumbers
from kactl.runtime.progress import ProgressCallback, no_progress

from . import sentences
from .classes import Floats
from .coverage import Coverage
from .engine import InSequence, OneMore, Simultaneous, TopicLosses
from .failure_model import COUNTS, LONE, LOSSY, MOVED, OFFLINE, UNDER_MIN, Sums
from .outcomes import TOP, Answer, Cost, Kind, Now, Outcome, Rolling, Scenario, Sweep
from .prepared_snapshot import PreparedSnapshot
from .topology import BrokerPositions

# Limit of the loads of one block of scenarios, float64[firsts, B, B].
_BLOCK_BYTES: Final = 32 * 1024**2


def answer(
    snapshot: PreparedSnapshot,
    kills: Sequence[Scenario] = (),
    sweeps: Sequence[Kind] = (),
    *,
    top: int = TOP,
    on_progress: ProgressCallback = no_progress,
) -> Answer:
    """Evaluate single scenarios and sweeps over a snapshot.

    Args:
        kills: single scenarios.
        sweeps: kinds other than `Kind.KILL`; sweeps over racks have no scenarios if no racks are known.
        top: number of outcomes to explain per sweep.
    """
    begin = time.perf_counter()
    analysis = _Analysis(snapshot, top, on_progress)
    now = analysis.now()
    killed = analysis.killed(kills)
    swept = [analysis.sweep(kind) for kind in sweeps if kind is not Kind.ROLLING]
    rolling = analysis.rolling() if Kind.ROLLING in sweeps else []
    return Answer(
        coverage=Coverage.of(known=snapshot.partitions, unknown=snapshot.unknown),
        now=now,
        killed=tuple(killed),
        sweeps=tuple(swept),
        rolling=tuple(rolling),
        cost=Cost(
            classes=snapshot.engine.classes,
            scenarios=len(killed) + sum(sweep.scenarios for sweep in swept) + sum(roll.steps for roll in rolling),
            seconds=round(time.perf_counter() - begin, 3),
        ),
        notes=sentences.notes(snapshot, now),
    )


def outcome_of(snapshot: PreparedSnapshot, scenario: Scenario) -> Outcome:
    """Return the outcome of a single scenario."""
    (found,) = _Analysis(snapshot, TOP, no_progress).killed([scenario])
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Ranking:
    """Outcomes of n numbered scenarios: counts, and the broker that leads most.

    Attributes:
        counts: float64[n, 6], see `failure_model.COUNTS`.
        busiest: int[n], a broker's position; `leads`: float64[n], what it leads.
    """

    counts: Floats
    busiest: RowNumbers
    leads: Floats

    @staticmethod
    def of(sums: Sums) -> "Ranking":
        """Build a ranking from sums, with the scenario as their first axis."""
        busiest = sums.load.argmax(axis=1) if sums.load.size else np.zeros(len(sums.load), np.intp)
        return Ranking(sums.counts, busiest, sums.load[np.arange(len(busiest)), busiest])

    @staticmethod
    def joined(parts: "Sequence[Ranking]") -> "Ranking":
        """Concatenate rankings."""
        names = (field.name for field in dataclasses.fields(Ranking))
        return Ranking(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.counts)

    def worst(self, top: int) -> list[int]:
        """Return the numbers of the worst scenarios, the worst first; of equal ones, the first.

        Scenarios are compared by the number of partitions offline, then by partitions that lose records, partitions
        under min.insync.replicas, partitions one failure from loss, and the load of the busiest leader.
        """
        counted = (-self.counts[:, index] for index in (LONE, UNDER_MIN, LOSSY, OFFLINE))
        order = np.lexsort((-np.round(self.leads, 6), *counted))
        return [int(number) for number in order[:top]]

    def harmless(self, before: Floats) -> Bools:
        """Return bool[n]: whether no more partitions are offline than before and none loses records."""
        calm: Bools = (self.counts[:, OFFLINE] <= before[OFFLINE]) & (self.counts[:, LOSSY] == 0)
        return calm


class _Analysis:
    """Analysis of one snapshot."""

    def __init__(self, snapshot: PreparedSnapshot, top: int, on_progress: ProgressCallback) -> None:
        self._snapshot = snapshot
        self._engine = snapshot.engine
        self._topology = snapshot.engine.topology
        self._top = top
        self._on_progress = on_progress
        on_progress("current state", 0, 0)
        self._before = self._engine.sums(Simultaneous(((),)))

    # -- parts of an answer --------------------------------------------------------------------------------------------

    def now(self) -> Now:
        snapshot, topology = self._snapshot, self._topology
        return Now(
            source=snapshot.source,
            at_us=snapshot.at_us,
            partitions=snapshot.partitions,
            topics=self._engine.topics,
            unknown=snapshot.unknown,
            stuck=round(self._engine.stuck),
            brokers=topology.alive,
            away=tuple(sorted(topology.away)),
            racks=dict(topology.racks),
            min_isr=snapshot.assumed.min_isr,
            outcome=self._outcomes(Ranking.of(self._before), [0], [topology.failing()].__getitem__)[0],
        )

    def killed(self, kills: Sequence[Scenario]) -> list[Outcome]:
        """Return the outcomes of single scenarios, in the given order."""
        return self._outcomes(self._at_once(kills, Kind.KILL), range(len(kills)), kills.__getitem__)

    def sweep(self, kind: Kind) -> Sweep:
        """Evaluate a sweep.

        Raises:
            ValueError: the kind is not a sweep over scenarios.
        """
        begin, topology = time.perf_counter(), self._topology
        match kind:
            case Kind.RACKS:
                racks = self._whole_racks()
                return self._swept(kind, self._at_once(racks, kind), racks.__getitem__, begin)
            case Kind.BROKERS:
                firsts = [topology.failing()]
            case Kind.PAIRS:
                firsts = [topology.failing([broker]) for broker in topology.alive]
            case Kind.RACK_AND_BROKER:
                firsts = self._whole_racks()
            case _:
                raise ValueError(f"{kind} is not a sweep over scenarios")
        ranking, pairs = self._one_more(firsts, kind, ordered=kind is Kind.PAIRS)

        def scenario(number: int) -> Scenario:
            first, other = pairs[number]
            return topology.failing((*firsts[first].alone, topology.brokers[other]), firsts[first].racks)

        return self._swept(kind, ranking, scenario, begin)

    def rolling(self) -> list[Rolling]:
        """Return rolling restarts by id and, if racks are known, rack by rack and of whole racks."""
        topology = self._topology
        orders = [("one broker at a time, by id", [topology.failing([each]) for each in topology.alive])]
        if topology.racks:
            inside = [broker for rack in topology.racks.values() for broker in rack if broker not in topology.away]
            others = [topology.failing([broker]) for broker in topology.alive if broker not in inside]
            by_rack = [*(topology.failing([broker]) for broker in inside), *others]
            whole = [*self._whole_racks(), *others]
            orders += [("one broker at a time, rack by rack", by_rack), ("a whole rack at a time", whole)]
        return [self._rolled(order, steps) for order, steps in orders]

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def _whole_racks(self) -> list[Scenario]:
        racks = (self._topology.failing(racks=[rack]) for rack in self._topology.racks)
        return [scenario for scenario in racks if scenario.brokers]

    def _at_once(self, scenarios: Sequence[Scenario], kind: Kind) -> Ranking:
        if not scenarios:
            return Ranking.of(_none(self._before))
        self._on_progress(kind, 0, 0)
        return Ranking.of(self._engine.sums(Simultaneous(self._positions(scenarios))))

    def _positions(self, scenarios: Iterable[Scenario]) -> tuple[BrokerPositions, ...]:
        return tuple(self._topology.positions(scenario.brokers) for scenario in scenarios)

    def _one_more(
        self, firsts: Sequence[Scenario], kind: Kind, *, ordered: bool
    ) -> tuple[Ranking, list[tuple[int, int]]]:
        """Evaluate each of the first sets together with every other live broker.

        Args:
            ordered: only brokers after those of the first set, so that each pair is evaluated once.

        Returns:
            The outcomes, and for each the index of the first set and the position of the other broker.
        """
        alive, pairs = self._topology.positions(self._topology.alive), []
        parts = [Ranking.of(_none(self._before))]
        size, positions = self._block(len(self._topology.brokers)), self._positions(firsts)
        for begin in range(0, len(firsts), size):
            self._on_progress(kind, begin, len(firsts))
            block = positions[begin : begin + size]
            sums = self._engine.sums(OneMore(block))
            for index, first in enumerate(block):
                more = [other for other in alive if other not in first and not (ordered and other < first[-1])]
                parts.append(Ranking.of(Sums(sums.counts[index, more], sums.load[index, more])))
                pairs += [(begin + index, other) for other in more]
        return Ranking.joined(parts), pairs

    def _block(self, brokers: int) -> int:
        return max(1, _BLOCK_BYTES // max(1, 8 * brokers * brokers))

    def _swept(self, kind: Kind, ranking: Ranking, scenario: Callable[[int], Scenario], begin: float) -> Sweep:
        before = self._before.counts[0]
        harmless = ranking.harmless(before)
        writable = harmless & (ranking.counts[:, UNDER_MIN] <= before[UNDER_MIN])
        worst = self._outcomes(ranking, ranking.worst(self._top), scenario)
        return Sweep(
            kind=kind,
            scenarios=len(ranking),
            harmless=int(np.count_nonzero(harmless)),
            writable=int(np.count_nonzero(writable)),
            worst=tuple(worst),
            seconds=round(time.perf_counter() - begin, 3),
        )

    def _rolled(self, order: str, steps: list[Scenario]) -> Rolling:
        self._on_progress(f"{Kind.ROLLING}, {order}", 0, 0)
        sums = self._engine.sums(InSequence(self._positions(steps)))
        # Without a broker to restart, the worst state is the current one.
        last = max(1, len(steps))
        ranking = Ranking.of(Sums(sums.counts[:last], sums.load[:last]))
        after = Ranking.of(Sums(sums.counts[-1:], sums.load[-1:]))
        (worst,) = self._outcomes(ranking, ranking.worst(1), (steps or [self._topology.failing()]).__getitem__)
        result = Rolling(
            order=order,
            steps=len(steps),
            bad_steps=int(np.count_nonzero(ranking.counts[:, OFFLINE] > self._before.counts[0, OFFLINE])),
            moves=int(sums.counts[-1, MOVED]),
            worst=worst,
            busiest=self._busiest(after, 0),
            busiest_leads=_rounded(after.leads[0]),
        )
        text = sentences.explained_roll(result, whole=not self._snapshot.unknown)
        return msgspec.structs.replace(result, explained=text)

    def _outcomes(self, ranking: Ranking, which: Iterable[int], scenario: Callable[[int], Scenario]) -> list[Outcome]:
        """Return some outcomes of a ranking, with explanations and the topics that lose most."""
        numbers = list(which)
        scenarios = [scenario(number) for number in numbers]
        losses = self._engine.lost(self._positions(scenarios))
        outcomes = []
        for number, failed, lost in zip(numbers, scenarios, losses, strict=True):
            outcome = self._outcome(ranking, number, failed, lost)
            weighted = self._snapshot.assumed.weighted
            text = sentences.explained(outcome, weighted=weighted, whole=not self._snapshot.unknown)
            outcomes.append(msgspec.structs.replace(outcome, explained=text))
        return outcomes

    def _outcome(self, ranking: Ranking, number: int, scenario: Scenario, lost: TopicLosses) -> Outcome:
        counts, before = ranking.counts[number].astype(np.int64), self._before.counts[0].astype(np.int64)
        more, busiest = counts - before, self._busiest(ranking, number)
        by_name: dict[str, Any] = dict(zip(COUNTS, counts.tolist(), strict=True))
        return Outcome(
            scenario=scenario,
            **by_name,
            offline_more=int(more[OFFLINE]),
            under_min_more=int(more[UNDER_MIN]),
            lone_more=int(more[LONE]),
            busiest=busiest,
            busiest_leads=_rounded(ranking.leads[number]),
            busiest_led=0.0 if busiest is None else _rounded(self._before.load[0, ranking.busiest[number]]),
            topics=lost.topics,
            worst_topics=lost.worst,
        )

    def _busiest(self, ranking: Ranking, number: int) -> int | None:
        return self._topology.brokers[int(ranking.busiest[number])] if ranking.leads[number] > 0 else None


def _none(like: Sums) -> Sums:
    return Sums(like.counts[:0], like.load[:0])


def _rounded(value: float) -> float:
    """Remove the rounding errors of sums of floats."""
    return round(float(value), 6)
