"""`python -m tests.sim report`: the last search, its probes, and the bugs that are known."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from kactl.cli import output
from kactl.cli.common_options import Settings, local_options
from kactl.cli.exits import Exit, Failure
from kactl.cli.option_types import NAME
from kactl.cli.output import BAD, GOOD, PLAIN
from tests.sim.engine import corpus, mutants
from tests.sim.engine import totals as sums

from .sources import FOLDER, errors_translated

# Seeds of the runs that measure the checkers.
COST_SEEDS: Final = 6


@click.command(short_help="Show the results of the last search.")
@click.option("--folder", type=NAME, default=".sim", show_default=True, help="Folder of the last search.")
@click.option("--tests", type=NAME, default=str(FOLDER), show_default=True, help="Folder of corpus and mutants.")
@click.option("--cost", is_flag=True, help=f"Show instead what each checker costs, over {COST_SEEDS} seeds.")
@local_options
def report(settings: Settings, *, folder: str, tests: str, cost: bool) -> None:
    """Show the sums and probes of the last search, the corpus and the mutants."""
    form = settings.form()
    if cost:
        _show_costs(form)
        return
    try:
        totals = sums.load(Path(folder))
        with errors_translated(tests):
            entries = corpus.load_all(Path(tests) / "corpus")
            known = mutants.load(Path(tests) / "mutants.toml")
    except (ValueError, mutants.MutantError) as error:
        raise Failure(str(error), Exit.USAGE) from None
    if form != "table":
        document = {"totals": totals, "corpus": entries, "mutants": list(known)}
        output.print_data(form, document)
        return
    if totals is None:
        settings.note(f"There was no search into {folder}: start one with `python -m tests.sim run`.")
    else:
        output.print_lines([*totals.lines(), "", *_probes(totals)])
    output.print_lines(["", *_corpus(entries), "", *_mutants(known.values())])


def _show_costs(form: str) -> None:
    """Run some seeds, and print the share of each checker in their processor time."""
    from tests.sim.engine.generator import script_of_seed
    from tests.sim.engine.run import run_script
    from tests.sim.engine.watching import Cost

    costs: dict[str, Cost] = {}
    cpu_s = sum(run_script(script_of_seed(seed), costs=costs).cpu_s for seed in range(COST_SEEDS))
    by_cost = sorted(costs.items(), key=lambda item: -item[1].cpu_s)
    if form != "table":
        shares = {name: {"events": cost.events, "cpu_s": cost.cpu_s} for name, cost in by_cost}
        document = {"cpu_s": cpu_s, "checkers": shares}
        output.print_data(form, document)
        return
    every = Cost(sum(cost.events for cost in costs.values()), sum(cost.cpu_s for cost in costs.values()))
    rows = [
        (name, f"{cost.events:,}", f"{1e6 * cost.cpu_s / max(1, cost.events):.1f}", f"{cost.cpu_s / cpu_s:.1%}")
        for name, cost in [*by_cost, ("together", every)]
    ]
    output.print_lines(output.table(("CHECKER", "EVENTS", "US PER EVENT", "SHARE"), rows))


def _probes(totals: sums.Totals) -> list[str]:
    rows = []
    for number in sorted({*totals.probes, *totals.minima}):
        hits, minimum = totals.probes.get(number, 0), totals.minima.get(number, 0) * totals.hours / sums.PROBE_HOURS
        rows.append((number, f"{hits}", (f"{minimum:.0f}", GOOD if hits >= minimum else BAD)))
    return output.table(("PROBE", "HITS", "REQUIRED"), rows)


def _corpus(entries: Iterable[corpus.Entry]) -> list[str]:
    rows = [(entry.name, entry.mutant or "-", entry.fixed or "-", entry.sentence) for entry in entries]
    return output.table(("SCRIPT", "MUTANT", "FIXED", "STORY"), rows)


def _mutants(known: Iterable[mutants.Mutant]) -> list[str]:
    rows = [
        (
            mutant.number,
            mutant.kind,
            ",".join(mutant.must_break),
            (mutant.not_applicable or "applicable", PLAIN if mutant.not_applicable else GOOD),
        )
        for mutant in known
    ]
    return output.table(("MUTANT", "CLASS", "MUST BREAK", "STATE"), rows)
