"""Scripts of simulated tests: the schedule and the faults of one run, as one JSON object.

Equal scripts with equal versions of the code make equal runs, and each subset of a script's actions is a valid script,
so that a failing one can be reduced.
"""

from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

# Raised when the same script makes another run than before.
FORMAT: Final = 1

T = TypeVar("T")


class ScriptError(ValueError):
    """A script cannot be read. The text names the file, the reason and the remedy."""


class ScheduleSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Schedule of the steps; see `Schedule`.

    Attributes:
        seed: of the schedule, the latencies and all other draws while the script runs.
        only: hold-backs of steps that remain, by number; None for all that the strategy chooses.
    """

    strategy: Literal["fifo", "shuffle", "priority"] = "fifo"
    hold_back: float = 0.0
    changes: int = 0
    grid_ms: float = 0.0
    seed: int = 0
    only: list[int] | None = None


class Action(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One fault: its kind, the virtual time at which it begins, and its arguments."""

    do: str
    at_ms: float = 0.0
    args: dict[str, Any] = {}


class Script(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A whole run.

    Attributes:
        name: of the test; empty for every test.
        duration_ms: time in which faults begin.
    """

    format: int = FORMAT
    name: str = ""
    schedule: ScheduleSpec = msgspec.field(default_factory=ScheduleSpec)
    duration_ms: float = 60_000.0
    actions: list[Action] = []


def load(path: Path) -> Script:
    """Read the script of a file. Raises ScriptError as `loads`, and OSError."""
    return loads(path.read_bytes(), Script, name=str(path))


def loads(text: str | bytes, kind: type[T], *, name: str) -> T:
    """Read a script of a type.

    Args:
        name: of its file, for errors.

    Raises:
        ScriptError: it is damaged, or of another format.
    """
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.format != FORMAT:
            raise ScriptError(
                f"{name}: script format {head.format}, but this version reads format {FORMAT}: "
                "replay it with the version that wrote it"
            )
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ScriptError(f"{name}: not a script: {error}: restore the file, or remove it") from error


def dumps(script: msgspec.Struct) -> str:
    """Returns a script as indented JSON, equal for equal scripts."""
    return msgspec.json.format(msgspec.json.encode(script, order="deterministic"), indent=1).decode() + "\n"


class _Head(msgspec.Struct):
    format: int
