"""Reduction of a failing script to a short one that fails in the same way.

    script ──▶ drop actions ──▶ simpler world ──▶ schedule ──▶ latency ──▶ simpler actions ──▶ short script
                    ▲                                             │              │
                    └──── while a pass has changed something ◀────┴──────────────┘

A candidate is kept if its run ends with the signature of the original. Removing an action changes the interleaving of
all later steps, so that short scripts are tried with several schedule seeds. The first pass minimizes the list of
actions by delta debugging, see `kactl.testing.shrinking.ddmin`; the others are lists of edits in
`simplifying`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from kactl.testing import shrinking
from kactl.testing.shrinking import PASS, SEEDS_TRIED, Limits, NotReproduced, ddmin

from . import simplifying
from .script import Action, Script, dumps
from .simplifying import Edit

# Parts of the first phase that are left out, from its begin on.
_EARLY_SHARES: Final = (0.8, 0.5, 0.25)
# Numbers of last actions that are tried without the earlier ones, of scripts with more than _MANY.
_MANY: Final = 100
_LATEST: Final = (2, 4, 8, 16, 32, 64, 128)


class Ended(shrinking.Ended, Protocol):
    """Outcome of a run, as far as shrinking reads it."""

    @property
    def held(self) -> Sequence[int]:
        """Numbers of the steps that the schedule held back."""


Run = Callable[[Script], Ended]


class Shrunk(NamedTuple):
    """Result of a reduction.

    Attributes:
        script: shortest script that was found. Its `expect` is the signature.
        actions_before: number of actions of the original.
        runs: number of runs that were made.
        cpu_s: processor time that they took.
        is_minimal: whether no pass could change anything any more; False if a limit ended the reduction.
    """

    script: Script
    signature: str
    actions_before: int
    runs: int
    cpu_s: float
    is_minimal: bool


class _LimitReached(Exception):
    pass


def shrink(
    script: Script,
    run: Run,
    *,
    signature: str = "",
    limits: Limits | None = None,
    cpu_s: Callable[[], float] = time.process_time,
    on_progress: Callable[[Script, int], None] = lambda script, runs: None,
    run_first: Run | None = None,
) -> Shrunk:
    """Reduce a failing script.

    Equal scripts are reduced in the same way if `run` is deterministic and no limit of processor time is reached.

    Args:
        run: executes a script. A script that it cannot execute may raise any `Exception`; such a candidate is dropped.
        signature: the failure to keep; by default that of the script's own run.
        cpu_s: processor time used so far, in s.
        on_progress: called with each script that is kept, and the number of runs so far.
        run_first: in place of `run` for candidates, if the script fails in its first phase. It need not run the second
            phase, which is most of the time of a short script.

    Raises:
        NotReproduced: the script itself does not end with the signature.
    """
    shrinker = _Shrinker(script, run, limits or Limits(), cpu_s, on_progress)
    shrinker.begin(signature, run_first)
    is_minimal = True
    try:
        # Other seeds multiply the runs of each candidate that is dropped. They are tried once the script is short, and
        # arguments are made simpler once no action can be dropped.
        for seeds in (1, SEEDS_TRIED):
            while shrinker.drop(seeds):
                pass
        while shrinker.all_passes(SEEDS_TRIED):
            pass
    except _LimitReached:
        is_minimal = False
    result = shrinker.result()
    return Shrunk(
        result, shrinker.signature, len(script.actions), shrinker.runs, cpu_s() - shrinker.started_s, is_minimal
    )


class _Shrinker:
    """Reduction of one script: the shortest one so far, and the candidates that were tried."""

    def __init__(
        self,
        script: Script,
        run: Run,
        limits: Limits,
        cpu_s: Callable[[], float],
        on_progress: Callable[[Script, int], None],
    ) -> None:
        self.script = script
        self.signature = ""
        self.runs = 0
        self._seeds = 1
        self.started_s = cpu_s()
        self._run = run
        self._limits = limits
        self._cpu_s = cpu_s
        self._on_progress = on_progress
        self._failed_to_fail: set[str] = set()

    def begin(self, signature: str, run_first: Run | None) -> None:
        """Run the original, and take over its signature, and how candidates are run."""
        self.runs += 1
        ended = self._run(self.script)
        if ended.signature == PASS or (signature and ended.signature != signature):
            raise NotReproduced(self.script.name, expected=signature, seen=ended.signature)
        self.signature = ended.signature
        self._ended = ended
        if run_first is not None and ended.virtual_ms <= self.script.duration_ms:
            self._run = run_first

    def result(self) -> Script:
        return simplifying.replace(self.script, expect=self.signature)

    def all_passes(self, seeds: int) -> bool:
        """Run all passes once. Returns whether one has changed the script.

        Args:
            seeds: number of schedule seeds that are tried for each candidate.
        """
        before = self.script
        self.drop(seeds)
        self._make(simplifying.actions)
        return self.script is not before

    def drop(self, seeds: int) -> bool:
        """Drop actions, and parts of the world and of the schedule. Returns as `all_passes`."""
        before, self._seeds = self.script, seeds
        self._drop_actions()
        self._make(simplifying.world)
        self._make(simplifying.schedule)
        self._drop_held_steps()
        self._make(simplifying.latency)
        return self.script is not before

    def _make(self, edits: Callable[[Script], Iterator[Edit]]) -> None:
        for edit in edits(self.script):
            self._keep(edit)

    def _drop_actions(self) -> None:
        self._keep(partial(simplifying.without_actions_after, time_ms=self._ended.virtual_ms))
        if len(self.script.actions) > _MANY:
            # The last actions are often enough, and their runs are the shortest.
            any(self._keep(partial(simplifying.with_latest_actions, count=count)) for count in _LATEST)
        # A shorter run is a cheaper one; a violation of the second phase needs the last actions at most.
        for share in _EARLY_SHARES:
            while self._keep(partial(simplifying.without_early_actions, share=share)):
                pass
        # Short intervals and small chunks make each later run long.
        self._keep(simplifying.with_default_settings, seeds=1)
        topics = simplifying.topics(self.script)
        if len(topics) > 1:
            ddmin(topics, lambda kept: self._keep(partial(simplifying.with_topics, names=kept)))
        verbs = list(dict.fromkeys(action.do for action in self.script.actions))
        if len(verbs) > 1:
            ddmin(verbs, lambda kept: self._keep(partial(simplifying.with_verbs, verbs=kept)))
        if self.script.actions:
            ddmin(self.script.actions, self._fails_with_actions)

    def _fails_with_actions(self, actions: list[Action]) -> bool:
        return self._keep(partial(simplifying.replace, actions=actions))

    def _drop_held_steps(self) -> None:
        """Minimize the list of steps that are held back."""
        if self.script.schedule.strategy == "fifo":
            return
        if self.script.schedule.only is None and self._ended.held:
            self._keep(partial(simplifying.with_held_steps, steps=self._ended.held), seeds=1)
        if self.script.schedule.only:
            ddmin(self.script.schedule.only, self._fails_with_held_steps)

    def _fails_with_held_steps(self, steps: list[int]) -> bool:
        # Another seed would hold back other steps.
        return self._keep(partial(simplifying.with_held_steps, steps=steps), seeds=1)

    def _keep(self, edit: Edit, *, seeds: int | None = None) -> bool:
        """Make an edit if the script still fails in the same way with it. Returns whether it was made."""
        edited = edit(self.script)
        if edited is None or edited == self.script:
            return False
        for candidate in simplifying.reseeded(edited, seeds or self._seeds):
            ended = self._fails(candidate)
            if ended is not None:
                self.script = candidate
                self._ended = ended
                self._on_progress(candidate, self.runs)
                return True
        return False

    def _fails(self, candidate: Script) -> Ended | None:
        """Returns the outcome of a candidate if it has the signature, and None otherwise."""
        key = dumps(candidate)
        if key in self._failed_to_fail:
            return None
        if self.runs >= self._limits.runs or self._cpu_s() - self.started_s >= self._limits.cpu_s:
            raise _LimitReached
        self.runs += 1
        try:
            ended = self._run(candidate)
        except Exception:
            # An edit may make arguments that a verb does not accept.
            ended = None
        if ended is not None and ended.signature == self.signature:
            return ended
        self._failed_to_fail.add(key)
        return None
