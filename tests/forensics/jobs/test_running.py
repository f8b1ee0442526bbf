"""Concurrent jobs: each runs after its dependencies, and all results are stored or none."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from kactl.forensics.columns import columns
from kactl.forensics.ingest import ingest
from kactl.forensics.jobs import catalog
from kactl.forensics.jobs.catalog import open_results
from kactl.forensics.jobs.job import Job
from kactl.forensics.jobs.running import run_jobs
from kactl.forensics.jobs.skew import JOB as SKEW

from . import said

LIMIT_S = 60.0


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> str:
    log = tmp_path / "state-change.log"
    log.write_text(said.new(0, "a-0", (1, 2)))
    ingest(spark, [str(log)], str(tmp_path / "out"))
    return str(tmp_path / "out")


def job(name: str, run: Callable[..., DataFrame]) -> Job:
    return Job(name=name, description="A number.", columns=columns("number long a number"), run=run)


def one(spark: SparkSession) -> DataFrame:
    return spark.range(1).withColumnRenamed("id", "number")


def test_independent_jobs_run_concurrently(spark: SparkSession, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    met = threading.Barrier(2, timeout=LIMIT_S)

    def meet(events: DataFrame) -> DataFrame:
        met.wait()
        return one(spark)

    monkeypatch.setattr(catalog, "JOBS", (job("left", meet), job("right", meet)))

    assert set(run_jobs(spark, folder).manifest.jobs) == {"left", "right"}


def test_job_waits_for_all_that_it_needs(spark: SparkSession, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def more(left: DataFrame, right: DataFrame) -> DataFrame:
        return left.union(right).selectExpr("sum(number) + 1 as number")

    jobs = (
        job("left", lambda events: one(spark)),
        job("right", lambda events: one(spark)),
        job("both", more),
    )
    monkeypatch.setattr(catalog, "JOBS", jobs)

    for at_once in (1, 4):
        results = run_jobs(spark, folder, at_once=at_once)

        assert list(results.manifest.jobs) == ["left", "right", "both"]
        assert [row["number"] for row in results["both"].collect()] == [1]


@pytest.mark.parametrize("asks_again", [False, True])
def test_failed_job_stops_others_and_keeps_old_results(
    spark: SparkSession, folder: str, asks_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run_jobs(spark, folder, only=["skew"]).manifest
    tracker = spark.sparkContext.statusTracker()

    def endless(events: DataFrame) -> DataFrame:
        # One task, so that the other jobs have a free slot.
        made = spark.range(0, 10**15, 1, 1).selectExpr("sum(id % 7) as number")
        if asks_again:
            with pytest.raises(Py4JJavaError, match="cancelled"):
                made.collect()
        return made

    def fails(skew: DataFrame) -> DataFrame:
        deadline = time.monotonic() + LIMIT_S
        while not tracker.getActiveJobsIds() and time.monotonic() < deadline:
            time.sleep(0.01)
        raise RuntimeError("it cannot be done")

    jobs = (SKEW, job("endless", endless), job("broken", fails))
    monkeypatch.setattr(catalog, "JOBS", jobs)

    with pytest.raises(RuntimeError, match="it cannot be done"):
        run_jobs(spark, folder)

    assert tracker.getActiveJobsIds() == []
    assert open_results(spark, folder).manifest == before
    assert sorted(each.name for each in Path(folder).iterdir()) == [
        "events", "files", "ingest.json", "jobs", "jobs.json", "levels",
    ]  # fmt: skip
