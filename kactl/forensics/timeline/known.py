"""What a name means: a partition, a topic, or neither, and then which names there are that are like it."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kactl.errors import NotFound
from kactl.forensics.jobs.losses.sums import by_partition, sums
from kactl.forensics.jobs.outages.totals import totals
from kactl.forensics.report.model import Time
from kactl.forensics.report.rows import moment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})")
_ALIKE: Final = 3
# More than that is no list for people; `sql` has them all.
PARTITIONS_MAX: Final = 5000


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of a topic: who led it last, and what became of it in between."""

    topic: str
    partition: int
    life: int
    leader: int | None
    leader_epoch: int | None
    elections: int
    outages: int
    unavailable_ms: int
    committed_lost: int
    cut_off: int
    first_at: Time | None
    last_at: Time | None


class NoSuchName(NotFound):
    """No line tells of a partition or topic of this name."""

    def __init__(self, name: str, alike: list[str]) -> None:
        super().__init__("partition or topic", name)
        near = f"the nearest are {', '.join(alike)}" if alike else "the logs name no topic at all"
        self.args = (f"these logs tell of no partition or topic {name!r}: {near}",)


def split(name: str) -> tuple[str, int] | None:
    """`orders-3` -> orders, 3: at the last dash, as topics may have dashes; None if it cannot be a partition."""
    found = _NAME.fullmatch(name)
    return None if found is None else (found["topic"], int(found["partition"]))


def find(tables: "Mapping[str, DataFrame]", name: str) -> tuple[str, int | None]:
    """The topic and partition that a name means; the partition is None if it is a topic's.

    Raises:
        NoSuchName: it is neither.
    """
    from pyspark.sql import functions as f

    parts = split(name)
    topics = [name] if parts is None else [name, parts[0]]
    rows = tables["leadership"].where(f.col("topic").isin(topics)).select("topic", "partition").distinct()
    wanted = None if parts is None else parts[1]
    found = {
        (row["topic"], row["is_it"])
        for row in rows.select("topic", f.col("partition").eqNullSafe(f.lit(wanted)).alias("is_it"))
        .distinct()
        .collect()
    }
    if parts is not None and (parts[0], True) in found:
        return parts
    if any(topic == name for topic, _ in found):
        return name, None
    if parts is not None and _is_told_of(tables["timed"], *parts):
        return parts
    raise NoSuchName(name, alike(tables, name, topics[-1]))


def _is_told_of(timed: "DataFrame", topic: str, partition: int) -> bool:
    """Whether any line is about it, though none says who leads it."""
    from pyspark.sql import functions as f

    return bool(timed.where((f.col("topic") == topic) & (f.col("partition") == partition)).limit(1).count())


def alike(tables: "Mapping[str, DataFrame]", name: str, topic: str) -> list[str]:
    """Names of topics, or partitions of the very topic, that are nearest to a name."""
    from pyspark.sql import functions as f

    own = tables["leadership"].where(f.col("topic") == topic).agg(f.min("partition"), f.max("partition")).collect()
    if own and own[0][0] is not None:
        return [f"{topic}-{own[0][0]} to {topic}-{own[0][1]}"]
    topics = tables["leadership"].select("topic").distinct()
    near = topics.orderBy(f.levenshtein("topic", f.lit(topic)), "topic").limit(_ALIKE)
    return [row["topic"] for row in near.collect()]


def lives(tables: "Mapping[str, DataFrame]", topic: str) -> list[Life]:
    """The partitions of a topic, by number; at the most `PARTITIONS_MAX`."""
    from pyspark.sql import functions as f

    keys = ["partition", "life"]
    of = f.col("topic") == topic
    last = f.struct("leader", "leader_epoch")
    led = tables["leadership"].where(of)
    led = led.groupBy(*keys).agg(
        f.max_by(last, "begin").alias("last"),
        f.sum(f.coalesce((f.col("leader") != f.col("prev_leader")).cast("long"), f.lit(0))).alias("elections"),
        f.unix_micros(f.min("begin")).alias("first_us"),
        f.unix_micros(f.max("begin")).alias("last_us"),
    )
    away = tables["outages"].where(of & ~f.coalesce("planned", f.lit(False)))
    away = totals(away, *keys).select(*keys, "outages", "unavailable_ms")
    lost = sums(by_partition(tables["losses"].where(of)), *keys)
    lost = lost.select(
        *keys, f.col("committed_records").alias("committed_lost"), f.col("tail_records").alias("cut_off")
    )
    both = led.join(away, keys, "left").join(lost, keys, "left").orderBy(*keys).limit(PARTITIONS_MAX)
    return [_life(topic, row.asDict(recursive=True)) for row in both.collect()]


def _life(topic: str, row: dict[str, Any]) -> Life:
    last = row["last"] or {"leader": None, "leader_epoch": None}
    return Life(
        topic=topic,
        partition=row["partition"],
        life=row["life"],
        leader=last["leader"],
        leader_epoch=last["leader_epoch"],
        elections=row["elections"],
        outages=row["outages"] or 0,
        unavailable_ms=row["unavailable_ms"] or 0,
        committed_lost=row["committed_lost"] or 0,
        cut_off=row["cut_off"] or 0,
        first_at=moment(row["first_us"]),
        last_at=moment(row["last_us"]),
    )
