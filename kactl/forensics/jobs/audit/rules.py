"""Common parts of the audit rules: rows of violations, and lines that can be compared by time."""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.event_types import EventType
from kactl.forensics.jobs.lines import is_a

# Position and origin of a violation.
_PLACE: Final = ("broker", "at", "controller", "controller_epoch", "file_id", "offset")


def violation(rows: DataFrame, rule: str | Value, *, expected: Value, found: Value) -> DataFrame:
    """Returns rows with the columns of the audit table; columns that `rows` does not have are null."""
    types = {"topic": "string", "offset": "long", "file_id": "int", "at": "timestamp"}

    def given(name: str) -> Value:
        value = f.col(name) if name in rows.columns else f.lit(None)
        return value.cast(types.get(name, "int")).alias(name)

    return rows.select(
        (f.lit(rule) if isinstance(rule, str) else rule).alias("rule"),
        *map(given, KEY),
        *map(given, _PLACE),
        expected.cast("string").alias("expected"),
        found.cast("string").alias("found"),
    )


def describe(form: str, *values: str | Value) -> Value:
    """Returns a text with `%s` replaced by each value, or by a question mark for null."""
    columns = [f.col(value) if isinstance(value, str) else value for value in values]
    return f.format_string(form, *(f.coalesce(column.cast("string"), f.lit("?")) for column in columns))


def ids(name: str) -> Value:
    """Returns a list of brokers as Kafka writes it: 1,2,3."""
    return f.array_join(f.transform(name, lambda broker: broker.cast("string")), ",")


def about_partitions(timed: DataFrame, *types: EventType) -> DataFrame:
    """Lines of these types with a known partition and time."""
    named = "topic is not null and partition is not null and at is not null"
    return timed.where(is_a(*types)).where(named)


def with_steady_clocks(lines: DataFrame, timed: DataFrame) -> DataFrame:
    """Drop the lines of brokers whose clock was set back in these logs: their times do not show an order."""
    back = timed.where(is_a(EventType.CLOCK_BACK)).where("speaker is not null").select("speaker").distinct()
    return lines.join(f.broadcast(back), "speaker", "left_anti")
