"""Sources of a report: files, levels, clocks, and brokers without logs."""

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.event_types import Kind

from .facts import File, Sources, Spoken
from .findings import Clock
from .rows import moment, values

if TYPE_CHECKING:
    from kactl.forensics.tables import Manifest

FILES_SHOWN: Final = 200
_NO_LOG: Final = (Kind.EMPTY, Kind.FOREIGN, Kind.UNREADABLE)


def sources(manifest: "Manifest", tables: dict[str, DataFrame]) -> Sources:
    """Returns the sources, from the tables of files, levels, skew, leadership and absences."""
    # There may be any files beside logs; one counts as unreadable only if it was given by name.
    named = [each.rstrip("/") for each in manifest.sources]
    missed = f.col("error").isNotNull() & ((f.col("kind") != str(Kind.FOREIGN)) | f.col("path").isin(named))
    is_log = ~f.col("kind").isin([str(each) for each in _NO_LOG])
    files = tables["files"].where(is_log | missed)
    (unread,) = files.agg(
        f.count_if(~is_log).alias("unreadable"), f.count_if(f.col("error").isNotNull()).alias("broken")
    ).collect()
    ends = tables["files"].agg(
        f.unix_micros(f.min("begin")).alias("begin"),
        f.unix_micros(f.max("end")).alias("end"),
        f.sort_array(f.collect_set("kind")).alias("kinds"),
    )
    (end,) = ends.collect()
    speakers, levels = _levels(tables["levels"])
    (led,) = _led(tables["leadership"]).collect()
    brokers = _brokers(tables)
    return Sources(
        begin=moment(end["begin"]),
        end=moment(end["end"]),
        time_zone=manifest.time_zone,
        lines=manifest.lines,
        events=manifest.events,
        unparsed=manifest.unparsed,
        files=manifest.files,
        unreadable=unread["unreadable"],
        broken=unread["broken"],
        listed=_files(files.orderBy("file_id").limit(FILES_SHOWN)),
        levels=levels,
        clocks=values(tables["skew"].orderBy(f.asc_nulls_last("broker")), Clock),
        partitions=led["partitions"],
        topics=led["topics"],
        led=led["led"],
        with_log_end=led["with_log_end"],
        brokers=brokers,
        silent=tuple(each for each in brokers if each not in speakers),
        kinds=tuple(each for each in end["kinds"] if each not in {str(kind) for kind in _NO_LOG}),
    )


def _files(files: DataFrame) -> tuple[File, ...]:
    empty = f.array().cast("array<string>")
    return values(files.withColumns({name: f.coalesce(name, empty) for name in ("levels", "warnings")}), File)


def _levels(table: DataFrame) -> tuple[set[int], tuple[Spoken, ...]]:
    """The writers, and the detail of each kind of log; its size is that of the cluster."""
    summed = table.groupBy("speaker", "kind").agg(
        f.countDistinct(f.when(f.col("level") == "TRACE", f.col("hour"))).alias("trace_hours"),
        f.countDistinct("hour").alias("hours"),
    )
    found = values(summed.orderBy("kind", "speaker"), Spoken)
    return {each.speaker for each in found if each.speaker is not None}, found


def _led(table: DataFrame) -> DataFrame:
    return table.agg(
        f.count("*").alias("led"),
        f.count("log_end").alias("with_log_end"),
        f.countDistinct("topic", "partition", "life").alias("partitions"),
        f.countDistinct("topic").alias("topics"),
    )


def _brokers(tables: dict[str, DataFrame]) -> tuple[int, ...]:
    """All brokers that lead, are assigned or were absent, ascending."""

    def of(table: str, column: Any) -> DataFrame:
        return tables[table].select(column.alias("broker")).distinct()

    leadership = of(
        "leadership", f.explode(f.concat(f.array("leader"), f.coalesce("replicas", f.array().cast("array<int>"))))
    )
    both = leadership.unionByName(of("absences", f.col("broker"))).where("broker >= 0").distinct()
    return tuple(row["broker"] for row in both.orderBy("broker").collect())
