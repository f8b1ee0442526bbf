"""Input of the commands: scripts by file or seed, and the commit of the tree."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from kactl.cli.exits import Exit, Failure, of_system
from tests.sim.engine.script import PASS, Script, ScriptError

# The tests of the project, relative to its root.
FOLDER: Final = Path("tests/sim")
_UNKNOWN: Final = "unknown"


class Source(NamedTuple):
    """A script and where it comes from. `seed` is None for a file."""

    script: Script
    seed: int | None
    name: str


@contextmanager
def errors_translated(name: str) -> Iterator[None]:
    """Turn errors of files and scripts into failures of the command line."""
    try:
        yield
    except ScriptError as error:
        raise Failure(str(error), Exit.USAGE) from None
    except OSError as error:
        raise Failure(of_system(error, name).message, Exit.USAGE) from None


def source(argument: str, *, store: str = "") -> Source:
    """Returns the script of a file, or of a seed.

    Raises:
        Failure: USAGE; there is no such file, or it is damaged.
    """
    from tests.sim.engine import corpus, exploring

    if argument.isdecimal():
        return Source(exploring.script_of(int(argument), store), int(argument), argument)
    with errors_translated(argument):
        return Source(corpus.load_script(Path(argument)), None, argument)


def commit() -> str:
    """Returns the commit of the current folder, with a plus sign if files differ from it."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=8"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return _UNKNOWN
    return done.stdout.strip() or _UNKNOWN


def base_seed() -> int:
    """Returns the first seed of a search without seeds: from the commit, so that each commit tries new ones."""
    text = commit().rstrip("+")
    try:
        return int(text[:8], 16)
    except ValueError:
        return 0


def no_longer(script: Script, signature: str) -> str:
    """Returns the remedy for a script that ends otherwise than it says; empty if it does not."""
    if script.expect in (PASS, signature):
        return ""
    return (
        f"{script.name or 'The script'} ended with {script.expect} when it was saved, and now with {signature}. If the "
        "bug is fixed, add the script to the corpus with its mutant; otherwise other code has changed the run: replay "
        "it with --commit and the commit that found it."
    )
