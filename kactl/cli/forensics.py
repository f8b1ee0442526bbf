"""`kactl forensics` and `forensics ingest`: analysis of the logs of a cluster, with Spark."""

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
from .common_options import Settings, local_options
from .exits import Exit, Failure, of_system
from .option_types import MASTER, NAME, NAME_OF_LOG, SIZE
from .output import BAD, NONE, PLAIN, WARN, Cell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kactl.forensics.ingest import Ingested
    from kactl.forensics.overview import FileReport

OUT: Final = "forensics"
# The defaults of `kactl.forensics.session`, whose import takes too long for `--help`.
_MASTER: Final = "local[*]"
_MEMORY: Final = "2g"
_BAR: Final = 20
# Spark's error classes for files that were changed or deleted after they were written.
_DAMAGED: Final = ("FAILED_READ_FILE", "PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
# Width of terminals that do not report it.
_COLUMNS: Final = 80


@click.group()
def forensics() -> None:
    """Investigate outages in the logs of a Kafka cluster.

    Begin with `kactl forensics report LOGS --tz ZONE --html FILE`. Spark runs in this process; it requires
    the extra `pipeline` and Java, which `kactl doctor` checks.
    """


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of Spark to a command."""
    for option in (
        click.option(
            "--memory",
            type=SIZE,
            default=_MEMORY,
            show_default=True,
            metavar="SIZE",
            help="Memory of Spark in this process.",
        ),
        click.option("--master", type=MASTER, default=_MASTER, show_default=True, metavar="URL", help="Spark master."),
    ):
        command = option(command)
    return command


def layout_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option of further layouts."""
    return click.option(
        "--layout",
        "layouts",
        multiple=True,
        metavar="PATTERN",
        help="Layout of lines, as a conversion pattern of log4j or logback. Repeat for several.",
    )(command)


@forensics.command(short_help="Read logs, and write their events as tables.")
@click.argument("logs", type=NAME_OF_LOG, nargs=-1, required=True, metavar="LOGS...")
@click.option(
    "--out",
    type=NAME,
    default=OUT,
    show_default=True,
    metavar="DIR",
    help="Folder of the tables; replaced atomically.",
)
@click.option("--tz", metavar="ZONE", help="Time zone of the logs: Europe/Berlin, UTC, +02:00.  [UTC]")
@layout_option
@spark_options
@local_options
def ingest(
    settings: Settings,
    *,
    logs: tuple[str, ...],
    out: str,
    tz: str | None,
    layouts: tuple[str, ...],
    master: str,
    memory: str,
) -> None:
    """Read LOGS (files and folders) and write their events as tables.

    Reads state-change.log, controller.log and server.log of brokers and controllers from 0.8 to 4.4, plain, rotated,
    compressed with gzip, or as printed by containers; the metadata log as printed by Kafka's dump tool; and kactl's own
    log. The kind of a file is detected from its content. The results are more complete with the logs of more brokers.
    """
    from kactl.model.errors import BadRequest, KactlError

    form = settings.form()
    from kactl.forensics.ingest import NothingToIngest, check_sources, check_target
    from kactl.forensics.ingest import ingest as run
    from kactl.forensics.storage import Location
    from kactl.forensics.text.forms import Forms
    from kactl.forensics.text.zone import zone_of

    zone = "UTC" if tz is None else tz
    try:
        # Before Spark is started, which takes seconds.
        zone_of(zone)
        Forms(layouts)
        check_target(Location(out))
        check_sources(logs, Location(out), layouts)
        with contextlib.ExitStack() as sessions, ended_by_sigterm(), shown_progress(settings) as on_progress:

            def start() -> "SparkSession":
                return sessions.enter_context(session(master, memory, events=0))

            ingested = run(start, logs, out, time_zone=zone, layouts=layouts, on_progress=on_progress)
    except NothingToIngest as error:
        raise Failure(error.reason) from None
    except BadRequest as error:
        raise Failure(str(error), Exit.USAGE) from None
    except KactlError as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise of_system(error, out) from None
    _show(settings, ingested, logs, form)
    note_ingested(settings, ingested, out, tz)
    bad = [file for file in ingested.files if failed(file, logs)]
    if bad:
        raise Failure(f"{output.count(len(bad), 'file')} could not be read completely; the others are ingested")


def note_ingested(settings: Settings, ingested: "Ingested", folder: str, tz: str | None) -> None:
    """Print the sums of an ingest as remarks."""
    if tz is None:
        settings.note("Times are read as UTC: if the brokers log in another time zone, set it with --tz.")
    settings.note(f"Written to {folder}: {_sums(ingested)}.")


@contextlib.contextmanager
def session(master: str, memory: str, *, events: int | None = None) -> "Iterator[SparkSession]":
    """Run Spark for one command. Its errors are raised as failures of one sentence.

    Args:
        events: number of events, if known.

    Raises:
        Failure: Spark cannot be started, or a job failed.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from kactl.forensics.session import spark_session

    # Py4J also logs its exceptions to the root logger, which prints the traceback if it has no handler.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        with ended_by_sigterm(), spark_session(master=master, memory=memory, events=events) as spark:
            try:
                yield spark
            except (Py4JError, PySparkException) as error:
                # Before Java ends: it renders the message of the error.
                raise _failed_in_spark(error) from None
    except (Py4JError, PySparkException) as error:
        raise _failed_in_spark(error) from None


def _failed_in_spark(error: Exception) -> Failure:
    try:
        message = str(error)
    except Exception:  # the message is rendered by Java, which may have been killed
        message = f"{type(error).__name__}: Java ended without an error message"
    damaged = any(map(message.__contains__, _DAMAGED))
    remedy = " (a table is incomplete or damaged: ingest the logs again)" if damaged else ""
    return Failure(f"Spark: {reason(message)}{remedy}")


def reason(message: str) -> str:
    """Returns the line that names the cause, of a message with the stack traces of two languages."""
    if "JAVA_GATEWAY_EXITED" in message:
        return "Java ended at start; its output is above: check that --memory is available, and run `kactl doctor`"
    # The last line of a Python worker's traceback names the exception.
    _, _, python = message.partition("Traceback (most recent call last):\n")
    for lines in (python.splitlines(), message.splitlines()):
        for line in lines:
            if re.match(r"(: )?[\w.$]*(Exception|Error)\b", line):
                return line.removeprefix(": ").strip()
    return next((line.strip() for line in message.splitlines() if line.strip()), "there is no error message")


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """End on SIGTERM as on Ctrl-C, so that no partly written or temporary files remain. Only the main thread can."""

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
    """Yield a callback that shows the progress of a job in one line of stderr; it does nothing without a terminal."""
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
    """Returns the progress shortened to one row of the terminal; a line of several rows could not be overwritten."""
    name, room = output.harmless(step), columns - 1 - len(share)
    if room < 2:
        return name[: max(0, columns - 1)]
    return (name if len(name) <= room else f"{name[: room - 1]}…") + share


def _columns() -> int:
    """Returns the width of the terminal on stderr, which may differ from stdout."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


# -- output ---------------------------------------------------------------------------------------------------

_HEADER: Final = ("FILE", "KIND", "VERSION", "BROKER", "LEVELS", "BEGIN", "END", "LINES", "UNPARSED", "COVERAGE")


def _show(settings: Settings, ingested: "Ingested", logs: tuple[str, ...], form: str) -> None:
    if not settings.printed(ingested, ingested.files):
        shown = [file for file in ingested.files if file.is_log or settings.verbose or failed(file, logs)]
        output.print_lines(output.table(_HEADER, map(_row, shown)))
        for line in remarks(ingested.files):
            settings.note(line)
        if len(shown) < len(ingested.files):
            hidden = output.count(len(ingested.files) - len(shown), "other file")
            settings.note(f"Not shown: {hidden}, empty or not a log of Kafka; -v lists all files.")


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


def remarks(files: Iterable["FileReport"]) -> Iterator[str]:
    """Yield each distinct error, warning and unparsed sample once, with the files that it concerns."""
    paths_of: dict[str, list[str]] = {}
    for file in files:
        for remark in (*([] if file.error is None else [file.error]), *file.warnings):
            paths_of.setdefault(remark, []).append(file.path)
        for sample in file.samples:
            paths_of.setdefault(f"not parsed, for example: {output.harmless(sample[:160])}", []).append(file.path)
    for remark, paths in paths_of.items():
        more = f" and {output.count(len(paths) - 1, 'more file')}" if len(paths) > 1 else ""
        yield f"{output.harmless(paths[0])}{more}: {remark}"


def _sums(ingested: "Ingested") -> str:
    manifest = ingested.manifest
    return (
        f"{output.count(manifest.files, 'file')}, {output.count(manifest.lines, 'line')}, "
        f"{manifest.events:,} of them parsed, {manifest.unparsed:,} not"
    )


def failed(item: "FileReport", logs: tuple[str, ...]) -> bool:
    """Returns whether a file is an error: unreadable, or named and not a log. Folders may contain other files."""
    if item.error is None:
        return False
    return str(item.kind) != "foreign" or item.path in {path.rstrip("/") for path in logs}
