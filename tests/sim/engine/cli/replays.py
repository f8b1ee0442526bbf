"""`python -m tests.sim replay`, `shrink` and `timeline`: one script, again."""

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from kactl.cli import output
from kactl.cli.common_options import Settings, with_options
from kactl.cli.exits import Exit, Failure, of_system
from kactl.cli.option_types import NAME
from kactl.testing.shrinking import Limits, NotReproduced
from tests.sim.engine import mutants, reports, timeline_html
from tests.sim.engine import timeline as timelines
from tests.sim.engine.replaying import NotReplayable
from tests.sim.engine.replaying import replay as replay_twice
from tests.sim.engine.script import Script, dumps
from tests.sim.engine.shrinking import shrink as shrink_script

from . import SimExit, worktree
from .sources import FOLDER, Source, commit, errors_translated, no_longer, source

# Events of the nodes and partitions that a violation concerns, in a timeline.
_EVENTS: Final = 200

_no_forms = with_options((), server=False)
_source = click.argument("what", metavar="SEED|FILE", type=NAME)
_mutant = click.option("--mutant", type=NAME, metavar="NUMBER", help="Take one safeguard out, such as MUT-04.")
_mutants_file = click.option(
    "--mutants", "mutants_file", type=NAME, default=str(FOLDER / "mutants.toml"), show_default=True, metavar="FILE",
    help="List of mutants.",
)  # fmt: skip


@click.command(short_help="Run the script of a seed or a file twice.")
@_source
@click.option("--commit", "revision", type=NAME, metavar="REV", help="Run the simulator of this commit.")
@_mutant
@_mutants_file
@click.option("--trace", is_flag=True, help="Print the last events of the nodes concerned.")
@click.option("--all", "everything", is_flag=True, help="With --trace: print all events.")
@_no_forms
def replay(
    settings: Settings,
    *,
    what: str,
    revision: str | None,
    mutant: str | None,
    mutants_file: str,
    trace: bool,
    everything: bool,
) -> None:
    """Run the script of a seed or a file twice, and report the violation.

    A seed is only valid with its commit; a script is valid with all commits of the same format.
    """
    if revision is not None or mutant is not None:
        arguments = ["--trace"] * trace + ["--all"] * everything
        _elsewhere(["replay", *arguments], what, revision, mutant, mutants_file)
    found = source(what)
    judged = _replayed(found.script, level=logging.INFO if trace else logging.ERROR)
    if trace:
        events = judged.history.events
        shown = events if everything else timelines.concerned(events, judged.violation, limit=_EVENTS)
        _print_text(timelines.text(timelines.rows(shown, judged.records, violation=judged.violation)))
    if note := no_longer(found.script, judged.signature):
        settings.note(note)
    if judged.passed:
        output.print_lines([_passes(found, judged)])
        return
    output.print_lines(reports.report(found.script, judged, _origin(found)))
    click.get_current_context().exit(SimExit.VIOLATION)


@click.command(short_help="Reduce a failing script.")
@click.argument("file", type=NAME)
@click.option("--output", "target", type=NAME, metavar="FILE", help="Where to write the script.  [FILE itself]")
@click.option("--runs", type=click.IntRange(min=1), default=2_000, show_default=True, help="Maximum number of runs.")
@click.option("--cpu", type=click.FloatRange(min=1), default=300, show_default=True, help="Maximum processor time, s.")
@_mutant
@_mutants_file
@_no_forms
def shrink(
    settings: Settings, *, file: str, target: str | None, runs: int, cpu: float, mutant: str | None, mutants_file: str
) -> None:
    """Reduce the failing script of FILE to a short one that fails in the same way."""
    if mutant is not None:
        options = ["shrink", f"--runs={runs}", f"--cpu={cpu}", *([f"--output={target}"] if target else [])]
        _elsewhere(options, file, None, mutant, mutants_file)
    from tests.sim.engine.judging import judge, judge_first_phase

    found = source(file)
    judged = _replayed(found.script)
    if judged.passed:
        raise Failure(no_longer(found.script, judged.signature) or f"{file} passes: there is nothing to reduce")
    try:
        shrunk = shrink_script(
            found.script,
            judge,
            signature=judged.signature,
            limits=Limits(cpu, runs),
            on_progress=_progress(settings),
            run_first=judge_first_phase,
        )
    except NotReproduced as error:
        raise Failure(str(error)) from None
    written = Path(target or file)
    with errors_translated(str(written)):
        written.write_text(dumps(msgspec.structs.replace(shrunk.script, name=written.stem)), encoding="utf-8")
    if not shrunk.is_minimal:
        settings.note("A limit ended the reduction: raise --runs or --cpu, or reduce the result again.")
    story = (
        f"shrunk {shrunk.actions_before} -> {len(shrunk.script.actions)} actions in {shrunk.cpu_s:.0f} CPU-s, "
        f"{shrunk.runs} runs"
    )
    now = Source(shrunk.script, None, str(written))
    output.print_lines(reports.report(shrunk.script, judge(shrunk.script), _origin(now)._replace(shrunk=story)))


@click.command(short_help="Run a script, and show its events by node.")
@_source
@click.option("--html", "page", type=NAME, metavar="FILE", help="Write a page instead of text.")
@click.option("--all", "everything", is_flag=True, help="All events, not the last of the nodes concerned.")
@click.option("--width", type=click.IntRange(min=40), help="Width of the text.  [that of the terminal]")
@_no_forms
def timeline(settings: Settings, *, what: str, page: str | None, everything: bool, width: int | None) -> None:
    """Run a script and show its events: one column per node, in order of time."""
    found = source(what)
    judged = _replayed(found.script, level=logging.INFO)
    events = judged.history.events
    shown = events if everything else timelines.concerned(events, judged.violation, limit=_EVENTS)
    begin_ms = shown[0].time_ms if shown else 0.0
    records = [record for record in judged.records if everything or record.time_ms >= begin_ms]
    rows = timelines.rows(shown, records, violation=judged.violation)
    if page is None:
        _print_text(timelines.text(rows, width=width))
        return
    lines = [_passes(found, judged)] if judged.passed else reports.report(found.script, judged, _origin(found))
    with errors_translated(page):
        Path(page).write_text(
            timeline_html.page(found.script.name or found.name, lines, rows, timelines.links(shown)), encoding="utf-8"
        )
    settings.note(f"{page} has {output.count(len(rows), 'event')}.")


def _replayed(script: Script, *, level: int = logging.ERROR) -> Any:
    """Returns the outcome of a script that was run twice; ends the command if the two runs differ."""
    from tests.sim.engine.judging import judge

    try:
        return replay_twice(script, lambda script: judge(script, level=level))
    except NotReplayable as error:
        click.echo(str(error), err=True)
        click.get_current_context().exit(SimExit.NON_DETERMINISM)


def _elsewhere(command: list[str], what: str, revision: str | None, mutant: str | None, mutants_file: str) -> None:
    """Run a command in a fresh process, with a mutant or at another commit, and exit with its code."""
    program = ["-m"]
    if mutant is not None:
        try:
            mutants.find(Path(mutants_file), mutant)
        except (mutants.MutantError, OSError) as error:
            raise Failure(str(error), Exit.USAGE) from None
        program = ["-c", mutants.BOOTSTRAP, mutants.__file__, str(Path(mutants_file).resolve()), mutant]
    path = what if what.isdecimal() else str(Path(what).resolve())
    if revision is None:
        done = subprocess.run([sys.executable, *program, "tests.sim", *command, path], check=False)
        click.get_current_context().exit(done.returncode)
    try:
        with worktree.at(revision) as folder:
            done = subprocess.run(
                [sys.executable, *program, *worktree.command(folder), *command, path],
                cwd=folder,
                env=worktree.environment(folder),
                check=False,
            )
    except worktree.NoSuchCommit as error:
        raise Failure(str(error), Exit.USAGE) from None
    except OSError as error:
        raise of_system(error, revision) from None
    click.get_current_context().exit(done.returncode)


def _origin(found: Source) -> reports.Origin:
    return reports.Origin(found.seed, commit(), f"python -m tests.sim replay {found.name}")


def _passes(found: Source, judged: Any) -> str:
    skipped = len(judged.outcome.skipped)
    return (
        f"{found.script.name or found.name} passes: {output.count(len(found.script.actions), 'action')}, {skipped} "
        f"skipped, {judged.steps:,} steps, {judged.virtual_ms / 1000:.1f} s in {judged.cpu_s:.2f} CPU-s, "
        f"history {judged.digest[:12]}"
    )


def _progress(settings: Settings) -> Callable[[Script, int], None]:
    def show(script: Script, runs: int) -> None:
        if settings.verbose:
            settings.note(f"{output.count(len(script.actions), 'action')} after {output.count(runs, 'run')}")

    return show


def _print_text(lines: list[str]) -> None:
    output.print_lines(map(output.harmless, lines))
