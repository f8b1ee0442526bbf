"""What `kactl forensics report`, `timeline` and `sql` have in common: the folder, the jobs' answers, times as typed."""

import contextlib
import datetime
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from kactl.errors import BadRequest, KactlError

from . import forensics
from .exits import Exit, Failure, of_system
from .names import NAME
from .settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kactl.forensics.jobs.catalog import Results
    from kactl.forensics.report.wording import Moments
    from kactl.forensics.tables import Manifest

# In each of them a time has a neighbour in every zone, and Spark knows it as well.
_YEAR_MIN: Final = 1900
_YEAR_MAX: Final = 9000
_FORMS: Final = "2024-05-01, 2024-05-01 10:00 or 2024-05-01T10:00:00.123+02:00"


def folder_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which ingest is asked."""
    return click.option(
        "--dir",
        "folder",
        type=NAME,
        default=forensics.OUT,
        show_default=True,
        metavar="DIR",
        help="Where `ingest` has written.",
    )(command)


def time_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A stretch of time, and the zone in which times are read and printed."""
    for option in (
        click.option("--tz", metavar="ZONE", help="The zone of times printed and given.  [that of the logs]"),
        click.option("--to", "end", metavar="TIME", help="Only what was going on before it."),
        click.option("--from", "begin", metavar="TIME", help="Only what was going on after it."),
    ):
        command = option(command)
    return command


@contextlib.contextmanager
def errors_said() -> Iterator[None]:
    """Our own errors as the command line says them.

    Raises:
        Failure: USAGE for what was asked wrongly; FAILED for what else is of ours, or of the system's files.
    """
    try:
        yield
    except BadRequest as error:
        raise Failure(str(error), Exit.USAGE) from None
    except KactlError as error:
        raise Failure(str(error)) from None
    except BrokenPipeError:
        raise  # whoever reads what is printed has seen enough
    except OSError as error:
        raise of_system(error, "this machine") from None


def manifest_of(folder: str) -> "Manifest":
    """What was ingested, before seconds are spent on starting Spark.

    Raises:
        NotIngested: there is nothing to ask.
    """
    from kactl.forensics.storage import Location
    from kactl.forensics.tables import read_manifest

    return read_manifest(Location(folder))


def moments_of(manifest: "Manifest", tz: str | None) -> "Moments":
    """Times as they are printed: in the logs' own zone, so that the lines can be found again, or in another one.

    Raises:
        UnknownZone: there is none of that name.
    """
    from kactl.forensics.report.wording import Moments

    return Moments(manifest.time_zone if tz is None else tz)


def time_typed(text: str | None, moments: "Moments", option: str, *, latest: bool = False) -> datetime.datetime | None:
    """A time as typed, in UTC.

    Args:
        latest: which one is meant where clocks were set back and a time is there twice: the second, or else the first.

    Raises:
        Failure: USAGE, it is none, or clocks were set forward over it.
    """
    if text is None:
        return None
    try:
        time = datetime.datetime.fromisoformat(text.strip().replace(",", "."))
    except ValueError:
        raise Failure(f"{option}: {text!r} is no time: write one as {_FORMS}", Exit.USAGE) from None
    if not _YEAR_MIN <= time.year <= _YEAR_MAX:
        raise Failure(f"{option}: no log is of the year {time.year}: write a time as {_FORMS}", Exit.USAGE)
    if time.tzinfo is not None:
        return time.astimezone(datetime.UTC)
    at = time.replace(tzinfo=moments.zone, fold=int(latest)).astimezone(datetime.UTC)
    if at.astimezone(moments.zone).replace(tzinfo=None) != time:
        raise Failure(
            f"{option}: there is no {text.strip()} in {moments.name}, where clocks were set forward over it: "
            f"write an earlier or later time, or one with its offset, as {time.isoformat(sep=' ')}+02:00",
            Exit.USAGE,
        )
    return at


def times_typed(begin: str | None, end: str | None, moments: "Moments") -> tuple[datetime.datetime | None, ...]:
    """Both ends of a stretch.

    Raises:
        Failure: USAGE, one is no time, or they are the wrong way round.
    """
    first, last = time_typed(begin, moments, "--from"), time_typed(end, moments, "--to", latest=True)
    if first is not None and last is not None and last <= first:
        raise Failure(f"--to: {end} is not after {begin}, so nothing lies in between", Exit.USAGE)
    return first, last


@contextlib.contextmanager
def spark_for(
    settings: Settings, master: str, memory: str, *, events: int | None = None
) -> "Iterator[tuple[SparkSession, Any]]":
    """Spark, and whom to tell how far it is; `events` as in `forensics.session`."""
    with forensics.session(master, memory, events=events) as spark, forensics.shown_progress(settings) as on_progress:
        yield spark, on_progress


def answers(spark: "SparkSession", folder: str, on_progress: Callable[[str, int, int], None]) -> "Results":
    """The jobs' answers; the jobs are run if they were not yet, or on other logs."""
    from kactl.forensics.jobs.catalog import JOBS, NoResults, open_results
    from kactl.forensics.jobs.running import run_jobs

    try:
        results = open_results(spark, folder)
    except NoResults:
        return run_jobs(spark, folder, on_progress=on_progress)
    if all(job.name in results for job in JOBS):
        return results
    return run_jobs(spark, folder, on_progress=on_progress)
