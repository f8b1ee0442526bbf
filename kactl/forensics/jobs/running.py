"""Running jobs: several at once, each as soon as what it needs is there.

On a few logs most of a job's time is Spark's driver thinking, one thread for each job; on many it is work, which Spark
shares out as it comes. So nobody waits for the one before who does not need it.

A job reads what others have returned from where it was written, so nothing is computed twice.
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
from kactl.forensics.folder_lock import lock_folder
from kactl.forensics.storage import Location
from kactl.forensics.tables import JOBS_FOLDER, JOBS_MANIFEST, JOBS_WORK, count_files, open_tables

from .catalog import Ran, Results, ResultsManifest, given, needs, open_results, table, wanted
from .job import Job

# More would wait for each other anyway.
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
    """Run jobs on the tables of an ingest and keep what they return beside them; what stood there before goes, as one.

    Args:
        folder: where `ingest` has written; `DIR/jobs` and `DIR/jobs.json` are ours.
        only: the names of those that are wanted; what they need runs too. None is all.
        at_once: so many of them, at the most.

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
    """The jobs of one call, each in a thread of its own.

    Args:
        work: where they write.
        views: what is there already.
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
        """Run them; those that come first go first, where several could begin. Their names are in that order, too.

        Raises:
            Exception: what one of them raised; the others were stopped.
        """
        left = list(jobs)
        ran: dict[str, Ran] = {}
        running: dict[Future[Ran], Job] = {}
        with ThreadPoolExecutor(at_once, thread_name_prefix="kactl-job") as pool:
            try:
                while left or running:
                    for job in [each for each in left if needs(each) <= ran.keys()]:
                        left.remove(job)
                        running[pool.submit(self._run, job)] = job
                    for ended in wait(running, return_when=FIRST_COMPLETED).done:
                        job = running.pop(ended)
                        ran[job.name] = ended.result()
                        self._views[job.name] = table(self._spark, job, self._work)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                # Again and again: one that was thinking meanwhile asks Spark for something only now.
                while not all(each.done() for each in running):
                    self._spark.sparkContext.cancelJobsWithTag(self._tag)
                    time.sleep(_STOP_S)
                raise
        return {job.name: ran[job.name] for job in jobs}

    def _run(self, job: Job) -> Ran:
        # Of this thread, and so of what it asks Spark for.
        self._spark.sparkContext.addJobTag(self._tag)
        with self._steps.step(self._spark, job.name):
            begin = time.monotonic_ns()
            counted = Observation(job.name)
            made = job.run(*(self._views[name] for name in job.needs))
            made.observe(counted, f.count(f.lit(1)).alias("rows")).write.parquet(f"{self._work.uri}/{job.name}")
            took_ms = (time.monotonic_ns() - begin) // 1_000_000
            return Ran(rows=counted.get["rows"], took_ms=took_ms, parts=count_files(self._work / job.name))


def _put_in_place(work: Location, place: Location, manifest: ResultsManifest) -> None:
    """From the first step on until the last, the folder holds no results as far as anybody can see."""
    (place / JOBS_MANIFEST).remove()
    (place / JOBS_FOLDER).remove()
    work.move_to(place / JOBS_FOLDER)
    for name in place.names():
        if name.startswith(JOBS_WORK):
            (place / name).remove()  # of those that were killed before us
    (place / JOBS_MANIFEST).write(msgspec.json.format(msgspec.json.encode(manifest)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
