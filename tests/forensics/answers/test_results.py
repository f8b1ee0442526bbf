"""Results of all jobs on an ingest, and their storage."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from kactl.forensics.ingest import ingest
from kactl.forensics.jobs.catalog import GIVEN, JOBS, NoResults, NoSuchJob, Results, open_results
from kactl.forensics.jobs.job import Job
from kactl.forensics.jobs.running import run_jobs
from kactl.forensics.tables import NotIngested
from kactl.model.errors import BadRequest
from tests.forensics.jobs.tables import line, rows

# Settings of a session for many events that change plans. Code generation and adaptive plans would only take time.
_OF_MANY: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.bypassPartialAggregation": "false",
    "spark.sql.execution.topKSortFallbackThreshold": "2147483632",
    "spark.sql.optimizer.disableHints": "false",
}


def test_all_jobs_run_and_report_progress(results: Results, progress: list[str]) -> None:
    assert {name for step in progress for name in step.split(", ")} == {job.name for job in JOBS}
    assert set(results) == {*GIVEN, *(job.name for job in JOBS)}
    assert list(results.manifest.jobs) == [job.name for job in JOBS]


# Jobs whose plans for many events run in `make test`: with joins, windows, aggregations and Python; `make truth` runs
# those of all.
SHUFFLED: Final = ("skew", "lives", "timed", "states", "leadership", "absences", "outages")
# Jobs, and the fixture with their results.
BY_JOB: Final = [
    *(pytest.param(job, "some_of_many", id=job.name) for job in JOBS if job.name in SHUFFLED),
    *(pytest.param(job, "all_of_many", id=f"{job.name}-of-all", marks=pytest.mark.long) for job in JOBS),
]


@pytest.fixture(scope="module")
def some_of_many(spark: SparkSession, folder: Path, results: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of the results of the shuffled jobs."""
    return _run_with_shuffles(spark, folder, tmp_path_factory.mktemp("some"), SHUFFLED)


@pytest.fixture(scope="module")
def all_of_many(spark: SparkSession, folder: Path, results: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of the results of all jobs."""
    return _run_with_shuffles(spark, folder, tmp_path_factory.mktemp("all"), None)


def _run_with_shuffles(spark: SparkSession, folder: Path, tmp_path: Path, only: tuple[str, ...] | None) -> Path:
    """Runs jobs on the same tables with shuffles, each reading the files that others wrote; returns the folder."""
    copy = tmp_path / "forensics"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("jobs*"))
    before = {name: str(spark.conf.get(name)) for name in _OF_MANY}
    for name, value in _OF_MANY.items():
        spark.conf.set(name, value)
    try:
        run_jobs(spark, str(copy), only=only)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    return copy


@pytest.mark.parametrize(("job", "of_many"), BY_JOB)
def test_few_and_many_events_have_the_same_results(
    job: Job, of_many: str, results: Results, spark: SparkSession, folder: Path, request: pytest.FixtureRequest
) -> None:
    both = (folder, request.getfixturevalue(of_many))
    stored = [rows(open_results(spark, str(each))[job.name]) for each in both]

    assert in_any_order(stored[0]) == in_any_order(rows(results[job.name])) == in_any_order(stored[1])
    assert results[job.name].schema.simpleString() == job.spark_schema.simpleString()


def in_any_order(found: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, found))


@pytest.mark.parametrize(("job", "of_many"), BY_JOB)
def test_results_have_the_declared_columns_and_types(
    job: Job, of_many: str, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    """Compares the types that Spark wrote, not those it reads, which the schema determines."""
    folder: Path = request.getfixturevalue(of_many)
    files = sorted((folder / "jobs" / job.name).glob("*.parquet"))
    noted = [
        StructType.fromJson(json.loads(pq.read_metadata(file).metadata[b"org.apache.spark.sql.parquet.row.metadata"]))
        for file in files
    ]

    assert files
    for schema in noted:
        assert [(field.name, field.dataType.simpleString()) for field in schema] == [
            (field.name, field.dataType.simpleString()) for field in job.spark_schema
        ]


def test_results_can_be_queried(results: Results) -> None:
    listed = rows(results["leadership"], "leader_epoch")

    assert [(row["leader"], row["leader_epoch"], row["how"], row["log_end"]) for row in listed] == [
        (1, 0, "initial", 0),
        (2, 1, "offline", 100),
    ]
    assert results["timed"].where("topic = 'orders' and life = 0").count() == 5


def test_manifest_has_rows_of_each_job_and_its_ingest(results: Results) -> None:
    assert results.manifest.jobs["leadership"].rows == 2
    assert results.manifest.jobs["skew"].rows == 2
    assert results.manifest.ingest == results.tables.manifest


def test_results_are_stored_beside_the_tables(results: Results, folder: Path) -> None:
    there = sorted(path.name for path in folder.iterdir())

    assert there == ["events", "files", "ingest.json", "jobs", "jobs.json", "levels"]
    assert sorted(path.name for path in (folder / "jobs").iterdir()) == sorted(job.name for job in JOBS)


def test_stored_results_can_be_opened(results: Results, spark: SparkSession, folder: Path) -> None:
    opened = open_results(spark, str(folder))

    assert opened.manifest == results.manifest
    assert rows(opened["states"]) == rows(results["states"])


def test_unknown_job_is_rejected(results: Results) -> None:
    with pytest.raises(NoSuchJob, match="there is no job nonsense"):
        results["nonsense"]


def edited(folder: Path, tmp_path: Path, **changes: Any) -> str:
    """Returns a copy of the folder's manifests, with that of the jobs edited."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("ingest.json", "jobs.json"):
        (copy / name).write_bytes((folder / name).read_bytes())
    if changes:
        manifest = msgspec.json.decode((copy / "jobs.json").read_bytes())
        (copy / "jobs.json").write_bytes(msgspec.json.encode(manifest | changes))
    for name in ("events", "files", "levels"):
        (copy / name).symlink_to(folder / name)
    return str(copy)


def test_without_a_manifest_there_are_no_results(
    results: Results, spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    copy = edited(folder, tmp_path)
    (Path(copy) / "jobs.json").unlink()

    with pytest.raises(NoResults, match=f"make them with `kactl forensics report --dir {copy}`"):
        open_results(spark, copy)


def test_invalid_manifest_is_rejected(results: Results, spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    copy = edited(folder, tmp_path)
    (Path(copy) / "jobs.json").write_text("{")

    with pytest.raises(NoResults, match=r"jobs\.json is not a manifest of results"):
        open_results(spark, copy)


def test_results_of_another_version_are_rejected(
    results: Results, spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(NoResults, match="wrote results of version 0"):
        open_results(spark, edited(folder, tmp_path, results_version=0))


def test_results_of_other_logs_are_rejected(
    results: Results, spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    other = msgspec.structs.replace(results.manifest.ingest, time_ms=7)

    with pytest.raises(NoResults, match="ingested again"):
        open_results(spark, edited(folder, tmp_path, ingest=msgspec.to_builtins(other)))


def test_missing_result_error_names_the_command(
    results: Results, spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    opened = open_results(spark, edited(folder, tmp_path, jobs={}))

    with pytest.raises(NoResults, match="states was not run"):
        opened["states"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("events", "; the others were removed"),
        ("jobs/leadership", ": make them with"),
    ],
)
def test_incomplete_results_are_not_accepted(
    results: Results, spark: SparkSession, folder: Path, tmp_path: Path, table: str, message: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    first, *others = (copy / table).rglob("*.parquet")
    first.unlink()

    name = table.rpartition("/")[2]
    with pytest.raises(BadRequest, match=f"of the {1 + len(others)} files of {name} there are {len(others)}{message}"):
        open_results(spark, str(copy))


def test_new_ingest_removes_previous_results(
    results: Results, spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(folder, out)
    assert open_results(spark, str(out)).manifest == results.manifest
    (tmp_path / "state-change.log").write_text(line(0, "[Controller id=1 epoch=5] Not a line that anybody knows"))

    ingest(spark, [str(tmp_path / "state-change.log")], str(out))

    assert sorted(path.name for path in out.iterdir()) == ["events", "files", "ingest.json", "levels"]
    with pytest.raises(NoResults, match="no complete results"):
        open_results(spark, str(out))


def test_jobs_without_tables_fail(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotIngested):
        run_jobs(spark, str(tmp_path))
