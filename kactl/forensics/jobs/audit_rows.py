"""What the rules of the audit share: how a breach is told, and which lines can be compared by their times."""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType

from .lines import is_a

KEY: Final = ("topic", "partition", "life")
# Where a breach stands, and whose it is.
_PLACE: Final = ("broker", "at", "controller", "controller_epoch", "file_id", "offset")


def breach(rows: DataFrame, rule: str | Value, *, expected: Value, found: Value) -> DataFrame:
    """Rows as the audit's table has them; what they do not have is null there."""
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


def say(form: str, *values: str | Value) -> Value:
    """A text with `%s` for each value; what is null is a question mark."""
    shown = [f.col(each) if isinstance(each, str) else each for each in values]
    return f.format_string(form, *(f.coalesce(each.cast("string"), f.lit("?")) for each in shown))


def ids(name: str) -> Value:
    """A list of brokers, as Kafka writes them: 1,2,3."""
    return f.array_join(f.transform(name, lambda each: each.cast("string")), ",")


def about_partitions(timed: DataFrame, *types: EventType) -> DataFrame:
    """Lines of these types of which partition and time are known."""
    named = "topic is not null and partition is not null and at is not null"
    return timed.where(is_a(*types)).where(named)


def with_steady_clocks(lines: DataFrame, timed: DataFrame) -> DataFrame:
    """Without the lines of those whose clock was set back in these logs: their times do not tell what was first."""
    back = timed.where(is_a(EventType.CLOCK_BACK)).where("speaker is not null").select("speaker").distinct()
    return lines.join(f.broadcast(back), "speaker", "left_anti")
