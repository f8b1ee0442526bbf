"""Questions to the tables of losses and of unclean elections.

Several replicas may have had the same records that a new leader did not have: of each partition and epoch the replica
that had most counts, and no other.
"""

from typing import TYPE_CHECKING, Any, Final

from .findings import Down, Loss, Unclean
from .incidents import bucket_of
from .model import Lost
from .rows import micros, moment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

LOSSES_SHOWN: Final = 20
UNCLEAN_SHOWN: Final = 20
TOPICS_SHOWN: Final = 20
_KEYS: Final = ("topic", "partition", "life", "leader_epoch")
NOTHING: Final = Lost()


def by_partition(losses: "DataFrame") -> "DataFrame":
    """A row for each partition and epoch at whose beginning something was lost."""
    from pyspark.sql import functions as f

    def most(name: str, *, sure: bool = False) -> Any:
        counted = f.when(f.col("certain"), f.col(name)) if sure else f.col(name)
        return f.max(f.coalesce(counted, f.lit(0)))

    at = f.min(f.coalesce("at", "replica_at"))
    summed = losses.groupBy(*_KEYS).agg(
        f.unix_micros(at).alias("at_us"),
        f.min("leader").alias("leader"),
        f.min("log_end").alias("log_end"),
        f.max("unclean").alias("unclean"),
        f.sort_array(f.collect_set("replica")).alias("replicas"),
        f.max("committed_records").alias("committed"),
        f.max("tail_records").alias("tail"),
        most("committed_records").alias("committed_all"),
        most("tail_records").alias("tail_all"),
        most("committed_records", sure=True).alias("committed_sure"),
        most("tail_records", sure=True).alias("tail_sure"),
        f.max("tail_records").isNull().cast("long").alias("unsized"),
        f.sort_array(f.collect_set("evidence")).alias("evidence"),
        f.coalesce(f.max(f.col("truncated_to").isNotNull()), f.lit(False)).alias("truncated"),
        f.coalesce(f.max("certain"), f.lit(False)).alias("certain"),
    )
    return summed.withColumn("bucket", bucket_of(f.col("at_us")))


def lost_by(partitions: "DataFrame", *by: str) -> "list[Row]":
    """A row of sums for each value of `by`, which must be few; see `as_lost`."""
    return _summed(partitions, *by).collect()


def _summed(partitions: "DataFrame", *by: str) -> "DataFrame":
    from pyspark.sql import functions as f

    return partitions.groupBy(*by).agg(
        f.countDistinct("topic", "partition", "life").alias("partitions"),
        *(f.sum(f"{name}_all").alias(name) for name in ("committed", "tail")),
        *(f.sum(name).alias(name) for name in ("committed_sure", "tail_sure", "unsized")),
    )


def as_lost(row: "Row") -> Lost:
    return Lost(**{name: row[name] or 0 for name in Lost.__struct_fields__})


def by_topic(partitions: "DataFrame") -> tuple[tuple[str, Lost], ...]:
    """The topics that lost most; there may be as many topics as logs speak of, so Spark sorts."""
    from pyspark.sql import functions as f

    worst = _summed(partitions, "topic").orderBy(f.desc("committed"), f.desc("tail"), "topic").limit(TOPICS_SHOWN)
    return tuple((row["topic"], as_lost(row)) for row in worst.collect())


def worst(partitions: "DataFrame") -> tuple[Loss, ...]:
    """The partitions that lost most, those that lost committed records first."""
    from pyspark.sql import functions as f

    ranked = partitions.orderBy(f.desc("committed_all"), f.desc("tail_all"), *_KEYS).limit(LOSSES_SHOWN)
    return tuple(_loss(row.asDict()) for row in ranked.collect())


def _loss(row: dict[str, Any]) -> Loss:
    plain = {name: row[name] for name in Loss.__struct_fields__ if name in row}
    lists = {name: tuple(row[name]) for name in ("replicas", "evidence")}
    return Loss(**plain | lists, at=moment(row["at_us"]))


# -- unclean elections -------------------------------------------------------------------------------------------------


def placed(unclean: "DataFrame") -> "DataFrame":
    """Unclean elections with their time as microseconds, and its bucket."""
    from pyspark.sql import functions as f

    at = f.unix_micros("at")
    return unclean.withColumns({"at_us": at, "bucket": bucket_of(at)})


def explained(unclean: "DataFrame") -> tuple[Unclean, ...]:
    """Some of them, the certain ones first, in order of time."""
    from pyspark.sql import functions as f

    first = unclean.orderBy(f.desc("certain"), "at", "topic", "partition", "life").limit(UNCLEAN_SHOWN)
    down = f.transform(
        "isr_down",
        lambda each: f.struct(
            each["broker"].alias("broker"),
            each["away"].alias("away"),
            f.unix_micros(each["down_at"]).alias("down_at"),
            each["down_ms"].alias("down_ms"),
        ),
    )
    names = [name for name in Unclean.__struct_fields__ if name not in ("at", "isr_down")]
    rows = first.select(*names, micros("at"), down.alias("isr_down")).collect()
    return tuple(_unclean(row.asDict(recursive=True)) for row in rows)


def _unclean(row: dict[str, Any]) -> Unclean:
    return Unclean(
        **row
        | {
            "at": moment(row["at"]),
            "prev_isr": tuple(row["prev_isr"] or ()),
            "evidence": tuple(row["evidence"] or ()),
            "certain": bool(row["certain"]),
            "isr_down": tuple(
                Down(
                    broker=each["broker"],
                    away=bool(each["away"]),
                    down_at=moment(each["down_at"]),
                    down_ms=each["down_ms"],
                )
                for each in row["isr_down"] or ()
            ),
        }
    )
