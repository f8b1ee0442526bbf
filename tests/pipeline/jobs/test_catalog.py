"""All jobs together: each finds what it needs, returns what it says, and is kept for whoever asks later."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kactl.pipeline.events import COLUMNS
from kactl.pipeline.files import FILE_COLUMNS, LEVEL_COLUMNS
from kactl.pipeline.ingest import ingest
from kactl.pipeline.jobs import catalog, timed
from kactl.pipeline.jobs.catalog import GIVEN, JOBS, NoResults, NoSuchJob, Results, open_results
from kactl.pipeline.jobs.job import Job
from kactl.pipeline.jobs.running import run_jobs
from kactl.pipeline.tables import NotIngested
from tests.pipeline.jobs import said
from tests.pipeline.jobs.tables import moment, rows, table


def test_each_finds_what_it_needs() -> None:
    known = set(GIVEN)
    for job in JOBS:
        assert known >= set(job.needs), job.name
        known.add(job.name)


def test_no_two_have_one_name() -> None:
    assert len({*GIVEN, *(job.name for job in JOBS)}) == len(GIVEN) + len(JOBS)


def test_what_is_wanted_brings_what_it_needs() -> None:
    assert [job.name for job in catalog.wanted(["leadership"])] == ["skew", "lives", "timed", "states", "leadership"]
    assert [job.name for job in catalog.wanted(["skew"])] == ["skew"]
    assert catalog.wanted(None) == JOBS


def test_an_unknown_job_is_named_together_with_those_there_are() -> None:
    with pytest.raises(NoSuchJob, match=r"there is no weather: there are skew, lives, "):
        catalog.wanted(["skew", "weather"])


# -- on nothing --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_nothing(spark: SparkSession) -> dict[str, DataFrame]:
    """Every job's answer to logs in which nothing is."""
    fields = [pa.field(each.name, each.type) for each in (*COLUMNS, *timed.FOLDERS)]
    empty = spark.createDataFrame([], from_arrow_schema(pa.schema(fields)))
    given = {"events": empty, "files": table(spark, FILE_COLUMNS, []), "levels": table(spark, LEVEL_COLUMNS, [])}
    given |= {job.name: table(spark, job.columns, []) for job in JOBS}
    return {job.name: job.run(*(given[name] for name in job.needs)) for job in JOBS}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_what_it_returns_has_its_columns_and_types(job: Job, on_nothing: dict[str, DataFrame]) -> None:
    made, said = on_nothing[job.name].schema, job.spark_schema

    assert [(field.name, field.dataType.simpleString()) for field in made] == [
        (field.name, field.dataType.simpleString()) for field in said
    ]


# -- on an ingest ------------------------------------------------------------------------------------------------------

LOG = [
    said.new(0, "a-0", (1, 2)),
    said.online(0.1, "a-0", 1, 0, (1, 2), 0, before=said.NEW),
    said.online(60, "a-0", 2, 1, (2,), 1, before=said.OFFLINE),
]


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("catalog")
    (place / "state-change.log").write_text("".join(LOG))
    ingest(spark, [str(place / "state-change.log")], str(place / "out"))
    return str(place / "out")


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def results(spark: SparkSession, folder: str, told: list[str]) -> Results:
    (Path(folder) / ".jobs-killed").mkdir()
    return run_jobs(spark, folder, tell=lambda step, done, total: told.append(step))


def test_all_of_them_are_run_and_told_of(results: Results, told: list[str]) -> None:
    assert {name for step in told for name in step.split(", ")} == {job.name for job in JOBS}
    assert set(results) == {*GIVEN, *(job.name for job in JOBS)}
    assert list(results.manifest.jobs) == [job.name for job in JOBS]


def test_what_they_return_can_be_asked(results: Results) -> None:
    listed = rows(results["leadership"], "leader_epoch")

    assert [(row["leader"], row["how"], row["begin"]) for row in listed] == [
        (1, "initial", moment(0.1)),
        (2, "offline", moment(60)),
    ]
    assert results["timed"].where("topic = 'a' and life = 0").count() == len(LOG)


def test_the_manifest_says_how_much_each_returned_and_of_what(results: Results) -> None:
    assert results.manifest.jobs["leadership"].rows == 2
    assert results.manifest.jobs["skew"].rows == 1
    assert results.manifest.ingest == results.tables.manifest


def test_they_are_kept_beside_the_tables_and_nothing_else_is(results: Results, folder: str) -> None:
    there = sorted(each.name for each in Path(folder).iterdir())

    assert there == ["events", "files", "ingest.json", "jobs", "jobs.json", "levels"]
    assert sorted(each.name for each in (Path(folder) / "jobs").iterdir()) == sorted(job.name for job in JOBS)


def test_they_can_be_opened_later(results: Results, spark: SparkSession, folder: str) -> None:
    opened = open_results(spark, folder)

    assert opened.manifest == results.manifest
    assert rows(opened["states"]) == rows(results["states"])


def test_a_name_that_is_none_is_refused(results: Results) -> None:
    with pytest.raises(NoSuchJob, match="there is no nonsense"):
        results["nonsense"]


def edited(folder: str, tmp_path: Path, **what: Any) -> str:
    """A copy of the folder's manifests, the jobs' edited; nothing else is read of it."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("ingest.json", "jobs.json"):
        (copy / name).write_bytes((Path(folder) / name).read_bytes())
    if what:
        held = msgspec.json.decode((copy / "jobs.json").read_bytes())
        (copy / "jobs.json").write_bytes(msgspec.json.encode(held | what))
    for name in ("events", "files", "levels"):
        (copy / name).symlink_to(Path(folder) / name)
    return str(copy)


def test_without_a_manifest_there_are_no_results(
    results: Results, spark: SparkSession, folder: str, tmp_path: Path
) -> None:
    copy = edited(folder, tmp_path)
    (Path(copy) / "jobs.json").unlink()

    with pytest.raises(NoResults, match=f"make them with `kactl forensics report --dir {copy}`"):
        open_results(spark, copy)


def test_a_manifest_that_is_none_is_refused(results: Results, spark: SparkSession, folder: str, tmp_path: Path) -> None:
    copy = edited(folder, tmp_path)
    (Path(copy) / "jobs.json").write_text("{")

    with pytest.raises(NoResults, match=r"jobs\.json is not what the jobs write"):
        open_results(spark, copy)


def test_results_of_another_version_are_refused(
    results: Results, spark: SparkSession, folder: str, tmp_path: Path
) -> None:
    with pytest.raises(NoResults, match="wrote results of version 0"):
        open_results(spark, edited(folder, tmp_path, results_version=0))


def test_results_of_other_logs_are_refused(results: Results, spark: SparkSession, folder: str, tmp_path: Path) -> None:
    other = msgspec.structs.replace(results.manifest.ingest, time_ms=7)

    with pytest.raises(NoResults, match="ingested anew"):
        open_results(spark, edited(folder, tmp_path, ingest=msgspec.to_builtins(other)))


def test_one_that_was_not_run_says_what_to_run(
    results: Results, spark: SparkSession, folder: str, tmp_path: Path
) -> None:
    opened = open_results(spark, edited(folder, tmp_path, jobs={}))

    with pytest.raises(NoResults, match="states was not run"):
        opened["states"]


def test_a_new_ingest_removes_what_was_made_of_the_old_one(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "state-change.log").write_text("".join(LOG))
    out = tmp_path / "out"
    ingest(spark, [str(tmp_path / "state-change.log")], str(out))
    run_jobs(spark, str(out), only=["lives"])
    assert sorted(each.name for each in (out / "jobs").iterdir()) == ["lives", "skew"]

    ingest(spark, [str(tmp_path / "state-change.log")], str(out))

    assert sorted(each.name for each in out.iterdir()) == ["events", "files", "ingest.json", "levels"]
    with pytest.raises(NoResults, match="no whole results"):
        open_results(spark, str(out))


def test_without_tables_there_is_nothing_to_run_on(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotIngested):
        run_jobs(spark, str(tmp_path))
