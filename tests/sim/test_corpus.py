"""Every script of the corpus passes; `test_smoke` has the mutants that bring its bugs back."""

from pathlib import Path
from typing import Final

import pytest

from tests.sim.engine import corpus
from tests.sim.engine.judging import judge
from tests.sim.engine.reports import Origin, report

FOLDER: Final = Path(__file__).with_name("corpus")
PATHS: Final = sorted(FOLDER.glob("*.json"))
# Scenarios over memory of which one is a fast test. All scripts of old bugs are fast tests.
SCENARIOS_PER_FAST_ONE: Final = 3
IN_MEMORY: Final = [path for path in PATHS if path.match("SCN-*-memory.json")]


# Scenarios over another store than memory of which one runs in `make test`, where all of them run over memory, and all
# scripts of old bugs over their store; `make truth` runs the others. SQLite and ZooKeeper keep different ones.
SCENARIOS_PER_KEPT_ONE: Final = 3
STORES: Final = [[path for path in PATHS if path.match(f"SCN-*-{store}.json")] for store in ("sqlite", "zookeeper")]


def is_long(path: Path) -> bool:
    kept = [path for first, paths in enumerate(STORES) for path in paths[first::SCENARIOS_PER_KEPT_ONE]]
    return any(path in paths for paths in STORES) and path not in kept


def is_slow(path: Path) -> bool:
    """Returns whether a script is left to `make test`: most scenarios, and those over another store than memory."""
    scenario, _, _ = path.stem.rpartition("-")
    if path in IN_MEMORY:
        return IN_MEMORY.index(path) % SCENARIOS_PER_FAST_ONE != 0
    return path.with_stem(f"{scenario}-memory") in IN_MEMORY


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * is_slow(path) + [pytest.mark.long] * is_long(path))
        for path in PATHS
    ],
)
def test_script_passes(path: Path) -> None:
    script = corpus.load(path).script

    judged = judge(script)

    assert judged.passed, "\n".join(report(script, judged, Origin(None, "", f"python -m tests.sim replay {path}")))
