"""`kactl sim report`: the last search, its probes, and the bugs that are known."""

from collections.abc import Iterable
from pathlib import Path

import click

from kactl.cli import output
from kactl.cli.common_options import Settings, local_options
from kactl.cli.exits import Exit, Failure
from kactl.cli.option_types import NAME
from kactl.cli.output import BAD, GOOD, PLAIN
from kactl.testing import corpus, mutants
from kactl.testing import totals as sums

from .sources import FOLDER, errors_translated


@click.command()
@click.option("--folder", type=NAME, default=".sim", show_default=True, help="Folder of the last search.")
@click.option("--tests", type=NAME, default=str(FOLDER), show_default=True, help="Folder of corpus and mutants.")
@local_options
def report(settings: Settings, *, folder: str, tests: str) -> None:
    """Show the sums and probes of the last search, the corpus and the mutants."""
    form = settings.form()
    try:
        totals = sums.load(Path(folder))
        with errors_translated(tests):
            entries = corpus.load_all(Path(tests) / "corpus")
            known = mutants.load(Path(tests) / "mutants.toml")
    except (ValueError, mutants.MutantError) as error:
        raise Failure(str(error), Exit.USAGE) from None
    if form != "table":
        document = {"totals": totals, "corpus": entries, "mutants": list(known)}
        (output.print_json if form == "json" else output.print_jsonl)([document] if form == "jsonl" else document)
        return
    if totals is None:
        settings.note(f"There was no search into {folder}: start one with `kactl sim run`.")
    else:
        output.print_lines([*totals.lines(), "", *_probes(totals)])
    output.print_lines(["", *_corpus(entries), "", *_mutants(known.values())])


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
