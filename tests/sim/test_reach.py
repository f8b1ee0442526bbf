"""The edits that note which seeds reach a safeguard: they fit the code, and change nothing."""

import subprocess
from pathlib import Path

import msgspec

from tests.sim.engine import mutants
from tests.sim.engine.exploring import Options, explore
from tests.support import tree

from .mutant_search import MUTANTS
from .reach import REACHED, Reached, ReachRun, command, load, numbers

EDITS = mutants.find(REACHED, "REACHED").edits
# Participants receive LeaderAndIsr requests in each run, and then call `reached`.
SEED = 310000005


def test_edits_apply_once_and_compile() -> None:
    for file in dict.fromkeys(edit.file for edit in EDITS):
        source = (tree.ROOT / file).read_text(encoding="utf-8")

        changed = mutants.edited(source, [edit for edit in EDITS if edit.file == file], number="REACHED")

        compile(changed, file, "exec")


def test_each_number_is_that_of_a_mutant() -> None:
    known = mutants.load(MUTANTS)

    assert numbers()
    assert numbers() <= known.keys()


def test_condition_is_noted_and_the_value_passed_on() -> None:
    reached = Reached()

    assert reached("D1", [], True) == []
    assert reached("D1", 3) == 3
    assert reached("D2", 0) == 0
    assert reached.take() == {"D1": 2}
    assert reached.take() == {}


def test_run_is_the_same_with_the_edits() -> None:
    options = Options(first=SEED, last=SEED, store="memory/participant", calm=False, shrink_cpu_s=0.0, commit="abc")

    done = subprocess.run(command(options), cwd=tree.ROOT, capture_output=True, text=True, check=True)
    noted = msgspec.json.decode(done.stdout, type=ReachRun)
    (plain,) = explore(options)

    assert noted.digest == plain.digest
    assert (noted.seed, noted.signature, noted.commit) == (SEED, plain.signature, "abc")


def test_results_are_read_by_world_and_seed(tmp_path: Path) -> None:
    runs = [
        ReachRun(
            world=world, seed=seed, signature="pass", digest="", cpu_s=1.0, cluster_ms=0, file="", reached={"D1": 1}
        )
        for world, seed in (("sqlite", 7), ("memory", 9), ("memory", 3))
    ]
    path = tmp_path / "reached.jsonl"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, runs)))

    assert load(path) == {"memory": [runs[2], runs[1]], "sqlite": [runs[0]]}
