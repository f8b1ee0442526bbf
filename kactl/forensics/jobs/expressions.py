"""Spark expressions in the words of the rules: conditions on lines, unknown values, neighbours of a row in an order.

in_order = rows_of(*KEY).in_order("at", "offset")
course.withColumns({
    "until": in_order.next("at"),  # each lasts until the next: intervals from changes
    "leader": in_order.latest("leader"),  # the last known one so far, this row included
    "leader_before": in_order.latest_before("leader"),
    "number": in_order.running(f.sum("begins")),
})
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType

# States of partitions, as Kafka names them.
ABSENT: Final = "NonExistentPartition"
NEW: Final = "NewPartition"
ONLINE: Final = "OnlinePartition"
OFFLINE: Final = "OfflinePartition"

LEADER_AND_ISR: Final = "LEADER_AND_ISR"

# -- conditions --------------------------------------------------------------------------------------------------------


def is_a(*types: EventType) -> Value:
    """True if a line is of one of these types."""
    return f.col("type").isin([str(type_) for type_ in types])


def all_known(first: str, *others: str) -> Value:
    """True if no column is null."""
    condition = f.col(first).isNotNull()
    for name in others:
        condition &= f.col(name).isNotNull()
    return condition


def is_true(condition: Value) -> Value:
    """The condition, with null as false."""
    return f.coalesce(condition, f.lit(False))


# -- values ------------------------------------------------------------------------------------------------------------


def null(type_: Literal["int", "long", "string", "array<int>", "timestamp"]) -> Value:
    """An unknown value."""
    return f.lit(None).cast(type_)


def or_zero(count: str | Value) -> Value:
    """A count, with null as 0."""
    return f.coalesce(count, f.lit(0)).cast("long")


def ms_between(begin: str | Value, end: str | Value) -> Value:
    """Whole milliseconds from one time to another."""
    return f.unix_millis(end) - f.unix_millis(begin)


def no_ids() -> Value:
    """An empty list of brokers."""
    return f.array().cast("array<int>")


# -- rows and their neighbours -----------------------------------------------------------------------------------------


class Order(NamedTuple):
    """Rows that share a key, in an order."""

    window: WindowSpec

    def previous(self, value: str | Value, distance: int = 1) -> Value:
        """The value of the previous row; null in the first."""
        return f.lag(value, distance).over(self.window)

    def next(self, value: str | Value) -> Value:
        """The value of the next row; null in the last."""
        return f.lead(value).over(self.window)

    def latest(self, value: str | Value, *, with_equals: bool = False) -> Value:
        """The last value that is not null, up to this row; `with_equals`: see `so_far`."""
        last = f.last(value, ignorenulls=True)
        return self.so_far(last) if with_equals else self.running(last)

    def latest_before(self, value: str | Value) -> Value:
        """The last value that is not null, before this row."""
        return self.running_before(f.last(value, ignorenulls=True))

    def number(self) -> Value:
        """The number of the row, from 1."""
        return f.row_number().over(self.window)

    def running(self, aggregate: Value) -> Value:
        """An aggregate of all rows up to this one."""
        return aggregate.over(self.window.rowsBetween(Window.unboundedPreceding, Window.currentRow))

    def running_before(self, aggregate: Value) -> Value:
        """An aggregate of all rows before this one."""
        return aggregate.over(self.window.rowsBetween(Window.unboundedPreceding, -1))

    def so_far(self, aggregate: Value) -> Value:
        """An aggregate of all rows up to this one, and of those that are equal to it in the order."""
        return aggregate.over(self.window)


class Group(NamedTuple):
    """Rows that share a key."""

    window: WindowSpec

    def over_all(self, aggregate: Value) -> Value:
        """An aggregate of all rows of the key, in each of them."""
        return aggregate.over(self.window)

    def in_order(self, *order: str | Value) -> Order:
        return Order(self.window.orderBy(*order))


def rows_of(*key: str | Value) -> Group:
    """The rows that share a key."""
    return Group(Window.partitionBy(*key))


def stacked(*tables: DataFrame) -> DataFrame:
    """Return the rows of all tables, by column name. A column that a table does not have is null in its rows.

    Spark analyzes the result of each union as a whole. Halves make these results smaller than one table after another.
    """
    if len(tables) == 1:
        return tables[0]
    half = (len(tables) + 1) // 2
    return stacked(*tables[:half]).unionByName(stacked(*tables[half:]), allowMissingColumns=True)


def best_only(rows: DataFrame, rank: str, *key: str) -> DataFrame:
    """Return the rows of the highest rank of each key, without the rank."""
    return (
        rows.withColumn("best_rank", rows_of(*key).over_all(f.max(rank)))
        .where(f"{rank} = best_rank")
        .drop("best_rank", rank)
    )


def ranked(rows: DataFrame, *key: str, order: Sequence[str | Value], most: int) -> DataFrame:
    """Return the first `most` rows of each key in an order, with `rank` from 1. Spark applies it before it shuffles."""
    return rows.withColumn("rank", rows_of(*key).in_order(*order).number()).where(f.col("rank") <= most)
