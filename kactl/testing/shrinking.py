"""Reduction of a failing script to the faults that its failure needs.

A candidate is kept if its run ends with the signature of the original. Removing a fault changes the interleaving of all
later steps, so that each candidate is tried with several seeds of the schedule once one seed removes no more.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from .script import Action, Script

T = TypeVar("T")

# Signature of a run that passed.
PASS: Final = "pass"
# Schedule seeds that are tried for one candidate, its own included.
SEEDS_TRIED: Final = 5


class Ended(Protocol):
    """Outcome of a run."""

    @property
    def signature(self) -> str:
        """What makes two failures the same; `pass` if the run passed."""

    @property
    def virtual_ms(self) -> float:
        """Virtual time of the end of the run."""


class Limits(NamedTuple):
    """Limits of one reduction. When one is reached, the shortest script so far is the result.

    Attributes:
        cpu_s: processor time of this process.
    """

    cpu_s: float = 300.0
    runs: int = 2_000


class NotReproduced(Exception):
    """The script does not fail, or fails in another way."""

    def __init__(self, name: str, *, expected: str, seen: str) -> None:
        super().__init__(
            f"script {name or '(without name)'} ends with {seen}"
            f"{f' and not with {expected}' if expected else ''}: replay it with the commit that it was found at"
        )
        self.expected = expected
        self.seen = seen


class _LimitReached(Exception):
    """The reduction has used up what its limits grant."""


def shrink(
    script: Script,
    run: Callable[[Script], Ended],
    *,
    signature: str,
    limits: Limits,
    on_progress: Callable[[Script, int], None] = lambda script, runs: None,
) -> tuple[Script, int]:
    """Returns a shorter script that fails in the same way, and the number of runs that were made.

    Args:
        run: executes a script. `Exception` drops the candidate.
        signature: the failure to keep.
        on_progress: called with each script that is kept, and the number of runs so far.

    Raises:
        NotReproduced: the script itself does not end with the signature.
    """
    shrinker = _Shrinker(script, run, signature, limits, on_progress)
    try:
        for seeds in (1, SEEDS_TRIED):
            shrinker.drop_actions(seeds)
    except _LimitReached:
        pass
    return shrinker.script, shrinker.runs


def ddmin(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """Returns a shortest sublist that fails, in the sense that it passes without any single one of its items.

    A form of delta debugging (Zeller and Hildebrandt, 2002). Each pass leaves out one piece after another, from the end
    on, of half the size of the last pass. Unlike the original algorithm it neither runs pieces alone nor begins again
    after each success: with k needed items of n, that takes about k*log2(n) runs in place of up to k*n. A piece alone
    rarely fails: it lacks what it is about.

    Args:
        items: a list that fails.
        fails: returns whether a sublist fails; called with each candidate, never with `items` itself.
    """
    kept = list(items)
    if kept and fails([]):
        return []
    size, was_any_dropped = len(kept), True
    while len(kept) > 1 and (size > 1 or was_any_dropped):
        size = max(1, min(size, len(kept)) // 2)
        was_any_dropped = False
        for end in range(len(kept), 0, -size):
            rest = kept[: max(0, end - size)] + kept[end:]
            if rest and fails(rest):
                kept, was_any_dropped = rest, True
    return kept


class _Shrinker:
    def __init__(
        self,
        script: Script,
        run: Callable[[Script], Ended],
        signature: str,
        limits: Limits,
        on_progress: Callable[[Script, int], None],
    ) -> None:
        self.script = script
        self.runs = 1
        self._run = run
        self._signature = signature
        self._limits = limits
        self._on_progress = on_progress
        self._started_s = time.process_time()
        self._passed: set[bytes] = set()
        ended = run(script)
        if ended.signature != signature:
            raise NotReproduced(script.name, expected=signature, seen=ended.signature)
        # Faults after the failure are not among its causes.
        self.script = msgspec.structs.replace(
            script, actions=[action for action in script.actions if action.at_ms <= ended.virtual_ms]
        )

    def drop_actions(self, seeds: int) -> None:
        def fails(actions: list[Action]) -> bool:
            return any(map(self._keep, _reseeded(msgspec.structs.replace(self.script, actions=actions), seeds)))

        if self.script.actions:
            ddmin(self.script.actions, fails)

    def _keep(self, candidate: Script) -> bool:
        """Keep a candidate if it fails in the same way. Returns whether it does."""
        key = msgspec.json.encode(candidate, order="deterministic")
        if key in self._passed:
            return False
        if self.runs >= self._limits.runs or time.process_time() - self._started_s >= self._limits.cpu_s:
            raise _LimitReached
        self.runs += 1
        try:
            is_same = self._run(candidate).signature == self._signature
        except Exception:
            is_same = False
        if is_same:
            self.script = candidate
            self._on_progress(candidate, self.runs)
        else:
            self._passed.add(key)
        return is_same


def _reseeded(script: Script, count: int) -> Iterator[Script]:
    """Yields the script with its own schedule seed, and then with others. The seeds depend on its own one only."""
    for offset in range(count):
        seed = (script.schedule.seed * 31 + offset) % 2**31 if offset else script.schedule.seed
        yield msgspec.structs.replace(script, schedule=msgspec.structs.replace(script.schedule, seed=seed))
