"""Search for each mutant with random seeds, and the record of the seeds and scripts that found it.

    python -m tests.sim.mutant_search [--first SEED | --reached FILE] [--share S] [--shrink CPU_S] [--store KIND]
        [NUMBER ...]

The search gets no hint: it runs generated seeds with one safeguard taken out, until an invariant of `must_break` is
reported or the budget of the mutant's class is used up. Long and calm runs are left out: they cost most of the time,
and faults rarely meet in them. What is found is reduced, run again with the unchanged code, where it must not fail in
the same way, and kept:

    found.toml        one entry for each mutant and store, from which docs/evidence/track-record.md is generated
    smoke/NUMBER.json the reduced script, which tests run as long as it has at most 25 actions

The seeds follow from the commit, the mutant and the store, so that no search begins where an earlier one has found
something. With `--reached` they are those of `tests.sim.reach`: of these the mutant is run with the ones that reach its
safeguard, and the others, which the mutant does not change, count as they ran without it. Changed files are rejected,
because the record names the commit that was searched.
"""

import argparse
import bisect
import contextlib
import hashlib
import itertools
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tests.sim.engine import jobs, mutants, script
from tests.sim.engine.cli.sources import commit
from tests.sim.engine.exploring import Options, SeedRun
from tests.sim.engine.mutants import Mutant
from tests.support import tree

from . import reach
from .reach import ReachRun

FOLDER: Final = Path(__file__).parent
MUTANTS: Final = FOLDER / "mutants.toml"
FOUND: Final = FOLDER / "found.toml"
SMOKE: Final = FOLDER / "smoke"
# Files that a search writes, and the page that shows them, relative to the root.
OWN: Final = ("tests/sim/found.toml", "tests/sim/smoke", "docs/evidence/track-record.md")
_STORES: Final = ("memory", "sqlite", "zookeeper")
# Kinds of brokers besides the modelled ones.
_BROKERS: Final = ("participant", "ownership")
STORES: Final = (*_STORES, *(f"{store}/{brokers}" for brokers in _BROKERS for store in _STORES))
# Length of a script that explains its finding.
ACTIONS_MAX: Final = 25
SHRINK_CPU_S: Final = 120.0
# Mutants that generated runs cannot find.
_WHY_NOT: Final = {
    "MUT-25": "only a loss of power shows it; see test_power_loss.py",
    "MUT-53": "equivalent: a session ends when its row is deleted, and neither code renews a deleted row",
}


class Found(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Result of one search.

    Attributes:
        signature: of the violation; empty if none was found.
        seed: that found it, or the first one of a search in vain.
        cpu_s: processor time of one core until it was found, or of the search in vain: of all runs and of the
            repetitions of those that failed, without starts of processes, reduction, and runs of the unchanged code.
        runs: seeds that were run, one after the other.
        reached: those of them in which the safeguard was reached, in a search in vain; -1 if that was not noted.
        steps: of the failing run.
        actions: of its script, and of the reduced one.
        control: signature of the same script with the unchanged code.
        commit: the commit of main that was searched, or the first one that contains the code that was searched.
    """

    mutant: str
    store: str
    signature: str = ""
    seed: int
    cpu_s: float
    runs: int
    reached: int = -1
    steps: int = 0
    actions: tuple[int, int] = (0, 0)
    control: str = ""
    commit: str = ""


def load(path: Path = FOUND) -> dict[tuple[str, str], Found]:
    """Returns the results by mutant and store."""
    if not path.exists():
        return {}
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("found", [])
    return {(one.mutant, one.store): one for one in msgspec.convert(entries, list[Found])}


def save(found: Iterable[Found], path: Path = FOUND) -> None:
    """Write the results, in the order of their mutants."""
    text = ["# Results of `python -m tests.sim.mutant_search`; see there.\n"]
    for one in sorted(found, key=lambda one: (one.mutant, one.store)):
        values = {name: getattr(one, name) for name in one.__struct_fields__ if name != "reached" or one.reached >= 0}
        text.append("\n[[found]]\n" + "".join(f"{name} = {_toml(value)}\n" for name, value in values.items()))
    path.write_text("".join(text), encoding="utf-8")


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return f'"{value}"' if isinstance(value, str) else f"{value}"


def stores(mutant: Mutant) -> list[str]:
    """Returns the kinds of stores over which a mutant is searched; the other worlds are kinds of brokers."""
    for brokers in _BROKERS:
        if brokers in mutant.worlds and "model" not in mutant.worlds:
            return [f"{store}/{brokers}" for store in _STORES if store in mutant.worlds]
    return [store for store in _STORES if store in mutant.worlds] or ["memory"]


def why_not(mutant: Mutant) -> str:
    """Returns why generated runs cannot find a mutant; empty if they can."""
    return _WHY_NOT.get(mutant.number, "")


def first_seed(commit: str, mutant: str, store: str) -> int:
    """Returns the first seed of a search: another one for each commit, mutant and store."""
    digest = hashlib.blake2b(f"{commit} {mutant} {store}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big")


def changed_files(root: Path = tree.ROOT) -> list[str]:
    """Returns the files that differ from the commit, except `OWN`."""
    command = ["git", "status", "--porcelain", "--untracked-files=all", "--", ".", *(f":!{path}" for path in OWN)]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return [line[3:] for line in listed.splitlines()]


def search(
    mutant: Mutant, store: str, *, first: int, budget_cpu_s: float, commit: str, shrink_cpu_s: float = SHRINK_CPU_S
) -> Found:
    """Search for one mutant, and keep the reduced script of the finding.

    A violation that the unchanged code has at the same seed is no effect of the mutant. It is skipped.
    """
    seed, runs, cpu_s = first, 0, 0.0
    nothing = Found(mutant=mutant.number, store=store, seed=first, cpu_s=0.0, runs=0, commit=commit)
    with tempfile.TemporaryDirectory() as folder:
        while cpu_s < budget_cpu_s:
            options = Options(first=seed, store=store, calm=False, folder=folder, shrink_cpu_s=0.0)
            failed, more, used_s = _failed(options, mutant, budget_cpu_s - cpu_s)
            runs, cpu_s = runs + more, cpu_s + used_s
            if failed is None:
                break
            control = _control(failed.seed, store, folder)
            if control.split(" ")[0] != failed.signature.split(" ")[0]:
                spent = replace(nothing, cpu_s=round(cpu_s, 1), runs=runs)
                return _found(mutant, spent, failed, control, Path(folder), shrink_cpu_s)
            seed = failed.seed + 1
    return replace(nothing, cpu_s=round(cpu_s, 1), runs=runs)


def search_reached(
    mutant: Mutant, store: str, runs: Sequence[ReachRun], *, budget_cpu_s: float, shrink_cpu_s: float = SHRINK_CPU_S
) -> Found:
    """Search for one mutant among seeds that were run without it, and keep the reduced script of the finding."""
    costs = list(itertools.accumulate((run.cpu_s for run in runs), initial=0.0))
    runs = runs[: bisect.bisect(costs, budget_cpu_s)]
    place = {run.seed: place for place, run in enumerate(runs)}
    due = [run.seed for run in runs if mutant.number in run.reached]
    spent = Found(
        mutant=mutant.number,
        store=store,
        seed=runs[0].seed,
        cpu_s=round(costs[len(runs)], 1),
        runs=len(runs),
        reached=len(due),
        commit=runs[0].commit,
    )
    if not due:
        return spent
    with tempfile.TemporaryDirectory() as folder:
        options = Options(first=due[0], seeds=due, store=store, calm=False, folder=folder, shrink_cpu_s=0.0)
        with contextlib.closing(_results(options, mutant)) as results:
            for result in results:
                at, number = place[result.seed], result.signature.split(" ")[0]
                if number in mutant.must_break and number != runs[at].signature.split(" ")[0]:
                    spent = replace(spent, cpu_s=round(costs[at] + result.cpu_s, 1), runs=at + 1)
                    break
            else:
                return spent
        return _found(mutant, spent, result, runs[at].signature, Path(folder), shrink_cpu_s)


def _failed(options: Options, mutant: Mutant, budget_cpu_s: float) -> tuple[SeedRun | None, int, float]:
    """Returns the first run that breaks an invariant of the mutant, the number of runs and their processor time."""
    runs, cpu_s = 0, 0.0
    # Closed before anything else is run: otherwise the process goes on searching.
    with contextlib.closing(_results(options, mutant)) as results:
        for result in results:
            runs, cpu_s = runs + 1, result.found_cpu_s
            if result.signature.split(" ")[0] in mutant.must_break:
                return result, runs, cpu_s
            if cpu_s >= budget_cpu_s:
                break
    return None, runs, cpu_s


def _control(seed: int, store: str, folder: str) -> str:
    """Returns the signature of a seed with the unchanged code."""
    once = Options(first=seed, last=seed, store=store, calm=False, folder=f"{folder}/control", shrink_cpu_s=0.0)
    return next(iter(_results(once, None))).signature


def _results(options: Options, mutant: Mutant | None) -> Generator[SeedRun]:
    number = "" if mutant is None else mutant.number
    command = jobs.command([msgspec.json.encode(options).decode()], mutant=number, mutants_file=MUTANTS)
    with contextlib.closing(jobs.results([command])) as results:
        for one in results:
            yield msgspec.convert(one, SeedRun)


def _found(mutant: Mutant, spent: Found, result: SeedRun, control: str, folder: Path, shrink_cpu_s: float) -> Found:
    """Reduce the script of a failing run. Returns the result of the search, which `spent` lacks."""
    original = script.load(Path(result.file))
    target = SMOKE / f"{mutant.number}.json"
    reduced = _reduced(mutant, Path(result.file), folder / target.name, shrink_cpu_s)
    if len(reduced.actions) <= ACTIONS_MAX:
        target.write_text(script.dumps(reduced), encoding="utf-8")
    return replace(
        spent,
        signature=result.signature,
        seed=result.seed,
        steps=result.steps,
        actions=(len(original.actions), len(reduced.actions)),
        control=control,
    )


def _reduced(mutant: Mutant, file: Path, target: Path, cpu_s: float) -> script.Script:
    arguments = ["shrink", str(file), f"--output={target}", f"--cpu={cpu_s:g}"]
    program = ["-c", mutants.BOOTSTRAP, mutants.__file__, str(MUTANTS), mutant.number, "tests.sim", *arguments]
    subprocess.run([sys.executable, *program], check=False, capture_output=True)
    return script.load(target if target.exists() else file)


def main(arguments: Sequence[str]) -> int:
    """Search for the named mutants, or for all. Returns 1 if one was not found, and 2 if files were changed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutant_search", description=__doc__)
    parser.add_argument("numbers", nargs="*", metavar="NUMBER")
    parser.add_argument("--first", type=int, help="first seed; by default one that follows from the commit")
    parser.add_argument(
        "--reached", type=Path, metavar="FILE", help="results of tests.sim.reach; searches only in these"
    )
    parser.add_argument("--share", type=float, default=1.0, help="share of each budget that is used at most")
    parser.add_argument("--shrink", type=float, default=SHRINK_CPU_S, help="processor time of each reduction")
    parser.add_argument("--store", choices=STORES, help="only over this kind of store")
    given = parser.parse_args(arguments)
    known = mutants.load(MUTANTS)
    wanted = [mutants.find(MUTANTS, number) for number in given.numbers] or [
        mutant for mutant in known.values() if not mutant.not_applicable and not why_not(mutant)
    ]
    if changed := changed_files():
        sys.stderr.write(f"commit first what differs from the commit that a search names: {', '.join(changed)}\n")
        return 2
    # Earlier results may differ from the commit.
    searched = commit().rstrip("+")
    reached = {} if given.reached is None else reach.load(given.reached)
    missed = 0
    for mutant in wanted:
        for store in stores(mutant):
            if given.store in (None, store):
                budget_cpu_s = given.share * mutant.budget_cpu_s
                if given.reached is not None:
                    runs = reached.get(store, [])
                    if not runs or mutant.number not in reach.numbers():
                        continue
                    found = search_reached(mutant, store, runs, budget_cpu_s=budget_cpu_s, shrink_cpu_s=given.shrink)
                else:
                    first = first_seed(searched, mutant.number, store) if given.first is None else given.first
                    found = search(
                        mutant,
                        store,
                        first=first,
                        budget_cpu_s=budget_cpu_s,
                        commit=searched,
                        shrink_cpu_s=given.shrink,
                    )
                save((load() | {(mutant.number, store): found}).values())
                missed += not found.signature
                sys.stdout.write(f"{found}\n")
                sys.stdout.flush()
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
