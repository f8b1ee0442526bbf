"""Sweeps over failure scenarios: evaluate them, rank the outcomes, and explain the worst."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from kactl.forensics.coverage import Coverage
from kactl.forensics.progress import ProgressCallback, no_progress

from . import words
from .engine import BrokerPositions, InSequence, OneMore, Simultaneous
from .failure_model import LONE, LOSSY, MOVED, OFFLINE, RECOVERABLE, UNDER_MIN, Sums
from .notes import notes
from .prepared_snapshot import PreparedSnapshot
from .ranking import Ranking
from .sweep import TOP, Answer, Cost, Kind, Now, Outcome, Rolling, Scenario, Sweep

# Loads of one block of scenarios, as float64[firsts, B, B], take no more than this.
_BLOCK_BYTES: Final = 32 * 1024**2
# The same where each task makes them, and Spark adds them up.
_BLOCK_BYTES_IN_SPARK: Final = 8 * 1024**2


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
        kills: scenarios by themselves.
        sweeps: any kinds but `Kind.KILL`; sweeps over racks have no scenarios where no racks are known.
        top: how many of a sweep are explained.
        tell: how far a sweep is.
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
            scenarios=len(killed) + sum(each.scenarios for each in swept) + sum(each.steps for each in rolling),
            seconds=round(time.perf_counter() - begin, 3),
            where=snapshot.engine.where,
        ),
        notes=notes(snapshot, now),
    )


class _Analysis:
    """Analysis of one snapshot."""

    def __init__(self, snapshot: PreparedSnapshot, top: int, on_progress: ProgressCallback) -> None:
        self._snapshot = snapshot
        self._engine = snapshot.engine
        self._topology = snapshot.engine.topology
        self._top = top
        self._on_progress = on_progress
        on_progress("how it is now", 0, 0)
        self._before = self._engine.sums(Simultaneous(((),)))

    # -- what can be asked ---------------------------------------------------------------------------------------------

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
            outcome=self._outcomes(Ranking.of(self._before), [0], [topology.dying()].__getitem__)[0],
        )

    def killed(self, kills: Sequence[Scenario]) -> list[Outcome]:
        """In the order in which they were named."""
        return self._outcomes(self._at_once(kills, Kind.KILL), range(len(kills)), kills.__getitem__)

    def sweep(self, kind: Kind) -> Sweep:
        """One sweep over scenarios.

        Raises:
            ValueError: it is another kind.
        """
        begin, topology = time.perf_counter(), self._topology
        alive = topology.positions(topology.alive)
        racks = [each for each in (topology.dying(racks=[rack]) for rack in topology.racks) if each.brokers]
        match kind:
            case Kind.BROKERS:
                ranking, who = self._one_more([()], kind)
                return self._swept(kind, ranking, lambda at: self._named((), who[at][1]), begin)
            case Kind.PAIRS:
                ranking, who = self._one_more([(each,) for each in alive], kind, ordered=True)
                return self._swept(kind, ranking, lambda at: self._named((alive[who[at][0]],), who[at][1]), begin)
            case Kind.RACKS:
                return self._swept(kind, self._at_once(racks, kind), racks.__getitem__, begin)
            case Kind.RACK_AND_BROKER:
                ranking, who = self._one_more([topology.positions(each.brokers) for each in racks], kind)
                return self._swept(
                    kind, ranking, lambda at: self._named((), who[at][1], racks[who[at][0]].racks), begin
                )
        raise ValueError(f"{kind} is no sweep over scenarios")

    def rolling(self) -> list[Rolling]:
        """One by one by id; where racks are known, one by one rack after rack, and a whole rack at a time."""
        topology = self._topology
        orders = [("one broker at a time, by id", [topology.dying([each]) for each in topology.alive])]
        if topology.racks:
            inside = [broker for rack in topology.racks.values() for broker in rack if broker not in topology.away]
            others = [topology.dying([broker]) for broker in topology.alive if broker not in inside]
            by_rack = [*(topology.dying([broker]) for broker in inside), *others]
            whole = [each for each in (topology.dying(racks=[rack]) for rack in topology.racks) if each.brokers]
            orders += [("one broker at a time, rack by rack", by_rack), ("a whole rack at a time", [*whole, *others])]
        return [self._rolled(order, steps) for order, steps in orders]

    # -- how -----------------------------------------------------------------------------------------------------------

    def _named(self, first: BrokerPositions, more: int, racks: tuple[str, ...] = ()) -> Scenario:
        return self._topology.dying((self._topology.brokers[each] for each in (*first, more)), racks)

    def _at_once(self, scenarios: Sequence[Scenario], kind: Kind) -> Ranking:
        if not scenarios:
            return Ranking.of(_none(self._before))
        self._on_progress(kind, 0, 0)
        return Ranking.of(
            self._engine.sums(Simultaneous(tuple(self._topology.positions(each.brokers) for each in scenarios)))
        )

    def _one_more(
        self, firsts: Sequence[BrokerPositions], kind: Kind, *, ordered: bool = False
    ) -> tuple[Ranking, list[tuple[int, int]]]:
        """Each of the first sets, and every living broker more that is not in it.

        Args:
            ordered: only brokers behind those of the first set, so that each pair is there once.

        Returns:
            The outcomes, and for each which of the first sets it is, and who more.
        """
        alive, who = self._topology.positions(self._topology.alive), []
        parts = [Ranking.of(_none(self._before))]
        for begin, block in _blocks(firsts, self._block(len(self._topology.brokers))):
            self._on_progress(kind, begin, len(firsts))
            sums = self._engine.sums(OneMore(tuple(block)))
            for at, first in enumerate(block):
                more = [each for each in alive if each not in first and not (ordered and each < first[-1])]
                parts.append(Ranking.of(Sums(sums.counts[at, more], sums.load[at, more])))
                who += [(begin + at, each) for each in more]
        return Ranking.joined(parts), who

    def _block(self, brokers: int) -> int:
        """How many first sets are summed up in one go."""
        limit = _BLOCK_BYTES if self._engine.where == "here" else _BLOCK_BYTES_IN_SPARK
        return max(1, limit // max(1, 8 * brokers * brokers))

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
        sums = self._engine.sums(InSequence(tuple(self._topology.positions(each.brokers) for each in steps)))
        # With nobody to restart, the worst is how it is.
        last = max(1, len(steps))
        ranking = Ranking.of(Sums(sums.counts[:last], sums.load[:last]))
        after = Ranking.of(Sums(sums.counts[-1:], sums.load[-1:]))
        (worst,) = self._outcomes(ranking, ranking.worst(1), (steps or [self._topology.dying()]).__getitem__)
        rolling = Rolling(
            order=order,
            steps=len(steps),
            bad_steps=int(np.count_nonzero(ranking.counts[:, OFFLINE] > self._before.counts[0, OFFLINE])),
            moves=int(sums.counts[-1, MOVED]),
            worst=worst,
            busiest=self._busiest(after, 0),
            busiest_leads=_plain(after.leads[0]),
        )
        return msgspec.structs.replace(
            rolling, explained=words.explained_roll(rolling, whole=not self._snapshot.unknown)
        )

    def _outcomes(self, ranking: Ranking, which: Iterable[int], scenario: Callable[[int], Scenario]) -> list[Outcome]:
        """Some of what was found, with the topics that lose most, and in words."""
        numbers = list(which)
        scenarios = [scenario(at) for at in numbers]
        lost = self._engine.lost([self._topology.positions(each.brokers) for each in scenarios])
        made = []
        for at, each, topics in zip(numbers, scenarios, lost, strict=True):
            outcome = self._outcome(ranking, at, each)
            outcome = msgspec.structs.replace(outcome, topics=topics.topics, worst_topics=topics.worst)
            said = words.explained(outcome, weighted=self._snapshot.assumed.weighted, whole=not self._snapshot.unknown)
            made.append(msgspec.structs.replace(outcome, explained=said))
        return made

    def _outcome(self, ranking: Ranking, at: int, scenario: Scenario) -> Outcome:
        counts, before = ranking.counts[at].astype(np.int64), self._before.counts[0].astype(np.int64)
        more, busiest = counts - before, self._busiest(ranking, at)
        return Outcome(
            scenario=scenario,
            offline=int(counts[OFFLINE]),
            recoverable=int(counts[RECOVERABLE]),
            lossy=int(counts[LOSSY]),
            under_min=int(counts[UNDER_MIN]),
            lone=int(counts[LONE]),
            moved=int(counts[MOVED]),
            offline_more=int(more[OFFLINE]),
            under_min_more=int(more[UNDER_MIN]),
            lone_more=int(more[LONE]),
            busiest=busiest,
            busiest_leads=_plain(ranking.leads[at]),
            busiest_led=0.0 if busiest is None else _plain(self._before.load[0, ranking.busiest[at]]),
        )

    def _busiest(self, ranking: Ranking, at: int) -> int | None:
        return self._topology.brokers[int(ranking.busiest[at])] if ranking.leads[at] > 0 else None


def _blocks(firsts: Sequence[BrokerPositions], size: int) -> Iterator[tuple[int, Sequence[BrokerPositions]]]:
    for begin in range(0, len(firsts), size):
        yield begin, firsts[begin : begin + size]


def _none(like: Sums) -> Sums:
    """Of no scenario."""
    return Sums(like.counts[:0], like.load[:0])


def _plain(value: float) -> float:
    """Without the noise of sums of floats."""
    return round(float(value), 6)
