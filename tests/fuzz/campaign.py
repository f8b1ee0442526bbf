"""Run of the fuzzer over several targets, in several processes, and its report."""

import logging
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from . import runner
from .decoders import targets
from .journal import Journal, Part, Run, digest
from .runner import Figures
from .target import Target, Violation

_RELEASE: Final = 1_000_000_000
# Between two lines that state the progress.
_PROGRESS_S: Final = 60
_KIB: Final = 1024
_known: dict[str, Target] = {}


def fuzz(
    chosen: Sequence[Target], inputs: int, seed: int, jobs: int = 1, journal: Path | None = None
) -> dict[str, Figures]:
    """Returns the costs of the inputs, by target. The number of processes does not change the inputs.

    Args:
        journal: a file of the parts that are finished, which are not run again.

    Raises:
        Violation: an oracle is violated. Any other exception is one that a decoder does not document.
        JournalError: the file is of another run, or no journal.
    """
    kept = None if journal is None else Journal(journal, Run(inputs=inputs, seed=seed, decoders=digest(chosen)))
    found: dict[str, Figures] = defaultdict(Figures)
    for part in kept.parts.values() if kept else ():
        found[part.target].add(part.figures)
    tasks = [(name, count, f"{seed}/{name}/{number}") for name, number, count in runner.chunks(chosen, inputs)]
    if kept is not None:
        tasks = [task for task in tasks if task[2] not in kept.parts]
    done, shown_s = 0, time.monotonic()
    for part in _run(tasks, jobs):
        found[part.target].add(part.figures)
        if kept is not None:
            kept.add(part)
        done += part.figures.inputs
        if time.monotonic() - shown_s > _PROGRESS_S:
            shown_s = time.monotonic()
            print(f"{done:,} inputs", file=sys.stderr, flush=True)
    return found


def _run(tasks: Sequence[tuple[str, int, str]], jobs: int) -> Iterator[Part]:
    if jobs == 1:
        yield from map(_run_task, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, set_up_process) as pool:
        yield from pool.imap_unordered(_run_task, tasks)


def set_up() -> dict[str, Target]:
    """Returns the targets by name. To be called before `fuzz`."""
    _known.update((target.name, target) for target in targets())
    runner.settle()
    return _known


def set_up_process() -> dict[str, Target]:
    """Returns the targets by name, in a process of the fuzzer's own."""
    logging.disable()  # malformed access control lists
    return set_up()


def _run_task(task: tuple[str, int, str]) -> Part:
    name, count, seed = task
    try:
        return Part(seed, name, runner.fuzz(_known[name], count, seed))
    except Exception as error:
        # Not every exception of a library can be sent to another process.
        found = Violation(f"{type(error).__name__}: {error}")
        for note in (f"seed {seed}", *getattr(error, "__notes__", [])):
            found.add_note(note)
        raise found from error


def report(figures: dict[str, Figures]) -> None:
    """Print the table of the targets, their sum, and the processor time of a run for a release."""
    whole = Figures()
    print("| target | inputs | accepted | processor time | longest | memory |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, row in sorted(figures.items()):
        whole.add(row)
        _print_row(name, row)
    _print_row("all", whole)
    print(f"{whole.inputs / whole.seconds:,.0f} inputs a second of processor time")
    print(
        f"{_RELEASE:,} inputs would take {_RELEASE * whole.seconds / whole.inputs / 3600:.1f} hours of processor time"
    )


def _print_row(name: str, row: Figures) -> None:
    print(
        f"| {name} | {row.inputs:,} | {row.accepted / row.inputs:.1%} | {row.seconds / row.inputs * 1e6:.1f} µs "
        f"| {row.longest_s * 1000:.2f} ms | {row.memory_max / _KIB:,.0f} KiB |"
    )
