"""Order of task steps within one wave.

A wave is the set of callbacks that are ready at one iteration of the loop. asyncio promises the order of plain
callbacks, so they run in that order. It promises no order of tasks: a strategy permutes the task steps of a wave, and
holds some of them back to the next wave.

    fifo      as asyncio runs them
    shuffle   any order; each step is held back with a fixed probability
    priority  the step of the task with the highest priority runs, all others are held back. Priorities are random, and
              at some random steps the task that runs gets the lowest one (probabilistic concurrency testing)
"""

import random
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

# Consecutive waves for which one step may be held back. A longer one would be starvation, which no real loop shows.
HOLD_WAVES_MAX: Final = 50
_HOLD_PROBABILITIES: Final = (0.0, 0.1, 0.25, 0.5)


class Strategy(Protocol):
    """Order of the steps of one wave."""

    def __call__(self, tasks: Sequence[int], held: Sequence[int]) -> list[int]:
        """Returns the steps that run now, as indices in the order in which they run; all others are held back.

        Args:
            tasks: sequence numbers of the steps' tasks, in the order in which asyncio would run them.
            held: for how many waves each step has been held back.
        """

    def one(self, task: int, held: int) -> None:
        """Note that the only step of a wave runs: the same as a call with one task, which is the most frequent one."""


class Schedule(NamedTuple):
    """Schedule of a run.

    Attributes:
        strategy: "fifo", "shuffle" or "priority".
        hold_back: probability that a step is held back; for "shuffle".
        changes: number of changes of priority; for "priority".
        only: numbers of the hold-backs that remain, counted from 0 over the run; None for all. A step whose hold-back
            does not remain runs in its wave, after those that the strategy chose.
        steps_expected: number of steps over which these changes are spread; by default that of a run of some minutes.
        grid_ms: timers are rounded up to a multiple of it; 0 for none. On a grid more steps coincide, so that their
            order matters more often.
    """

    strategy: str = "fifo"
    hold_back: float = 0.0
    changes: int = 0
    grid_ms: float = 0.0
    steps_expected: int = 100_000
    only: frozenset[int] | None = None

    @classmethod
    def drawn(cls, rng: random.Random) -> "Schedule":
        """Draw a schedule: 10 % fifo, 60 % shuffle, 30 % priority; half of them on a grid of 1 or 5 ms."""
        strategy = rng.choices(("fifo", "shuffle", "priority"), (10, 60, 30))[0]
        return cls(
            strategy,
            hold_back=rng.choice(_HOLD_PROBABILITIES) if strategy == "shuffle" else 0.0,
            changes=rng.randint(1, 3) if strategy == "priority" else 0,
            grid_ms=rng.choice((0.0, 0.0, 1.0, 5.0)),
        )

    def choice(self, rng: random.Random) -> "Choice":
        """Returns the function that chooses the steps of each wave.

        Raises:
            ValueError: there is no such strategy.
        """
        return Choice(self._strategy(rng), self.only)

    def _strategy(self, rng: random.Random) -> Strategy:
        match self.strategy:
            case "fifo":
                return _InOrder()
            case "shuffle":
                return _Shuffle(rng, self.hold_back)
            case "priority":
                return _Priority(rng, sorted(rng.randrange(self.steps_expected) for _ in range(self.changes)))
            case _:
                raise ValueError(f"strategy {self.strategy!r} is unknown: use fifo, shuffle or priority")


class Choice:
    """Choice of a strategy, without the hold-backs that do not remain.

    Attributes:
        count: number of hold-backs so far, the removed ones included.
    """

    def __init__(self, choose: Strategy, only: frozenset[int] | None) -> None:
        self._choose = choose
        self._only = only
        self.count = 0
        self.one = choose.one

    def __call__(self, tasks: Sequence[int], held: Sequence[int]) -> list[int]:
        chosen = self._choose(tasks, held)
        missing = len(tasks) - len(chosen)
        if not missing:
            return chosen
        first, self.count = self.count, self.count + missing
        if self._only is None:
            return chosen
        left_out = sorted(set(range(len(tasks))).difference(chosen))
        return chosen + [index for number, index in enumerate(left_out, start=first) if number not in self._only]


class _InOrder:
    def __call__(self, tasks: Sequence[int], held: Sequence[int]) -> list[int]:
        return list(range(len(tasks)))

    def one(self, task: int, held: int) -> None:
        pass


class _Shuffle:
    def __init__(self, rng: random.Random, hold_back: float) -> None:
        self._rng = rng
        self._hold_back = hold_back

    def __call__(self, tasks: Sequence[int], held: Sequence[int]) -> list[int]:
        indices = list(range(len(tasks)))
        if len(indices) > 1:
            self._rng.shuffle(indices)
        if not self._hold_back:
            return indices
        chosen = [index for index in indices if held[index] >= HOLD_WAVES_MAX or self._rng.random() >= self._hold_back]
        return chosen or indices[:1]

    def one(self, task: int, held: int) -> None:
        if self._hold_back and held < HOLD_WAVES_MAX:
            self._rng.random()


class _Priority:
    def __init__(self, rng: random.Random, changes: list[int]) -> None:
        self._rng = rng
        self._changes = changes[::-1]
        self._priorities: dict[int, float] = {}
        self._lowest = 0.0
        self._steps = 0

    def __call__(self, tasks: Sequence[int], held: Sequence[int]) -> list[int]:
        priorities = self._priorities
        for task in tasks:
            if task not in priorities:
                priorities[task] = self._rng.random()
        if max(held) >= HOLD_WAVES_MAX:
            return [index for index, waves in enumerate(held) if waves >= HOLD_WAVES_MAX]
        # The first index wins among equal priorities: several steps of one task keep their order.
        ranks = [priorities[task] for task in tasks]
        best = ranks.index(max(ranks))
        self._ran(tasks[best])
        return [best]

    def one(self, task: int, held: int) -> None:
        if task not in self._priorities:
            self._priorities[task] = self._rng.random()
        if held < HOLD_WAVES_MAX:
            self._ran(task)

    def _ran(self, task: int) -> None:
        self._steps += 1
        if self._changes and self._steps >= self._changes[-1]:
            self._changes.pop()
            self._lowest -= 1.0
            self._priorities[task] = self._lowest
