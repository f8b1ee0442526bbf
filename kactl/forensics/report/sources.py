"""Sources of a report: files, levels, clocks, brokers without logs, and their coverage; queries and report section."""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.decide.whatif.coverage import ENOUGH, share
from kactl.forensics.event_types import Kind
from kactl.forensics.tables import FILE_COLUMNS, Manifest
from kactl.forensics.wording import Moments, brokers, count, writers

from .facts import Facts, File, LogDetail, ReportCoverage, Sources
from .findings import Clock
from .rows import moment, values
from .section import Section, Table, field_table, fields

FILES_SHOWN: Final = 200
_NO_LOG: Final = (Kind.EMPTY, Kind.FOREIGN, Kind.UNREADABLE)
# The controller's own record is complete without a log of any broker.
_COMPLETE: Final = frozenset({Kind.DUMP, Kind.KACTL})


def sources(manifest: Manifest, tables: dict[str, DataFrame]) -> Sources:
    """Returns the sources, from the tables of files, levels, skew, leadership and absences."""
    # There may be any files beside logs; one counts as unreadable only if it was given by name.
    by_name = [path.rstrip("/") for path in manifest.sources]
    no_log = [str(kind) for kind in _NO_LOG]
    is_log = ~f.col("kind").isin(no_log)
    is_missed = f.col("error").isNotNull() & ((f.col("kind") != str(Kind.FOREIGN)) | f.col("path").isin(by_name))
    files = tables["files"].where(is_log | is_missed)
    (errors,) = files.agg(
        f.count_if(~is_log).alias("unreadable"), f.count_if(f.col("error").isNotNull()).alias("broken")
    ).collect()
    (period,) = (
        tables["files"]
        .agg(
            f.unix_micros(f.min("begin")).alias("begin"),
            f.unix_micros(f.max("end")).alias("end"),
            f.sort_array(f.collect_set("kind")).alias("kinds"),
        )
        .collect()
    )
    (led,) = (
        tables["leadership"]
        .agg(
            f.count("*").alias("led"),
            f.count("log_end").alias("with_log_end"),
            f.countDistinct("topic", "partition", "life").alias("partitions"),
            f.countDistinct("topic").alias("topics"),
        )
        .collect()
    )
    levels = _levels(tables["levels"])
    with_log = {log.speaker for log in levels}
    ids = _brokers(tables)
    return Sources(
        begin=moment(period["begin"]),
        end=moment(period["end"]),
        time_zone=manifest.time_zone,
        lines=manifest.lines,
        events=manifest.events,
        unparsed=manifest.unparsed,
        files=manifest.files,
        listed=_files(files.orderBy("file_id").limit(FILES_SHOWN)),
        levels=levels,
        clocks=values(tables["skew"].orderBy(f.asc_nulls_last("broker")), Clock),
        brokers=ids,
        silent=tuple(broker for broker in ids if broker not in with_log),
        kinds=tuple(kind for kind in period["kinds"] if kind not in no_log),
        **errors.asDict(),
        **led.asDict(),
    )


def _files(files: DataFrame) -> tuple[File, ...]:
    empty: Value = f.array().cast("array<string>")
    return values(files.withColumns({name: f.coalesce(name, empty) for name in ("levels", "warnings")}), File)


def _levels(levels: DataFrame) -> tuple[LogDetail, ...]:
    hours = levels.groupBy("speaker", "kind").agg(
        f.countDistinct(f.when(f.col("level") == "TRACE", f.col("hour"))).alias("trace_hours"),
        f.countDistinct("hour").alias("hours"),
    )
    return values(hours.orderBy("kind", "speaker"), LogDetail)


def _brokers(tables: dict[str, DataFrame]) -> tuple[int, ...]:
    """Returns all brokers that lead, are assigned or were absent, ascending."""
    replicas = f.coalesce("replicas", f.array().cast("array<int>"))
    assigned = tables["leadership"].select(f.explode(f.concat(f.array("leader"), replicas)).alias("broker"))
    ids = assigned.unionByName(tables["absences"].select("broker")).where("broker >= 0").distinct()
    return tuple(row["broker"] for row in ids.orderBy("broker").collect())


# -- coverage ----------------------------------------------------------------------------------------------------------


def coverage(facts: Facts, moments: Moments) -> ReportCoverage:
    """Returns the share of brokers, files, lines and time that the logs cover."""
    sources = facts.sources
    files, known, silent = sources.files + sources.unreadable, len(sources.brokers), len(sources.silent)
    is_complete = bool(sources.kinds) and _COMPLETE.issuperset(sources.kinds)
    of_brokers = 1.0 if is_complete else share(known - silent, known)
    of_files = share(files - sources.broken, files)
    of_lines = share(sources.events, sources.events + sources.unparsed)
    of_time = _time_share(facts)
    least = min(of_brokers, of_files, of_lines, of_time)
    none_of = f" (none of {brokers(sources.silent)})" if silent else ""
    parts = [
        f"logs of {known - silent:,} of {count(known, 'broker')}{none_of}",
        f"{files - sources.broken:,} of {count(files, 'file')} read to the end",
        f"{_percent(of_lines)} of the relevant lines parsed",
    ]
    if sources.begin is not None and sources.end is not None:
        part = "" if of_time >= 1 else f", {_percent(of_time)} of the requested time"
        parts.append(f"{moments.seconds(sources.begin)} to {moments.seconds(sources.end)} ({moments.name}){part}")
    return ReportCoverage(
        stated=f"Coverage: {', '.join(parts)}; {count(sources.partitions, 'partition')} known.",
        share=least,
        is_partial=least < ENOUGH,
        brokers=known,
        brokers_missing=sources.silent,
        brokers_share=of_brokers,
        files=files,
        files_broken=sources.broken,
        files_share=of_files,
        lines_share=of_lines,
        begin=sources.begin,
        end=sources.end,
        time_share=of_time,
        partitions=sources.partitions,
    )


def _time_share(facts: Facts) -> float:
    begin, end = facts.sources.begin, facts.sources.end
    if begin is None or end is None:
        return 1.0
    first, last = facts.asked.begin or begin, facts.asked.end or end
    requested_ms = round((last - first).total_seconds() * 1000)
    covered_ms = round((min(last, end) - max(first, begin)).total_seconds() * 1000)
    return share(max(0, covered_ms), requested_ms) if requested_ms > 0 else 1.0


def _percent(part: float) -> str:
    """Text such as '97.5 %', '100 %'; a smaller share is never shown as 100."""
    return f"{100 * part:.4g} %"


# -- section -----------------------------------------------------------------------------------------------------------


def source_section(facts: Facts, moments: Moments) -> Section:
    """Returns the section with the files, their limits as evidence, and the clocks."""
    sources = facts.sources
    shown = len(sources.listed)
    more = f" The first {shown} are shown." if sources.files > shown > 0 else ""
    return Section(
        name="sources",
        title="What this rests on",
        paragraphs=(
            f"{count(sources.files, 'file')} with {count(sources.lines, 'line')}, {sources.unparsed:,} of them not "
            f"parsed.{more} Times are of {moments.name}.",
        ),
        tables=(*_file_table(facts, moments), *_clock_table(facts)),
    )


def _file_table(facts: Facts, moments: Moments) -> tuple[Table, ...]:
    return field_table(
        (
            ("file", lambda file: file.path),
            *fields(FILE_COLUMNS, moments, "kind", "broker", "version"),
            ("levels", lambda file: ", ".join(file.levels) or None),
            ("begin", lambda file: moments.seconds(file.begin)),
            ("end", lambda file: moments.seconds(file.end)),
            *fields(FILE_COLUMNS, moments, "lines"),
            ("parsed", lambda file: None if file.coverage is None else f"{file.coverage:.1%}"),
            ("remarks", lambda file: "; ".join(filter(None, [file.error, *file.warnings])) or None),
        ),
        facts.sources.listed,
        "Files",
    )


def _clock_table(facts: Facts) -> tuple[Table, ...]:
    clocks = facts.sources.clocks
    if len(clocks) < 2:
        return ()
    return field_table(
        (
            ("clock of", lambda clock: writers([clock.broker])),
            ("is off by", lambda clock: _offset(clock.offset_us)),
            ("at least", lambda clock: _offset(clock.low_us)),
            ("at most", lambda clock: _offset(clock.high_us)),
            ("method", lambda clock: _METHODS[clock.how]),
        ),
        clocks,
        f"Clocks, against that of {writers([clocks[0].reference])}; the offset is subtracted before times are compared",
    )


_METHODS: Final = {
    "reference": "all are measured against it",
    "bounds": "bounded from both sides",
    "one-sided": "bounded from one side",
    "contradictory": "it drifted or jumped",
    "unknown": "not known",
}


def _offset(us: int | None) -> str | None:
    return None if us is None else f"{us / 1000:+,.1f} ms"
