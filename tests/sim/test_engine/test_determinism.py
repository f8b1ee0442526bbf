"""Comparison of runs in several processes: equal ones, and the first difference of others."""

import random
import sys
from pathlib import Path

import pytest

from tests.sim.engine import determinism
from tests.sim.engine.determinism import Process, differences

# Takes the place of an interpreter: seed 2 depends on the hash seed from its third event on.
PROGRAM = """#!{python}
import json, os, sys
_, _, _, _, blocks, what, *seeds = sys.argv
assert sys.argv[1:4] == ["-m", "tests.sim.engine.determinism", "--child"]
for seed in map(int, seeds):
    noise = os.environ["PYTHONHASHSEED"] if seed == 2 else "0"
    events = ["a", "b", f"c {{noise}}", "d"]
    print(json.dumps([seed, events if what == "events" else "".join(events)]))
"""


@pytest.fixture
def python(tmp_path: Path) -> str:
    path = tmp_path / "python"
    path.write_text(PROGRAM.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


def test_seed_that_differs_is_reported_with_its_first_difference(python: str) -> None:
    ways = [Process(python, 0, 1_000), Process(python, 1, 2_000), Process(python, 77, 3_000)]

    found = list(differences([1, 2, 3], ways))

    assert [str(different) for different in found] == [
        f"seed 2 differs between {python} PYTHONHASHSEED=0 1000 blocks and {python} PYTHONHASHSEED=1 2000 blocks\n"
        "  both    a\n"
        "  both    b\n"
        "  first   c 0\n"
        "  second  c 1"
    ]


def test_equal_runs_are_not_reported(python: str) -> None:
    assert not list(differences([1, 3], [Process(python, 0, 1_000), Process(python, 1, 2_000)]))


def test_process_that_fails_is_an_error(tmp_path: Path) -> None:
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\nexit 7\n")
    failing.chmod(0o755)

    with pytest.raises(RuntimeError, match="ended with code 7"):
        list(differences([1], [Process(str(failing), 0, 1_000), Process(str(failing), 1, 1_000)]))


def test_each_interpreter_gets_two_hash_seeds_and_layouts() -> None:
    ways = determinism.processes(["a", "b"], rng=random.Random(3))

    assert [way.python for way in ways] == ["a", "a", "b", "b"]
    assert ways[0].hash_seed != ways[1].hash_seed
    assert len({way.blocks for way in ways}) == 4


def test_exit_code_states_whether_seeds_differ(python: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert determinism.main(["3:4", python]) == 0
    assert capsys.readouterr().out == "2 seeds in 2 processes, 0 differ\n"
    assert determinism.main(["2", python]) == 4
