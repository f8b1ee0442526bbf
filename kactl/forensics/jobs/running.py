"""Run jobs, several at once, each as soon as the tables that it needs exist.

With few logs most of a job's time is spent in Spark's driver, in one thread for each job; with many logs it is work
that Spark distributes. A job therefore never waits for a job that it does not need.

A job reads the stored results of other jobs, so nothing is computed twice.
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
from kactl.forensics.spark_calls import name_call_site
from kactl.forensics.storage import Location, lock_folder
from kactl.forensics.tables import JOBS_FOLDER, JOBS_MANIFEST, JOBS_WORK, count_files, open_tables

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
            ran = _Running(spark, work, given(tables), on_progress).all(jobs, at_once)
            manifest = ResultsManifest(
                made_by=metadata.version("kactl"), time_ms=_now_ms(), ingest=tables.manifest, jobs=ran
            )
            _put_in_place(work, place, manifest)
        finally:
            work.remove()
    return open_results(spark, folder)


class _Running:
    """Jobs of one call, each in its own thread.

    Args:
        work: folder for the results.
        views: existing tables.
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
        running: dict[Future[Ran], Job] = {}
        with ThreadPoolExecutor(at_once, thread_name_prefix="kactl-job") as pool:
            try:
                while left or running:
                    for job in [candidate for candidate in left if needs(candidate) <= ran.keys()]:
                        left.remove(job)
                        running[pool.submit(self._run, job)] = job
                    for ended in wait(running, return_when=FIRST_COMPLETED).done:
                        job = running.pop(ended)
                        ran[job.name] = ended.result()
                        self._views[job.name] = table(self._spark, job, self._work)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                # Repeatedly: a job that was planning submits work to Spark only now.
                while not all(candidate.done() for candidate in running):
                    self._spark.sparkContext.cancelJobsWithTag(self._tag)
                    time.sleep(_STOP_S)
                raise
        return {job.name: ran[job.name] for job in jobs}

    def _run(self, job: Job) -> Ran:
        # Tags are per thread, and so apply to all work that this thread submits.
        self._spark.sparkContext.addJobTag(self._tag)
        name_call_site(self._spark, job.name)
        with self._steps.step(self._spark, job.name):
            begin = time.monotonic_ns()
            counted = Observation(job.name)
            result = job.run(*(self._views[name] for name in job.needs))
            result.observe(counted, f.count(f.lit(1)).alias("rows")).write.parquet(f"{self._work.uri}/{job.name}")
            took_ms = (time.monotonic_ns() - begin) // 1_000_000
            return Ran(rows=counted.get["rows"], took_ms=took_ms, parts=count_files(self._work / job.name))


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
