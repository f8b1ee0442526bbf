"""The record of the searches for mutants: each entry proves the statement on the page of the track record."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.sim.engine import mutants
from tests.support import tree

from . import mutant_search
from .mutant_search import (
    ACTIONS_MAX,
    FOUND,
    MUTANTS,
    OWN,
    SMOKE,
    Found,
    changed_files,
    first_seed,
    load,
    save,
    search_reached,
    stores,
    why_not,
)
from .reach import ReachRun

RESULTS = load()
KNOWN = mutants.load(MUTANTS)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = Found(mutant="MUT-01", store="memory", signature="INV-03 x", seed=7, cpu_s=1.5, runs=3, actions=(9, 2))
    missed = Found(mutant="MUT-01", store="sqlite", seed=7, cpu_s=600.0, runs=300)

    save([missed, found], tmp_path / "found.toml")

    assert load(tmp_path / "found.toml") == {("MUT-01", "memory"): found, ("MUT-01", "sqlite"): missed}
    assert load(tmp_path / "nothing.toml") == {}


def test_every_result_belongs_to_a_search_that_is_made() -> None:
    assert FOUND.exists()
    for number, store in RESULTS:
        assert store in stores(KNOWN[number])
        assert not KNOWN[number].not_applicable
        assert not why_not(KNOWN[number])


@pytest.mark.parametrize("found", [one for one in RESULTS.values() if one.signature], ids=lambda one: one.mutant)
def test_what_was_found_is_due_to_the_mutant(found: Found) -> None:
    mutant = KNOWN[found.mutant]

    assert found.signature.split(" ")[0] in mutant.must_break
    assert found.cpu_s <= mutant.budget_cpu_s
    # The unchanged code does not fail in the same way.
    assert found.control.split(" ")[0] != found.signature.split(" ")[0]
    if found.actions[1] <= ACTIONS_MAX:
        assert (SMOKE / f"{found.mutant}.json").exists()


def test_commits_of_results_belong_to_the_history() -> None:
    tree.require_history()

    for found in RESULTS.values():
        command = ["git", "merge-base", "--is-ancestor", found.commit, "HEAD"]
        done = subprocess.run(command, cwd=tree.ROOT, capture_output=True, check=False)
        assert done.returncode == 0, f"{found.mutant} over {found.store}: {found.commit}"


def test_search_runs_the_seeds_that_reach_the_safeguard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MUT-14 breaks every second run, but the first two are said not to reach it."""
    monkeypatch.setattr(mutant_search, "SMOKE", tmp_path)
    nothing = ReachRun(world="memory", seed=0, signature="pass", cpu_s=2.0, cluster_ms=0, file="", reached={})
    runs = [
        msgspec.structs.replace(nothing, seed=seed, reached={} if seed < 5 else {"MUT-14": 1}) for seed in range(3, 15)
    ]

    found = search_reached(KNOWN["MUT-14"], "memory", runs, budget_cpu_s=120.0, shrink_cpu_s=1.0)
    late = search_reached(KNOWN["MUT-14"], "memory", runs, budget_cpu_s=3.0)
    missed = search_reached(KNOWN["MUT-15"], "memory", runs, budget_cpu_s=120.0)

    assert found.signature.split(" ")[0] in KNOWN["MUT-14"].must_break
    assert found.seed == found.runs + 2 >= 5
    assert found.cpu_s > 2.0 * (found.runs - 1) >= 4.0
    assert (late.signature, late.runs, late.reached, late.cpu_s) == ("", 2, 0, 4.0)
    assert (missed.signature, missed.runs, missed.reached, missed.cpu_s) == ("", 12, 0, 24.0)


def test_each_search_begins_at_another_seed() -> None:
    searches = [(commit, mutant, store) for commit in "ab" for mutant in ("D1", "D2") for store in ("memory", "sqlite")]

    seeds = {first_seed(*search) for search in searches}

    assert len(seeds) == len(searches)
    assert first_seed(*searches[0]) == first_seed(*searches[0])


def test_changed_files_are_all_but_those_of_the_search(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    for name in ("kactl/model/__init__.py", OWN[0], f"{OWN[1]}/D1.json", OWN[2]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")

    assert changed_files(tmp_path) == ["kactl/model/__init__.py"]
