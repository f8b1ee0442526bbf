"""Detection of logs of several clusters, whose events must not be mixed.

Within one cluster a name belongs to one topic at a time, and one controller acts at a time: an older one stops when it
notices that it was replaced, and the epoch of the next is higher by one.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.jobs.expressions import is_a
from kactl.model.errors import BadRequest

# Clocks of brokers differ by less, and controllers that were replaced act for less.
_TOPICS_US: Final = 60_000_000
_CONTROLLERS_US: Final = 300_000_000
_PAIRS: Final = 10


class SeveralClusters(BadRequest):
    """The logs are of several clusters."""


def check_one_cluster(tables: Mapping[str, DataFrame]) -> None:
    """Check that the logs are of one cluster.

    Args:
        tables: the tables of events and files.

    Raises:
        SeveralClusters: they are of several ones; the message has the evidence, with a file of each.
    """
    evidence = _two_topics(tables["events"]) or _two_controllers(tables["events"])
    if evidence is None:
        return
    what, numbers = evidence
    files = tables["files"].where(f.col("file_id").isin(numbers)).orderBy("file_id").select("path").collect()
    paths = " and ".join(dict.fromkeys(row["path"] for row in files))
    raise SeveralClusters(
        "LOGS",
        f"these are logs of several clusters: {what}, for example in {paths}. Events of different clusters must not be "
        "mixed: ingest the logs of each cluster into a folder of its own",
    )


def _two_topics(events: DataFrame) -> tuple[str, list[int]] | None:
    """Returns a name that belonged to two topics at once, and the files that show them."""
    roles = events.where(is_a(EventType.LEADS, EventType.FOLLOWS) & f.col("topic").isNotNull())
    spans = _spans(roles, "topic_id", "topic")
    is_pair = (f.col("a.topic") == f.col("b.topic")) & (f.col("a.topic_id") < f.col("b.topic_id"))
    for a, b in _pairs(spans, is_pair, _TOPICS_US):
        return f"topic {a['topic']} has two ids at once, {a['topic_id']} and {b['topic_id']}", [a["file"], b["file"]]
    return None


def _two_controllers(events: DataFrame) -> tuple[str, list[int]] | None:
    """Returns two controllers that acted at once with separate epochs, and the files that show them."""
    # Lines of KRaft's quorum repeat earlier epochs.
    is_act = (f.col("role") == Role.CONTROLLER) & ~f.coalesce("format", f.lit("")).startswith("K")
    acts = events.where(is_act & f.col("controller").isNotNull())
    spans = _spans(acts, "controller_epoch", "controller")
    # One that was replaced is followed by the next epoch, and no two have the same.
    older, newer = f.col("a.controller_epoch"), f.col("b.controller_epoch")
    is_pair = (newer > older + 1) | ((older == newer) & (f.col("a.controller") < f.col("b.controller")))
    for a, b in _pairs(spans, is_pair, _CONTROLLERS_US):
        first, second = sorted((a, b), key=lambda span: span["first_us"])
        # A controller that was paused acts once more as it resumes, however late.
        if _lasted_us(acts, first, second["first_us"]) < _CONTROLLERS_US:
            continue
        both = " and ".join(f"{each['controller']} with epoch {each['controller_epoch']}" for each in (a, b))
        return f"the controllers {both} acted at once", [a["file"], b["file"]]
    return None


def _lasted_us(acts: DataFrame, controller: Row, since_us: int) -> int:
    """Returns the time between the first and the last act of a controller after some time."""
    us = f.unix_micros("ts")
    own = acts.where(
        (f.col("controller") == controller["controller"])
        & (f.col("controller_epoch") == controller["controller_epoch"])
        & (us > since_us)
    )
    (row,) = own.agg((f.max(us) - f.min(us)).alias("us")).collect()
    return int(row["us"] or 0)


def _spans(events: DataFrame, key: str, name: str) -> DataFrame:
    """The first and the last time of each key, and the file of the first."""
    us = f.unix_micros("ts")
    known = events.where(f.col("ts").isNotNull() & f.col(key).isNotNull())
    return known.groupBy(key, name).agg(
        f.min(us).alias("first_us"), f.max(us).alias("last_us"), f.min_by("file_id", us).alias("file")
    )


def _pairs(spans: DataFrame, is_pair: Value, longer_us: int) -> list[tuple[Row, Row]]:
    """Returns the first pairs of spans that overlap by more than a time."""
    begin = f.greatest("a.first_us", "b.first_us")
    is_long = f.least("a.last_us", "b.last_us") - begin > longer_us
    both = spans.alias("a").join(spans.alias("b"), is_pair & is_long).orderBy(begin)
    rows = both.select(f.struct("a.*").alias("a"), f.struct("b.*").alias("b")).limit(_PAIRS).collect()
    return [(row["a"], row["b"]) for row in rows]
