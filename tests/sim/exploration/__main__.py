"""Explore the model from the command line: `python -m tests.sim.exploration --states 10000000`.

Exit status: 0 no violation and no dead end, 1 a counterexample, which is printed and, with `--script`, exported.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.sim.engine.script import dumps

from .conformance import Conformance, run
from .endings import Endings
from .explorer import Explorer
from .model import Model
from .mutants import MODEL, MUTANTS
from .scope import DEFAULT
from .scripts import script_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore, print the result, and return the exit status."""
    options = _parser().parse_args(arguments)
    mutant = MUTANTS[options.mutant] if options.mutant else MODEL
    model = Model(DEFAULT, mutant)
    explorer = Explorer(model)
    result = explorer.run(options.states)
    print(
        f"{result.states:,} states, {result.edges:,} transitions, depth {result.depth}, "
        f"{'complete, ' if result.complete else ''}{result.seconds:.1f} s of processor time"
    )
    if options.runs and not _check_runs(options.runs):
        return 1
    if result.trace is not None:
        print(result.trace)
        if options.script:
            options.script.write_text(dumps(script_of(model, result.trace, name=f"{result.trace.found.invariant}")))
        return 1
    return _check_endings(model, explorer, options.endings) if options.endings else 0


def _check_runs(count: int) -> bool:
    conformance = Conformance()
    for seed in range(count):
        stranger = conformance.stranger(run(seed))
        if stranger is not None:
            print(f"seed {seed}: a write that the model does not make: {stranger}")
            return False
    print(f"{conformance.edges:,} writes of {count:,} simulated runs are edges of the model")
    return True


def _check_endings(model: Model, explorer: Explorer, every: int) -> int:
    began = time.process_time()
    endings = Endings(model)
    for level, position, state in explorer.states(every):
        dead_end = endings.check(state)
        if dead_end is not None:
            print("\n".join(("dead end:", *explorer.way(level, position), "then:", *dead_end.labels)))
            print(dead_end.missing)
            return 1
    print(
        f"{endings.searched:,} states end at rest, {endings.given_up} searches given up, "
        f"{time.process_time() - began:.1f} s of processor time"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.exploration", description=__doc__)
    parser.add_argument("--states", type=int, default=300_000, help="stop at this many states (default: %(default)s)")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="explore a mutant of the model")
    parser.add_argument("--endings", type=int, default=0, metavar="N", help="search a dead end from each Nth state")
    parser.add_argument("--runs", type=int, default=0, metavar="N", help="compare the model with N simulated runs")
    parser.add_argument("--script", type=Path, metavar="FILE", help="write a counterexample as a simulator script")
    return parser


if __name__ == "__main__":
    sys.exit(main())
