"""Queries on the tables of losses and of unclean elections. `jobs/losses/sums.py` defines how losses add up."""

from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from kactl.forensics.jobs.losses import sums as loss_sums

from .findings import Down, Loss, Unclean
from .incidents import bucket_of
from .model import Lost
from .rows import micros, moment

LOSSES_SHOWN: Final = 20
UNCLEAN_SHOWN: Final = 20
TOPICS_SHOWN: Final = 20
# Names of the sums in a report.
_LOST: Final = {
    "partitions": "partitions",
    "committed": "committed_records",
    "tail": "tail_records",
    "committed_sure": "sure_committed_records",
    "tail_sure": "sure_tail_records",
    "unsized": "unknown",
}


def by_partition(losses: DataFrame) -> DataFrame:
    """Returns a row for each partition and epoch with a loss at its beginning, with its time and bucket."""
    at = f.unix_micros("at")
    return loss_sums.by_partition(losses).withColumns({"at_us": at, "bucket": bucket_of(at)})


def as_lost(row: Row) -> Lost:
    """Returns a row of `losses.sums.sums` as a value."""
    return Lost(**{name: row[given] for name, given in _LOST.items()})


def by_topic(partitions: DataFrame) -> tuple[tuple[str, Lost], ...]:
    """Returns the topics with the greatest losses. Spark sorts, because there may be as many topics as in the logs."""
    worst = loss_sums.sums(partitions, "topic").orderBy(f.desc("committed_records"), f.desc("tail_records"), "topic")
    return tuple((row["topic"], as_lost(row)) for row in worst.limit(TOPICS_SHOWN).collect())


def worst(partitions: DataFrame) -> tuple[Loss, ...]:
    """Returns the partitions with the greatest losses, those of committed records first."""
    most = [f.desc(f.coalesce(name, f.lit(0))) for name in ("committed_records", "tail_records")]
    ranked = partitions.orderBy(*most, "topic", "partition", "life", "leader_epoch")
    return tuple(_loss(row.asDict()) for row in ranked.limit(LOSSES_SHOWN).collect())


def _loss(row: dict[str, Any]) -> Loss:
    plain = {name: row[name] for name in Loss.__struct_fields__ if name in row}
    lists = {name: tuple(row[name]) for name in ("replicas", "evidence")}
    records = {"committed": row["committed_records"], "tail": row["tail_records"]}
    return Loss(**plain | lists | records | {"at": moment(row["at_us"])})


# -- unclean elections -------------------------------------------------------------------------------------------------


def placed(unclean: DataFrame) -> DataFrame:
    """Returns unclean elections with their time as microseconds, and its bucket."""
    at = f.unix_micros("at")
    return unclean.withColumns({"at_us": at, "bucket": bucket_of(at)})


def explained(unclean: DataFrame) -> tuple[Unclean, ...]:
    """Returns some unclean elections, the certain ones first, in order of time."""
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
