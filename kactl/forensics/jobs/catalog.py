"""All jobs, in an order in which each finds what it needs; and what they returned, opened. `running` runs them.

DIR/jobs/NAME/*.parquet     one table for each job
DIR/jobs.json               written last: of which ingest they were made; without it nothing there is whole
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from kactl.errors import BadRequest
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
    timed,
    turns,
    unclean,
)
from .job import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Rises whenever a job's columns or their meaning change; what another version has written is made anew.
RESULTS_VERSION: Final = 4
# What jobs can need besides each other.
GIVEN: Final = (EVENTS, FILES, LEVELS)
JOBS: Final[tuple[Job, ...]] = (
    skew.JOB,
    lives.JOB,
    timed.JOB,
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


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How one job went: rows that it returned, what it took, and in how many files they are; see `Manifest.parts`."""

    rows: int
    took_ms: int
    parts: int = 0


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
        views: everything: `events`, `files`, `levels`, and each job that was run.
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


def needs(job: Job) -> set[str]:
    """The jobs that one needs itself."""
    return set(job.needs) - set(GIVEN)


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
            names |= needs(job)
    return tuple(job for job in JOBS if job.name in names)


def open_results(spark: "SparkSession", folder: str) -> Results:
    """What the jobs made of the tables in a folder.

    Raises:
        NotIngested: there are no tables, see `tables.open_tables`.
        NoResults: the jobs were not run on them, or by another version of kactl.
    """
    tables = open_tables(spark, folder)
    place = Location(folder)
    manifest = _read_manifest(place, tables.manifest)
    views = given(tables)
    kept = place / JOBS_FOLDER
    for job in JOBS:
        if job.name in manifest.jobs:
            views[job.name] = table(spark, job, kept)
    return Results(folder, tables, manifest, views)


def given(tables: Tables) -> "dict[str, DataFrame]":
    """What jobs find before any of them has run."""
    return {EVENTS: tables.events, FILES: tables.files, LEVELS: tables.levels}


def table(spark: "SparkSession", job: Job, folder: Location) -> "DataFrame":
    """What a job has written into a folder."""
    return parquet_reader(spark).schema(job.spark_schema).parquet(f"{folder.uri}/{job.name}")


# -- steps -------------------------------------------------------------------------------------------------------------


def _read_manifest(place: Location, ingest: Manifest) -> ResultsManifest:
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
    for name, ran in manifest.jobs.items():
        there = count_files(place / JOBS_FOLDER / name)
        if there < ran.parts:
            raise NoResults(folder, f"of the {ran.parts} files of {name} there are {there}: {_remedy(folder)}")
    return manifest


def _remedy(folder: str) -> str:
    return f"make them with `kactl forensics report --dir {folder}`"
