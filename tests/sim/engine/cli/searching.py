"""`python -m tests.sim run`: search with random seeds."""

from pathlib import Path
from typing import Any, Final

import click
import msgspec

from kactl.cli import output
from kactl.cli.common_options import Settings, local_options
from kactl.cli.exits import Exit, Failure
from kactl.cli.option_types import NAME
from tests.sim.engine.totals import Totals

from . import SimExit
from .sources import FOLDER, base_seed, commit

_SEEDS: Final = 20
_WORLDS: Final = ("memory", "sqlite", "zookeeper", "memory/participant", "memory/ownership")


class _Seeds(click.types.StringParamType):
    """Seeds `A:B`, both included."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        first, _, last = value.partition(":")
        if not (first.isdecimal() and (last or first).isdecimal()):
            self.fail(f"{value!r} are not seeds: write 0:99 for the seeds from 0 to 99, or one number", param, ctx)
        if int(last or first) < int(first):
            self.fail(f"{value!r}: the last seed is less than the first", param, ctx)
        return int(first), int(last or first)


@click.command()
@click.option("--world", type=click.Choice(_WORLDS), default=None, help="Kind of store (and brokers).  [drawn]")
@click.option("--seeds", type=_Seeds(), metavar="A:B", help=f"Seeds to run.  [{_SEEDS}, derived from the commit]")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="Run for this time instead.")
@click.option("--jobs", type=click.IntRange(1, 1024), default=1, show_default=True, help="Number of processes.")
@click.option("--mutant", type=NAME, metavar="NUMBER", help="Take one safeguard out of the code, such as MUT-04.")
@click.option(
    "--mutants", "mutants_file", type=NAME, default=str(FOLDER / "mutants.toml"), show_default=True, metavar="FILE",
    help="List of mutants.",
)  # fmt: skip
@click.option("--dense", is_flag=True, help="Run short storms only, no long and calm runs.")
@click.option("--stop", is_flag=True, help="End at the first violation.")
@click.option("--no-shrink", is_flag=True, help="Do not reduce failing scripts.")
@click.option("--folder", type=NAME, default=".sim", show_default=True, help="Folder for failing scripts.")
@local_options
def run(
    settings: Settings,
    *,
    world: str | None,
    seeds: tuple[int, int] | None,
    minutes: float | None,
    jobs: int,
    mutant: str | None,
    mutants_file: str,
    dense: bool,
    stop: bool,
    no_shrink: bool,
    folder: str,
) -> None:
    """Run random scripts and judge them.

    Each seed becomes a script of faults and requests. A script that fails is run again, reduced and saved. Equal seeds
    make equal runs at the same commit.
    """
    from tests.sim.engine import jobs as processes
    from tests.sim.engine.checkers.probes import minima
    from tests.sim.engine.exploring import Options, SeedRun

    form = settings.form()
    if seeds and minutes:
        raise Failure("--seeds and --minutes exclude each other: give one of them", Exit.USAGE)
    first, last = seeds or (base_seed(), None)
    if last is None and minutes is None:
        last = first + _SEEDS - 1
    _check_mutant(mutant, mutants_file)
    settings.note(f"Seeds from {first} on, commit {commit()}, {output.count(jobs, 'process')}.")
    common = Options(
        first=first,
        last=last,
        step=jobs,
        store=world or "",
        calm=not dense,
        budget_s=60 * (minutes or 0.0),
        stop=stop,
        shrink_cpu_s=0.0 if no_shrink else 300.0,
        folder=folder,
        commit=commit(),
        replay_options=f" --mutant {mutant}" if mutant else "",
    )
    each = [msgspec.structs.replace(common, first=first + index) for index in range(jobs)]
    commands = [
        processes.command([msgspec.json.encode(one).decode()], mutant=mutant or "", mutants_file=Path(mutants_file))
        for one in each
    ]
    totals = Totals(minima=minima())
    try:
        for found in processes.results(commands):
            result = msgspec.convert(found, SeedRun)
            totals.add(result)
            _show(settings, result, form)
            if stop and not result.passed:
                break
    except processes.JobFailed as failed:
        raise Failure(str(failed), Exit.USAGE if failed.code == SimExit.USAGE else Exit.FAILED) from None
    totals.save(Path(folder))
    _conclude(settings, totals, form)


def _check_mutant(mutant: str | None, file: str) -> None:
    from tests.sim.engine import mutants

    if mutant is None:
        return
    try:
        mutants.find(Path(file), mutant)
    except (mutants.MutantError, OSError) as error:
        raise Failure(str(error), Exit.USAGE) from None


def _show(settings: Settings, result: Any, form: str) -> None:
    if form != "table":
        output.print_jsonl([result])
    elif not result.passed:
        output.print_lines(["", *result.report])
    elif settings.verbose:
        settings.note(
            f"seed {result.seed}: {result.virtual_ms / 1000:.0f} s in {result.cpu_s:.1f} CPU-s, {result.world}"
        )


def _conclude(settings: Settings, totals: Totals, form: str) -> None:
    if form == "table":
        output.print_lines(["", *totals.lines()])
    missed = totals.missed_probes()
    for line in missed:
        settings.note(line)
    if totals.non_deterministic:
        code = SimExit.NON_DETERMINISM
    elif totals.violations:
        code = SimExit.VIOLATION
    else:
        code = SimExit.PROBE if missed else SimExit.PASSED
    click.get_current_context().exit(code)
