"""`kactl forensics whatif`: what would be offline if brokers or racks died."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from . import forensics, output
from .exits import Exit, Failure
from .forensic_answers import errors_said, folder_option, manifest_of, moments_of, spark_for, time_typed
from .forensics import spark_options
from .names import NAME
from .settings import Settings, local_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kactl.forensics.jobs.catalog import Results
    from kactl.forensics.whatif import Answer, Kind, Scenario
    from kactl.forensics.whatif.partitions import Assumptions
    from kactl.forensics.whatif.prepared_snapshot import PreparedSnapshot

_STDIN: Final = "-"
# As in `kactl.forensics.whatif`, which takes too long to import for a line of help.
_SWEEPS: Final = ("brokers", "pairs", "racks", "rack+broker", "rolling")
_TOP: Final = 10
# The jobs whose tables a snapshot is made of.
_NEEDED: Final = ("states", "absences", "deletions", "timed")
_ProgressCallback = Callable[[str, int, int], None]


@click.command(short_help="What would be offline if brokers or racks died.")
@click.option("--kill", "kills", multiple=True, metavar="IDS", help="These at once: 3,4 or rack=a,7; may be repeated.")
@click.option(
    "--sweep", metavar="KINDS", help=f"Each of: {', '.join(_SWEEPS)}.  [without --kill: brokers, pairs, known racks]"
)
@click.option(
    "--snapshot", type=NAME, metavar="FILE", help="Of this cluster, and not of an ingest; - reads it from stdin."
)
@click.option("--at", metavar="TIME", help="Of the logs: as of this time.  [their end]")
@click.option(
    "--racks", type=NAME, metavar="RACKS", help="1=a,2=a,3=b, or a file of them, or of `get brokers -o json`."
)
@click.option(
    "--min-isr", type=click.IntRange(min=1), metavar="N", help="min.insync.replicas where it is not known.  [1]"
)
@click.option(
    "--topics", type=NAME, metavar="FILE", help="Overrides and weights of topics: orders min.insync.replicas=2,weight=9"
)
@click.option("--unclean", is_flag=True, help="Allow unclean elections, where a topic does not say.")
@click.option("--away", metavar="IDS", help="These are away already, whatever the snapshot shows.")
@click.option("--alive", metavar="IDS", help="These are alive, whatever the snapshot shows.")
@click.option(
    "--top", type=click.IntRange(min=1), default=_TOP, show_default=True, metavar="N", help="Show the worst N."
)
@click.option("--partial", is_flag=True, help="Exit with 0 also where fewer than 95 % of the partitions are known.")
@folder_option
@spark_options
@local_options
def whatif(
    settings: Settings,
    *,
    kills: tuple[str, ...],
    sweep: str | None,
    snapshot: str | None,
    at: str | None,
    folder: str,
    master: str,
    memory: str,
    top: int,
    partial: bool,
    **said: Any,
) -> None:
    """Report partitions that would have no leader, or reject writes, if brokers failed: the named ones, or each, any
    two, each rack, and in a rolling restart.

    The cluster is that of an ingest where its logs end, or of a snapshot: the lines of `kafka-topics.sh --describe`,
    the JSON of `kactl get partitions --limit 1000000 -o json`, or Parquet. Leaders are elected as Kafka does: the first
    replica of the assignment that is alive and in sync.

    The first line states how many partitions are known; nothing is claimed about the others. Where fewer than 95 % are
    known the exit code is 1, unless --partial accepts that.

    \b
      kafka-topics.sh --bootstrap-server :9092 --describe | kactl forensics whatif --snapshot - --kill 3,4
      kactl forensics whatif --sweep racks,rolling --racks 1=a,2=a,3=b,4=b
    """
    form = settings.form()
    with errors_said():
        sweeps = _sweeps(sweep, kills, racks=said["racks"] is not None)
        if snapshot is not None and at is not None:
            raise Failure("--at: a snapshot is of the time when it was made; --at is for an ingest (--dir)", Exit.USAGE)
        assumed = _assumed(**said)
        opened = (
            _of_logs(settings, folder, at, assumed, master, memory)
            if snapshot is None
            else _of_file(settings, snapshot, assumed, master, memory)
        )
        with opened as (ready, on_progress):
            from kactl.forensics.whatif.sweeps import answer

            for option in ("away", "alive"):
                for broker in sorted(_ids(said[option], f"--{option}")):
                    ready.engine.topology.named(str(broker), f"--{option}")
            scenarios = [ready.engine.topology.parse(each) for each in kills]
            made = answer(ready, scenarios, sweeps, top=top, on_progress=on_progress)
    _show(settings, made, kills, scenarios, form)
    if made.coverage.is_partial and not partial:
        raise Failure(_too_little(made))


# -- what is asked -----------------------------------------------------------------------------------------------------


def _sweeps(text: str | None, kills: tuple[str, ...], *, racks: bool) -> "list[Kind]":
    from kactl.forensics.whatif import Kind

    if text is None:
        usual = [Kind.BROKERS, Kind.PAIRS, *([Kind.RACKS] if racks else [])]
        return [] if kills else usual
    named = [word.strip() for word in text.split(",") if word.strip()]
    for word in named:
        if word not in _SWEEPS:
            raise Failure(f"--sweep: there is no {word!r}; there are {', '.join(_SWEEPS)}", Exit.USAGE)
    if not named:
        raise Failure(f"--sweep: {text!r} names no kind; there are {', '.join(_SWEEPS)}", Exit.USAGE)
    needing = [word for word in named if word in (Kind.RACKS, Kind.RACK_AND_BROKER)]
    if needing and not racks:
        raise Failure(
            f"--sweep {needing[0]}: which broker stands in which rack is not known: say so with --racks 1=a,2=a,3=b, "
            "or a file of what `kactl get brokers -o json` prints",
            Exit.USAGE,
        )
    return [Kind(word) for word in dict.fromkeys(named)]


def _assumed(
    *,
    racks: str | None,
    topics: str | None,
    min_isr: int | None,
    unclean: bool,
    away: str | None,
    alive: str | None,
) -> "Assumptions":
    from kactl.forensics.whatif.partitions import MIN_ISR, Assumptions
    from kactl.forensics.whatif.snapshots import racks as rack_files
    from kactl.forensics.whatif.snapshots import topics as topic_files

    known = rack_files.read(racks) if racks is not None else rack_files.Racks({})
    gone, here = _ids(away, "--away"), _ids(alive, "--alive")
    if gone & here:
        raise Failure(f"--away and --alive: broker {min(gone & here)} cannot be both", Exit.USAGE)
    return Assumptions(
        min_isr=MIN_ISR if min_isr is None else min_isr,
        unclean=unclean,
        topics={} if topics is None else topic_files.read(topics),
        racks=known.of,
        away=(known.away - here) | gone,
        alive=(known.alive - gone) | here,
    )


def _ids(text: str | None, option: str) -> frozenset[int]:
    words = [] if text is None else [part.strip() for part in text.split(",") if part.strip()]
    for word in words:
        if not (word.isascii() and word.isdecimal()):
            raise Failure(f"{option}: {word!r} is no broker's id: write 3,4", Exit.USAGE)
    return frozenset(map(int, words))


# -- of what -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _of_logs(
    settings: Settings, folder: str, at: str | None, assumed: "Assumptions", master: str, memory: str
) -> "Iterator[tuple[PreparedSnapshot, _ProgressCallback]]":
    """The cluster as logs show it; the jobs are run if they were not yet."""
    manifest = manifest_of(folder)
    moment = time_typed(at, moments_of(manifest, None), "--at")
    with spark_for(settings, master, memory, events=manifest.events) as (spark, on_progress):
        from kactl.forensics.whatif.prepared_snapshot import of_logs

        results = _results(spark, folder, on_progress)
        on_progress("find the last states", 0, 0)
        states, absences, deletions, timed = (results[name] for name in _NEEDED)
        last = results["files"].selectExpr("unix_micros(max(end)) end").first()
        end_us = None if last is None else last["end"]
        yield of_logs(states, absences, deletions, folder, assumed, at=moment, end_us=end_us, named=timed), on_progress


def _results(spark: "SparkSession", folder: str, on_progress: _ProgressCallback) -> "Results":
    """The jobs' answers, as far as they are needed here; `report` runs the others once it is asked."""
    from kactl.forensics.jobs.catalog import NoResults, open_results
    from kactl.forensics.jobs.running import run_jobs

    try:
        results = open_results(spark, folder)
    except NoResults:
        return run_jobs(spark, folder, only=_NEEDED, on_progress=on_progress)
    return results if set(_NEEDED) <= set(results) else run_jobs(spark, folder, only=_NEEDED, on_progress=on_progress)


@contextlib.contextmanager
def _of_file(
    settings: Settings, name: str, assumed: "Assumptions", master: str, memory: str
) -> "Iterator[tuple[PreparedSnapshot, _ProgressCallback]]":
    """A file: without Spark, unless it has more than this process should hold."""
    from kactl.forensics.whatif.prepared_snapshot import of_frame, of_table
    from kactl.forensics.whatif.snapshots import file

    rows = None if name == _STDIN else file.rows_of_parquet(name)
    if rows is not None and rows > file.PARTITIONS_HERE:
        with spark_for(settings, master, memory) as (spark, on_progress):
            yield of_frame(file.frame(spark, name), name, assumed), on_progress
        return
    with forensics.shown_progress(settings) as on_progress:
        on_progress(f"read {name}", 0, 0)
        table, notes = file.read_stream(sys.stdin.buffer, "stdin") if name == _STDIN else file.read(name)
        yield of_table(table, "stdin" if name == _STDIN else name, assumed, notes), on_progress


def _too_little(made: "Answer") -> str:
    from kactl.forensics.coverage import ENOUGH

    found = made.coverage
    return (
        f"{found.stated} ({found.share:.0%}), fewer than {ENOUGH:.0%}: the answer says nothing of the other "
        f"{output.count(found.partitions - found.known, 'partition')}. Logs of all brokers, at TRACE, know more, and "
        "so does `kafka-topics.sh --describe` as --snapshot; --partial accepts the answer as it is"
    )


# -- what came of it ---------------------------------------------------------------------------------------------------


def _show(settings: Settings, made: "Answer", kills: "tuple[str, ...]", scenarios: "list[Scenario]", form: str) -> None:
    if form == "json":
        output.print_json(made)
    elif form == "jsonl":
        output.print_jsonl([{"coverage": made.coverage}])
        output.print_jsonl(made.killed)
        output.print_jsonl(each for sweep in made.sweeps for each in sweep.worst)
        output.print_jsonl(each for each in made.rolling)
    else:
        from .whatif_text import lines

        output.print_lines(lines(made))
    for text, scenario in zip(kills, scenarios, strict=True):
        if not scenario.brokers:
            settings.note(f"--kill {text}: all of these are away already, so nothing changes.")
    for note in made.notes:
        settings.note(note)
    cost = made.cost
    where = "" if cost.where == "here" else f", summed up by {cost.where}"
    settings.note(
        f"{output.count(cost.scenarios, 'scenario')} over {output.count(made.now.partitions, 'partition')} in "
        f"{cost.classes:,} classes{where}: {cost.seconds:.1f} s."
    )
