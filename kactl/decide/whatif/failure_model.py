"""Failure model: leaders, ISRs and load of partition classes after broker failures.

    classes ─brokers fail─▶ failure state ─one more fails─▶ sums for every broker that could be the one
                                └─all restart, leaders stay─▶ the next step of a rolling restart

Every count is a sum over classes, so the outcome of two failures does not need a pass over all classes. After a failure
of a, a failure of b differs from a failure of b alone only in the classes that have a among their members:

    after(a, b) = after(none, b) - of_classes_with_a(none, b) + of_classes_with_a(a, b)

This is computed for all b at once.
"""

import dataclasses
import functools
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import numpy as np

from kactl.decide.state.rows import Bools, RowNumbers

from .classes import FREE, NO_SLOT, Classes, Floats, Slots

# Counts of a failure state, in partitions; see `sweep.Outcome`.
COUNTS: Final = ("offline", "recoverable", "lossy", "under_min", "lone", "moved")
OFFLINE, RECOVERABLE, LOSSY, UNDER_MIN, LONE, MOVED = range(len(COUNTS))
# Up to this number of brokers, their classes are searched for. For more, all classes are grouped by broker once.
_FEW: Final = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Sums:
    """Outcomes of scenarios as columns; `...` stands for the scenarios.

    Attributes:
        counts: float64[..., 6], as in `COUNTS`.
        load: float64[..., B], the weight that each broker leads.
    """

    counts: Floats
    load: Floats

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.counts + other.counts, self.load + other.load)

    def __sub__(self, other: "Sums") -> "Sums":
        return Sums(self.counts - other.counts, self.load - other.load)


@dataclasses.dataclass(frozen=True, slots=True)
class Harmed:
    """Classes that are in a state of `COUNTS` after a failure and were not before it; indices, ascending."""

    offline: RowNumbers
    lossy: RowNumbers
    under_min: RowNumbers
    lone: RowNumbers


@dataclasses.dataclass(frozen=True, slots=True)
class FailureState:
    """Classes after broker failures and the elections that follow.

    Attributes:
        alive: bool[W, n], whether each member is alive.
        leader: int16[n], the slot of the leader; NO_SLOT for none.
    """

    classes: Classes
    alive: Bools
    leader: Slots

    def take(self, which: RowNumbers) -> "FailureState":
        return FailureState(self.classes.take(which), self.alive.take(which, axis=-1), self.leader.take(which))


def fail(before: FailureState, failed: Collection[int], brokers: int) -> FailureState:
    """Fail brokers at once. A live leader stays; otherwise the first live electable member becomes the leader."""
    dead = np.zeros(brokers + 1, np.bool_)
    dead[list(failed)] = True
    classes = before.classes
    alive = before.alive & ~dead[classes.members]  # FREE selects the last entry, which belongs to no broker
    stays = np.zeros(len(classes), np.bool_)
    for slot, is_alive in enumerate(alive):
        stays |= is_alive & (before.leader == slot)
    return FailureState(classes, alive, np.where(stays, before.leader, _first_two(alive, classes.electable)[0]))


def _first_two(alive: Bools, electable: Slots) -> tuple[Slots, Slots]:
    """Return the slots of the first and second live electable member; NO_SLOT for none."""
    first = second = np.full(len(electable), NO_SLOT, np.int16)
    for slot in range(len(alive) - 1, -1, -1):
        can_lead = alive[slot] & (slot < electable)
        second = np.where(can_lead, first, second)
        first = np.where(can_lead, np.int16(slot), first)
    return first, second


@dataclasses.dataclass(frozen=True, slots=True)
class _Living:
    """Numbers of live members, int16[n] each: in sync, able to lead without loss, and in total."""

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
        """Return the numbers after the failure of the live member in a slot."""
        return _Living(self.in_sync - (slot < classes.in_sync), self.eligible - (slot < classes.eligible), self.all - 1)


def _states(classes: Classes, living: _Living, leader: Slots, origin: Slots) -> tuple[Bools, ...]:
    """Return bool[n] for each of `COUNTS`. `origin` is the leader before the failures."""
    led = leader != NO_SLOT
    in_sync = np.maximum(living.in_sync, led)  # a leader is always in its own ISR
    return (
        ~led,
        ~led & (origin != NO_SLOT) & (living.all > 0),
        (leader >= classes.eligible) & (leader != origin),
        in_sync < classes.min_isr,
        led & (in_sync == 1),
        led & (leader != origin),
    )


def totals(now: FailureState, origin: Slots, brokers: int) -> Sums:
    """Return the sums of one failure state."""
    classes = now.classes
    # Not as a product: BLAS would start its threads, which wait busily for a processor.
    counts = [classes.partitions[state].sum() for state in _states(classes, _Living.of(now), now.leader, origin)]
    load: Any = np.bincount(_led_by(now, brokers), classes.weight, brokers + 1)
    return Sums(np.array(counts, np.float64), load[:brokers])


def _led_by(now: FailureState, brokers: int) -> RowNumbers:
    """Return the position of each class's leader; `brokers` for none."""
    leaders = np.full(len(now.leader), brokers, np.intp)
    for slot, members in enumerate(now.classes.members):
        np.copyto(leaders, members, where=now.leader == slot, casting="safe")
    return leaders


def each_failure(now: FailureState, origin: Slots, brokers: int) -> Sums:
    """Return the changes by one more failure, [B, 6] and [B, B]: row b is the difference by the failure of b."""
    classes, living = now.classes, _Living.of(now)
    before = _states(classes, living, now.leader, origin)
    first, second = _first_two(now.alive, classes.electable)
    counts = np.zeros((brokers, len(COUNTS)))
    load = np.zeros((brokers, brokers))
    for slot, alive in enumerate(now.alive):
        leads = alive & (now.leader == slot)
        leader = np.where(leads, np.where(first == slot, second, first), now.leader)
        after = _states(classes, living.without(slot, classes), leader, origin)
        member = np.where(alive, classes.members[slot], np.int32(brokers))  # dead members count for no broker
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            change = (new.view(np.int8) - old.view(np.int8)) * classes.partitions
            counts[:, index] += np.bincount(member, change, brokers + 1)[:brokers]
        load += _handed_over(classes, slot, np.flatnonzero(leads), leader, brokers)
    return Sums(counts, load)


def _handed_over(classes: Classes, slot: int, rows: RowNumbers, leader: Slots, brokers: int) -> Floats:
    """Return float64[B, B]: the load that each leader in this slot loses, and the load that the next leaders get."""
    loser, heir, weight = classes.members[slot][rows], leader[rows], classes.weight[rows]
    lost = np.diag(np.bincount(loser, weight, brokers))
    has = heir != NO_SLOT
    won_by = classes.members[heir[has], rows[has]]
    pair = loser[has].astype(np.intp) * brokers + won_by
    won: Any = np.bincount(pair, weight[has], brokers * brokers)
    change: Floats = won.reshape(brokers, brokers) - lost
    return change


class FailureModel:
    """The classes of a cluster and the effects of any failures on them.

    Args:
        away: positions of the brokers that have already failed.
        brokers: number of brokers.
    """

    def __init__(self, classes: Classes, away: Collection[int], brokers: int) -> None:
        self.brokers = brokers
        self.now = fail(FailureState(classes, classes.members != FREE, classes.leader), away, brokers)

    @functools.cached_property
    def totals(self) -> Sums:
        """The sums without further failures; [6] and [B]."""
        return totals(self.now, self.now.leader, self.brokers)

    @functools.cached_property
    def _each(self) -> Sums:
        return each_failure(self.now, self.now.leader, self.brokers)

    def after(self, failed: Sequence[int]) -> Sums:
        """Return the sums after these brokers fail at once; [6] and [B]."""
        return totals(fail(self.now, failed, self.brokers), self.now.leader, self.brokers)

    def each_after(self, failed: Sequence[int]) -> Sums:
        """Return the sums after these brokers and one more fail: [B, 6] and [B, B], by the position of the other one.

        If the other one is among these brokers or away, its row is that of these brokers alone.
        """
        rows = self._with(failed)
        part, origin = self.now.take(rows), self.now.leader[rows]
        then = fail(part, failed, self.brokers)
        alone = self.totals - totals(part, origin, self.brokers) + totals(then, origin, self.brokers)
        more = self._each - each_failure(part, origin, self.brokers) + each_failure(then, origin, self.brokers)
        return Sums(alone.counts + more.counts, alone.load + more.load)

    def roll(self, steps: Iterable[Sequence[int]]) -> Sums:
        """Return the sums of a rolling restart of S steps, while each step's brokers are down: [S + 1, 6], [S + 1, B].

        `moved` of a step counts the partitions whose leader differs from the step before. A partition without a leader
        gets the first electable one that is back. The last row is the state after the restart, when all brokers are
        back; its `moved` is the sum over all steps.
        """
        leader = self.now.leader.copy()
        up, sums, moved = self.totals, [], 0.0
        for step in steps:
            rows = self._with(step)
            origin = leader[rows]
            part = dataclasses.replace(self.now.take(rows), leader=origin)
            then = fail(part, step, self.brokers)
            rest = up - totals(part, origin, self.brokers)
            sums.append(rest + totals(then, origin, self.brokers))
            # Classes do not represent the new ISR of an unclean leader: the first in-sync member is assumed to lead.
            stays = (then.leader != NO_SLOT) & (then.leader < part.classes.eligible)
            back = np.where(stays, then.leader, _first_two(part.alive, part.classes.electable)[0])
            leader[rows] = back
            again = totals(dataclasses.replace(part, leader=back), origin, self.brokers)
            moved += float(again.counts[MOVED])
            again.counts[MOVED] = 0
            up = rest + again
        last = Sums(up.counts.copy(), up.load)
        last.counts[MOVED] = moved
        sums.append(last)
        return stacked(sums)

    def losing_safe_leaders(self, failed: Sequence[int]) -> RowNumbers:
        """Return the classes that lose their last live member able to lead without loss if these brokers fail."""
        rows = self._with(failed)
        part = self.now.take(rows)
        then = fail(part, failed, self.brokers)
        bereft: Bools = (_Living.of(part).eligible > 0) & (_Living.of(then).eligible == 0)
        return rows[bereft]

    def harmed(self, failed: Sequence[int]) -> Harmed:
        """Return the classes that are worse off if these brokers fail."""
        rows = self._with(failed)
        part = self.now.take(rows)
        origin = part.leader
        then = fail(part, failed, self.brokers)
        before = _states(part.classes, _Living.of(part), origin, origin)
        after = _states(part.classes, _Living.of(then), then.leader, origin)
        worse = [rows[new & ~old] for old, new in zip(before, after, strict=True)]
        return Harmed(offline=worse[OFFLINE], lossy=worse[LOSSY], under_min=worse[UNDER_MIN], lone=worse[LONE])

    def _with(self, failed: Sequence[int]) -> RowNumbers:
        if len(failed) <= _FEW and "_index" not in self.__dict__:
            has = np.zeros(len(self.now.classes), np.bool_)
            for members in self.now.classes.members:
                for position in failed:
                    has |= members == position
            return np.flatnonzero(has)
        rows, begins = self._index
        parts = [rows[begins[position] : begins[position + 1]] for position in failed]
        if len(parts) == 1:
            return parts[0]
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.intp)

    @functools.cached_property
    def _index(self) -> tuple[RowNumbers, RowNumbers]:
        """The classes of all brokers, grouped by broker, and the index at which each broker's group begins."""
        members = self.now.classes.members
        flat = members.ravel()
        narrow = (
            flat.astype(np.int16) if self.brokers <= np.iinfo(np.int16).max else flat
        )  # radix sort, which is much faster
        order = narrow.argsort(kind="stable")
        begins = np.searchsorted(flat[order], np.arange(self.brokers + 1))
        return order % max(1, members.shape[1]), begins


def stacked(parts: Sequence[Sums]) -> Sums:
    """Stack the sums of scenarios along a new first axis."""
    return Sums(np.stack([part.counts for part in parts]), np.stack([part.load for part in parts]))
