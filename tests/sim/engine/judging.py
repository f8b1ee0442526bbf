"""Runs with everything that judges them: the checkers of all invariants, and the log.

`python -m tests.sim.engine.judging FILE` runs a script and prints signature and digest as JSON, for tests that need a
fresh process.
"""

import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kactl.model.errors import KactlError
from kactl.testing.history import History
from kactl.testing.violations import Violation
from tests.sim.engine.log_records import LogRecord, recorded
from tests.sim.engine.script import Script

from . import corpus
from .points import InjectedError
from .run import Outcome, run_script

# The second phase of a run about the first one: a change of the script may delay what happens at its end.
_SOON_MS: Final = 5_000.0


class Judged(NamedTuple):
    """Outcome of a judged run, with its log records."""

    outcome: Outcome
    records: list[LogRecord]

    @property
    def held(self) -> Sequence[int]:
        """Numbers of the steps that the schedule held back."""
        made, only = self.outcome.hold_backs, self.outcome.script.schedule.only
        return range(made) if only is None else [number for number in only if number < made]

    @property
    def script(self) -> Script:
        return self.outcome.script

    @property
    def signature(self) -> str:
        return self.outcome.signature

    @property
    def passed(self) -> bool:
        return self.outcome.passed

    @property
    def violation(self) -> Violation | None:
        return self.outcome.violation

    @property
    def error(self) -> str:
        return self.outcome.error

    @property
    def digest(self) -> str:
        return self.outcome.digest

    @property
    def history(self) -> History:
        return self.outcome.history

    @property
    def steps(self) -> int:
        return self.outcome.steps

    @property
    def virtual_ms(self) -> float:
        return self.outcome.virtual_ms

    @property
    def cpu_s(self) -> float:
        return self.outcome.cpu_s


def judge(script: Script, *, level: int = logging.ERROR, second_ms: float = math.inf) -> Judged:
    """Run a script with all checkers.

    Args:
        level: of the log records that are kept. The run itself does not depend on it.
        second_ms: see `run_script`.
    """
    with recorded(level=level, explained=(KactlError, InjectedError)) as records:
        outcome = run_script(script, second_ms=second_ms)
    return Judged(outcome, records)


def judge_first_phase(script: Script) -> Judged:
    """Run a script with all checkers until soon after its first phase."""
    return judge(script, second_ms=_SOON_MS)


def main(file: str) -> None:
    """Run the script of a file, and print one JSON object."""
    judged = judge(corpus.load_script(Path(file)))
    result = {"signature": judged.signature, "digest": judged.digest, "error": judged.error, "cpu_s": judged.cpu_s}
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
