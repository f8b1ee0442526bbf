"""Queries on the table of outages: sums, percentiles, the worst of each incident, and its course.

`jobs/outages/totals.py` defines how outages add up.
"""

from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as f

from kactl.forensics.jobs.outages.totals import MEASURES, OBSERVED, PARTS, how_known, kind_of, totals

from .incidents import bucket_of
from .model import Band, Bar, Partition, Percentiles, Share, Sums

PARTITIONS_SHOWN: Final = 20
SHARES_SHOWN: Final = 10
# Of a partition with more outages in one incident the longest are drawn.
BARS_SHOWN: Final = 40
_BANDS: Final = ("shortest half", "next 40 %", "next 9 %", "longest 1 %")
_NONE: Final = Percentiles(known=0)
NO_SUMS: Final = Sums(
    outages=0,
    partitions=0,
    topics=0,
    observed=0,
    inferred=0,
    bounded=0,
    open=0,
    unclean=0,
    attempts_failed=0,
    total_ms=0,
    least_ms=0,
    most_ms=0,
    duration=_NONE,
    detection=_NONE,
    queue=_NONE,
    waiting=_NONE,
    election=_NONE,
    send=_NONE,
    apply=_NONE,
)


def prepared(outages: DataFrame, logs_end_us: int | None) -> DataFrame:
    """Returns outages with the columns that all queries need: times as microseconds, bucket, kind, and how well each is
    known.

    An open outage lasts to the end of the logs.
    """
    begin = f.unix_micros(f.coalesce("begin", "begin_high", "end"))
    open_end = f.least(begin + f.col("duration_ms") * 1000, f.lit(logs_end_us).cast("long"))
    end = f.greatest(f.coalesce(f.unix_micros("end"), open_end, begin), begin)
    return outages.withColumns(
        {
            "begin_us": begin,
            "end_us": end,
            "bucket": bucket_of(begin),
            "kind": kind_of(),
            "known": how_known(),
            "duration_ms": f.coalesce("duration_ms", f.floor((end - begin) / 1000).cast("long")),
        }
    )


def as_sums(row: Row) -> Sums:
    """Returns a row of `totals` with its times."""
    found = row.asDict(recursive=True)
    found |= {name: _percentiles(found[name]) for name in MEASURES} | {"total_ms": found["unavailable_ms"]}
    return Sums(**{name: found[name] for name in Sums.__struct_fields__})


def _percentiles(found: dict[str, int | None]) -> Percentiles:
    return Percentiles(
        known=found["known"] or 0, **{name: found[f"{name}_ms"] for name in ("p50", "p90", "p99", "max")}
    )


# -- of each incident --------------------------------------------------------------------------------------------------


def shares(outages: DataFrame) -> dict[tuple[int, str], tuple[Share, ...]]:
    """Returns, for each incident, the topics, brokers and causes with the most lost time."""
    ways = {"topic": "topic", "broker": "broker", "cause": "cause"}
    what = [f.struct(f.lit(way).alias("way"), f.col(name).cast("string").alias("name")) for way, name in ways.items()]
    parted = outages.withColumn("of", f.explode(f.array(*what))).withColumns(
        {"way": f.col("of.way"), "name": f.coalesce("of.name", f.lit("unknown"))}
    )
    counted = totals(parted, "incident", "way", "name").withColumnRenamed("unavailable_ms", "total_ms")
    counted = counted.select("incident", "way", *Share.__struct_fields__)
    worst = Window.partitionBy("incident", "way").orderBy(f.desc("total_ms"), "name")
    kept = counted.withColumn("place", f.row_number().over(worst)).where(f.col("place") <= SHARES_SHOWN)
    made: dict[tuple[int, str], tuple[Share, ...]] = {}
    for row in sorted(kept.collect(), key=lambda each: each["place"]):
        key = (row["incident"], row["way"])
        share = Share(**{name: row[name] for name in Share.__struct_fields__})
        made[key] = (*made.get(key, ()), share)
    return made


def partitions(outages: DataFrame) -> dict[int, tuple[Partition, ...]]:
    """Returns, for each incident, the partitions that were unavailable for longest, with their outages in order of
    time.

    Only the first rows of each incident leave a task: Spark applies the rank limit before it shuffles.
    """
    keys = ["incident", "topic", "partition", "life"]
    summed = totals(outages, *keys).select(*keys, "outages", f.col("unavailable_ms").alias("total_ms"))
    worst = Window.partitionBy("incident").orderBy(f.desc("total_ms"), "topic", "partition", "life")
    kept = summed.withColumn("place", f.row_number().over(worst)).where(f.col("place") <= PARTITIONS_SHOWN)
    found = [row.asDict() for row in kept.collect()]
    if not found:
        return {}
    names = f.broadcast(outages.sparkSession.createDataFrame([tuple(row[key] for key in keys) for row in found], _KEYS))
    longest = Window.partitionBy(*keys).orderBy(f.desc("duration_ms"), "begin_us")
    drawn = (
        outages.join(names, keys)
        .withColumn("place", f.row_number().over(longest))
        .where(f.col("place") <= BARS_SHOWN)
        .select(*keys, f.struct(*_bar_columns()).alias("bar"))
    )
    bars: dict[tuple[Any, ...], list[Bar]] = {}
    for each in drawn.collect():
        bars.setdefault(tuple(each[key] for key in keys), []).append(_bar(each["bar"].asDict()))
    return _placed(found, keys, bars)


_KEYS: Final = "incident int, topic string, partition int, life int"


def _placed(
    found: Iterable[dict[str, Any]], keys: list[str], bars: dict[tuple[Any, ...], list[Bar]]
) -> dict[int, tuple[Partition, ...]]:
    made: dict[int, tuple[Partition, ...]] = {}
    for row in sorted(found, key=lambda each: each["place"]):
        item = Partition(
            topic=row["topic"],
            partition=row["partition"],
            life=row["life"],
            outages=row["outages"],
            total_ms=row["total_ms"],
            bars=tuple(sorted(bars.get(tuple(row[key] for key in keys), ()), key=lambda bar: bar.begin)),
        )
        made[row["incident"]] = (*made.get(row["incident"], ()), item)
    return made


_BAR_TIMES: Final = ("begin", "begin_low", "begin_high", "end", "end_low", "end_high")


def _bar_columns() -> list[Any]:
    from .rows import micros

    plain = ["begin_kind", "end_kind", "duration_ms", "cause", "broker", "new_leader", "unclean"]
    return [f.col("begin_us").alias("begin"), *(micros(name) for name in _BAR_TIMES[1:]), *map(f.col, plain)]


def _bar(row: dict[str, Any]) -> Bar:
    from .rows import moment

    return Bar(**row | {name: moment(row[name]) for name in _BAR_TIMES})


# -- over time ---------------------------------------------------------------------------------------------------------

BEGINS: Final = "begins"
ENDS: Final = "ends"
ELECTIONS: Final = "elections"


def slots(outages: DataFrame) -> DataFrame:
    """Returns the number of outages that begin and end in each slot of their incident: (incident, what, observed, slot,
    number).
    """

    def slot(time: Any) -> Any:
        return f.floor((time - f.col("incident_begin_us")) / f.col("slot_us")).cast("int")

    elected = f.unix_micros(f.coalesce("led_at", "elected_at"))
    changes = f.array(
        f.struct(f.lit(BEGINS).alias("what"), slot(f.col("begin_us")).alias("slot")),
        f.struct(f.lit(ENDS).alias("what"), slot(f.col("end_us")).alias("slot")),
        f.struct(f.lit(ELECTIONS).alias("what"), slot(elected).alias("slot")),
    )
    exploded = outages.select("incident", (f.col("known") == OBSERVED).alias("observed"), f.explode(changes).alias("c"))
    return (
        exploded.where("c.slot is not null")
        .groupBy("incident", "c.what", "observed", "c.slot")
        .agg(f.count("*").alias("number"))
    )


def bands(outages: DataFrame, found: dict[int, Sums]) -> dict[int, tuple[Band, ...]]:
    """Returns, for each incident, its outages by length, and the mean of each part of their time."""
    limits = [
        (number, each.duration.p50, each.duration.p90, each.duration.p99)
        for number, each in found.items()
        if each.duration.known
    ]
    if not limits:
        return {}
    ends = outages.sparkSession.createDataFrame(limits, "incident int, p50 long, p90 long, p99 long")
    length = f.col("duration_ms")
    band = f.when(length <= f.col("p50"), 0).when(length <= f.col("p90"), 1).when(length <= f.col("p99"), 2)
    means = outages.join(f.broadcast(ends), "incident").groupBy("incident", band.otherwise(3).alias("band"))
    parts = [f.avg(f.coalesce(f"{name}_ms", f.lit(0))).alias(f"{name}_ms") for name in PARTS]
    rows = means.agg(f.count("*").alias("outages"), f.avg("duration_ms").alias("mean_ms"), *parts).collect()
    made: dict[int, tuple[Band, ...]] = {}
    for row in sorted(rows, key=lambda each: each["band"]):
        made[row["incident"]] = (*made.get(row["incident"], ()), _band(row.asDict()))
    return {number: _named(found) for number, found in made.items()}


def _named(found: tuple[Band, ...]) -> tuple[Band, ...]:
    """Name the bands. If all outages are of one length there is one band with all of them."""
    import msgspec

    return (msgspec.structs.replace(found[0], name="all"),) if len(found) == 1 else found


def _band(row: dict[str, Any]) -> Band:
    parts = {f"{name}_ms": row[f"{name}_ms"] for name in PARTS}
    rest = max(0.0, row["mean_ms"] - sum(parts.values()))
    return Band(name=_BANDS[row["band"]], outages=row["outages"], mean_ms=row["mean_ms"], unknown_ms=rest, **parts)
