"""Every item of the acceptance checklist is told by a test at both protocol levels, and no other item is."""

import json
import subprocess
import sys
from typing import Final

import pytest

from tests.support import tree

ITEMS: Final = set(range(1, 18))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[int]]:
    """The items by level, as pytest itself collects them; nothing is run, so it needs no Java."""
    found = tmp_path_factory.mktemp("checklist") / "told.json"
    command = ["-m", "pytest", "--collect-only", "-qq", "-p", "tests.support.checklist", "--checklist-to", str(found)]
    done = subprocess.run(
        [sys.executable, *command, "tests/interop"],
        cwd=tree.ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    levels: dict[str, dict[str, list[str]]] = json.loads(found.read_text(encoding="utf-8"))
    return {level: set(map(int, items)) for level, items in levels.items()}


def test_the_whole_checklist_is_told_at_both_levels(told: dict[str, set[int]]) -> None:
    assert told == {"2.6": ITEMS, "3.9": ITEMS}
