"""Report of a violation on one screen: what broke, in which run, the script, and the command that repeats it."""

import textwrap
from typing import Final, NamedTuple, Protocol

from kactl.testing.violations import Violation
from tests.sim.engine.script import FORMAT, Script

from . import wording

# Actions that fit on a screen; the rest is counted.
ACTIONS_SHOWN: Final = 25
_WIDTH: Final = 120
_TEXT_LINES: Final = 4
# Lines of a failure without a violation: the waiting tasks of a deadlock may be many.
_ERROR_LINES: Final = 10


class Failed(Protocol):
    """Outcome of a run that failed, as far as a report reads it."""

    @property
    def signature(self) -> str: ...

    @property
    def violation(self) -> Violation | None: ...

    @property
    def error(self) -> str: ...

    @property
    def steps(self) -> int: ...

    @property
    def virtual_ms(self) -> float: ...


class Origin(NamedTuple):
    """Where a script comes from.

    Attributes:
        seed: of the generator; None for a script that was written by hand.
        commit: of the code, short.
        shrunk: for example `shrunk 57 -> 4 actions in 38 CPU-s`; empty if it was not shrunk.
        replay: command that repeats the run.
    """

    seed: int | None
    commit: str
    replay: str
    shrunk: str = ""


def report(script: Script, outcome: Failed, origin: Origin, *, invariant: str = "") -> list[str]:
    """Returns the lines of a report.

    Args:
        invariant: text of the invariant that was broken.
    """
    number = outcome.signature.split(" ")[0]
    seed = "" if origin.seed is None else f"seed {origin.seed}  "
    where = [
        f"{seed}commit {origin.commit}  format {FORMAT}  {wording.world(script)}",
        f"{script.schedule.strategy} schedule {script.schedule.seed}  step {outcome.steps:,}"
        f"  t={outcome.virtual_ms / 1000:.3f} s",
        *([origin.shrunk] if origin.shrunk else []),
    ]
    shown = script.actions[:ACTIONS_SHOWN]
    more = len(script.actions) - len(shown)
    width = max((len(wording.moment(action)) for action in shown), default=0)
    return [
        f"{number}  {invariant}" if invariant else outcome.signature,
        *(f"  {line}" for text in _texts(outcome) for line in _wrapped(text)),
        *(f"  {line}" for line in where),
        *(
            f"  {index:>2}  {wording.moment(action):<{width}}  {wording.action(action)}"[:_WIDTH]
            for index, action in enumerate(shown, start=1)
        ),
        *([f"      and {more} more actions"] if more else []),
        f"  replay: {origin.replay}",
    ]


def _wrapped(text: str) -> list[str]:
    """Returns a text in lines; a long one is cut."""
    return textwrap.wrap(text, _WIDTH - 2, max_lines=_TEXT_LINES, placeholder=" ...")


def _texts(outcome: Failed) -> list[str]:
    violation = outcome.violation
    if violation is None:
        return outcome.error.splitlines()[:_ERROR_LINES]
    lines = [violation.text]
    if violation.event is not None:
        lines.append(f"event:       {_event(violation)}")
    if violation.contradicts is not None:
        event = violation.contradicts
        lines.append(f"contradicts: {event.time_ms / 1000:.3f} s  {event.node or '-'}  {wording.describe(event)}")
    return lines


def _event(violation: Violation) -> str:
    event = violation.event
    assert event is not None
    return f"{event.time_ms / 1000:.3f} s  {event.node or '-'}  {wording.describe(event)}"
