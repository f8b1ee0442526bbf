"""Scripts that find one mutant each: if one no longer does, a checker or the simulator has gone soft.

`tests.sim.mutant_search` makes them. Each change runs four of them, in rotation; all of them run among the long tests.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.sim.engine import mutants, script
from tests.sim.engine.judging import judge
from tests.support import tree

MUTANTS: Final = Path(__file__).with_name("mutants.toml")
SCRIPTS: Final = sorted(Path(__file__).with_name("smoke").glob("*.json"))


EACH_CHANGE: Final = 4


def of_this_change() -> list[Path]:
    """Returns the scripts that this commit runs: the next ones in a list in which each comes once in ten commits."""
    command = ["git", "rev-list", "--count", "HEAD"]
    done = subprocess.run(command, cwd=tree.ROOT, capture_output=True, text=True, check=False)
    return rotated(SCRIPTS, int(done.stdout or 0))


def rotated(scripts: list[Path], number: int) -> list[Path]:
    """Returns `EACH_CHANGE` scripts that follow those of the number before."""
    begin = number * EACH_CHANGE
    return [scripts[(begin + index) % len(scripts)] for index in range(min(EACH_CHANGE, len(scripts)))]


def test_rotation_reaches_every_script() -> None:
    turns = -(-len(SCRIPTS) // EACH_CHANGE)

    assert {path for number in range(turns) for path in rotated(SCRIPTS, number)} == set(SCRIPTS)


@pytest.mark.slow
@pytest.mark.parametrize("index", range(EACH_CHANGE))
def test_scripts_of_this_change_find_their_mutants(index: int) -> None:
    find(of_this_change()[index])


@pytest.mark.long
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_finds_its_mutant(path: Path) -> None:
    find(path)


def find(path: Path) -> None:
    found = script.load(path)

    done = subprocess.run(
        [
            *[sys.executable, "-c", mutants.BOOTSTRAP, mutants.__file__],
            *[str(MUTANTS), path.stem, "tests.sim.engine.judging", str(path)],
        ],
        cwd=tree.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    signature = msgspec.json.decode(done.stdout)["signature"]
    assert signature == found.expect, f"its moment may have moved: python -m tests.sim.retime {path.stem}"
    assert signature.split(" ")[0] in mutants.load(MUTANTS)[path.stem].must_break


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_passes_without_its_mutant(path: Path) -> None:
    judged = judge(script.load(path))

    assert judged.passed, judged.error


def test_scripts_are_short() -> None:
    for path in SCRIPTS:
        assert len(script.load(path).actions) <= 25, path.name
