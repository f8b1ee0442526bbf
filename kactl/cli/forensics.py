"""`kactl forensics`: what logs of a cluster tell afterwards, by Spark."""

import contextlib
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from . import output
from .exits import Exit, Failure, of_system
from .names import MASTER, NAME, NAME_OF_LOG, SIZE
from .output import BAD, NONE, PLAIN, WARN, Cell
from .settings import Settings, local_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kactl.forensics.ingest import Ingested
    from kactl.forensics.overview import FileReport

OUT: Final = "forensics"
# As in `kactl.forensics.session`, which takes too long to import for a line of help.
_MASTER: Final = "local[*]"
_MEMORY: Final = "2g"
_BAR: Final = 20
# Spark's error classes for files that were changed or deleted since they were written.
_DAMAGED: Final = ("FAILED_READ_FILE", "PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
# Of terminals that do not say.
_COLUMNS: Final = 80


@click.group()
def forensics() -> None:
    """Ask the logs that a Kafka cluster already has what happened.

    Begin with `kactl forensics ingest LOGS --tz ZONE`. Spark runs inside; it needs `pip install 'kactl[pipeline]'` and
    a Java, see `kactl doctor`.
    """


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where Spark runs, for every command that needs it."""
    for option in (
        click.option(
            "--memory", type=SIZE, default=_MEMORY, show_default=True, metavar="SIZE", help="What Spark may take here."
        ),
        click.option(
            "--master", type=MASTER, default=_MASTER, show_default=True, metavar="URL", help="A cluster to run on."
        ),
    ):
        command = option(command)
    return command


@forensics.command(short_help="Make tables of logs.")
@click.argument("logs", type=NAME_OF_LOG, nargs=-1, required=True, metavar="LOGS...")
@click.option(
    "--out", type=NAME, default=OUT, show_default=True, metavar="DIR", help="Where the tables go; replaced as one."
)
@click.option("--tz", metavar="ZONE", help="The zone of the logs' times: Europe/Berlin, UTC, +02:00.  [UTC]")
@spark_options
@local_options
def ingest(settings: Settings, *, logs: tuple[str, ...], out: str, tz: str | None, master: str, memory: str) -> None:
    """Read LOGS, files and folders, and write what happened as tables.

    state-change.log, controller.log and server.log of brokers and controllers from 0.8 to 3.9, plain, rotated, gzip or
    as containers print them; the metadata log as Kafka's dump tool prints it; kactl's own log. The kind of a
    file is detected from its content. Logs of more brokers make the results more complete.
    """
    from kactl.errors import BadRequest, KactlError

    form = settings.form()
    from kactl.forensics.ingest import NothingToIngest, check_target
    from kactl.forensics.ingest import ingest as run
    from kactl.forensics.storage import Location
    from kactl.forensics.text.zone import zone_of

    zone = "UTC" if tz is None else tz
    try:
        # Before seconds are spent on starting Spark.
        zone_of(zone)
        check_target(Location(out))
        with session(master, memory, events=0) as spark, shown_progress(settings) as on_progress:
            done = run(spark, logs, out, time_zone=zone, on_progress=on_progress)
    except NothingToIngest as error:
        raise Failure(error.reason) from None
    except BadRequest as error:
        raise Failure(str(error), Exit.USAGE) from None
    except KactlError as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise of_system(error, out) from None
    _show(settings, done, logs, form)
    if tz is None:
        settings.note("Times are taken for UTC: if the brokers' clocks show another zone, say so with --tz.")
    settings.note(f"Kept in {out}: {_sums(done)}.")
    bad = [each for each in done.files if _failed(each, logs)]
    if bad:
        raise Failure(f"{output.count(len(bad), 'file')} could not be read, or not to the end; the rest is ingested")


@contextlib.contextmanager
def session(master: str, memory: str, *, events: int | None = None) -> "Iterator[SparkSession]":
    """Spark, for one command; what goes wrong in it is one sentence.

    Args:
        events: how many there are, if that is known.

    Raises:
        Failure: it cannot be started, or a job failed.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from kactl.forensics.session import spark_session

    # Py4J also logs its exceptions to the root logger, which prints the traceback if it has no handler.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        with _terminated(), spark_session(master=master, memory=memory, events=events) as spark:
            try:
                yield spark
            except (Py4JError, PySparkException) as error:
                # Before Java ends: what an error says is asked of it.
                raise _failed_in_spark(error) from None
    except (Py4JError, PySparkException) as error:
        raise _failed_in_spark(error) from None


def _failed_in_spark(error: Exception) -> Failure:
    try:
        said = str(error)
    except Exception:  # a Java that was killed cannot be asked any more
        said = f"{type(error).__name__}: Java has ended before it could say why"
    remedy = (
        " (part of a table is gone or damaged: ingest the logs anew)" if any(map(said.__contains__, _DAMAGED)) else ""
    )
    return Failure(f"Spark: {reason(said)}{remedy}")


def reason(said: str) -> str:
    """Of all that Spark says of an error, with the stacks of two languages, the line that tells of it."""
    if "JAVA_GATEWAY_EXITED" in said:
        return "Java ended at once, and has said why: see whether there is so much --memory, and `kactl doctor`"
    # Of what Python raised in a worker, the last line of its stack says what it was.
    _, _, python = said.partition("Traceback (most recent call last):\n")
    for lines in (python.splitlines(), said.splitlines()):
        for line in lines:
            if re.match(r"(: )?[\w.$]*(Exception|Error)\b", line):
                return line.removeprefix(": ").strip()
    return next((line.strip() for line in said.splitlines() if line.strip()), "it does not say what is wrong")


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """Who is told to end by SIGTERM ends as by Ctrl-C: nothing half-written is left, nor files for a while."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def shown_progress(settings: Settings) -> Iterator[Callable[[str, int, int], None]]:
    """What tells how far a job is: a line on stderr that is written over, if that is a terminal; else nothing."""
    from kactl.forensics.progress import no_progress

    if settings.quiet or not sys.stderr.isatty():
        yield no_progress
        return
    try:
        yield _on_progress
    finally:
        click.echo("\r\x1b[K", nl=False, err=True)


def _on_progress(step: str, done: int, total: int) -> None:
    if not step:
        click.echo("\r\x1b[K", nl=False, err=True)
        return
    bar = "█" * (_BAR * done // total) if total else ""
    share = f" {bar:<{_BAR}} {done}/{total}" if total else " ..."
    click.echo(f"\r\x1b[K{fitted(step, share, _columns())}", nl=False, err=True)


def fitted(step: str, share: str, columns: int) -> str:
    """One line of a terminal, whatever is going on: of one that is broken only the last part is written over."""
    name, room = output.harmless(step), columns - 1 - len(share)
    if room < 2:
        return name[: max(0, columns - 1)]
    return (name if len(name) <= room else f"{name[: room - 1]}…") + share


def _columns() -> int:
    """Of the terminal on stderr, whatever stdout is."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


# -- what came of it ---------------------------------------------------------------------------------------------------

_HEADER: Final = ("FILE", "KIND", "VERSION", "BROKER", "LEVELS", "BEGIN", "END", "LINES", "UNPARSED", "COVERAGE")


def _show(settings: Settings, done: "Ingested", logs: tuple[str, ...], form: str) -> None:
    if form == "json":
        output.print_json(done)
    elif form == "jsonl":
        output.print_jsonl(done.files)
    else:
        shown = [each for each in done.files if each.is_log or settings.verbose or _failed(each, logs)]
        output.print_lines(output.table(_HEADER, map(_row, shown)))
        for line in _remarks(shown):
            settings.note(line)
        if len(shown) < len(done.files):
            passed = output.count(len(done.files) - len(shown), "file")
            settings.note(f"{passed} beside them are empty or no logs of Kafka: -v shows them.")


def _row(item: "FileReport") -> tuple[Cell, ...]:
    low = item.coverage is not None and item.coverage < 0.9
    return (
        item.path,
        (str(item.kind), PLAIN if item.is_log and item.error is None else BAD),
        item.version or NONE,
        NONE if item.broker is None else str(item.broker),
        ",".join(item.levels) or NONE,
        _moment(item.begin),
        _moment(item.end),
        f"{item.lines}" if item.is_log else NONE,
        f"{item.unparsed}" if item.is_log else NONE,
        NONE if item.coverage is None else (f"{item.coverage:.1%}", WARN if low else PLAIN),
    )


def _moment(time_us: int | None) -> str:
    return NONE if time_us is None else output.moment(time_us // 1000)


def _remarks(files: Iterable["FileReport"]) -> Iterator[str]:
    """What to know, with the files it concerns; the same is said once."""
    said: dict[str, list[str]] = {}
    for each in files:
        for remark in (*([] if each.error is None else [each.error]), *each.warnings):
            said.setdefault(remark, []).append(each.path)
        for sample in each.samples:
            said.setdefault(f"not understood, for example: {output.harmless(sample[:160])}", []).append(each.path)
    for remark, paths in said.items():
        more = f" and {output.count(len(paths) - 1, 'more file')}" if len(paths) > 1 else ""
        yield f"{output.harmless(paths[0])}{more}: {remark}"


def _sums(done: "Ingested") -> str:
    manifest = done.manifest
    return (
        f"{output.count(manifest.files, 'file')}, {output.count(manifest.lines, 'line')}, "
        f"{manifest.events:,} of them understood, {manifest.unparsed:,} not"
    )


def _failed(item: "FileReport", logs: tuple[str, ...]) -> bool:
    """Whether a file is missed: one that broke, or was named and is no log. Beside logs there may be anything."""
    if item.error is None:
        return False
    return str(item.kind) != "foreign" or item.path in {each.rstrip("/") for each in logs}
