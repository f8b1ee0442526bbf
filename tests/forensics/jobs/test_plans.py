"""Physical plans of all jobs, without Cartesian products, nested-loop joins and single-task stages.

The sizes of the tables are unknown, so only tables that a job itself marks as small are broadcast.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from kactl.forensics.columns import Column, schema
from kactl.forensics.events import COLUMNS
from kactl.forensics.jobs import catalog, timed
from kactl.forensics.jobs.job import Job
from kactl.forensics.tables import FILE_COLUMNS, LEVEL_COLUMNS

_GIVEN: Final = {
    "events": (*COLUMNS, *timed.FOLDERS),
    "files": FILE_COLUMNS,
    "levels": LEVEL_COLUMNS,
}
# Tables with one row for each broker, controller, file, or reused topic name, and no more.
SMALL: Final = frozenset({"skew", "absences", "controllers", "files", "lives"})
_AS_ON_A_CLUSTER: Final = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.optimizer.disableHints": "false",
    "spark.sql.shuffle.partitions": "2",
}
_BY_PARTITION: Final = frozenset({"topic", "partition"})
_AGGREGATES: Final = ("HashAggregate", "ObjectHashAggregate", "SortAggregate")


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, DataFrame]]:
    """Returns every table that a job may need, with a size that is unknown to the optimizer."""
    before = {name: str(spark.conf.get(name)) for name in _AS_ON_A_CLUSTER}
    for name, value in _AS_ON_A_CLUSTER.items():
        spark.conf.set(name, value)
    folder = tmp_path_factory.mktemp("tables")
    columns = _GIVEN | {job.name: job.columns for job in catalog.JOBS}
    yield {name: _table(spark, folder / name, given) for name, given in columns.items()}
    for name, value in before.items():
        spark.conf.set(name, value)


def _table(spark: SparkSession, folder: Path, columns: tuple[Column, ...]) -> DataFrame:
    folder.mkdir()
    return spark.read.schema(from_arrow_schema(schema(columns))).parquet(str(folder))


class Node:
    """Operator of a plan, with those below it. Each property is read from Java once."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self.name = str(plan.nodeName())
        children = plan.children()
        self.children = [Node(children.apply(at)) for at in range(children.size())]
        cached = [Node(plan.relation().cachedPlan())] if self.name.startswith("InMemoryTableScan") else []
        below = [*cached, *self.children]
        self.all: list[Node] = [self, *(node for child in below for node in child.all)]
        self.tables: set[str] = {table for child in below for table in child.tables}
        if self.name.startswith("Scan"):
            roots = plan.relation().location().rootPaths()
            self.tables |= {str(roots.apply(at).getName()) for at in range(roots.size())}


def faults(found: DataFrame) -> list[str]:
    """Returns the faults of a plan."""
    return [fault for node in Node(found._jdf.queryExecution().executedPlan()).all for fault in _faults(node)]


def _faults(node: Node) -> Iterator[str]:
    if node.name == "CartesianProduct":
        yield "every row is put beside every other"
    elif node.name == "BroadcastNestedLoopJoin":
        sides = [child.tables for child in node.children]
        if not any(side <= SMALL for side in sides):
            yield f"every row is compared with every other: {sorted(sides[0])} with {sorted(sides[1])}"
    elif node.name == "BroadcastExchange":
        if not node.tables <= SMALL and not _is_reduced(node):
            yield f"all of {sorted(node.tables)} is sent to everybody"
    elif node.name.startswith("Window") and not node.tables <= SMALL and node.plan.partitionSpec().isEmpty():
        yield f"one window over all of {sorted(node.tables)}"
    elif node.name == "Exchange" and "SinglePartition" in str(node.plan.outputPartitioning().toString()):
        child = _computed(node)
        total = child.name in _AGGREGATES and child.plan.groupingExpressions().isEmpty()
        if not total and not node.tables <= SMALL:
            yield f"one task gets all of {sorted(node.tables)}"


def _computed(node: Node) -> Node:
    """Returns the operator below nodes that only generate code."""
    (child,) = node.children
    return _computed(child) if child.name.startswith(("WholeStageCodegen", "InputAdapter")) else child


def _is_reduced(node: Node) -> bool:
    """Returns whether the output has a row for each broker, and not for each partition."""
    return any(
        below.name in _AGGREGATES and not _BY_PARTITION & set(_names(below.plan.groupingExpressions()))
        for below in node.all
    )


def _names(expressions: Any) -> list[str]:
    return [str(expressions.apply(at).name()) for at in range(expressions.size())]


@pytest.mark.parametrize("job", catalog.JOBS, ids=lambda job: job.name)
def test_plans_scale_to_data_of_any_size(job: Job, tables: dict[str, DataFrame]) -> None:
    assert faults(job.run(*(tables[name] for name in job.needs))) == []


def _window_over_all(events: DataFrame) -> DataFrame:
    from pyspark.sql import Window

    return events.withColumn("before", f.lag("ts").over(Window.orderBy("ts")))


BAD: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    "put beside": lambda events: events.crossJoin(events.select(f.col("ts").alias("other"))),
    "compared with": lambda events: events.alias("a").join(
        f.broadcast(events.alias("b")), f.expr("a.ts < b.ts"), "left"
    ),
    "one window": _window_over_all,
    "one task": lambda events: events.repartition(1),
    "sent to everybody": lambda events: events.join(f.broadcast(events.select("topic", "isr")), "topic"),
}


@pytest.mark.parametrize("fault", BAD)
def test_unscalable_plan_is_detected(fault: str, tables: dict[str, DataFrame]) -> None:
    assert any(fault in each for each in faults(BAD[fault](tables["events"])))


def test_small_tables_may_use_nested_loop_joins(tables: dict[str, DataFrame]) -> None:
    absences = f.broadcast(tables["skew"].select("broker", "offset_us").alias("b"))

    assert faults(tables["events"].alias("a").join(absences, f.expr("a.took_ms < b.offset_us"), "left")) == []
    assert faults(tables["events"].agg(f.max("ts"))) == []
