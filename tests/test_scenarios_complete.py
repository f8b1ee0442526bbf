"""Every numbered scenario in `scenarios.txt` has a test, and every marked number is listed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import tree
from tests.support.scenarios import COLLECTED

LIST = Path(__file__).with_name("scenarios.txt")


def listed() -> set[int]:
    """Returns the numbers of the list; a line begins with a number or a range, followed by any text."""
    numbers: set[int] = set()
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            first, _, last = line.split()[0].partition("-")
            span = set(range(int(first), int(last or first) + 1))
            assert not numbers & span, f"{line!r} lists a number for the second time"
            numbers |= span
    return numbers


@pytest.fixture(scope="module")
def scenario_tests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """Tests of each scenario as collected by pytest, slow and external ones included."""
    stories, collected = request.config.stash[COLLECTED]
    if collected >= set((tree.ROOT / "tests").rglob("test_*.py")):
        return stories
    # Only a part of the tests was collected; collecting the others takes a while.
    found = tmp_path_factory.mktemp("scenarios") / "told.json"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-qq",
            "-p",
            "tests.support.scenarios",
            "--scenarios-to",
            str(found),
        ],
        cwd=tree.ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {int(number): tests for number, tests in json.loads(found.read_text(encoding="utf-8")).items()}


def test_every_listed_scenario_has_a_test(scenario_tests: dict[int, list[str]]) -> None:
    assert sorted(listed() - scenario_tests.keys()) == []


def test_every_marked_scenario_is_listed(scenario_tests: dict[int, list[str]]) -> None:
    strangers = {number: tests for number, tests in scenario_tests.items() if number not in listed()}

    assert strangers == {}
