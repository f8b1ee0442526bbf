"""New random seeds at every commit, and the same runs in other processes.

The seeds are derived from the commit. A seed that fails is printed with its script and the command that repeats it; the
script becomes an entry of the corpus together with the fix.
"""

import os
import random
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from tests.sim.engine import determinism
from tests.sim.engine.cli.sources import base_seed
from tests.sim.engine.exploring import Options, explore
from tests.support import tree

# Processor time of one block of seeds. Blocks run at the same time on several processors.
BLOCK_CPU_S: Final = 25.0
BLOCKS: Final = 2
# Distance of the first seeds of two blocks: more than any block can run.
_FAR: Final = 100_000
# A run in each process takes five seconds; `make sim` repeats a thousand.
DETERMINISM_SEEDS: Final = 2


@pytest.fixture
def first_seed(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.chdir(tree.ROOT)
    return int(os.environ.get("SIM_SEED", base_seed()))


# `long`, and not a part of every change, until a night of `make sim` has passed without a violation.
@pytest.mark.long
@pytest.mark.parametrize("block", range(BLOCKS))
def test_new_seeds_break_no_invariant(block: int, first_seed: int, tmp_path: Path) -> None:
    first = first_seed + block * _FAR
    options = Options(first=first, folder=str(tmp_path), stop=True, shrink_cpu_s=60.0)
    began_s = time.process_time()

    for result in explore(options):
        assert result.passed, "\n".join(["", *result.report])
        if time.process_time() - began_s >= BLOCK_CPU_S:
            break


# Not `slow`: with `make check`, which leaves those out, there are several Pythons.
def test_runs_are_equal_in_other_processes(first_seed: int) -> None:
    """With other hash seeds and another layout of the heap, and in every other Python for which there is a venv."""
    venvs = {tree.ROOT / ".venv", *tree.ROOT.glob(".venv-check-*")} - {Path(sys.prefix)}
    others = sorted(str(venv / "bin" / "python") for venv in venvs if (venv / ".ready").exists())
    pythons = [sys.executable, *others]
    seeds = range(first_seed, first_seed + DETERMINISM_SEEDS)

    ways = determinism.processes(pythons, rng=random.Random(first_seed))
    found = list(determinism.differences(seeds, ways))

    assert not found, "\n".join(map(str, found))
