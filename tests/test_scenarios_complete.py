"""Every numbered story in `scenarios.txt` is told by a test, and no test tells one that is not listed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import tree
from tests.support.scenarios import COLLECTED

LIST = Path(__file__).with_name("scenarios.txt")


def listed() -> set[int]:
    """The numbers of the list; a line begins with a number or a range, and goes on as it likes."""
    numbers: set[int] = set()
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            first, _, last = line.split()[0].partition("-")
            span = set(range(int(first), int(last or first) + 1))
            assert not numbers & span, f"{line!r} lists a number for the second time"
            numbers |= span
    return numbers


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """The tests that tell each story, as pytest itself collects them; slow and external ones too."""
    stories, collected = request.config.stash[COLLECTED]
    if collected >= set((tree.ROOT / "tests").rglob("test_*.py")):
        return stories
    # Only a part of the tests is run; it takes a while to find the others.
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
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {int(number): tests for number, tests in json.loads(found.read_text(encoding="utf-8")).items()}


def test_every_story_of_the_list_is_told(told: dict[int, list[str]]) -> None:
    assert sorted(listed() - told.keys()) == []


def test_no_story_is_told_that_is_not_listed(told: dict[int, list[str]]) -> None:
    strangers = {number: tests for number, tests in told.items() if number not in listed()}

    assert strangers == {}
