"""`kactl forensics timeline`: all log lines and findings about one partition, in order of time."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from . import output
from .common_options import Settings, local_options
from .exits import Failure
from .forensic_inputs import (
    errors_translated,
    folder_option,
    job_results,
    manifest_of,
    moments_of,
    parsed_interval,
    spark_for,
    time_options,
)
from .forensics import spark_options
from .output import BAD, GOOD, NONE, PLAIN, WARN, Cell

if TYPE_CHECKING:
    from kactl.forensics.timeline.entries import Entry, Timeline
    from kactl.forensics.timeline.lookup import Incarnation
    from kactl.forensics.wording import Moments

_LIMIT: Final = 1000
_HEADER: Final = ("TIME", "±", "WHO", "WHAT", "MARK", "SAID")
_PARTITIONS: Final = (
    "PARTITION",
    "LIFE",
    "LEADER",
    "EPOCH",
    "ELECTIONS",
    "OUTAGES",
    "UNAVAILABLE",
    "LOST",
    "OF THEM COMMITTED",
)


@click.command(short_help="Show the history of one partition.")
@click.argument("name", metavar="TOPIC-PARTITION")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=_LIMIT, show_default=True, help="Maximum number of lines."
)
@time_options
@folder_option
@spark_options
@local_options
def timeline(
    settings: Settings,
    *,
    name: str,
    limit: int,
    begin: str | None,
    end: str | None,
    tz: str | None,
    folder: str,
    master: str,
    memory: str,
) -> None:
    """Show the history of a partition in order of time: lines of all logs, and findings of the jobs.

    Times are on one clock: offsets between the clocks of brokers are corrected, and ± is the remaining uncertainty. For
    the name of a topic, its partitions are listed.
    """
    from kactl.model.errors import NotFound

    with errors_translated():
        manifest = manifest_of(folder)
        moments = moments_of(manifest, tz)
        first, last = parsed_interval(begin, end, moments)
        from kactl.forensics.timeline import entries, lookup

        with spark_for(settings, master, memory, events=manifest.events) as (spark, on_progress):
            results = job_results(spark, folder, on_progress)
            on_progress(name, 0, 0)
            try:
                topic, partition = lookup.find(results, name)
            except NotFound as error:
                raise Failure(str(error)) from None
            if partition is None:
                rows = lookup.incarnations(results, topic)
            else:
                history = entries.timeline(results, topic, partition, begin=first, end=last, limit=limit)
    if partition is None:
        _show_partitions(settings, rows)
        settings.note(f"{topic} is a topic: for the timeline of a partition, write its name, such as {topic}-0.")
    else:
        _show(settings, history, moments)


def _show(settings: Settings, history: "Timeline", moments: "Moments") -> None:
    if not settings.printed(history, history.entries):
        output.print_lines(output.table(_HEADER, (_row(entry, moments) for entry in history.entries)))
        settings.note(f"Times are in {moments.name}.")
    if history.more:
        # With the offset, because a local time is ambiguous where clocks were set back.
        last = moments.local(history.entries[-1].at).isoformat(sep=" ", timespec="milliseconds")
        settings.note(f"There are more lines: raise --limit, or continue with --from '{last}'.")
    if not history.entries:
        settings.note("The logs contain nothing about it in this interval.")


def _row(entry: "Entry", moments: "Moments") -> tuple[Cell, ...]:
    more = f" (and {output.count(len(entry.also), 'more broker')})" if entry.also else ""
    error = NONE if entry.error_ms is None else f"{entry.error_ms:.0f}ms"
    level = "" if entry.level in (None, "INFO", "TRACE") else f" [{entry.level}]"
    kind = entry.format or NONE if entry.what == "line" else entry.what
    return (
        moments.full(entry.at),
        error,
        entry.who,
        (kind, _COLOURS.get(entry.what, PLAIN)),
        (entry.mark or NONE, WARN if entry.mark in ("bounded", "uncertain", "inferred") else PLAIN),
        f"{entry.said}{more}{level}",
    )


_COLOURS: Final[dict[str, dict[str, Any]]] = {
    "outage": BAD,
    "loss": BAD,
    "unclean": BAD,
    "audit": BAD,
    "absence": WARN,
    "line": PLAIN,
}


def _show_partitions(settings: Settings, rows: "Iterable[Incarnation]") -> None:
    if not settings.printed(rows, rows):
        output.print_lines(output.table(_PARTITIONS, map(_partition_row, rows)))


def _partition_row(row: "Incarnation") -> tuple[Cell, ...]:
    from kactl.forensics.wording import duration

    leader = NONE if row.leader is None else output.broker(row.leader)
    return (
        f"{row.topic}-{row.partition}",
        f"{row.life}",
        (leader, BAD if leader == NONE else GOOD),
        NONE if row.leader_epoch is None else f"{row.leader_epoch}",
        f"{row.elections}",
        f"{row.outages}",
        duration(row.unavailable_ms) if row.outages else NONE,
        (f"{row.cut_off}", BAD if row.cut_off else PLAIN),
        (f"{row.committed_lost}", BAD if row.committed_lost else PLAIN),
    )
