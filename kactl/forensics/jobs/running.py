"""Run jobs, several at once, each as soon as the tables that it needs exist.

With few logs most of a job's time is spent in Spark's driver, in one thread for each job; with many logs it is work
that Spark distributes. A job therefore never waits for a job that it does not need.

A job reads the stored results of other jobs, so nothing is computed twice. Results for few events are also kept in
memory, for the jobs that need them and for the report.
"""

import time
import uuid
from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from importlib import metadata
from typing import Final

import msgspec
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from kactl.forensics import progress
from kactl.forensics.parquet_writer import write_table
from kactl.forensics.storage import Location, lock_folder
from kactl.forensics.tables import (
    JOBS_FOLDER,
    JOBS_MANIFEST,
    JOBS_WORK,
    Tables,
    count_files,
    is_small,
    kept_if_small,
    of_rows,
    open_tables,
    rows_in_memory,
)
from kactl.model.errors import KactlError

from .catalog import Ran, Results, ResultsManifest, given, needs, open_results, table, wanted
from .job import Job

# More jobs would only wait for each other.
AT_ONCE: Final = 4
_STOP_S: Final = 0.2


def run_jobs(
    spark: SparkSession,
    folder: str,
    *,
    only: Collection[str] | None = None,
    at_once: int = AT_ONCE,
    on_progress: progress.ProgressCallback = progress.no_progress,
) -> Results:
    """Run jobs on the tables of an ingest and store their results in the same folder, replacing earlier results at
    once.

    Args:
        folder: the folder of an ingest; `DIR/jobs` and `DIR/jobs.json` are written.
        only: names of the wanted jobs; the jobs that they need run too. None: all.
        at_once: maximum number of concurrent jobs.

    Raises:
        NotIngested: there are no tables, see `tables.open_tables`.
        NoSuchJob: see `wanted`.
        InUse: another process writes into the folder.
    """
    jobs = wanted(only)
    tables = open_tables(spark, folder)
    place = Location(folder)
    work = place / f"{JOBS_WORK}{uuid.uuid4().hex[:12]}"
    with lock_folder(place):
        try:
            work.make()
            views = _given(spark, tables, place)
            ran = _Running(spark, work, views, on_progress).all(jobs, at_once)
            manifest = ResultsManifest(
                made_by=metadata.version("kactl"), time_ms=_now_ms(), ingest=tables.manifest, jobs=ran
            )
            _put_in_place(work, place, manifest)
        finally:
            work.remove()
    return Results(folder, tables, manifest, views) if is_small(spark) else open_results(spark, folder)


def _given(spark: SparkSession, tables: Tables, place: Location) -> dict[str, DataFrame]:
    """Return the tables that exist before any job ran, in memory if they are small."""
    if is_small(spark) and not place.is_remote:
        return rows_in_memory(spark, place)
    return {name: kept_if_small(view) for name, view in given(tables).items()}


class IncompleteResults(KactlError):
    """Workers of Spark have written results that are not in the folder; earlier results are unchanged."""


class _Running:
    """Jobs of one call, each in its own thread.

    Args:
        work: folder for the results.
        views: existing tables, to which the results are added.
    """

    def __init__(
        self, spark: SparkSession, work: Location, views: dict[str, DataFrame], on_progress: progress.ProgressCallback
    ) -> None:
        self._spark = spark
        self._work = work
        self._views = views
        self._steps = progress.ConcurrentSteps(on_progress)
        self._tag = f"kactl-{uuid.uuid4().hex}"

    def all(self, jobs: Collection[Job], at_once: int) -> dict[str, Ran]:
        """Run the jobs; where several could start, earlier ones start first. Returns results in that order.

        Raises:
            Exception: raised by one of the jobs; the others were stopped.
        """
        left = list(jobs)
        ran: dict[str, Ran] = {}
        running: dict[Future[tuple[Ran, DataFrame]], Job] = {}
        with ThreadPoolExecutor(at_once, thread_name_prefix="kactl-job") as pool:
            try:
                while left or running:
                    for job in [candidate for candidate in left if needs(candidate) <= ran.keys()]:
                        left.remove(job)
                        running[pool.submit(self._run, job)] = job
                    for ended in wait(running, return_when=FIRST_COMPLETED).done:
                        job = running.pop(ended)
                        ran[job.name], self._views[job.name] = ended.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                # Repeatedly: a job that was planning submits work to Spark only now.
                while not all(candidate.done() for candidate in running):
                    self._spark.sparkContext.cancelJobsWithTag(self._tag)
                    time.sleep(_STOP_S)
                raise
        return {job.name: ran[job.name] for job in jobs}

    def _run(self, job: Job) -> tuple[Ran, DataFrame]:
        """Run a job and write its table. Returns also the table, for the jobs that need it."""
        # Tags are per thread, and so apply to all work that this thread submits.
        self._spark.sparkContext.addJobTag(self._tag)
        with self._steps.step(self._spark, job.name):
            begin = time.monotonic_ns()
            result = job.run(*(self._views[name] for name in job.needs))
            rows, view = (self._keep if is_small(self._spark) else self._write)(job, result)
            took_ms = (time.monotonic_ns() - begin) // 1_000_000
            return Ran(rows=rows, took_ms=took_ms, parts=count_files(self._work / job.name)), view

    def _write(self, job: Job, result: DataFrame) -> tuple[int, DataFrame]:
        """Let Spark write a result. Returns the number of rows, and the table."""
        counted = Observation(job.name)
        result.observe(counted, f.count(f.lit(1)).alias("rows")).write.parquet(f"{self._work.uri}/{job.name}")
        rows = counted.get["rows"]
        if rows and not count_files(self._work / job.name):
            raise IncompleteResults(
                f"workers of Spark have written {rows:,} rows of {job.name} that are not in {self._work}: all machines "
                "of --master must see this folder under the same path"
            )
        return rows, table(self._spark, job, self._work)

    def _keep(self, job: Job, result: DataFrame) -> tuple[int, DataFrame]:
        """Write a result of few rows and keep them in memory. Returns the number of rows, and the table."""
        rows = result.select(*job.schema.names).toArrow().cast(job.schema)
        write_table(rows, self._work / job.name)
        return len(rows), of_rows(self._spark, rows)


def _put_in_place(work: Location, place: Location, manifest: ResultsManifest) -> None:
    """Replace the results. From the first to the last step the folder has no valid results for any reader."""
    (place / JOBS_MANIFEST).remove()
    (place / JOBS_FOLDER).remove()
    work.move_to(place / JOBS_FOLDER)
    for name in place.names():
        if name.startswith(JOBS_WORK):
            (place / name).remove()  # left by processes that were killed
    (place / JOBS_MANIFEST).write(msgspec.json.format(msgspec.json.encode(manifest)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
