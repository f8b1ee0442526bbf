"""Seeds that reach the safeguards of mutants that are hard to find.

    python -m tests.sim.reach [--world KIND] [--cpu S] [--jobs N] --first SEED --output FILE

runs seeds of the unchanged code and notes in which of them a mutant would have acted differently at all. The
conditions are edits that change nothing (`reached.toml`). A search for such a mutant needs to run these seeds only, as
the others are the same with and without it: `python -m tests.sim.mutant_search --reached FILE`. That costs one run of
each seed for all mutants together, in place of one for each mutant.

FILE gets one JSON object for each seed.
"""

import argparse
import builtins
import collections
import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.sim.engine import jobs, mutants
from tests.sim.engine.cli.sources import commit
from tests.sim.engine.exploring import Options, SeedRun, explore

REACHED: Final = Path(__file__).parent / "reached.toml"
_NUMBER: Final = "REACHED"
_MODULE: Final = "tests.sim.reach"


class ReachRun(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Result of one seed.

    Attributes:
        world: as in the options of the search; empty for the one that the seed draws.
        cpu_s: processor time of the run.
        reached: how often the safeguard of each mutant was reached.
        commit: of the code.
    """

    world: str
    seed: int
    signature: str
    digest: str = ""
    cpu_s: float
    cluster_ms: float
    file: str
    reached: dict[str, int]
    commit: str = ""


class Reached:
    """The function `reached` of the edited code, and what it has noted."""

    def __init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()

    def __call__(self, number: str, *values: Any) -> Any:
        """Note a mutant's number if the last value is true. Returns the first value."""
        if values[-1] is True or (values[-1] is not False and bool(values[-1])):
            self._counts[number] += 1
        return values[0]

    def take(self) -> dict[str, int]:
        """Returns the counts since the last call."""
        counts = dict(self._counts)
        self._counts.clear()
        return counts


def runs(options: Options, reached: Reached) -> Iterator[ReachRun]:
    """Yields the results of some seeds, in a process with the edits of `reached.toml`."""
    builtins.reached = reached  # type: ignore[attr-defined]
    for result in explore(options):
        yield _run(options, result, reached.take())


def _run(options: Options, result: SeedRun, reached: dict[str, int]) -> ReachRun:
    return ReachRun(
        world=options.store,
        seed=result.seed,
        signature=result.signature,
        digest=result.digest,
        cpu_s=round(result.cpu_s, 3),
        cluster_ms=round(result.cluster_ms),
        file=result.file,
        reached=reached,
        commit=options.commit,
    )


def load(path: Path) -> dict[str, list[ReachRun]]:
    """Returns the results in a file by world, in the order of their seeds."""
    by_world: dict[str, list[ReachRun]] = {}
    for line in path.read_bytes().splitlines():
        run = msgspec.json.decode(line, type=ReachRun)
        by_world.setdefault(run.world, []).append(run)
    return {world: sorted(runs, key=lambda run: run.seed) for world, runs in by_world.items()}


def numbers() -> frozenset[str]:
    """Returns the numbers of the mutants whose safeguards are noted."""
    edits = mutants.find(REACHED, _NUMBER).edits
    return frozenset(number for edit in edits for number in re.findall(r"""reached\(["']([^"']+)""", edit.new))


def command(options: Options) -> list[str]:
    """Returns the command of a process that prints the results of some seeds."""
    text = msgspec.json.encode(options).decode()
    return [sys.executable, "-c", mutants.BOOTSTRAP, mutants.__file__, str(REACHED), _NUMBER, _MODULE, "--child", text]


def _child(text: str) -> int:
    for run in runs(msgspec.json.decode(text, type=Options), Reached()):
        sys.stdout.buffer.write(msgspec.json.encode(run) + b"\n")
        sys.stdout.buffer.flush()
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run seeds and append their results to a file."""
    if arguments[:1] == ["--child"]:
        return _child(arguments[1])
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}", description=__doc__)
    parser.add_argument("--world", default="", help="kind of store and brokers, such as memory/participant")
    parser.add_argument("--first", type=int, required=True, help="first seed")
    parser.add_argument("--cpu", type=float, default=600.0, help="processor time after which no further seed begins")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--folder", default=".sim", help="folder for failing scripts")
    parser.add_argument("--output", type=Path, required=True, help="file of the results")
    given = parser.parse_args(arguments)
    options = Options(
        first=given.first,
        step=given.jobs,
        store=given.world,
        calm=not given.world,
        shrink_cpu_s=0.0,
        folder=given.folder,
        commit=commit(),
    )
    each = [msgspec.structs.replace(options, first=given.first + index) for index in range(given.jobs)]
    cpu_s, counts = 0.0, collections.Counter[str]()
    with (
        contextlib.closing(jobs.results([command(one) for one in each])) as results,
        given.output.open("ab") as output,
    ):
        for one in results:
            run = msgspec.convert(one, ReachRun)
            output.write(msgspec.json.encode(run) + b"\n")
            output.flush()
            counts.update(dict.fromkeys(run.reached, 1))
            cpu_s += run.cpu_s
            if cpu_s >= given.cpu:
                break
    for number, count in sorted(counts.items()):
        sys.stdout.write(f"{number}: reached by {count} seeds\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
