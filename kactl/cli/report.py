"""`kactl forensics report`: one page on what happened."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import output
from .exits import Exit, Failure
from .forensic_answers import answers, errors_said, folder_option, manifest_of, moments_of, spark_for, time_options
from .forensic_answers import times_typed as times
from .forensics import spark_options
from .names import NAME
from .output import harmless
from .settings import Settings, local_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kactl.forensics.jobs.catalog import Results
    from kactl.forensics.report.facts import Report
    from kactl.forensics.report.model import Asked
    from kactl.forensics.report.wording import Moments


@click.command(short_help="What was unavailable, why, and what was lost.")
@click.option("--html", type=NAME, metavar="FILE", help="Write a page with pictures.")
@click.option("--markdown", type=NAME, metavar="FILE", help="Write it as Markdown.")
@click.option("--topic", metavar="RE", help="Only topics whose whole name this expression matches.")
@click.option("--partial", is_flag=True, help="Exit with 0 also where the logs cover less than 95 %.")
@time_options
@folder_option
@spark_options
@local_options
def report(
    settings: Settings,
    *,
    html: str | None,
    markdown: str | None,
    topic: str | None,
    partial: bool,
    begin: str | None,
    end: str | None,
    tz: str | None,
    folder: str,
    master: str,
    memory: str,
) -> None:
    """Report what was unavailable, since when and why, and which records were lost.

    The jobs run the first time; their tables stay in DIR/jobs, as Parquet. The page needs no network and no script, so
    it can be mailed, printed, and kept with the ticket.

    The first line states what the logs cover: brokers, files, lines, time. Below 95 % of any of them the exit code is
    1, unless --partial accepts that.
    """
    form = settings.form()
    _check_topic(topic)
    for option, file in (("--html", html), ("--markdown", markdown)):
        _check_file(option, file)
    if html is not None and html == markdown:
        raise Failure(f"--html and --markdown: both are {html}, and one would replace the other", Exit.USAGE)
    with errors_said():
        manifest = manifest_of(folder)
        moments = moments_of(manifest, tz)
        first, last = times(begin, end, moments)
        from kactl.forensics.report.make import report as make
        from kactl.forensics.report.model import Asked

        asked = Asked(begin=first, end=last, topic=topic)
        with spark_for(settings, master, memory, events=manifest.events) as (spark, on_progress):
            results = answers(spark, folder, on_progress)
            _check_there(spark, results, asked, moments)
            made = make(spark, results, asked, moments, on_progress=on_progress)
    from kactl.forensics.report.markdown import markdown as as_markdown
    from kactl.forensics.report.page import page

    written = [_written(html, page, made, moments), _written(markdown, as_markdown, made, moments)]
    # Also where a page has no place to go: it is what took so long.
    if form == "json":
        output.print_json(made)
    elif form == "jsonl":
        output.print_jsonl([made])
    else:
        output.print_lines(_lines(made))
    for file, failure in zip((html, markdown), written, strict=True):
        if file is not None and failure is None:
            settings.note(f"Written to {file}.")
    for failure in filter(None, written):
        raise failure
    if html is None and markdown is None:
        settings.note("The whole of it, with pictures: --html FILE.")
    settings.note(f"The tables are in {folder}/jobs; ask them with `kactl forensics sql`.")
    if made.coverage.is_partial and not partial:
        raise Failure(_too_little(made))


def _too_little(made: "Report") -> str:
    from kactl.forensics.coverage import ENOUGH

    return (
        f"the logs cover {made.coverage.share:.0%}, less than {ENOUGH:.0%}, of the brokers, files, lines or time (the "
        "first line of the report says what is missing): ingest the logs of all brokers, of all of the time; --partial "
        "accepts the report as it is"
    )


def _check_topic(topic: str | None) -> None:
    if topic is not None:
        try:
            re.compile(topic)
        except re.error as error:
            raise Failure(f"--topic: {topic!r} is no regular expression: {error}", Exit.USAGE) from None


def _check_there(spark: "SparkSession", results: "Results", asked: "Asked", moments: "Moments") -> None:
    """Whether the logs can tell of it at all: that nothing is found of a name typed wrongly is no good news.

    Raises:
        Failure: USAGE, and what there is instead.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from kactl.forensics.report.scope import of_topics
    from kactl.forensics.timeline.lookup import nearest

    if asked.begin is not None or asked.end is not None:
        _check_times(results, asked, moments)
    if asked.topic is None:
        return
    session: Any = spark
    try:
        session._jvm.java.util.regex.Pattern.compile(asked.topic)
    except (Py4JError, PySparkException):
        raise Failure(
            f"--topic: {asked.topic!r} is no regular expression of Java's, which Spark takes: write 'orders|pay.*'",
            Exit.USAGE,
        ) from None
    if not any(of_topics(results[name], asked).limit(1).count() for name in ("leadership", "events")):
        near = ", ".join(nearest(results, asked.topic, asked.topic)) or "none at all"
        raise Failure(
            f"--topic: these logs tell of no topic whose whole name {asked.topic!r} matches; the nearest are {near}",
            Exit.USAGE,
        )


def _check_times(results: "Results", asked: "Asked", moments: "Moments") -> None:
    """Whether the logs reach there.

    Raises:
        Failure: USAGE, and how far they reach.
    """
    from pyspark.sql import functions as f

    from kactl.forensics.report.rows import moment

    (row,) = results["files"].agg(f.unix_micros(f.min("begin")), f.unix_micros(f.max("end"))).collect()
    begin, end = map(moment, row)
    if begin is not None and end is not None:
        reach = f"these logs reach from {moments.full(begin)} to {moments.full(end)} ({moments.name})"
        if asked.begin is not None and asked.begin > end:
            raise Failure(f"--from: {moments.full(asked.begin)} is later than all there is: {reach}", Exit.USAGE)
        if asked.end is not None and asked.end <= begin:
            raise Failure(f"--to: {moments.full(asked.end)} is earlier than all there is: {reach}", Exit.USAGE)


def _check_file(option: str, file: str | None) -> None:
    """Before all the work is done and has nowhere to go."""
    if file is None:
        return
    above = Path(file).parent
    if os.path.isdir(file):
        raise Failure(f"{option}: {file} is a folder: name a file in it", Exit.USAGE)
    if not above.is_dir():
        raise Failure(f"{option}: {file}: there is no folder {above}: make it, or name another one", Exit.USAGE)
    if not os.access(file if os.path.exists(file) else above, os.W_OK):
        raise Failure(f"{option}: {file} cannot be written: name another file, or see to its permissions", Exit.USAGE)


def _written(
    file: str | None, render: "Callable[[Report, Moments], str]", made: "Report", moments: "Moments"
) -> Failure | None:
    """Write a page: whole, or not at all, and then what stood there before still does. None if that went well."""
    if file is None:
        return None
    from kactl.forensics.storage import Location

    content = render(made, moments).encode("utf-8", "backslashreplace")
    path = Path(file)
    is_plain = not path.is_symlink() and (path.is_file() or not path.exists())
    try:
        if is_plain and os.access(path.parent, os.W_OK):
            Location(file).write(content)
        else:  # as /dev/stdout, or a file in a folder that is not ours
            path.write_bytes(content)
    except OSError as error:
        return Failure(f"{file}: cannot be written ({error.strerror}): name another file; the jobs need not run again")
    return None


def _lines(made: "Report") -> list[str]:
    """The summary, for a terminal."""
    coverage = click.style(harmless(made.coverage.stated), fg="red" if made.coverage.is_partial else None)
    lines = [coverage, "", click.style(harmless(made.headline), bold=True), "", *map(harmless, made.summary)]
    if made.advice:
        advice = (harmless(f"* {each.do} {each.because}") for each in made.advice)
        lines += ["", click.style("What to do", bold=True), *advice]
    if made.limits:
        limits = (harmless(f"* {each}") for each in made.limits)
        lines += ["", click.style("What the logs cannot tell", bold=True), *limits]
    return lines
