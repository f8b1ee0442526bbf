"""Scripts that find one mutant each: if one no longer does, a checker or the simulator has gone soft.

`tests.sim.mutant_search` makes those of `smoke`; those of `corpus` are old bugs, which their mutants bring back. Each
change runs eight of them, in rotation; all of them run among the long tests.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.sim.engine import corpus, mutants, script
from tests.sim.engine.judging import judge
from tests.support import tree

FOLDER: Final = Path(__file__).parent
MUTANTS: Final = FOLDER / "mutants.toml"
SMOKE: Final = sorted(FOLDER.glob("smoke/*.json"))
CORPUS: Final = [path for path in sorted(FOLDER.glob("corpus/*.json")) if corpus.load(path).mutant]
# A livelock takes 100,000 steps to fail.
SCRIPTS: Final = [*SMOKE, *(path for path in CORPUS if not path.match("LIV-09-*.json"))]


EACH_CHANGE: Final = 8


def of_this_change() -> list[Path]:
    """Returns the scripts that this commit runs: the next ones in a list in which each comes once in 15 commits."""
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
@pytest.mark.parametrize("path", [*SMOKE, *CORPUS], ids=lambda path: path.stem)
def test_script_finds_its_mutant(path: Path) -> None:
    find(path)


def find(path: Path) -> None:
    number, expected = path.stem, ""
    if path in CORPUS:
        entry = corpus.load(path)
        number, expected = entry.mutant, entry.signature
    else:
        expected = script.load(path).expect
        assert expected.split(" ")[0] in mutants.load(MUTANTS)[number].must_break

    arguments = [mutants.__file__, str(MUTANTS), number, "tests.sim.engine.judging", str(path)]
    done = subprocess.run(
        [sys.executable, "-c", mutants.BOOTSTRAP, *arguments],
        cwd=tree.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    signature = msgspec.json.decode(done.stdout)["signature"]
    assert signature == expected, f"its moment may have moved: python -m tests.sim.retime {path.stem}"


@pytest.mark.slow
@pytest.mark.parametrize("path", SMOKE, ids=lambda path: path.stem)
def test_script_passes_without_its_mutant(path: Path) -> None:
    judged = judge(script.load(path))

    assert judged.passed, judged.error


def test_scripts_are_short() -> None:
    for path in SMOKE:
        assert len(script.load(path).actions) <= 25, path.name
