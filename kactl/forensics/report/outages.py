"""Queries on the table of outages: sums, percentiles, the worst of each incident, and its course.

`jobs/outages/totals.py` defines how outages add up.
"""

from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from kactl.forensics.jobs.expressions import ranked
from kactl.forensics.jobs.outages.totals import MEASURES, OBSERVED, PARTS, how_known, kind_of, totals
from kactl.forensics.tables import of_tuples

from .incidents import bucket_of
from .model import Band, Bar, Partition, Percentiles, Share, Sums

PARTITIONS_SHOWN: Final = 20
SHARES_SHOWN: Final = 10
# Of a partition with more outages in one incident the longest are drawn.
BARS_SHOWN: Final = 40
_BANDS: Final = ("shortest half", "next 40 %", "next 9 %", "longest 1 %")
NO_SUMS: Final = Sums(
    **{name: Percentiles(known=0) if name in MEASURES else 0 for name in Sums.__struct_fields__}  # type: ignore[arg-type]
)


def prepared(outages: DataFrame, logs_end_us: int | None) -> DataFrame:
    """Returns outages with the columns that all queries need: times as microseconds, bucket, kind, and certainty.

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
    sums = row.asDict(recursive=True)
    sums |= {name: _percentiles(sums[name]) for name in MEASURES} | {"total_ms": sums["unavailable_ms"]}
    return Sums(**{name: sums[name] for name in Sums.__struct_fields__})


def _percentiles(times: dict[str, int | None]) -> Percentiles:
    return Percentiles(
        known=times["known"] or 0, **{name: times[f"{name}_ms"] for name in ("p50", "p90", "p99", "max")}
    )


# -- of each incident --------------------------------------------------------------------------------------------------


def shares(outages: DataFrame) -> dict[tuple[int, str], tuple[Share, ...]]:
    """Returns, for each incident, the topics, brokers and causes with the most lost time."""
    keys = [
        f.struct(f.lit(column).alias("by"), f.col(column).cast("string").alias("name"))
        for column in ("topic", "broker", "cause")
    ]
    parts = outages.withColumn("part", f.explode(f.array(*keys))).withColumns(
        {"by": f.col("part.by"), "name": f.coalesce("part.name", f.lit("unknown"))}
    )
    sums = totals(parts, "incident", "by", "name").withColumnRenamed("unavailable_ms", "total_ms")
    worst = ranked(sums, "incident", "by", order=(f.desc("total_ms"), "name"), most=SHARES_SHOWN)
    shares_of: dict[tuple[int, str], tuple[Share, ...]] = {}
    for row in sorted(worst.collect(), key=lambda row: row["rank"]):
        key = (row["incident"], row["by"])
        shares_of[key] = (*shares_of.get(key, ()), Share(**{name: row[name] for name in Share.__struct_fields__}))
    return shares_of


_KEYS: Final = ("incident", "topic", "partition", "life")
_KEY_TYPES: Final = pa.schema(
    [("incident", pa.int32()), ("topic", pa.string()), ("partition", pa.int32()), ("life", pa.int32())]
)


def partitions(outages: DataFrame) -> dict[int, tuple[Partition, ...]]:
    """Returns, for each incident, the partitions that were unavailable for longest, with their outages in order of
    time.
    """
    sums = totals(outages, *_KEYS).select(*_KEYS, "outages", f.col("unavailable_ms").alias("total_ms"))
    order = (f.desc("total_ms"), "topic", "partition", "life")
    worst = ranked(sums, "incident", order=order, most=PARTITIONS_SHOWN)
    rows = sorted((row.asDict() for row in worst.collect()), key=lambda row: row["rank"])
    bars = _bars(outages, [_key(row) for row in rows]) if rows else {}
    by_incident: dict[int, tuple[Partition, ...]] = {}
    for row in rows:
        partition = Partition(
            bars=tuple(sorted(bars.get(_key(row), ()), key=lambda bar: bar.begin)),
            **{name: row[name] for name in ("topic", "partition", "life", "outages", "total_ms")},
        )
        by_incident[row["incident"]] = (*by_incident.get(row["incident"], ()), partition)
    return by_incident


_Key = tuple[Any, ...]


def _key(row: dict[str, Any]) -> _Key:
    return tuple(row[key] for key in _KEYS)


def _bars(outages: DataFrame, keys: list[_Key]) -> dict[_Key, list[Bar]]:
    wanted = f.broadcast(of_tuples(outages.sparkSession, _KEY_TYPES, keys))
    of_keys = outages.join(wanted, list(_KEYS))
    longest = ranked(of_keys, *_KEYS, order=(f.desc("duration_ms"), "begin_us"), most=BARS_SHOWN)
    shown = longest.withColumn("begin", f.timestamp_micros("begin_us"))
    bars: dict[_Key, list[Bar]] = {}
    for row in shown.select(*_KEYS, f.struct(*Bar.__struct_fields__).alias("bar")).toArrow().to_pylist():
        bars.setdefault(_key(row), []).append(msgspec.convert(row["bar"], Bar))
    return bars


# -- over time ---------------------------------------------------------------------------------------------------------

BEGINS: Final = "begins"
ENDS: Final = "ends"
ELECTIONS: Final = "elections"


def slot_of(time: Value) -> Value:
    """Returns the slot of microseconds within their incident, of a table joined with `incidents.numbered`."""
    return f.floor((time - f.col("incident_begin_us")) / f.col("slot_us")).cast("int").alias("slot")


def slots(outages: DataFrame) -> DataFrame:
    """Returns the number of outages that begin and end in each slot of their incident, and of elections.

    Columns: incident, event, observed, slot, number.
    """
    elected = f.unix_micros(f.coalesce("led_at", "elected_at"))
    times = {BEGINS: f.col("begin_us"), ENDS: f.col("end_us"), ELECTIONS: elected}
    events = f.array(*(f.struct(f.lit(event).alias("event"), slot_of(time)) for event, time in times.items()))
    observed = (f.col("known") == OBSERVED).alias("observed")
    changes = outages.select("incident", observed, f.explode(events).alias("change"))
    grouped = changes.where("change.slot is not null").groupBy("incident", "change.event", "observed", "change.slot")
    return grouped.agg(f.count("*").alias("number"))


def bands(outages: DataFrame, sums: dict[int, Sums]) -> dict[int, tuple[Band, ...]]:
    """Returns, for each incident, its outages by length, and the mean of each part of their time.

    If all outages are of one length there is one band with all of them.
    """
    limits = [
        (number, part.duration.p50, part.duration.p90, part.duration.p99)
        for number, part in sums.items()
        if part.duration.known
    ]
    if not limits:
        return {}
    schema = pa.schema([("incident", pa.int32()), *((name, pa.int64()) for name in ("p50", "p90", "p99"))])
    ends = of_tuples(outages.sparkSession, schema, limits)
    length = f.col("duration_ms")
    band = f.when(length <= f.col("p50"), 0).when(length <= f.col("p90"), 1).when(length <= f.col("p99"), 2)
    means = outages.join(f.broadcast(ends), "incident").groupBy("incident", band.otherwise(3).alias("band"))
    parts = [f.avg(f.coalesce(f"{name}_ms", f.lit(0))).alias(f"{name}_ms") for name in PARTS]
    rows = means.agg(f.count("*").alias("outages"), f.avg("duration_ms").alias("mean_ms"), *parts).collect()
    by_incident: dict[int, list[Band]] = {}
    for row in sorted(rows, key=lambda row: row["band"]):
        by_incident.setdefault(row["incident"], []).append(_band(row.asDict()))
    for bands_ in by_incident.values():
        if len(bands_) == 1:
            bands_[0] = msgspec.structs.replace(bands_[0], name="all")
    return {number: tuple(bands_) for number, bands_ in by_incident.items()}


def _band(row: dict[str, Any]) -> Band:
    parts = {f"{name}_ms": row[f"{name}_ms"] for name in PARTS}
    rest = max(0.0, row["mean_ms"] - sum(parts.values()))
    return Band(name=_BANDS[row["band"]], outages=row["outages"], mean_ms=row["mean_ms"], unknown_ms=rest, **parts)
