"""Scripts that find one mutant each: if one no longer does, a checker or the simulator has gone soft."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest

from kactl.testing import mutants, script
from kactl.testing.judging import judge
from tests.support import tree

MUTANTS: Final = Path(__file__).with_name("mutants.toml")
SCRIPTS: Final = sorted(Path(__file__).with_name("smoke").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_finds_its_mutant(path: Path) -> None:
    found = script.load(path)

    done = subprocess.run(
        [
            *[sys.executable, "-c", mutants.BOOTSTRAP, mutants.__file__],
            *[str(MUTANTS), path.stem, "kactl.testing.judging", str(path)],
        ],
        cwd=tree.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    signature = msgspec.json.decode(done.stdout)["signature"]
    assert signature == found.expect
    assert signature.split(" ")[0] in mutants.load(MUTANTS)[path.stem].must_break


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_passes_without_its_mutant(path: Path) -> None:
    judged = judge(script.load(path))

    assert judged.passed, judged.error


def test_scripts_are_short() -> None:
    for path in SCRIPTS:
        assert len(script.load(path).actions) <= 25, path.name
