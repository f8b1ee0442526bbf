"""Tables of few events: each query is one task, and rows that are used again are kept in memory."""

import datetime
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kactl.forensics import session, tables
from kactl.forensics.storage import Location
from kactl.forensics.tables import (
    NotIngested,
    all_kept_if_small,
    kept_if_small,
    kept_or_persisted,
    of_rows,
    of_tuples,
    rows_in_memory,
    undivided_if_small,
)


@pytest.mark.parametrize(("shuffle_partitions", "partitions"), [("1", 1), ("2", 4)])
def test_small_tables_are_undivided(spark: SparkSession, shuffle_partitions: str, partitions: int) -> None:
    before = str(spark.conf.get("spark.sql.shuffle.partitions"))
    spark.conf.set("spark.sql.shuffle.partitions", shuffle_partitions)
    try:
        assert undivided_if_small(spark.range(0, 8, 1, 4)).rdd.getNumPartitions() == partitions
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def test_queries_on_few_events_have_no_shuffle_and_no_broadcast(spark: SparkSession) -> None:
    numbers = undivided_if_small(spark.range(0, 8, 1, 4))
    sums = numbers.groupBy((f.col("id") % 2).alias("id")).agg(f.count("*").alias("number"))

    joined = numbers.join(f.broadcast(sums), "id", "left")

    plan = joined._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in plan
    assert sorted(tuple(row) for row in joined.collect())[:3] == [(0, 4), (1, 4), (2, None)]


TIME = datetime.datetime(2024, 5, 1, 10, tzinfo=datetime.UTC)
LOGGED = datetime.datetime(2024, 5, 1, 12)  # as written by a clock of an unknown zone
ROWS = [
    {
        "id": 1,
        "at": TIME,
        "logged": LOGGED,
        "isr": [1, None],
        "down": [{"broker": 1, "away": True}],
        "day": TIME.date(),
        "share": 0.5,
    },
    {"id": None, "at": None, "logged": None, "isr": None, "down": None, "day": None, "share": None},
    {"id": 3, "at": TIME, "logged": LOGGED, "isr": [], "down": [], "day": TIME.date(), "share": -0.0},
]
COLUMNS = ("id", "at", "logged", "isr", "down", "day", "share")
TYPES = (
    "struct<id:bigint,at:timestamp,logged:timestamp_ntz,isr:array<int>,down:array<struct<broker:int,away:boolean>>,"
    "day:date,share:double>"
)


@pytest.fixture
def known() -> pa.Table:
    times = pa.timestamp("us", tz="UTC")
    down = pa.list_(pa.struct([("broker", pa.int32()), ("away", pa.bool_())]))
    types = [pa.int64(), times, pa.timestamp("us"), pa.list_(pa.int32()), down, pa.date32(), pa.float64()]
    return pa.Table.from_pylist(ROWS, pa.schema(list(zip(COLUMNS, types, strict=True))))


@pytest.fixture
def many(spark: SparkSession) -> Iterator[None]:
    """Configures the session for many events, as far as these functions are concerned."""
    before = str(spark.conf.get("spark.sql.shuffle.partitions"))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.parametrize(("most", "leaf"), [(2, "Scan ExistingRDD"), (3, "LocalTableScan")])
def test_rows_in_memory_keep_values_and_types(
    spark: SparkSession, known: pa.Table, most: int, leaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_ROWS_IN_PLANS", most)

    table = of_rows(spark, known)

    assert table.toArrow().cast(known.schema).to_pylist() == ROWS
    assert table.schema.simpleString() == TYPES
    assert table.rdd.getNumPartitions() == 1
    assert leaf in table._jdf.queryExecution().executedPlan().toString()


def test_empty_table_has_its_types(spark: SparkSession, known: pa.Table) -> None:
    table = of_rows(spark, known.slice(0, 0))

    assert table.count() == 0
    assert table.schema.simpleString() == TYPES
    assert of_rows(spark, known.schema.empty_table()).collect() == []


@pytest.mark.parametrize("most", [0, 100])
def test_kept_table_is_computed_once(
    spark: SparkSession, tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_ROWS_IN_PLANS", most)
    spark.range(9).write.parquet(str(tmp_path / "nine"))

    kept = kept_if_small(spark.read.parquet(str(tmp_path / "nine")).where("id > 4"))
    for file in (tmp_path / "nine").iterdir():
        file.unlink()

    assert sorted(row["id"] for row in kept.where("id != 6").collect()) == [5, 7, 8]


def test_tuples_become_rows_in_memory(spark: SparkSession) -> None:
    schema = pa.schema([("broker", pa.int32()), ("times", pa.list_(pa.int64()))])

    table = of_tuples(spark, schema, [(1, [5, 6]), (2, []), (None, None)])

    assert table.schema.simpleString() == "struct<broker:int,times:array<bigint>>"
    assert [tuple(row) for row in table.collect()] == [(1, [5, 6]), (2, []), (None, None)]
    assert "LocalTableScan" in table._jdf.queryExecution().executedPlan().toString()
    assert of_tuples(spark, schema, []).collect() == []


def test_tables_kept_at_once_are_in_order_and_have_the_tags_of_the_caller(spark: SparkSession) -> None:
    tags: list[list[str]] = []

    def numbers(most: int) -> DataFrame:
        tags.append(sorted(spark.sparkContext.getJobTags()))
        return spark.range(most)

    spark.sparkContext.addJobTag("kactl-of-the-caller")
    try:
        tables = all_kept_if_small(spark, [partial(numbers, most) for most in (3, 1, 2)])
    finally:
        spark.sparkContext.removeJobTag("kactl-of-the-caller")

    assert [table.count() for table in tables] == [3, 1, 2]
    assert tags == [["kactl-of-the-caller"]] * 3


def test_tables_kept_at_once_raise_the_error_of_one(spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError):
        all_kept_if_small(spark, [lambda: spark.range(1), lambda: spark.range(1 // 0)])


def test_damaged_table_is_named_with_a_remedy(spark: SparkSession, tmp_path: Path) -> None:
    day = tmp_path / "events" / "kind=server" / "day=2024-05-01"
    day.mkdir(parents=True)
    (day / "part-0.parquet").write_bytes(b"PAR1 and nothing else")

    with pytest.raises(NotIngested, match=r"incomplete or damaged .*ingest the logs again"):
        rows_in_memory(spark, Location(str(tmp_path)))


@pytest.mark.usefixtures("many")
def test_large_tables_are_not_collected(spark: SparkSession) -> None:
    table = spark.range(9)

    assert kept_if_small(table) is table
    assert all_kept_if_small(spark, [lambda: table]) == [table]
    persisted = kept_or_persisted(table)
    assert persisted.is_cached
    persisted.unpersist()


def test_joins_with_empty_tables_are_removed_from_plans(spark: SparkSession, known: pa.Table) -> None:
    table = of_rows(spark, known)

    joined = table.where("id = 7").join(table, "id")

    assert "Join" not in joined._jdf.queryExecution().executedPlan().toString()
    assert joined.count() == 0


def test_jars_that_java_searches_first_exist() -> None:
    jars = [Path(name).name for name in session._first_jars().split(":")]

    assert len(jars) == len(session._FIRST_JARS)
    assert jars[0].startswith("spark-catalyst_")
