"""`kactl forensics timeline`: all that is known of one partition, in order of time."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from . import output
from .exits import Failure
from .forensic_answers import (
    answers,
    errors_said,
    folder_option,
    manifest_of,
    moments_of,
    spark_for,
    time_options,
    times_typed,
)
from .forensics import spark_options
from .output import BAD, GOOD, NONE, PLAIN, WARN, Cell
from .settings import Settings, local_options

if TYPE_CHECKING:
    from kactl.forensics.report.wording import Moments
    from kactl.forensics.timeline.entries import Entry, Timeline
    from kactl.forensics.timeline.lookup import Incarnation

_LIMIT: Final = 1000
_HEADER: Final = ("TIME", "±", "WHO", "WHAT", "MARK", "SAID")
_LIVES: Final = (
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


@click.command(short_help="All that is known of one partition, in order of time.")
@click.argument("name", metavar="TOPIC-PARTITION")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=_LIMIT, show_default=True, help="At most so many lines."
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
    """Show all that is known of a partition, in order of time: lines of all logs, and what was concluded from them.

    Times are on one clock: what a broker's clock was off by is taken off, and ± says by how much each may still be
    wrong. The name of a topic alone lists its partitions.
    """
    from kactl.errors import NotFound

    form = settings.form()
    with errors_said():
        manifest = manifest_of(folder)
        moments = moments_of(manifest, tz)
        first, last = times_typed(begin, end, moments)
        from kactl.forensics.timeline import entries, lookup

        with spark_for(settings, master, memory, events=manifest.events) as (spark, on_progress):
            results = answers(spark, folder, on_progress)
            on_progress(name, 0, 0)
            try:
                topic, partition = lookup.find(results, name)
            except NotFound as error:
                raise Failure(str(error)) from None
            if partition is None:
                lives = lookup.incarnations(results, topic)
            else:
                found = entries.timeline(results, topic, partition, begin=first, end=last, limit=limit)
    if partition is None:
        _show_lives(lives, form)
        settings.note(f"{topic} is a topic: name one of its partitions for its timeline, as {topic}-0.")
    else:
        _show(settings, found, moments, form)


def _show(settings: Settings, found: "Timeline", moments: "Moments", form: str) -> None:
    if form == "json":
        output.print_json(found)
    elif form == "jsonl":
        output.print_jsonl(found.entries)
    else:
        output.print_lines(output.table(_HEADER, (_row(each, moments) for each in found.entries)))
        settings.note(f"Times are of {moments.name}.")
    if found.more:
        # With its offset: where clocks were set back a time alone would lead back by an hour.
        at = moments.local(found.entries[-1].at).isoformat(sep=" ", timespec="milliseconds")
        settings.note(f"There is more: --limit N for more lines, or --from '{at}' to go on from here.")
    if not found.entries:
        settings.note("Nothing is known of it in this time.")


def _row(each: "Entry", moments: "Moments") -> tuple[Cell, ...]:
    more = f" (and {output.count(len(each.also), 'more broker')})" if each.also else ""
    error = NONE if each.error_ms is None else f"{each.error_ms:.0f}ms"
    level = "" if each.level in (None, "INFO", "TRACE") else f" [{each.level}]"
    what = each.format or NONE if each.what == "line" else each.what
    return (
        moments.full(each.at),
        error,
        each.who,
        (what, _COLOURS.get(each.what, PLAIN)),
        (each.mark or NONE, WARN if each.mark in ("bounded", "uncertain", "inferred") else PLAIN),
        f"{each.said}{more}{level}",
    )


_COLOURS: Final[dict[str, dict[str, Any]]] = {
    "outage": BAD,
    "loss": BAD,
    "unclean": BAD,
    "audit": BAD,
    "absence": WARN,
    "line": PLAIN,
}


def _show_lives(lives: "Iterable[Incarnation]", form: str) -> None:
    if form == "json":
        output.print_json(lives)
    elif form == "jsonl":
        output.print_jsonl(lives)
    else:
        output.print_lines(output.table(_LIVES, map(_life, lives)))


def _life(each: "Incarnation") -> tuple[Cell, ...]:
    from kactl.forensics.report.wording import duration

    leader = NONE if each.leader is None else output.broker(each.leader)
    return (
        f"{each.topic}-{each.partition}",
        f"{each.life}",
        (leader, BAD if leader == NONE else GOOD),
        NONE if each.leader_epoch is None else f"{each.leader_epoch}",
        f"{each.elections}",
        f"{each.outages}",
        duration(each.unavailable_ms) if each.outages else NONE,
        (f"{each.cut_off}", BAD if each.cut_off else PLAIN),
        (f"{each.committed_lost}", BAD if each.committed_lost else PLAIN),
    )
