"""What was asked, looked at scenario by scenario, ranked, and the worst of it explained."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from kactl.forensics.coverage import Coverage
from kactl.forensics.progress import Tell, nobody

from . import words
from .engine import AtOnce, InTurn, OneMore, Who
from .failure_model import LONE, LOSSY, MOVED, OFFLINE, RECOVERABLE, UNDER_MIN, Sums
from .notes import notes
from .prepared_snapshot import Ready
from .ranking import Found
from .sweep import TOP, Answer, Cost, Kind, Now, Outcome, Rolling, Scenario, Sweep

# Loads of one block of scenarios, as float64[firsts, B, B], take no more than this.
_BLOCK_BYTES: Final = 32 * 1024**2
# The same where each task makes them, and Spark adds them up.
_BLOCK_BYTES_IN_SPARK: Final = 8 * 1024**2


def answer(
    ready: Ready,
    kills: Sequence[Scenario] = (),
    sweeps: Sequence[Kind] = (),
    *,
    top: int = TOP,
    tell: Tell = nobody,
) -> Answer:
    """Everything that was asked of a snapshot.

    Args:
        kills: scenarios by themselves.
        sweeps: any kinds but `Kind.KILL`; sweeps over racks have no scenarios where no racks are known.
        top: how many of a sweep are explained.
        tell: how far a sweep is.
    """
    begin = time.perf_counter()
    asking = _Asking(ready, top, tell)
    now = asking.now()
    killed = asking.killed(kills)
    swept = [asking.sweep(kind) for kind in sweeps if kind is not Kind.ROLLING]
    rolling = asking.rolling() if Kind.ROLLING in sweeps else []
    return Answer(
        coverage=Coverage.of(known=ready.partitions, unknown=ready.unknown),
        now=now,
        killed=tuple(killed),
        sweeps=tuple(swept),
        rolling=tuple(rolling),
        cost=Cost(
            classes=ready.engine.classes,
            scenarios=len(killed) + sum(each.scenarios for each in swept) + sum(each.steps for each in rolling),
            seconds=round(time.perf_counter() - begin, 3),
            where=ready.engine.where,
        ),
        notes=notes(ready, now),
    )


class _Asking:
    """One snapshot being asked."""

    def __init__(self, ready: Ready, top: int, tell: Tell) -> None:
        self._ready = ready
        self._engine = ready.engine
        self._world = ready.engine.world
        self._top = top
        self._tell = tell
        tell("how it is now", 0, 0)
        self._before = self._engine.sums(AtOnce(((),)))

    # -- what can be asked ---------------------------------------------------------------------------------------------

    def now(self) -> Now:
        ready, world = self._ready, self._world
        return Now(
            source=ready.source,
            at_us=ready.at_us,
            partitions=ready.partitions,
            topics=self._engine.topics,
            unknown=ready.unknown,
            stuck=round(self._engine.stuck),
            brokers=world.alive,
            away=tuple(sorted(world.away)),
            racks=dict(world.racks),
            min_isr=ready.assumed.min_isr,
            outcome=self._outcomes(Found.of(self._before), [0], [world.dying()].__getitem__)[0],
        )

    def killed(self, kills: Sequence[Scenario]) -> list[Outcome]:
        """In the order in which they were named."""
        return self._outcomes(self._at_once(kills, Kind.KILL), range(len(kills)), kills.__getitem__)

    def sweep(self, kind: Kind) -> Sweep:
        """One sweep over scenarios.

        Raises:
            ValueError: it is another kind.
        """
        begin, world = time.perf_counter(), self._world
        alive = world.positions(world.alive)
        racks = [each for each in (world.dying(racks=[rack]) for rack in world.racks) if each.brokers]
        match kind:
            case Kind.BROKERS:
                found, who = self._one_more([()], kind)
                return self._swept(kind, found, lambda at: self._named((), who[at][1]), begin)
            case Kind.PAIRS:
                found, who = self._one_more([(each,) for each in alive], kind, ordered=True)
                return self._swept(kind, found, lambda at: self._named((alive[who[at][0]],), who[at][1]), begin)
            case Kind.RACKS:
                return self._swept(kind, self._at_once(racks, kind), racks.__getitem__, begin)
            case Kind.RACK_AND_BROKER:
                found, who = self._one_more([world.positions(each.brokers) for each in racks], kind)
                return self._swept(kind, found, lambda at: self._named((), who[at][1], racks[who[at][0]].racks), begin)
        raise ValueError(f"{kind} is no sweep over scenarios")

    def rolling(self) -> list[Rolling]:
        """One by one by id; where racks are known, one by one rack after rack, and a whole rack at a time."""
        world = self._world
        orders = [("one broker at a time, by id", [world.dying([each]) for each in world.alive])]
        if world.racks:
            inside = [broker for rack in world.racks.values() for broker in rack if broker not in world.away]
            others = [world.dying([broker]) for broker in world.alive if broker not in inside]
            by_rack = [*(world.dying([broker]) for broker in inside), *others]
            whole = [each for each in (world.dying(racks=[rack]) for rack in world.racks) if each.brokers]
            orders += [("one broker at a time, rack by rack", by_rack), ("a whole rack at a time", [*whole, *others])]
        return [self._rolled(order, steps) for order, steps in orders]

    # -- how -----------------------------------------------------------------------------------------------------------

    def _named(self, first: Who, more: int, racks: tuple[str, ...] = ()) -> Scenario:
        return self._world.dying((self._world.brokers[each] for each in (*first, more)), racks)

    def _at_once(self, scenarios: Sequence[Scenario], kind: Kind) -> Found:
        if not scenarios:
            return Found.of(_none(self._before))
        self._tell(kind, 0, 0)
        return Found.of(self._engine.sums(AtOnce(tuple(self._world.positions(each.brokers) for each in scenarios))))

    def _one_more(
        self, firsts: Sequence[Who], kind: Kind, *, ordered: bool = False
    ) -> tuple[Found, list[tuple[int, int]]]:
        """Each of the first sets, and every living broker more that is not in it.

        Args:
            ordered: only brokers behind those of the first set, so that each pair is there once.

        Returns:
            The outcomes, and for each which of the first sets it is, and who more.
        """
        alive, who = self._world.positions(self._world.alive), []
        parts = [Found.of(_none(self._before))]
        for begin, block in _blocks(firsts, self._block(len(self._world.brokers))):
            self._tell(kind, begin, len(firsts))
            sums = self._engine.sums(OneMore(tuple(block)))
            for at, first in enumerate(block):
                more = [each for each in alive if each not in first and not (ordered and each < first[-1])]
                parts.append(Found.of(Sums(sums.counts[at, more], sums.load[at, more])))
                who += [(begin + at, each) for each in more]
        return Found.joined(parts), who

    def _block(self, brokers: int) -> int:
        """How many first sets are summed up in one go."""
        limit = _BLOCK_BYTES if self._engine.where == "here" else _BLOCK_BYTES_IN_SPARK
        return max(1, limit // max(1, 8 * brokers * brokers))

    def _swept(self, kind: Kind, found: Found, scenario: Callable[[int], Scenario], begin: float) -> Sweep:
        before = self._before.counts[0]
        harmless = found.harmless(before)
        writable = harmless & (found.counts[:, UNDER_MIN] <= before[UNDER_MIN])
        worst = self._outcomes(found, found.worst(self._top), scenario)
        return Sweep(
            kind=kind,
            scenarios=len(found),
            harmless=int(np.count_nonzero(harmless)),
            writable=int(np.count_nonzero(writable)),
            worst=tuple(worst),
            seconds=round(time.perf_counter() - begin, 3),
        )

    def _rolled(self, order: str, steps: list[Scenario]) -> Rolling:
        self._tell(f"{Kind.ROLLING}, {order}", 0, 0)
        sums = self._engine.sums(InTurn(tuple(self._world.positions(each.brokers) for each in steps)))
        # With nobody to restart, the worst is how it is.
        last = max(1, len(steps))
        found = Found.of(Sums(sums.counts[:last], sums.load[:last]))
        after = Found.of(Sums(sums.counts[-1:], sums.load[-1:]))
        (worst,) = self._outcomes(found, found.worst(1), (steps or [self._world.dying()]).__getitem__)
        rolling = Rolling(
            order=order,
            steps=len(steps),
            bad_steps=int(np.count_nonzero(found.counts[:, OFFLINE] > self._before.counts[0, OFFLINE])),
            moves=int(sums.counts[-1, MOVED]),
            worst=worst,
            busiest=self._busiest(after, 0),
            busiest_leads=_plain(after.leads[0]),
        )
        return msgspec.structs.replace(rolling, explained=words.explained_roll(rolling, whole=not self._ready.unknown))

    def _outcomes(self, found: Found, which: Iterable[int], scenario: Callable[[int], Scenario]) -> list[Outcome]:
        """Some of what was found, with the topics that lose most, and in words."""
        numbers = list(which)
        scenarios = [scenario(at) for at in numbers]
        lost = self._engine.lost([self._world.positions(each.brokers) for each in scenarios])
        made = []
        for at, each, topics in zip(numbers, scenarios, lost, strict=True):
            outcome = self._outcome(found, at, each)
            outcome = msgspec.structs.replace(outcome, topics=topics.topics, worst_topics=topics.worst)
            said = words.explained(outcome, weighted=self._ready.assumed.weighted, whole=not self._ready.unknown)
            made.append(msgspec.structs.replace(outcome, explained=said))
        return made

    def _outcome(self, found: Found, at: int, scenario: Scenario) -> Outcome:
        counts, before = found.counts[at].astype(np.int64), self._before.counts[0].astype(np.int64)
        more, busiest = counts - before, self._busiest(found, at)
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
            busiest_leads=_plain(found.leads[at]),
            busiest_led=0.0 if busiest is None else _plain(self._before.load[0, found.busiest[at]]),
        )

    def _busiest(self, found: Found, at: int) -> int | None:
        return self._world.brokers[int(found.busiest[at])] if found.leads[at] > 0 else None


def _blocks(firsts: Sequence[Who], size: int) -> Iterator[tuple[int, Sequence[Who]]]:
    for begin in range(0, len(firsts), size):
        yield begin, firsts[begin : begin + size]


def _none(like: Sums) -> Sums:
    """Of no scenario."""
    return Sums(like.counts[:0], like.load[:0])


def _plain(value: float) -> float:
    """Without the noise of sums of floats."""
    return round(float(value), 6)
