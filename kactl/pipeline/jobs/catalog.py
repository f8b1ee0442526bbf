"""All jobs, in an order in which each finds what it needs; run together, and opened afterwards.

    DIR/jobs/NAME/*.parquet     one table for each job
    DIR/jobs.json               written last: of which ingest they were made; without it nothing there is whole

A job reads what others have returned from where it was written, so nothing is computed twice. `timed` is no table: it
is as large as the events, and made of them, `skew` and `lives` by whoever reads it.
"""

import dataclasses
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Final

import msgspec

from kactl.errors import BadRequest
from kactl.pipeline import progress
from kactl.pipeline.places import Place
from kactl.pipeline.tables import (
    EVENTS,
    FILES,
    JOBS_FOLDER,
    JOBS_MANIFEST,
    JOBS_WORK,
    LEVELS,
    Manifest,
    Tables,
    open_tables,
)

from . import (
    absences,
    audit,
    churn,
    controllers,
    deletions,
    flapping,
    leadership,
    lives,
    losses,
    outages,
    reassignments,
    requests,
    skew,
    states,
    turns,
    unclean,
)
from .job import Job
from .timed import timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Rises whenever a job's columns or their meaning change; what another version has written is made anew.
RESULTS_VERSION: Final = 1
TIMED: Final = "timed"
# What jobs can need besides each other.
GIVEN: Final = (EVENTS, FILES, LEVELS, TIMED)
JOBS: Final[tuple[Job, ...]] = (
    skew.JOB,
    lives.JOB,
    states.JOB,
    leadership.JOB,
    absences.JOB,
    outages.JOB,
    unclean.JOB,
    turns.JOB,
    losses.JOB,
    churn.JOB,
    flapping.JOB,
    controllers.JOB,
    requests.JOB,
    deletions.JOB,
    reassignments.JOB,
    audit.JOB,
)
_FOR_TIMED: Final = frozenset({skew.JOB.name, lives.JOB.name})


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How one job went: rows that it returned, and what it took."""

    rows: int
    took_ms: int


class ResultsManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What is written last.

    Attributes:
        results_version: see `RESULTS_VERSION`.
        made_by: kactl's version.
        time_ms: when it was made, ms since 1970.
        ingest: what the tables were that the jobs were run on.
        jobs: those that were run, by name.
    """

    results_version: int = RESULTS_VERSION
    made_by: str
    time_ms: int
    ingest: Manifest
    jobs: dict[str, Ran]


class NoResults(BadRequest):
    """The jobs were not run on the tables in a folder, or on other ones, or not all of them."""


class NoSuchJob(BadRequest):
    """There is no job of this name."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Results(Mapping[str, "DataFrame"]):
    """The tables of an ingest and what the jobs made of them, by name. Nothing is read before something is asked.

    Attributes:
        tables: of the ingest.
        manifest: of the jobs.
        views: everything: `events`, `files`, `levels`, `timed`, and each job that was run.
    """

    folder: str
    tables: Tables
    manifest: ResultsManifest
    views: "Mapping[str, DataFrame]"

    def __getitem__(self, name: str) -> "DataFrame":
        """
        Raises:
            NoResults: it was not run.
            NoSuchJob: there is none of this name.
        """
        if name in self.views:
            return self.views[name]
        find(name)
        raise NoResults(self.folder, f"{name} was not run: {_remedy(self.folder)}")

    def __contains__(self, name: object) -> bool:
        return name in self.views  # a Mapping would ask for it, and what was not run is no KeyError

    def __iter__(self) -> Iterator[str]:
        return iter(self.views)

    def __len__(self) -> int:
        return len(self.views)


def find(name: str) -> Job:
    """The job of a name.

    Raises:
        NoSuchJob: and which there are.
    """
    for job in JOBS:
        if job.name == name:
            return job
    raise NoSuchJob("job", f"there is no {name}: there are {', '.join(each.name for each in JOBS)}")


def wanted(only: Collection[str] | None) -> tuple[Job, ...]:
    """The jobs of these names and those they need, in order; all if None.

    Raises:
        NoSuchJob: a name is of none.
    """
    names = {each.name for each in JOBS} if only is None else {find(name).name for name in only}
    for job in reversed(JOBS):
        if job.name in names:
            names |= _needs(job)
    return tuple(job for job in JOBS if job.name in names)


def run_jobs(
    spark: "SparkSession",
    folder: str,
    *,
    only: Collection[str] | None = None,
    tell: progress.Tell = progress.nobody,
) -> Results:
    """Run jobs on the tables of an ingest and keep what they return beside them; what stood there before goes, as one.

    Args:
        folder: where `ingest` has written; `DIR/jobs` and `DIR/jobs.json` are ours.
        only: the names of those that are wanted; what they need runs too. None is all.

    Raises:
        NotIngested: there are no tables, see `tables.open_tables`.
        NoSuchJob: see `wanted`.
    """
    jobs = wanted(only)
    tables = open_tables(spark, folder)
    place = Place(folder)
    work = place / f"{JOBS_WORK}{uuid.uuid4().hex[:12]}"
    ran: dict[str, Ran] = {}
    try:
        work.make()
        views = given(tables)
        for job in jobs:
            with progress.step(spark, job.name, tell):
                ran[job.name] = _run(job, views, work)
            _add(spark, views, job, work)
        manifest = ResultsManifest(
            made_by=metadata.version("kactl"), time_ms=_now_ms(), ingest=tables.manifest, jobs=ran
        )
        _put_in_place(work, place, manifest)
    finally:
        work.remove()
    return open_results(spark, folder)


def open_results(spark: "SparkSession", folder: str) -> Results:
    """What the jobs made of the tables in a folder.

    Raises:
        NotIngested: there are no tables, see `tables.open_tables`.
        NoResults: the jobs were not run on them, or by another version of kactl.
    """
    tables = open_tables(spark, folder)
    place = Place(folder)
    manifest = _read_manifest(place, tables.manifest)
    views = given(tables)
    for job in JOBS:
        if job.name in manifest.jobs:
            _add(spark, views, job, place / JOBS_FOLDER)
    return Results(folder, tables, manifest, views)


def given(tables: Tables) -> "dict[str, DataFrame]":
    """What jobs find before any of them has run."""
    return {EVENTS: tables.events, FILES: tables.files, LEVELS: tables.levels}


# -- steps -------------------------------------------------------------------------------------------------------------


def _needs(job: Job) -> set[str]:
    """The jobs that one needs itself."""
    needs = set(job.needs)
    return (needs | _FOR_TIMED if TIMED in needs else needs) - set(GIVEN)


def _run(job: Job, views: "Mapping[str, DataFrame]", work: Place) -> Ran:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    begin = time.monotonic_ns()
    counted = Observation(job.name)
    made = job.run(*(views[name] for name in job.needs)).observe(counted, f.count(f.lit(1)).alias("rows"))
    made.write.parquet(f"{work.uri}/{job.name}")
    return Ran(rows=counted.get["rows"], took_ms=(time.monotonic_ns() - begin) // 1_000_000)


def _add(spark: "SparkSession", views: "dict[str, DataFrame]", job: Job, folder: Place) -> None:
    """A job's table, to be read from where it was written; with the last of those it is made of comes `timed`."""
    views[job.name] = spark.read.schema(job.spark_schema).parquet(f"{folder.uri}/{job.name}")
    if job.name in _FOR_TIMED and views.keys() >= _FOR_TIMED:
        views[TIMED] = timed(views[EVENTS], views[skew.JOB.name], views[lives.JOB.name])


def _put_in_place(work: Place, place: Place, manifest: ResultsManifest) -> None:
    """From the first step on until the last, the folder holds no results as far as anybody can see."""
    (place / JOBS_MANIFEST).remove()
    (place / JOBS_FOLDER).remove()
    work.move_to(place / JOBS_FOLDER)
    for name in place.names():
        if name.startswith(JOBS_WORK):
            (place / name).remove()  # of those that were killed before us
    (place / JOBS_MANIFEST).write(msgspec.json.format(msgspec.json.encode(manifest)))


def _read_manifest(place: Place, ingest: Manifest) -> ResultsManifest:
    folder = str(place)
    try:
        with (place / JOBS_MANIFEST).open() as file:
            manifest = msgspec.json.decode(file.read(), type=ResultsManifest)
    except OSError:
        raise NoResults(folder, f"holds tables, but no whole results of them: {_remedy(folder)}") from None
    except msgspec.DecodeError:
        raise NoResults(folder, f"{JOBS_MANIFEST} is not what the jobs write: {_remedy(folder)}") from None
    if manifest.results_version != RESULTS_VERSION:
        raise NoResults(
            folder,
            f"kactl {manifest.made_by} wrote results of version {manifest.results_version}, and this one reads version "
            f"{RESULTS_VERSION}: {_remedy(folder)}",
        )
    if manifest.ingest != ingest:
        raise NoResults(folder, f"the logs were ingested anew since the results were made: {_remedy(folder)}")
    return manifest


def _remedy(folder: str) -> str:
    return f"make them with `kactl forensics report --dir {folder}`"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
