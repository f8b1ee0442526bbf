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


def faults(found: DataFrame) -> list[str]:
    """Returns the faults of a plan."""
    return [fault for node in _nodes(found._jdf.queryExecution().executedPlan()) for fault in _faults(node)]


def _faults(node: Any) -> Iterator[str]:
    name = str(node.nodeName())
    if name == "CartesianProduct":
        yield "every row is put beside every other"
    elif name == "BroadcastNestedLoopJoin":
        sides = [_read(child) for child in _children(node)]
        if not any(side <= SMALL for side in sides):
            yield f"every row is compared with every other: {sorted(sides[0])} with {sorted(sides[1])}"
    elif name == "BroadcastExchange":
        if not _read(node) <= SMALL and not _is_reduced(node):
            yield f"all of {sorted(_read(node))} is sent to everybody"
    elif name.startswith("Window") and node.partitionSpec().isEmpty() and not _read(node) <= SMALL:
        yield f"one window over all of {sorted(_read(node))}"
    elif name == "Exchange" and "SinglePartition" in str(node.outputPartitioning().toString()):
        child = _computed(node)
        total = str(child.nodeName()) in _AGGREGATES and child.groupingExpressions().isEmpty()
        if not total and not _read(node) <= SMALL:
            yield f"one task gets all of {sorted(_read(node))}"


def _computed(node: Any) -> Any:
    """Returns the operator below nodes that only generate code."""
    (child,) = _children(node)
    return _computed(child) if str(child.nodeName()).startswith(("WholeStageCodegen", "InputAdapter")) else child


def _is_reduced(node: Any) -> bool:
    """Returns whether the output has a row for each broker, and not for each partition."""
    return any(
        str(below.nodeName()) in _AGGREGATES and not _BY_PARTITION & set(_names(below.groupingExpressions()))
        for below in _nodes(node)
    )


def _names(expressions: Any) -> list[str]:
    return [str(expressions.apply(at).name()) for at in range(expressions.size())]


def _read(node: Any) -> set[str]:
    """Returns the tables that are read below a node."""
    found = set()
    for below in _nodes(node):
        if str(below.nodeName()).startswith("Scan"):
            roots = below.relation().location().rootPaths()
            found |= {str(roots.apply(at).getName()) for at in range(roots.size())}
    return found


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    if str(node.nodeName()).startswith("InMemoryTableScan"):
        yield from _nodes(node.relation().cachedPlan())
    for child in _children(node):
        yield from _nodes(child)


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(at) for at in range(children.size())]


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
