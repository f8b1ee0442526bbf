"""`kactl forensics whatif`: partitions that would be offline if brokers or racks failed."""

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from kactl.decide.whatif import Kind

from . import forensics, output
from .common_options import Settings, local_options
from .exits import Exit, Failure
from .forensic_inputs import errors_translated, folder_option, manifest_of, moments_of, parsed_time, spark_for
from .forensics import spark_options
from .option_types import NAME
from .whatif_options import SWEEPS, kill_option, sweeps_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kactl.decide.whatif import Answer, Scenario
    from kactl.decide.whatif.assumptions import Assumptions
    from kactl.decide.whatif.prepared_snapshot import PreparedSnapshot
    from kactl.forensics.jobs.catalog import Results

_STDIN: Final = "-"
_TOP: Final = 10
# Jobs whose tables a snapshot requires.
_NEEDED: Final = ("states", "absences", "deletions", "timed")
_ProgressCallback = Callable[[str, int, int], None]


@click.command(short_help="Simulate failures of brokers and racks.")
@kill_option
@click.option(
    "--sweep",
    metavar="KINDS",
    help=f"Every case of: {', '.join(SWEEPS)}.  [without --kill: brokers, pairs, known racks]",
)
@click.option(
    "--snapshot", type=NAME, metavar="FILE", help="Snapshot of the cluster, instead of ingested logs; -: stdin."
)
@click.option("--at", metavar="TIME", help="State at this time of the logs.  [their end]")
@click.option(
    "--racks",
    type=NAME,
    metavar="RACKS",
    help="1=a,2=a,3=b, or a file with such lines or the output of `get brokers -o json`.",
)
@click.option(
    "--min-isr", type=click.IntRange(min=1), metavar="N", help="min.insync.replicas where it is unknown.  [1]"
)
@click.option(
    "--topics", type=NAME, metavar="FILE", help="File of overrides and weights: orders min.insync.replicas=2,weight=9"
)
@click.option("--unclean", is_flag=True, help="Allow unclean elections, unless a topic overrides it.")
@click.option("--away", metavar="IDS", help="Treat these brokers as failed already, whatever the snapshot shows.")
@click.option("--alive", metavar="IDS", help="Treat these brokers as alive, whatever the snapshot shows.")
@click.option(
    "--top", type=click.IntRange(min=1), default=_TOP, show_default=True, metavar="N", help="Show the N worst cases."
)
@click.option("--partial", is_flag=True, help="Exit with code 0 even if fewer than 95 % of the partitions are known.")
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
    **assumptions: Any,
) -> None:
    """Report partitions that would have no leader, or reject writes, if brokers failed: the given ones, every single
    broker, every pair, every rack, or all in a rolling restart.

    The cluster is that of ingested logs at their end, or of a snapshot: the lines of `kafka-topics.sh --describe`, the
    JSON of `kactl get partitions --limit 1000000 -o json`, or Parquet. Leaders are elected by Kafka's rule: the first
    replica of the assignment that is alive and in sync.

    The first line states how many partitions are known; the results do not cover the others. If fewer than 95 % are
    known, the exit code is 1, unless --partial is given.

    \b
      kafka-topics.sh --bootstrap-server :9092 --describe | kactl forensics whatif --snapshot - --kill 3,4
      kactl forensics whatif --sweep racks,rolling --racks 1=a,2=a,3=b,4=b
    """
    form = settings.form()
    with errors_translated():
        sweeps = _sweeps(sweep, kills, racks=assumptions["racks"] is not None)
        if snapshot is not None and at is not None:
            raise Failure("--at: a snapshot has one time only; --at is for ingested logs (--dir)", Exit.USAGE)
        assumed = _assumed(**assumptions)
        opened = (
            _of_logs(settings, folder, at, assumed, master, memory)
            if snapshot is None
            else _of_file(settings, snapshot, assumed)
        )
        with opened as (prepared, on_progress):
            from kactl.decide.whatif.analysis import answer

            for option in ("away", "alive"):
                for broker in sorted(_ids(assumptions[option], f"--{option}")):
                    prepared.engine.topology.named(str(broker), f"--{option}")
            scenarios = [prepared.engine.topology.parse(text) for text in kills]
            result = answer(prepared, scenarios, sweeps, top=top, on_progress=on_progress)
    _show(settings, result, kills, scenarios, form)
    if result.coverage.is_partial and not partial:
        raise Failure(_too_little(result))


# -- arguments -----------------------------------------------------------------------------------------------------


def _sweeps(text: str | None, kills: tuple[str, ...], *, racks: bool) -> list[Kind]:
    if text is None:
        defaults = [Kind.BROKERS, Kind.PAIRS, *([Kind.RACKS] if racks else [])]
        return [] if kills else defaults
    kinds = sweeps_of(text)
    rack_kinds = [kind for kind in kinds if kind in (Kind.RACKS, Kind.RACK_AND_BROKER)]
    if rack_kinds and not racks:
        raise Failure(
            f"--sweep {rack_kinds[0]}: the racks of the brokers are unknown: set them with --racks 1=a,2=a,3=b, or "
            "with a file of the output of `kactl get brokers -o json`",
            Exit.USAGE,
        )
    return kinds


def _assumed(
    *,
    racks: str | None,
    topics: str | None,
    min_isr: int | None,
    unclean: bool,
    away: str | None,
    alive: str | None,
) -> "Assumptions":
    from kactl.decide.whatif.assumptions import MIN_ISR, Assumptions
    from kactl.forensics.whatif.snapshots import racks as rack_files
    from kactl.forensics.whatif.snapshots.kafka_topics import read_settings

    known = rack_files.read(racks) if racks is not None else rack_files.Racks({})
    set_away, set_alive = _ids(away, "--away"), _ids(alive, "--alive")
    if set_away & set_alive:
        raise Failure(f"--away and --alive: broker {min(set_away & set_alive)} is in both", Exit.USAGE)
    return Assumptions(
        min_isr=MIN_ISR if min_isr is None else min_isr,
        unclean=unclean,
        topics={} if topics is None else read_settings(topics),
        racks=known.of,
        away=(known.away - set_alive) | set_away,
        alive=(known.alive - set_away) | set_alive,
    )


def _ids(text: str | None, option: str) -> frozenset[int]:
    words = [] if text is None else [part.strip() for part in text.split(",") if part.strip()]
    for word in words:
        if not (word.isascii() and word.isdecimal()):
            raise Failure(f"{option}: {word!r} is not a broker id: write 3,4", Exit.USAGE)
    return frozenset(map(int, words))


# -- cluster -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _of_logs(
    settings: Settings, folder: str, time: str | None, assumed: "Assumptions", master: str, memory: str
) -> "Iterator[tuple[PreparedSnapshot, _ProgressCallback]]":
    """Yield the cluster of ingested logs. Jobs without results are run."""
    manifest = manifest_of(folder)
    moment = parsed_time(time, moments_of(manifest, None), "--at")
    with spark_for(settings, master, memory, events=manifest.events) as (spark, on_progress):
        from kactl.forensics.whatif.snapshots.logs import of_logs

        results = _results(spark, folder, on_progress)
        on_progress("find the last states", 0, 0)
        states, absences, deletions, timed = (results[name] for name in _NEEDED)
        last = results["files"].selectExpr("unix_micros(max(end)) end").first()
        end_us = None if last is None else last["end"]
        yield of_logs(states, absences, deletions, folder, assumed, at=moment, end_us=end_us, named=timed), on_progress


def _results(spark: "SparkSession", folder: str, on_progress: _ProgressCallback) -> "Results":
    """Returns the results of the jobs required here. `report` runs the others later."""
    from kactl.forensics.jobs.catalog import NoResults, open_results
    from kactl.forensics.jobs.running import run_jobs

    try:
        results = open_results(spark, folder)
    except NoResults:
        return run_jobs(spark, folder, only=_NEEDED, on_progress=on_progress)
    return results if set(_NEEDED) <= set(results) else run_jobs(spark, folder, only=_NEEDED, on_progress=on_progress)


@contextlib.contextmanager
def _of_file(
    settings: Settings, name: str, assumed: "Assumptions"
) -> "Iterator[tuple[PreparedSnapshot, _ProgressCallback]]":
    from kactl.forensics.whatif.snapshots import file
    from kactl.forensics.whatif.tables import of_table

    with forensics.shown_progress(settings) as on_progress:
        on_progress(f"read {name}", 0, 0)
        table, notes = file.read_stream(sys.stdin.buffer, "stdin") if name == _STDIN else file.read(name)
        yield of_table(table, "stdin" if name == _STDIN else name, assumed, notes), on_progress


def _too_little(result: "Answer") -> str:
    from kactl.decide.whatif.coverage import ENOUGH

    coverage = result.coverage
    return (
        f"{coverage.stated} ({coverage.share:.0%}), fewer than {ENOUGH:.0%}: the result does not cover the other "
        f"{output.count(coverage.partitions - coverage.known, 'partition')}. Ingest the logs of all brokers at level "
        "TRACE, use the output of `kafka-topics.sh --describe` as --snapshot, or accept the result with --partial"
    )


# -- output ---------------------------------------------------------------------------------------------------


def _show(settings: Settings, result: "Answer", kills: tuple[str, ...], scenarios: "list[Scenario]", form: str) -> None:
    if form in output.DATA:
        worst = (outcome for sweep in result.sweeps for outcome in sweep.worst)
        lines_ = itertools.chain([{"coverage": result.coverage}], result.killed, worst, result.rolling)
        output.print_data(form, result, lines_)
    else:
        from .whatif_text import lines

        output.print_lines(lines(result))
    for text, scenario in zip(kills, scenarios, strict=True):
        if not scenario.brokers:
            settings.note(f"--kill {text}: all of these have failed already, so nothing changes.")
    for note in result.notes:
        settings.note(note)
    cost = result.cost
    settings.note(
        f"{output.count(cost.scenarios, 'scenario')} over {output.count(result.now.partitions, 'partition')} in "
        f"{cost.classes:,} classes: {cost.seconds:.1f} s."
    )
