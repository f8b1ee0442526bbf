"""Why brokers could not lead, gathered by broker: they were away, or a directory of theirs had failed.

There are few brokers and few such times, so they are gathered into one row for each broker, which is small enough to be
sent to every task; whoever asks when a leader was lost looks into that row, and no row of his own is multiplied.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType

from .lines import is_a

# How a broker is lost that lives, but not with all of its replicas; all other words are those of `absences`.
DIRECTORY: Final = "directory"
# A leader that died is found out when its session ends: with Kafka's own settings after 18 s with ZooKeeper (6 s before
# 2.5), after 9 s in KRaft. An elected leader that was dead already is missed within this, or within its own session if
# that is longer.
SESSION_US: Final = 18_000_000
# What a clock is taken to be wrong by where nothing bounds it from both sides. At INFO that is the rule: lines are
# known to come after others, and none to come before; the smallest delay seen is then taken for none, and some ms
# are hidden in it. A clock that nothing bounds at all can only be hoped to be set right.
UNKNOWN_ERROR_US: Final = 50_000


def gone(absences: DataFrame, timed: DataFrame | None = None) -> DataFrame:
    """broker, gone, callbacks: one row for each broker that was ever lost.

    Args:
        timed: for directories that failed, and for when controllers began with a loss; without it there are neither.

    Returns:
        `gone` is a list of structs, of which `detected_us` is the first; `names` are the partitions that a loss is
        limited to, as `,topic-0,topic-1,`, or null. `callbacks` are times, in microseconds.
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
    # Sets, since the same line may stand in two files.
    return found.groupBy("broker").agg(
        f.collect_set("one").alias("gone"), f.sort_array(f.collect_set("callback_us")).alias("callbacks")
    )


def is_meant(one: Value) -> Value:
    """Whether a loss concerns the partition of the row that asks."""
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
    """When a controller began with what follows from brokers that left (C4)."""
    failed = timed.where(is_a(EventType.BROKER_FAILED) & f.col("at").isNotNull())
    return failed.select(
        f.explode("brokers_removed").alias("broker"),
        f.lit(None).cast(like.schema["one"].dataType).alias("one"),
        f.unix_micros("at").alias("callback_us"),
    )
