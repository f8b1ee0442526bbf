"""Assignments that a partition of three brokers can get in the scope: all that follow from the first ones."""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from kactl.model import Assignment

from .components import BROKERS, bit


class Masks(NamedTuple):
    """An assignment as sets of brokers."""

    replicas: int
    adding: int
    removing: int
    target: int


class Assignments:
    """Numbered assignments: the first ones, their targets, origins and remainders, and moves to `targets`."""

    def __init__(self, first: Iterable[tuple[int, ...]], targets: Iterable[tuple[int, ...]]) -> None:
        self.targets = tuple(targets)
        self.all: list[Assignment] = []
        self._number: dict[Assignment, int] = {}
        waiting = [Assignment(replicas) for replicas in first]
        while waiting:
            assignment = waiting.pop(0)
            if assignment in self._number or not assignment.replicas:
                continue
            self._number[assignment] = len(self.all)
            self.all.append(assignment)
            waiting += self._after(assignment)
        self.masks = [_masks(assignment) for assignment in self.all]

    def __len__(self) -> int:
        return len(self.all)

    def number(self, assignment: Assignment) -> int:
        return self._number[assignment]

    def move(self, number: int, target: tuple[int, ...] | None) -> int:
        """Returns the assignment with which a move to `target`, or its cancellation, starts."""
        assignment = self.all[number]
        return self._number[assignment.reassign_to(assignment.origin if target is None else target)]

    def target(self, number: int) -> int:
        return self._number[Assignment(self.all[number].target)]

    def without(self, number: int, stopped: int) -> int:
        """Returns the assignment without replicas that are stopped."""
        return self._number[_without(self.all[number], stopped)]

    def leaving(self, number: int, strays: int) -> int:
        """Returns the assignment with replicas that are to be removed."""
        return self._number[_leaving(self.all[number], strays)]

    def _after(self, assignment: Assignment) -> Iterable[Assignment]:
        yield Assignment(assignment.target)
        yield Assignment(assignment.origin)
        yield assignment.reassign_to(assignment.origin)
        for target in self.targets:
            yield assignment.reassign_to(target)
        for stopped in _subsets(assignment.removing):
            yield _without(assignment, stopped)
        if not assignment.is_being_reassigned:
            outside = [broker for broker in BROKERS if broker not in assignment.replicas]
            for strays in _subsets(outside):
                yield _leaving(assignment, strays)


def _subsets(brokers: Iterable[int]) -> Iterable[int]:
    brokers = tuple(brokers)
    for size in range(1, len(brokers) + 1):
        for chosen in itertools.combinations(brokers, size):
            yield sum(map(bit, chosen))


def _without(assignment: Assignment, stopped: int) -> Assignment:
    lists = (assignment.replicas, assignment.adding, assignment.removing)
    return Assignment(*(tuple(broker for broker in one if not stopped >> broker & 1) for one in lists))


def _leaving(assignment: Assignment, strays: int) -> Assignment:
    removing = tuple(broker for broker in BROKERS if strays >> broker & 1)
    return Assignment((*assignment.target, *removing), removing=removing)


def _masks(assignment: Assignment) -> Masks:
    lists = (assignment.replicas, assignment.adding, assignment.removing, assignment.target)
    return Masks(*(sum(map(bit, one)) for one in lists))
