"""Every item of the acceptance checklist has a test at both protocol levels, and no other item is marked.

`make acceptance` runs all of them, `make test` those of the newest level and the first ones of the oldest.
"""

import json
import subprocess
import sys
from typing import Final

import pytest

from tests.support import tree

ITEMS: Final = set(range(1, 18))


@pytest.fixture(scope="module")
def collected_items(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[int]]:
    """Items by level as collected by pytest. Nothing is executed, so that no Java is needed."""
    found = tmp_path_factory.mktemp("checklist") / "told.json"
    command = [
        "-m",
        "pytest",
        "--collect-only",
        "-qq",
        "-m",
        "not long",
        "-p",
        "tests.support.checklist",
        "--checklist-to",
        str(found),
    ]
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


def test_checklist_is_covered_at_both_levels(collected_items: dict[str, set[int]]) -> None:
    assert collected_items == {"2.6": ITEMS, "3.9": ITEMS}
