"""Why an election had to be unclean: where those were who had been in sync, and since when the new leader was not."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

_KEY: Final = ("topic", "partition", "life")


def with_out(found: DataFrame, states: DataFrame) -> DataFrame:
    """`out_at`: since when each new leader had been out of the ISR."""
    known = states.where("isr is not null and leader_epoch is not null").select(
        *_KEY, f.struct("leader_epoch", f.coalesce("partition_epoch", f.lit(-1)), "at", "isr").alias("state")
    )
    one = found.select(*_KEY, "leader_epoch", "leader").where("leader_epoch is not null").distinct()
    was_in = f.array_contains("state.isr", f.col("leader")).alias("was_in")
    before = one.join(known, [*_KEY], "inner").where("state.leader_epoch < leader_epoch")
    history = before.groupBy(*_KEY, "leader_epoch", "leader").agg(
        f.sort_array(f.collect_list(f.struct("state", was_in))).alias("history")
    )
    since = f.aggregate(
        "history",
        f.lit(None).cast("timestamp"),
        lambda out_at, each: f.when(~each["was_in"], f.coalesce(out_at, each["state"]["at"])),
    )
    was_once_in = f.exists("history", lambda each: each["was_in"])
    times = history.select(*_KEY, "leader_epoch", "leader", f.when(was_once_in, since).alias("out_at"))
    return found.join(times, [*_KEY, "leader_epoch", "leader"], "left")


def with_isr_down(found: DataFrame, absences: DataFrame) -> DataFrame:
    """`isr_down`: where those were who had been in sync."""
    away = absences.select(
        f.col("broker").alias("member"), "detected_at", "back_at", "last_sign_at", f.lit(True).alias("away")
    )
    each = found.select(f.struct("*").alias("one"), f.posexplode_outer("prev_isr").alias("place", "member"))
    then = (f.col("detected_at").isNull() | (f.col("detected_at") <= f.col("one.at"))) & (
        f.col("back_at").isNull() | (f.col("back_at") > f.col("one.at"))
    )
    joined = each.join(f.broadcast(away), (each["member"] == away["member"]) & then, "left").drop(away["member"])
    latest = f.max_by(f.col("detected_at"), f.coalesce(f.unix_micros("detected_at"), f.lit(0)))
    placed = joined.groupBy("one", "place", "member").agg(
        f.coalesce(f.max("away"), f.lit(False)).alias("away"), latest.alias("down_at")
    )
    down_ms = f.floor((f.unix_micros("one.at") - f.unix_micros("down_at")) / 1000).cast("long")
    down = f.struct("place", f.col("member").alias("broker"), "away", "down_at", down_ms.alias("down_ms"))
    gathered = placed.groupBy("one").agg(
        f.sort_array(f.collect_list(f.when(f.col("member").isNotNull(), down))).alias("down")
    )
    listed = f.transform(
        "down",
        lambda member: f.struct(
            member["broker"].alias("broker"),
            member["away"].alias("away"),
            member["down_at"].alias("down_at"),
            member["down_ms"].alias("down_ms"),
        ),
    )
    return gathered.select("one.*", f.when(f.col("one.prev_isr").isNotNull(), listed).alias("isr_down"))
