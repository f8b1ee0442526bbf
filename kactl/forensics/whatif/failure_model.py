"""What deaths do to classes: who leads afterwards, and what that is worth.

    classes ─some die─▶ a moment ─one more dies─▶ sums for every broker that could be the one
                            └─all come back, leaders stay─▶ the next moment of a rolling restart

Everything that is counted is a sum over classes, so the outcome of two deaths needs no look at all of them. Where a has
died, b changes nothing more than it would have anyway but in the classes that have a among their members:

    after(a, b) = after(nobody, b) - of_classes_with_a(nobody, b) + of_classes_with_a(a, b)

and that for every b at once. For the same reason it does not matter where sums are made: see `engine.py`.
"""

import dataclasses
import functools
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import numpy as np

from kactl.state.rows import Bools, RowNumbers

from .classes import FREE, NO_SLOT, Classes, Floats, Slots

# What is counted of a moment, in partitions; see `sweep.Outcome`.
COUNTS: Final = ("offline", "recoverable", "lossy", "under_min", "lone", "moved")
OFFLINE, RECOVERABLE, LOSSY, UNDER_MIN, LONE, MOVED = range(len(COUNTS))


@dataclasses.dataclass(frozen=True, slots=True)
class Sums:
    """Outcomes of scenarios as columns; `...` stands for the scenarios.

    Attributes:
        counts: float64[..., 6], as in `COUNTS`.
        load: float64[..., B], what each broker leads.
    """

    counts: Floats
    load: Floats

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.counts + other.counts, self.load + other.load)

    def __sub__(self, other: "Sums") -> "Sums":
        return Sums(self.counts - other.counts, self.load - other.load)


@dataclasses.dataclass(frozen=True, slots=True)
class FailureState:
    """Classes once some brokers have died and the controller has done what it can.

    Attributes:
        alive: bool[W, n], the members that are.
        leader: int16[n], the slot of who leads; NO_SLOT where nobody does.
    """

    classes: Classes
    alive: Bools
    leader: Slots

    def take(self, which: RowNumbers) -> "FailureState":
        return FailureState(self.classes.take(which), self.alive.take(which, axis=-1), self.leader.take(which))


def fail(before: FailureState, who: Collection[int], brokers: int) -> FailureState:
    """Some die at once: a leader that lives stays; else the first live member leads that may."""
    dead = np.zeros(brokers + 1, np.bool_)
    dead[list(who)] = True
    classes = before.classes
    alive = before.alive & ~dead[classes.members]  # FREE falls on the last entry, which is nobody's
    stays = np.zeros(len(classes), np.bool_)
    for slot, here in enumerate(alive):
        stays |= here & (before.leader == slot)
    return FailureState(classes, alive, np.where(stays, before.leader, _first_two(alive, classes.electable)[0]))


def _first_two(alive: Bools, electable: Slots) -> tuple[Slots, Slots]:
    """The slots of the first and the second live member that may lead; NO_SLOT where there is none."""
    first = second = np.full(len(electable), NO_SLOT, np.int16)
    for slot in range(len(alive) - 1, -1, -1):
        here = alive[slot] & (slot < electable)
        second = np.where(here, first, second)
        first = np.where(here, np.int16(slot), first)
    return first, second


@dataclasses.dataclass(frozen=True, slots=True)
class _Living:
    """int16[n] each: how many live members are in sync, may lead without loss, and are there at all."""

    in_sync: Slots
    eligible: Slots
    all: Slots

    @staticmethod
    def of(now: FailureState) -> "_Living":
        slot = np.arange(len(now.alive), dtype=np.int16)[:, None]
        return _Living(
            in_sync=(now.alive & (slot < now.classes.in_sync)).sum(axis=0, dtype=np.int16),
            eligible=(now.alive & (slot < now.classes.eligible)).sum(axis=0, dtype=np.int16),
            all=now.alive.sum(axis=0, dtype=np.int16),
        )

    def without(self, slot: int, classes: Classes) -> "_Living":
        """The same where the member in a slot, who lived, does no more."""
        return _Living(self.in_sync - (slot < classes.in_sync), self.eligible - (slot < classes.eligible), self.all - 1)


def _found(classes: Classes, living: _Living, leader: Slots, origin: Slots) -> tuple[Bools, ...]:
    """bool[n] for each of `COUNTS`. `origin`: who led before anybody died."""
    led = leader != NO_SLOT
    in_sync = np.maximum(living.in_sync, led)  # whoever leads is in sync with itself
    return (
        ~led,
        ~led & (origin != NO_SLOT) & (living.all > 0),
        (leader >= classes.eligible) & (leader != origin),
        in_sync < classes.min_isr,
        led & (in_sync == 1),
        led & (leader != origin),
    )


def totals(now: FailureState, origin: Slots, brokers: int) -> Sums:
    """Of one moment."""
    classes = now.classes
    counts = [classes.partitions @ each for each in _found(classes, _Living.of(now), now.leader, origin)]
    load: Any = np.bincount(_led_by(now, brokers), classes.weight, brokers + 1)
    return Sums(np.array(counts, np.float64), load[:brokers])


def _led_by(now: FailureState, brokers: int) -> RowNumbers:
    """The position of each class's leader; one behind the last broker for none."""
    found = np.full(len(now.leader), brokers, np.intp)
    for slot, line in enumerate(now.classes.members):
        np.copyto(found, line, where=now.leader == slot, casting="safe")
    return found


def each_failure(now: FailureState, origin: Slots, brokers: int) -> Sums:
    """What one more death would change: row b is the difference that b's death makes; [B, 6] and [B, B]."""
    classes, living = now.classes, _Living.of(now)
    before = _found(classes, living, now.leader, origin)
    first, second = _first_two(now.alive, classes.electable)
    counts = np.zeros((brokers, len(COUNTS)))
    load = np.zeros((brokers, brokers))
    for slot, here in enumerate(now.alive):
        leads = here & (now.leader == slot)
        leader = np.where(leads, np.where(first == slot, second, first), now.leader)
        after = _found(classes, living.without(slot, classes), leader, origin)
        who = np.where(here, classes.members[slot], np.int32(brokers))  # those who are dead count for nobody
        for at, (now_so, then_so) in enumerate(zip(before, after, strict=True)):
            change = (then_so.view(np.int8) - now_so.view(np.int8)) * classes.partitions
            counts[:, at] += np.bincount(who, change, brokers + 1)[:brokers]
        load += _handed_over(classes, slot, np.flatnonzero(leads), leader, brokers)
    return Sums(counts, load)


def _handed_over(classes: Classes, slot: int, rows: RowNumbers, leader: Slots, brokers: int) -> Floats:
    """float64[B, B]: what each loses that leads in this slot, and who gets it."""
    loser, heir, weight = classes.members[slot][rows], leader[rows], classes.weight[rows]
    lost = np.diag(np.bincount(loser, weight, brokers))
    has = heir != NO_SLOT
    won_by = classes.members[heir[has], rows[has]]
    pair = loser[has].astype(np.intp) * brokers + won_by
    won: Any = np.bincount(pair, weight[has], brokers * brokers)
    change: Floats = won.reshape(brokers, brokers) - lost
    return change


class FailureModel:
    """Classes as they are now, and what any deaths would make of them.

    Args:
        away: positions of the brokers that are away already.
        brokers: how many there are.
    """

    def __init__(self, classes: Classes, away: Collection[int], brokers: int) -> None:
        self.brokers = brokers
        self.now = fail(FailureState(classes, classes.members != FREE, classes.leader), away, brokers)

    @functools.cached_property
    def totals(self) -> Sums:
        """If nobody dies; [6] and [B]."""
        return totals(self.now, self.now.leader, self.brokers)

    @functools.cached_property
    def _each(self) -> Sums:
        return each_failure(self.now, self.now.leader, self.brokers)

    def after(self, who: Sequence[int]) -> Sums:
        """If these die at once; [6] and [B]."""
        return totals(fail(self.now, who, self.brokers), self.now.leader, self.brokers)

    def each_after(self, who: Sequence[int]) -> Sums:
        """If these die, and one more: [B, 6] and [B, B], by who that is; if it is one of them, or away: these alone."""
        rows = self._with(who)
        part, origin = self.now.take(rows), self.now.leader[rows]
        then = fail(part, who, self.brokers)
        alone = self.totals - totals(part, origin, self.brokers) + totals(then, origin, self.brokers)
        more = self._each - each_failure(part, origin, self.brokers) + each_failure(then, origin, self.brokers)
        return Sums(alone.counts + more.counts, alone.load + more.load)

    def roll(self, steps: Iterable[Sequence[int]]) -> Sums:
        """If these die and come back, one step after the other: [S, 6] and [S, B], when each step's are away.

        `moved` of a step is what has another leader than in the step before. Where nobody led, the first one leads
        again that is back. One row more stands at the end: all are back; its `moved` is that of all steps together.
        """
        leader = self.now.leader.copy()
        up, found, moved = self.totals, [], 0.0
        for step in steps:
            rows = self._with(step)
            origin = leader[rows]
            part = dataclasses.replace(self.now.take(rows), leader=origin)
            then = fail(part, step, self.brokers)
            rest = up - totals(part, origin, self.brokers)
            found.append(rest + totals(then, origin, self.brokers))
            # A class cannot say that an unclean leader's ISR is another one now: the first in sync is taken to lead.
            stays = (then.leader != NO_SLOT) & (then.leader < part.classes.eligible)
            back = np.where(stays, then.leader, _first_two(part.alive, part.classes.electable)[0])
            leader[rows] = back
            again = totals(dataclasses.replace(part, leader=back), origin, self.brokers)
            moved += float(again.counts[MOVED])
            again.counts[MOVED] = 0
            up = rest + again
        last = Sums(up.counts.copy(), up.load)
        last.counts[MOVED] = moved
        found.append(last)
        return stacked(found)

    def losing_safe_leaders(self, who: Sequence[int]) -> RowNumbers:
        """The classes of which some member lives that leads without loss, and none does once these are dead."""
        rows = self._with(who)
        part = self.now.take(rows)
        then = fail(part, who, self.brokers)
        bereft: Bools = (_Living.of(part).eligible > 0) & (_Living.of(then).eligible == 0)
        return rows[bereft]

    def _with(self, who: Sequence[int]) -> RowNumbers:
        """The classes that have one of these among their members."""
        rows, begins = self._index
        parts = [rows[begins[each] : begins[each + 1]] for each in who]
        if len(parts) == 1:
            return parts[0]
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.intp)

    @functools.cached_property
    def _index(self) -> tuple[RowNumbers, RowNumbers]:
        """The classes of each broker, one broker behind the other, and where each one's begin."""
        members = self.now.classes.members
        flat = members.ravel()
        narrow = flat.astype(np.int16) if self.brokers <= np.iinfo(np.int16).max else flat  # sorted in no time
        order = narrow.argsort(kind="stable")
        begins = np.searchsorted(flat[order], np.arange(self.brokers + 1))
        return order % max(1, members.shape[1]), begins


def stacked(parts: Sequence[Sums]) -> Sums:
    """One scenario after the other."""
    return Sums(np.stack([each.counts for each in parts]), np.stack([each.load for each in parts]))
