"""Losses of brokers: absences and failed log directories, one row for each broker.

There are few brokers and few losses, so the table is small enough to be broadcast to every task. A query about the loss
of a leader searches that row, and no row of the query is duplicated.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType
from kactl.forensics.jobs.lines import is_a

# The broker is alive but has lost some of its replicas. All other values are those of `absences`.
DIRECTORY: Final = "directory"
# A dead leader is detected when its session ends: with Kafka's defaults after 18 s with ZooKeeper (6 s before 2.5),
# after 9 s in KRaft. An elected leader that was already dead is missed within this time, or within its own session
# timeout if that is longer.
SESSION_US: Final = 18_000_000
# Assumed clock error where the error is not bounded from both sides. At INFO that is the rule: lines are known to come
# after others, and none to come before. The smallest delay seen is then taken for zero, which hides some ms. A clock
# without any bound is assumed to be set correctly.
UNKNOWN_ERROR_US: Final = 50_000


def lost_brokers(absences: DataFrame, timed: DataFrame | None = None) -> DataFrame:
    """Collect the losses of each broker.

    Args:
        timed: lines of failed directories and of controllers that processed a loss; without it there are neither.

    Returns:
        broker, losses, callbacks: one row for each broker that was ever lost. `losses` is a list of structs with
            `detected_us` first; `names` are the partitions that a loss is limited to, as `,topic-0,topic-1,`, or null.
            `callbacks` are times in microseconds.
    """
    away = absences.where(f.col("detected_at").isNotNull() & f.col("broker").isNotNull()).select(
        "broker",
        f.struct(
            f.unix_micros("detected_at").alias("detected_us"),
            f.unix_micros("back_at").alias("back_us"),
            f.unix_micros("last_sign_at").alias("last_sign_us"),
            f.unix_micros("silent_at").alias("silent_us"),
            f.unix_micros("silent_low").alias("silent_low_us"),
            f.unix_micros("silent_high").alias("silent_high_us"),
            f.unix_micros("awake_at").alias("awake_us"),
            f.greatest(f.col("session_ms") * 1000, f.lit(SESSION_US)).alias("session_us"),
            f.coalesce("error_us", f.lit(UNKNOWN_ERROR_US)).cast("long").alias("error_us"),
            f.col("how"),
            f.coalesce("planned", f.lit(False)).alias("planned"),
            f.lit(None).cast("string").alias("names"),
        ).alias("one"),
        f.lit(None).cast("long").alias("callback_us"),
    )
    found = away if timed is None else away.unionByName(_directories(timed)).unionByName(_callbacks(timed, away))
    # Sets, because the same line may be in two files.
    return found.groupBy("broker").agg(
        f.collect_set("one").alias("losses"), f.sort_array(f.collect_set("callback_us")).alias("callbacks")
    )


def concerns_partition(one: Value) -> Value:
    """True if a loss concerns the partition of the current row."""
    name = f.concat(f.lit(","), "topic", f.lit("-"), f.col("partition").cast("string"), f.lit(","))
    return one["names"].isNull() | (f.instr(one["names"], name) > 0)


def _directories(timed: DataFrame) -> DataFrame:
    none = f.lit(None).cast("long")
    return timed.where(is_a(EventType.REPLICAS_OFFLINE) & f.col("broker").isNotNull() & f.col("at").isNotNull()).select(
        "broker",
        f.struct(
            f.unix_micros("at").alias("detected_us"),
            none.alias("back_us"),
            none.alias("last_sign_us"),
            none.alias("silent_us"),
            none.alias("silent_low_us"),
            none.alias("silent_high_us"),
            none.alias("awake_us"),
            f.lit(SESSION_US).cast("long").alias("session_us"),
            f.lit(0).cast("long").alias("error_us"),
            f.lit(DIRECTORY).alias("how"),
            f.lit(False).alias("planned"),
            f.concat(f.lit(","), f.replace("text", f.lit(" ")), f.lit(",")).alias("names"),
        ).alias("one"),
        none.alias("callback_us"),
    )


def _callbacks(timed: DataFrame, like: DataFrame) -> DataFrame:
    """Times at which a controller began to process failed brokers (C4)."""
    failed = timed.where(is_a(EventType.BROKER_FAILED) & f.col("at").isNotNull())
    return failed.select(
        f.explode("brokers_removed").alias("broker"),
        f.lit(None).cast(like.schema["one"].dataType).alias("one"),
        f.unix_micros("at").alias("callback_us"),
    )
