"""`kactl forensics report`: one page about the incidents in the logs."""

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kactl.runtime.escaping import harmless_lines
from kactl.runtime.private_files import open_private

from . import output
from .common_options import Settings, local_options
from .exits import Exit, Failure
from .forensic_inputs import (
    errors_translated,
    folder_option,
    job_results,
    manifest_of,
    moments_of,
    parsed_interval,
    spark_for,
    started,
    time_options,
)
from .forensics import failed, layout_option, note_ingested, remarks, shown_progress, spark_options
from .option_types import NAME, NAME_OF_LOG
from .output import harmless

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kactl.forensics.jobs.catalog import Results
    from kactl.forensics.report.facts import Report
    from kactl.forensics.report.model import Scope
    from kactl.forensics.tables import Manifest
    from kactl.forensics.wording import Moments


@click.command(short_help="Report unavailable partitions, their causes, and lost records.")
@click.argument("logs", type=NAME_OF_LOG, nargs=-1, metavar="[LOGS]...")
@click.option("--html", type=NAME, metavar="FILE", help="Write the page as HTML, with diagrams.")
@click.option("--markdown", type=NAME, metavar="FILE", help="Write the page as Markdown.")
@click.option("--topic", metavar="RE", help="Only topics whose full name matches this regular expression.")
@click.option("--partial", is_flag=True, help="Exit with code 0 even if the logs cover less than 95 %.")
@time_options
@layout_option
@folder_option
@spark_options
@local_options
def report(
    settings: Settings,
    *,
    logs: tuple[str, ...],
    html: str | None,
    markdown: str | None,
    topic: str | None,
    partial: bool,
    begin: str | None,
    end: str | None,
    tz: str | None,
    layouts: tuple[str, ...],
    folder: str,
    master: str,
    memory: str,
) -> None:
    """Report which partitions were unavailable, when and why, and which records were lost.

    With LOGS (files and folders) it reads these first, as `kactl forensics ingest --out DIR` does, in the same Spark
    session. Without LOGS it reports about the tables in DIR.

    The first report runs the jobs; their tables are kept in DIR/jobs, as Parquet. The page needs no network and no
    scripts, so it can be mailed, printed, and attached to a ticket.

    The first line states how much the logs cover: brokers, files, lines, time. If any of these is below 95 %, the exit
    code is 1, unless --partial is given.
    """
    _check_topic(topic)
    for option, file in (("--html", html), ("--markdown", markdown)):
        _check_file(option, file)
    if html is not None and html == markdown:
        raise Failure(f"--html and --markdown: both are {html}; choose different files", Exit.USAGE)
    with errors_translated():
        manifest = None if logs else manifest_of(folder)
        moments = moments_of(manifest, tz)
        first, last = parsed_interval(begin, end, moments)
        if manifest is None:
            _check_ingest(logs, folder, layouts)
        events = 0 if manifest is None else manifest.events
        with contextlib.ExitStack() as sessions:
            session = sessions.enter_context(started(spark_for(settings, master, memory, events=events)))
            from kactl.forensics.report.clusters import check_one_cluster
            from kactl.forensics.report.make import report as make
            from kactl.forensics.report.model import Scope
            from kactl.forensics.session import FEW_EVENTS

            scope = Scope(begin=first, end=last, topic=topic)
            if manifest is None:
                manifest = _ingested(settings, session, logs, folder, tz, layouts)
                if manifest.events > FEW_EVENTS:
                    sessions.close()
                    suited = spark_for(settings, master, memory, events=manifest.events)
                    session = sessions.enter_context(started(suited))
            spark, on_progress = session()
            results = job_results(spark, folder, on_progress)
            check_one_cluster(results)
            _check_scope(spark, results, scope, moments)
            result = make(spark, results, scope, moments, on_progress=on_progress)
    from kactl.forensics.report.markdown import markdown as as_markdown
    from kactl.forensics.report.page import page

    failures = [_write(html, page, result, moments), _write(markdown, as_markdown, result, moments)]
    # Printed even if a file could not be written, because the jobs take long.
    if not settings.printed(result):
        output.print_lines(_lines(result))
    for file, failure in zip((html, markdown), failures, strict=True):
        if file is not None and failure is None:
            settings.note(f"Written to {file}.")
    for failure in filter(None, failures):
        raise failure
    if html is None and markdown is None:
        settings.note("The full report with diagrams: --html FILE.")
    settings.note(f"The tables are in {folder}/jobs; query them with `kactl forensics sql`.")
    if result.coverage.is_partial and not partial:
        raise Failure(_too_little(result))


def _check_ingest(logs: tuple[str, ...], folder: str, layouts: tuple[str, ...]) -> None:
    """Check that there are logs, and that a folder may take their tables, before Spark starts, which takes seconds.

    Raises:
        Failure: no file is a log; or the folder contains something else, or cannot be written.
    """
    from kactl.forensics.ingest import NothingToIngest, NotOurs, NotWritable, check_sources, check_target
    from kactl.forensics.storage import Location

    try:
        check_target(Location(folder))
        check_sources(logs, Location(folder), layouts)
    except (NotOurs, NotWritable) as error:
        raise Failure(f"--dir: {error.reason}", Exit.USAGE) from None
    except NothingToIngest as error:
        raise Failure(error.reason) from None


def _ingested(
    settings: Settings,
    session: "Callable[[], tuple[SparkSession, Any]]",
    logs: tuple[str, ...],
    folder: str,
    tz: str | None,
    layouts: tuple[str, ...],
) -> "Manifest":
    """Ingest logs. Returns the manifest.

    Raises:
        Failure: none of the files is a log.
    """
    from kactl.forensics.ingest import NothingToIngest, ingest

    zone = "UTC" if tz is None else tz
    try:
        with shown_progress(settings) as on_progress:
            ingested = ingest(
                lambda: session()[0], logs, folder, time_zone=zone, layouts=layouts, on_progress=on_progress
            )
    except NothingToIngest as error:
        raise Failure(error.reason) from None
    for remark in remarks(file for file in ingested.files if file.is_log or failed(file, logs)):
        settings.note(remark)
    note_ingested(settings, ingested, folder, tz)
    return ingested.manifest


def _too_little(result: "Report") -> str:
    from kactl.decide.whatif.coverage import ENOUGH

    return (
        f"the logs cover {result.coverage.share:.0%}, less than {ENOUGH:.0%}, of the brokers, files, lines, time or "
        "leader epochs (the first line of the report lists the gaps): ingest the logs of all brokers and the whole "
        "time, or accept the report as it is with --partial"
    )


def _check_topic(topic: str | None) -> None:
    if topic is not None:
        try:
            re.compile(topic)
        except re.error as error:
            raise Failure(f"--topic: {topic!r} is not a regular expression: {error}", Exit.USAGE) from None


def _check_scope(spark: "SparkSession", results: "Results", scope: "Scope", moments: "Moments") -> None:
    """Check that the logs contain the requested topics and time: an empty report about a mistyped name would mislead.

    Raises:
        Failure: USAGE, with the nearest topics or the range of the logs.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from kactl.forensics.report.scope import of_topics
    from kactl.forensics.timeline.lookup import nearest

    if scope.begin is not None or scope.end is not None:
        _check_times(results, scope, moments)
    if scope.topic is None:
        return
    session: Any = spark
    try:
        session._jvm.java.util.regex.Pattern.compile(scope.topic)
    except (Py4JError, PySparkException):
        raise Failure(
            f"--topic: {scope.topic!r} is not a regular expression of Java, which Spark uses: write 'orders|pay.*'",
            Exit.USAGE,
        ) from None
    if not any(of_topics(results[name], scope).limit(1).count() for name in ("leadership", "events")):
        near = ", ".join(nearest(results, scope.topic, scope.topic)) or "none"
        raise Failure(
            f"--topic: the full name of no topic in these logs matches {scope.topic!r}; the nearest names: {near}",
            Exit.USAGE,
        )


def _check_times(results: "Results", scope: "Scope", moments: "Moments") -> None:
    """Check that the interval overlaps the logs.

    Raises:
        Failure: USAGE, with the range of the logs.
    """
    from pyspark.sql import functions as f

    from kactl.forensics.report.rows import moment

    (row,) = results["files"].agg(f.unix_micros(f.min("begin")), f.unix_micros(f.max("end"))).collect()
    begin, end = map(moment, row)
    if begin is not None and end is not None:
        span = f"the logs cover {moments.full(begin)} to {moments.full(end)} ({moments.name})"
        if scope.begin is not None and scope.begin > end:
            raise Failure(f"--from: {moments.full(scope.begin)} is after the end of the logs: {span}", Exit.USAGE)
        if scope.end is not None and scope.end <= begin:
            raise Failure(f"--to: {moments.full(scope.end)} is before the start of the logs: {span}", Exit.USAGE)


def _check_file(option: str, file: str | None) -> None:
    """Check that a file can be written, before the jobs run.

    Raises:
        Failure: USAGE, with the reason.
    """
    if file is None:
        return
    folder = Path(file).parent
    if os.path.isdir(file):
        raise Failure(f"{option}: {file} is a folder: choose a file", Exit.USAGE)
    if not folder.is_dir():
        raise Failure(f"{option}: {file}: there is no folder {folder}: create it, or choose another one", Exit.USAGE)
    if not os.access(file if os.path.exists(file) else folder, os.W_OK):
        raise Failure(f"{option}: {file} cannot be written: choose another file, or change its permissions", Exit.USAGE)


def _write(
    file: str | None, render: "Callable[[Report, Moments], str]", result: "Report", moments: "Moments"
) -> Failure | None:
    """Write a page atomically. Returns the failure, after which the previous file is unchanged; None if successful."""
    if file is None:
        return None
    from kactl.forensics.storage import Location

    # Names of files, topics and hosts may contain what a terminal obeys, or a reader of the page is misled by.
    content = harmless_lines(render(result, moments)).encode()
    path = Path(file)
    is_plain = not path.is_symlink() and (path.is_file() or not path.exists())
    try:
        if is_plain and os.access(path.parent, os.W_OK):
            Location(file).write(content)
        else:  # such as /dev/stdout, or a file in a read-only folder
            with open_private(path, "wb") as written:
                written.write(content)
    except OSError as error:
        return Failure(f"{file}: cannot be written ({error.strerror}): choose another file; the jobs are not repeated")
    return None


def _lines(result: "Report") -> list[str]:
    coverage = click.style(harmless(result.coverage.stated), fg="red" if result.coverage.is_partial else None)
    # Of the five lines, those that the summary and the advice below do not have.
    state = (harmless(f"{line.name.rstrip('?')}: {line.text}") for line in result.brief.lines[:2])
    headline = click.style(harmless(result.headline), bold=True)
    lines = [coverage, "", headline, "", *state, "", *map(harmless, result.summary)]
    if result.advice:
        advice = (harmless(f"* {item.do} {item.because}") for item in result.advice)
        lines += ["", click.style("What to do", bold=True), *advice]
    if result.limits:
        limits = (harmless(f"* {limit}") for limit in result.limits)
        lines += ["", click.style("What the logs cannot tell", bold=True), *limits]
    return lines
