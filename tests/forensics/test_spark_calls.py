"""Calls of Spark from Python: what is sent to Java, and results of remembered expressions."""

import uuid
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from kactl.forensics.spark_calls import name_call_site


@pytest.fixture
def lookups(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the lookups of classes and methods that are sent to Java."""
    sent: list[str] = []
    gateway: Any = spark.sparkContext._gateway
    client = gateway._gateway_client
    send = client.send_command

    def send_command(command: str, *args: Any, **options: Any) -> Any:
        if command.startswith("r\n"):
            sent.append(command)
        return send(command, *args, **options)

    monkeypatch.setattr(client, "send_command", send_command)
    return sent


def test_function_is_looked_up_once(lookups: list[str]) -> None:
    f.initcap("topic")
    lookups.clear()

    f.initcap("other")

    assert lookups == []


def test_lists_of_columns_need_no_lookup(spark: SparkSession, lookups: list[str]) -> None:
    spark.range(1).select("id").collect()
    lookups.clear()

    spark.range(1).select("id", "id").groupBy().agg(f.max(f.lit(1)))

    assert not any("PythonUtils" in command for command in lookups)


@pytest.mark.parametrize("count", [0, 1, 2, 9, 10, 11, 20, 21, 35])
def test_lists_of_any_length_are_complete_and_in_order(spark: SparkSession, count: int) -> None:
    names = [f"c{number}" for number in range(count)]
    lists: Any = spark.sparkContext._jvm

    for of_list in (lists.PythonUtils.toSeq, lists.PythonUtils.toList):
        listed = of_list(names)
        assert [listed.apply(place) for place in range(listed.size())] == names


def test_ten_columns_are_sent_at_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [f.col(f"c{number}") for number in range(10)]
    f.struct(*columns)
    gateway: Any = spark.sparkContext._gateway
    client, calls = gateway._gateway_client, []
    send = client.send_command

    def send_command(command: str, *args: Any, **options: Any) -> Any:
        calls.append(command.splitlines()[0])
        return send(command, *args, **options)

    monkeypatch.setattr(client, "send_command", send_command)
    f.struct(*columns)

    assert calls.count("c") + calls.count("i") == 3  # the list in Java, in Scala, and the structure


def test_column_name_is_the_same_expression_each_time(spark: SparkSession) -> None:
    assert f.col("topic")._jc is f.col("topic")._jc
    assert f.col("topic")._jc is not f.col("partition")._jc


def test_equal_literals_of_different_types_are_different(spark: SparkSession) -> None:
    literals = [f.lit(value).alias(f"c{number}") for number, value in enumerate((1, True, "1", None, 1.0, 1, [1]))]

    (row,) = spark.range(1).select(*literals).collect()

    assert [(type(value), value) for value in row] == [
        (int, 1), (bool, True), (str, "1"), (type(None), None), (float, 1.0), (int, 1), (list, [1]),
    ]  # fmt: skip


def test_stages_have_the_name_of_the_call_site(spark: SparkSession) -> None:
    context, group = spark.sparkContext, uuid.uuid4().hex
    name_call_site(spark, "job skew")
    try:
        context.setJobGroup(group, group)
        spark.range(1).write.format("noop").mode("overwrite").save()
        (job,) = context.statusTracker().getJobIdsForGroup(group)
        info: Any = context.statusTracker().getJobInfo(job)
        (stage,) = info.stageIds

        assert context.statusTracker().getStageInfo(stage).name == "job skew"  # type: ignore[union-attr]
    finally:
        name_call_site(spark, "kactl")
