"""Breadth-first exploration, with the shortest way to the first violation."""

import dataclasses
import itertools
import time
from array import array
from collections.abc import Iterator

from .invariants import Found
from .model import STATE_BYTES, Model, State


@dataclasses.dataclass(frozen=True)
class Trace:
    """The shortest way to a violation.

    Attributes:
        labels: the transitions, in order; the last one breaks the invariant.
        states: before each transition, and after the last one.
    """

    found: Found
    labels: tuple[str, ...]
    states: tuple[State, ...]

    def __str__(self) -> str:
        steps = (f"  {number:2}  {label}" for number, label in enumerate(self.labels, start=1))
        return "\n".join((f"{self.found.invariant}: {self.found.text}", *steps))


@dataclasses.dataclass
class Result:
    """Result of an exploration.

    Attributes:
        states: distinct canonical states that were reached.
        complete: every state of the scope was reached.
        depth: transitions to the deepest state that was expanded.
        seconds: CPU time.
    """

    states: int = 0
    expanded: int = 0
    edges: int = 0
    depth: int = 0
    complete: bool = False
    seconds: float = 0.0
    trace: Trace | None = None


class Explorer:
    """Explores a model, level by level.

    A level is kept as its packed states and, for each, the position of its predecessor in the level before. The visited
    set holds the hashes only; a counterexample is replayed, so that a collision cannot make one.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.levels: list[tuple[bytearray, array[int]]] = []

    def run(self, states_max: int) -> Result:
        """Explore until a violation, until `states_max` states are reached, or until there are no more."""
        began = time.process_time()
        result = Result()
        model, seen = self.model, set[int]()
        level, parents = bytearray(), array("I")
        for state in model.roots():
            seen.add(model.hash(state))
            level += model.pack(state)
            parents.append(0)
        while level:
            self.levels.append((level, parents))
            after, parents = bytearray(), array("I")
            for position in range(len(level) // STATE_BYTES):
                state = self._state(level, position)
                result.expanded += 1
                for _, target, _, found in model.successors(state):
                    result.edges += 1
                    if found is not None:
                        result.trace = self.trace(position, found)
                        break
                    key = model.hash(target)
                    if key in seen:
                        continue
                    if not model.in_scope(target):
                        continue
                    seen.add(key)
                    after += model.pack(target)
                    parents.append(position)
                if result.trace is not None or len(seen) >= states_max:
                    break
            result.states, result.depth = len(seen), len(self.levels)
            if result.trace is not None or len(seen) >= states_max:
                break
            level = after
        else:
            result.complete = True
        result.seconds = time.process_time() - began
        return result

    def trace(self, position: int, found: Found) -> Trace:
        """Returns the way to the state at a position of the last level, and its transition that breaks an invariant."""
        states = self._states(len(self.levels) - 1, position)
        label, last, _, _ = next(step for step in self.model.successors(states[-1]) if step[3] == found)
        return Trace(found, (*self._labels(states), label), (*states, last))

    def way(self, level: int, position: int) -> tuple[str, ...]:
        """Returns the transitions to the state at a position of a level."""
        return self._labels(self._states(level, position))

    def states(self, every: int) -> Iterator[tuple[int, int, State]]:
        """Yields each `every`th state with its level and its position there."""
        for number, (level, _) in enumerate(self.levels):
            for position in range(0, len(level) // STATE_BYTES, every):
                yield number, position, self._state(level, position)

    def _state(self, level: bytearray, position: int) -> State:
        return self.model.unpack(bytes(level[position * STATE_BYTES : (position + 1) * STATE_BYTES]))

    def _states(self, level: int, position: int) -> list[State]:
        states: list[State] = []
        for packed, parents in reversed(self.levels[: level + 1]):
            states.append(self._state(packed, position))
            position = parents[position]
        return states[::-1]

    def _labels(self, states: list[State]) -> tuple[str, ...]:
        return tuple(
            next(step[0] for step in self.model.successors(before) if step[1] == after)
            for before, after in itertools.pairwise(states)
        )
