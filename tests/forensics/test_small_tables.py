"""Tables of few events: each query is one task."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from kactl.forensics.tables import undivided_if_small


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
