"""`kactl forensics report`: one page on what happened."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import output
from .exits import Exit, Failure
from .forensic_answers import answers, errors_said, folder_option, manifest_of, moments_of, spark_for, time_options
from .forensic_answers import times_typed as times
from .forensics import spark_options
from .settings import Settings, local_options

if TYPE_CHECKING:
    from kactl.pipeline.report.facts import Report


@click.command(short_help="What was unavailable, why, and what was lost.")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a page with pictures."
)
@click.option(
    "--markdown", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it as Markdown."
)
@click.option("--topic", metavar="RE", help="Only topics whose whole name this expression matches.")
@time_options
@folder_option
@spark_options
@local_options
def report(
    settings: Settings,
    *,
    html: Path | None,
    markdown: Path | None,
    topic: str | None,
    begin: str | None,
    end: str | None,
    tz: str | None,
    folder: str,
    master: str,
    memory: str,
) -> None:
    """Say what was unavailable, since when, why, and what was lost.

    The jobs run the first time; their tables stay in DIR/jobs, as Parquet. The page needs no network and no script, so
    it can be mailed, printed, and kept with the ticket.
    """
    form = settings.only("table", "json")
    _check_topic(topic)
    for file in (html, markdown):
        _check_file(file)
    with errors_said():
        manifest = manifest_of(folder)
        moments = moments_of(manifest, tz)
        first, last = times(begin, end, moments)
        from kactl.pipeline.report.make import report as make
        from kactl.pipeline.report.model import Asked

        asked = Asked(begin=first, end=last, topic=topic)
        with spark_for(settings, master, memory, events=manifest.events) as (spark, tell):
            made = make(spark, answers(spark, folder, tell), asked, moments, tell=tell)
    if html is not None:
        from kactl.pipeline.report.page import page

        _write(html, page(made, moments))
    if markdown is not None:
        from kactl.pipeline.report.markdown import markdown as as_markdown

        _write(markdown, as_markdown(made, moments))
    if form == "json":
        output.print_json(made)
    else:
        output.print_lines(_lines(made))
    for file in (html, markdown):
        if file is not None:
            settings.note(f"Written to {file}.")
    if html is None and markdown is None:
        settings.note("The whole of it, with pictures: --html FILE.")
    settings.note(f"The tables are in {folder}/jobs; ask them with `kactl forensics sql`.")


def _check_topic(topic: str | None) -> None:
    if topic is not None:
        try:
            re.compile(topic)
        except re.error as error:
            raise Failure(f"--topic: {topic!r} is no regular expression: {error}", Exit.USAGE) from None


def _check_file(file: Path | None) -> None:
    """Before all the work is done and has nowhere to go."""
    if file is not None and not file.parent.is_dir():
        raise Failure(f"{file}: there is no folder {file.parent}: make it, or name another one", Exit.USAGE)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"{file}: cannot be written: {error.strerror}") from None


def _lines(made: "Report") -> list[str]:
    """The summary, for a terminal."""
    lines = [click.style(made.headline, bold=True), "", *made.summary]
    if made.advice:
        lines += ["", click.style("What to do", bold=True), *(f"* {each.do} {each.because}" for each in made.advice)]
    if made.limits:
        lines += ["", click.style("What the logs cannot tell", bold=True), *(f"* {each}" for each in made.limits)]
    return lines
