"""Replay of scripts: a failure counts only if it is the same twice."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from kactl.testing.history import Event, History
from tests.sim.engine.script import Script


class Recorded(Protocol):
    """Outcome of a run, as far as its comparison with another reads it."""

    @property
    def signature(self) -> str: ...

    @property
    def digest(self) -> str: ...

    @property
    def history(self) -> History: ...


OutcomeT = TypeVar("OutcomeT", bound=Recorded)


class Difference(NamedTuple):
    """First difference of two runs of one script.

    Attributes:
        first, second: the events at that position; None where a run has ended.
        before: last events that are equal.
    """

    first: Event | None
    second: Event | None
    before: tuple[Event, ...]

    def lines(self) -> list[str]:
        """Returns the difference in words."""
        return [
            *(f"  both    {event}" for event in self.before),
            f"  first   {self.first or 'the run has ended'}",
            f"  second  {self.second or 'the run has ended'}",
        ]


class NotReplayable(Exception):
    """Two runs of one script differ: the program is not deterministic."""

    def __init__(self, script: Script, difference: Difference | None, signatures: tuple[str, str]) -> None:
        what = "\n".join(difference.lines()) if difference else f"  signatures: {signatures[0]!r}, {signatures[1]!r}"
        super().__init__(
            f"two runs of {script.name or 'the script'} differ: look for unordered sets, real time and unseeded "
            f"randomness before the first difference\n{what}"
        )
        self.difference = difference


def replay(script: Script, run: Callable[[Script], OutcomeT], *, first: OutcomeT | None = None) -> OutcomeT:
    """Run a script twice and compare. Returns the second outcome.

    Args:
        first: an earlier outcome of the same script, in place of the first run.

    Raises:
        NotReplayable: the runs differ.
    """
    before = run(script) if first is None else first
    after = run(script)
    if (before.digest, before.signature) != (after.digest, after.signature):
        difference = first_difference(before.history, after.history)
        raise NotReplayable(script, difference, (before.signature, after.signature))
    return after


def first_difference(first: History, second: History, *, context: int = 5) -> Difference | None:
    """Returns where two histories differ first; None if they are equal."""
    length = min(len(first.events), len(second.events))
    position = next((at for at in range(length) if first.events[at] != second.events[at]), length)
    if position == len(first.events) == len(second.events):
        return None
    return Difference(
        first.events[position] if position < len(first.events) else None,
        second.events[position] if position < len(second.events) else None,
        tuple(first.events[max(0, position - context) : position]),
    )
