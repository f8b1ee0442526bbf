"""Options and inputs shared by the commands of `kactl forensics`: the folder, results of the jobs, times, Spark."""

import contextlib
import datetime
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Final

import click

from kactl.model.errors import BadRequest, KactlError

from . import forensics
from .common_options import Settings
from .exits import Exit, Failure, of_system
from .option_types import NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kactl.forensics.jobs.catalog import Results
    from kactl.forensics.tables import Manifest
    from kactl.forensics.wording import Moments

# Times of these years can be converted to every time zone, by Spark as well.
_YEAR_MIN: Final = 1900
_YEAR_MAX: Final = 9000
_FORMS: Final = "2024-05-01, 2024-05-01 10:00 or 2024-05-01T10:00:00.123+02:00"


def folder_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that selects the ingested folder."""
    return click.option(
        "--dir",
        "folder",
        type=NAME,
        default=forensics.OUT,
        show_default=True,
        metavar="DIR",
        help="Folder written by `ingest`.",
    )(command)


def time_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a time interval, and of the time zone of input and output."""
    for option in (
        click.option("--tz", metavar="ZONE", help="Time zone of input and output.  [that of the logs]"),
        click.option("--to", "end", metavar="TIME", help="Only what began before this time."),
        click.option("--from", "begin", metavar="TIME", help="Only what ended after this time."),
    ):
        command = option(command)
    return command


@contextlib.contextmanager
def errors_translated() -> Iterator[None]:
    """Translate kactl's errors and errors of the file system into failures of the command.

    Raises:
        Failure: USAGE for an invalid request; FAILED for all others.
    """
    try:
        yield
    except BadRequest as error:
        raise Failure(str(error), Exit.USAGE) from None
    except KactlError as error:
        raise Failure(str(error)) from None
    except BrokenPipeError:
        raise  # the reader of stdout has closed it
    except OSError as error:
        raise of_system(error, "this machine") from None


def manifest_of(folder: str) -> "Manifest":
    """Returns the manifest of an ingested folder. It is read before Spark is started, which takes seconds.

    Raises:
        NotIngested: the folder has no tables.
    """
    from kactl.forensics.storage import Location
    from kactl.forensics.tables import read_manifest

    return read_manifest(Location(folder))


def moments_of(manifest: "Manifest | None", tz: str | None) -> "Moments":
    """Returns the format of times: in the time zone of the logs, so that their lines can be found, or in another one.

    Args:
        manifest: None for logs that are not ingested yet; they are read as UTC unless `tz` is given.

    Raises:
        UnknownZone: no time zone has that name.
    """
    from kactl.forensics.wording import Moments

    of_logs = "UTC" if manifest is None else manifest.time_zone
    return Moments(of_logs if tz is None else tz)


def parsed_time(text: str | None, moments: "Moments", option: str, *, latest: bool = False) -> datetime.datetime | None:
    """Returns a time of the command line in UTC; None if it is not given.

    Args:
        latest: whether a time that occurs twice, because clocks were set back, means the second occurrence.

    Raises:
        Failure: USAGE; the text is not a time, or the time was skipped when clocks were set forward.
    """
    if text is None:
        return None
    try:
        time = datetime.datetime.fromisoformat(text.strip().replace(",", "."))
    except ValueError:
        raise Failure(f"{option}: {text!r} is not a time: write it as {_FORMS}", Exit.USAGE) from None
    if not _YEAR_MIN <= time.year <= _YEAR_MAX:
        raise Failure(f"{option}: the year {time.year} is out of range: write a time as {_FORMS}", Exit.USAGE)
    if time.tzinfo is not None:
        return time.astimezone(datetime.UTC)
    in_utc = time.replace(tzinfo=moments.zone, fold=int(latest)).astimezone(datetime.UTC)
    if in_utc.astimezone(moments.zone).replace(tzinfo=None) != time:
        raise Failure(
            f"{option}: {text.strip()} does not exist in {moments.name}: clocks were set forward over it; write "
            f"an earlier or later time, or add an offset, as in {time.isoformat(sep=' ')}+02:00",
            Exit.USAGE,
        )
    return in_utc


def parsed_interval(begin: str | None, end: str | None, moments: "Moments") -> tuple[datetime.datetime | None, ...]:
    """Returns the begin and end of an interval in UTC.

    Raises:
        Failure: USAGE; one is not a time, or the end is not after the begin.
    """
    first, last = parsed_time(begin, moments, "--from"), parsed_time(end, moments, "--to", latest=True)
    if first is not None and last is not None and last <= first:
        raise Failure(f"--to: {end} is not after {begin}, so the interval is empty", Exit.USAGE)
    return first, last


@contextlib.contextmanager
def spark_for(
    settings: Settings, master: str, memory: str, *, events: int | None = None
) -> "Iterator[tuple[SparkSession, Any]]":
    """Run Spark; yields its session and the progress callback. `events` as in `forensics.session`."""
    with forensics.session(master, memory, events=events) as spark, forensics.shown_progress(settings) as on_progress:
        yield spark, on_progress


@contextlib.contextmanager
def started(
    session: "contextlib.AbstractContextManager[tuple[SparkSession, Any]]",
) -> "Iterator[Callable[[], tuple[SparkSession, Any]]]":
    """Start Spark in another thread, while the caller does what needs no Spark. Yields a function that waits for it."""
    import pyspark.sql  # noqa: F401, because its modules import each other, which two threads must not do at a time

    with forensics.ended_by_sigterm(), ThreadPoolExecutor(1, "kactl-spark") as pool, contextlib.ExitStack() as opened:
        starting = pool.submit(opened.enter_context, session)
        try:
            yield starting.result
        finally:
            wait([starting])


def job_results(spark: "SparkSession", folder: str, on_progress: Callable[[str, int, int], None]) -> "Results":
    """Returns the results of the jobs. Jobs without results for these logs are run."""
    from kactl.forensics.jobs.catalog import JOBS, NoResults, open_results
    from kactl.forensics.jobs.running import run_jobs

    try:
        results = open_results(spark, folder)
    except NoResults:
        return run_jobs(spark, folder, on_progress=on_progress)
    if all(job.name in results for job in JOBS):
        return results
    return run_jobs(spark, folder, on_progress=on_progress)
