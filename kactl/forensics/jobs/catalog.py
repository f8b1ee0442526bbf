"""Catalog of all jobs, and access to their results. `running` runs them.

A job in `JOBS` comes after every job that it needs.

DIR/jobs/NAME/*.parquet     one table for each job
DIR/jobs.json               written last: names the ingest that the results belong to; without it the results are
incomplete
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from kactl.forensics.storage import Location
from kactl.forensics.tables import (
    EVENTS,
    FILES,
    JOBS_FOLDER,
    JOBS_MANIFEST,
    LEVELS,
    Manifest,
    Tables,
    count_files,
    open_tables,
    parquet_reader,
    undivided_if_small,
)
from kactl.model.errors import BadRequest

from . import (
    absences,
    audit,
    churn,
    controllers,
    deletions,
    flapping,
    leadership,
    log_segments,
    losses,
    outages,
    reassignments,
    requests,
    skew,
    states,
    timed,
    topic_incarnations,
    unclean,
)
from .job import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Increased whenever the columns of a job or their meaning change; results of other versions are computed again.
RESULTS_VERSION: Final = 4
# Tables that jobs can need besides those of other jobs.
GIVEN: Final = (EVENTS, FILES, LEVELS)
JOBS: Final[tuple[Job, ...]] = (
    skew.JOB,
    topic_incarnations.JOB,
    timed.JOB,
    states.JOB,
    leadership.JOB,
    absences.JOB,
    outages.JOB,
    unclean.JOB,
    log_segments.JOB,
    losses.JOB,
    churn.JOB,
    flapping.JOB,
    controllers.JOB,
    requests.JOB,
    deletions.JOB,
    reassignments.JOB,
    audit.JOB,
)


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one job: number of rows, duration, and number of files; see `Manifest.parts`."""

    rows: int
    took_ms: int
    parts: int = 0


class ResultsManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Manifest of the results, written last.

    Attributes:
        results_version: see `RESULTS_VERSION`.
        made_by: kactl's version.
        time_ms: when the results were written, ms since 1970.
        ingest: manifest of the tables that the jobs ran on.
        jobs: the jobs that ran, by name.
    """

    results_version: int = RESULTS_VERSION
    made_by: str
    time_ms: int
    ingest: Manifest
    jobs: dict[str, Ran]


class NoResults(BadRequest):
    """The jobs did not run on the tables of a folder, or ran on other tables, or only some of them ran."""


class NoSuchJob(BadRequest):
    """There is no job of this name."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Results(Mapping[str, "DataFrame"]):
    """Tables of an ingest and results of the jobs, by name. Nothing is read until a result is used.

    Attributes:
        tables: tables of the ingest.
        manifest: manifest of the jobs.
        views: `events`, `files`, `levels`, and the result of each job that ran.
    """

    folder: str
    tables: Tables
    manifest: ResultsManifest
    views: "Mapping[str, DataFrame]"

    def __getitem__(self, name: str) -> "DataFrame":
        """Raises:
        NoResults: the job did not run.
        NoSuchJob: there is no such job.
        """
        if name in self.views:
            return self.views[name]
        find(name)
        raise NoResults(self.folder, f"job {name} was not run: {_remedy(self.folder)}")

    def __contains__(self, name: object) -> bool:
        return name in self.views  # Mapping calls __getitem__, which raises NoResults instead of KeyError

    def __iter__(self) -> Iterator[str]:
        return iter(self.views)

    def __len__(self) -> int:
        return len(self.views)


def needs(job: Job) -> set[str]:
    """Returns the jobs that a job needs directly."""
    return set(job.needs) - set(GIVEN)


def find(name: str) -> Job:
    """Returns the job of a name.

    Raises:
        NoSuchJob: there is none; the message lists all names.
    """
    for job in JOBS:
        if job.name == name:
            return job
    raise NoSuchJob("job", f"there is no job {name}: the jobs are {', '.join(job.name for job in JOBS)}")


def wanted(only: Collection[str] | None) -> tuple[Job, ...]:
    """Returns the jobs of these names and all that they need, in order; all jobs if None.

    Raises:
        NoSuchJob: a name is unknown.
    """
    names = {job.name for job in JOBS} if only is None else {find(name).name for name in only}
    for job in reversed(JOBS):
        if job.name in names:
            names |= needs(job)
    return tuple(job for job in JOBS if job.name in names)


def open_results(spark: "SparkSession", folder: str) -> Results:
    """Returns the results of the jobs on the tables in a folder.

    Raises:
        NotIngested: there are no tables, see `tables.open_tables`.
        NoResults: the jobs did not run on them, or were run by another version of kactl.
    """
    tables = open_tables(spark, folder)
    place = Location(folder)
    manifest = _read_manifest(place, tables.manifest)
    views = given(tables)
    folder_of_jobs = place / JOBS_FOLDER
    for job in JOBS:
        if job.name in manifest.jobs:
            views[job.name] = table(spark, job, folder_of_jobs)
    return Results(folder, tables, manifest, views)


def given(tables: Tables) -> "dict[str, DataFrame]":
    """Returns the tables that exist before any job ran."""
    views = {EVENTS: tables.events, FILES: tables.files, LEVELS: tables.levels}
    return {name: undivided_if_small(view) for name, view in views.items()}


def table(spark: "SparkSession", job: Job, folder: Location) -> "DataFrame":
    """Returns the table that a job wrote into a folder."""
    return undivided_if_small(parquet_reader(spark).schema(job.spark_schema).parquet(f"{folder.uri}/{job.name}"))


# -- steps -------------------------------------------------------------------------------------------------------------


def _read_manifest(place: Location, ingest: Manifest) -> ResultsManifest:
    folder = str(place)
    try:
        with (place / JOBS_MANIFEST).open() as file:
            manifest = msgspec.json.decode(file.read(), type=ResultsManifest)
    except OSError:
        raise NoResults(folder, f"has tables, but no complete results: {_remedy(folder)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NoResults(folder, f"{JOBS_MANIFEST} is not a manifest of results: {_remedy(folder)}") from None
    if manifest.results_version != RESULTS_VERSION:
        raise NoResults(
            folder,
            f"kactl {manifest.made_by} wrote results of version {manifest.results_version}, but this version reads "
            f"{RESULTS_VERSION}: {_remedy(folder)}",
        )
    if manifest.ingest != ingest:
        raise NoResults(folder, f"the logs were ingested again after the results were computed: {_remedy(folder)}")
    for name, ran in manifest.jobs.items():
        parts = count_files(place / JOBS_FOLDER / name)
        if parts < ran.parts:
            raise NoResults(folder, f"of the {ran.parts} files of {name} there are {parts}: {_remedy(folder)}")
    return manifest


def _remedy(folder: str) -> str:
    return f"make them with `kactl forensics report --dir {folder}`"
