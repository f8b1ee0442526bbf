"""Sources of a report: files, levels, clocks, brokers without logs, and their coverage; queries and report section."""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.decide.whatif.coverage import ENOUGH, share
from kactl.forensics.event_types import NO_LOG, EventType, Kind, Role
from kactl.forensics.jobs.expressions import is_a
from kactl.forensics.tables import FILE_COLUMNS, Manifest
from kactl.forensics.wording import Moments, brokers, count, listed, writers

from .facts import Facts, File, Jump, LeftOut, LogDetail, ReportCoverage, Sources
from .findings import Clock
from .gaps import Gap, gaps
from .rows import moment, values
from .section import Section, Table, field_table, fields

FILES_SHOWN: Final = 200
EPOCHS_SHOWN: Final = 10
# Smaller steps, as of NTP, are within the bounds of the clocks.
JUMP_MS: Final = 10_000
_JUMPS_SHOWN: Final = 5
# Lines of a controller about brokers, which controller.log has and state-change.log has not.
_DETECTIONS: Final = (
    EventType.BROKERS_CHANGED,
    EventType.BROKER_FAILED,
    EventType.BROKER_STARTED,
    EventType.BROKER_STOPPING,
    EventType.BROKER_FENCED,
    EventType.BROKER_UNFENCED,
    EventType.BROKER_REGISTERED,
)
# The controller's own record is complete without a log of any broker.
_COMPLETE: Final = frozenset({Kind.DUMP, Kind.KACTL})


def sources(manifest: Manifest, tables: dict[str, DataFrame]) -> Sources:
    """Returns the sources, from the tables of files, levels, skew, leadership and absences."""
    # There may be any files beside logs; one counts as unreadable only if it was given by name.
    by_name = [path.rstrip("/") for path in manifest.sources]
    no_log = [str(kind) for kind in NO_LOG]
    is_log = ~f.col("kind").isin(no_log)
    is_missed = f.col("error").isNotNull() & ((f.col("kind") != str(Kind.FOREIGN)) | f.col("path").isin(by_name))
    is_other = ~is_log & ~is_missed
    files = tables["files"].where(is_log | is_missed)
    in_unknown_layout = f.when(f.col("kind") == str(Kind.NOT_UNDERSTOOD), f.col("path"))
    (counts,) = (
        tables["files"]
        .agg(
            f.count_if(is_missed & ~is_log).alias("unreadable"),
            f.count_if(is_missed | (is_log & f.col("error").isNotNull())).alias("broken"),
            f.count_if(is_other).alias("left_out_all"),
            f.slice(f.sort_array(f.collect_set(in_unknown_layout)), 1, FILES_SHOWN).alias("not_understood"),
        )
        .collect()
    )
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
    left_out = tables["files"].where(is_other).select("path", f.coalesce("error", f.lit("is empty")).alias("reason"))
    (epochs,) = _epochs_without_line(tables["leadership"]).collect()
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
        gaps=_gaps(tables, period["begin"], period["end"], with_log),
        epochs_missing=epochs["missing"] or 0,
        epochs_missing_of=tuple(epochs["names"]),
        unnamed=_unnamed(tables["events"]),
        jumps=values(_jumps(tables), Jump),
        with_detections=bool(tables["events"].where(is_a(*_DETECTIONS)).limit(1).count()),
        not_understood=tuple(counts["not_understood"]),
        left_out=values(left_out.orderBy("path").limit(FILES_SHOWN), LeftOut) if counts["left_out_all"] else (),
        **{name: counts[name] for name in ("unreadable", "broken", "left_out_all")},
        **led.asDict(),
    )


def _files(files: DataFrame) -> tuple[File, ...]:
    empty: Value = f.array().cast("array<string>")
    return values(files.withColumns({name: f.coalesce(name, empty) for name in ("levels", "warnings")}), File)


def _gaps(
    tables: dict[str, DataFrame], begin: int | None, end: int | None, speakers: set[int | None]
) -> tuple[Gap, ...]:
    if begin is None or end is None:
        return ()
    return gaps(tables, (begin, end), [speaker for speaker in speakers if speaker is not None])


def _unnamed(events: DataFrame) -> int:
    """Number of changes of partitions by KRaft's controllers, if no line names a partition that changed."""
    is_named = is_a(EventType.LEADERSHIP) & (f.col("role") == Role.CONTROLLER)
    (row,) = events.agg(
        f.sum(f.when(is_a(EventType.PARTITIONS_CHANGED), f.col("count"))).alias("changed"),
        f.count_if(is_named).alias("named"),
    ).collect()
    return 0 if row["named"] else int(row["changed"] or 0)


def _jumps(tables: dict[str, DataFrame]) -> DataFrame:
    """The largest steps back of clocks. In files of several brokers, and those of unset clocks, steps are none."""
    one_writer = tables["files"].where(f.col("broker").isNotNull()).select("file_id")
    back = tables["events"].where(is_a(EventType.CLOCK_BACK) & (f.col("took_ms") >= JUMP_MS))
    jumps = back.join(one_writer, "file_id", "left_semi").where(f.col("speaker").isNotNull())
    largest = jumps.orderBy(f.desc("took_ms")).limit(_JUMPS_SHOWN)
    return largest.select(f.col("speaker").alias("broker"), f.col("ts").alias("at"), f.col("took_ms").alias("ms"))


def _epochs_without_line(leadership: DataFrame) -> DataFrame:
    """Sum of the leader epochs between known ones that are in no log, and the partitions with most of them."""
    spans = leadership.groupBy("topic", "partition", "life").agg(
        (f.max("leader_epoch") - f.min("leader_epoch") + 1 - f.countDistinct("leader_epoch")).alias("missing")
    )
    worst = f.sort_array(f.collect_list(f.struct((-f.col("missing")).alias("rank"), "topic", "partition")))
    names = f.transform(f.slice(worst, 1, EPOCHS_SHOWN), lambda row: f.concat_ws("-", row["topic"], row["partition"]))
    return spans.where("missing > 0").agg(f.sum("missing").alias("missing"), names.alias("names"))


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
    of_epochs = share(sources.led, sources.led + sources.epochs_missing) if sources.epochs_missing else 1.0
    least = min(of_brokers, of_files, of_lines, of_time, of_epochs)
    none_of = f" (none of {brokers(sources.silent)})" if silent else ""
    unknown = sources.not_understood
    which = f" ({listed(unknown, most=3)} not understood)" if unknown else ""
    parts = [
        f"logs of {known - silent:,} of {count(known, 'broker')}{none_of}",
        f"{files - sources.broken:,} of {count(files, 'file')} read to the end{which}",
        f"{_percent(of_lines)} of the relevant lines parsed",
    ]
    if sources.begin is not None and sources.end is not None:
        of = "the requested time" if facts.asked.begin or facts.asked.end else "that time in the brokers' logs"
        part = "" if of_time >= 1 else f", {_percent(of_time)} of {of}"
        parts.append(f"{moments.seconds(sources.begin)} to {moments.seconds(sources.end)} ({moments.name}){part}")
    if of_gaps := gap_texts(facts, moments):
        parts.append(f"no lines of {listed(of_gaps, most=3)}")
    if sources.epochs_missing:
        parts.append(
            f"{count(sources.epochs_missing, 'leader epoch')} of {listed(sources.epochs_missing_of, most=3)} in no log"
        )
    return ReportCoverage(
        stated=f"Coverage: {', '.join(parts)}; {count(sources.partitions, 'partition')} known.",
        share=least,
        is_partial=least < ENOUGH,
        brokers=known,
        brokers_missing=sources.silent,
        brokers_share=of_brokers,
        files=files,
        files_broken=sources.broken,
        files_not_understood=unknown,
        files_share=of_files,
        lines_share=of_lines,
        begin=sources.begin,
        end=sources.end,
        time_share=of_time,
        epochs_missing=sources.epochs_missing,
        epochs_share=of_epochs,
        partitions=sources.partitions,
    )


def gap_texts(facts: Facts, moments: Moments) -> list[str]:
    """Returns the gaps within the requested time, the longest first, those at the same time together."""
    brokers_of: dict[tuple[str, str], list[int]] = {}
    for gap in sorted(facts.sources.gaps, key=lambda gap: -gap.ms):
        begin, end = max(gap.begin, facts.asked.begin or gap.begin), min(gap.end, facts.asked.end or gap.end)
        if begin < end:
            brokers_of.setdefault((moments.seconds(begin), moments.seconds(end)), []).append(gap.broker)
    return [f"{brokers(ids)} from {begin} to {end}" for (begin, end), ids in brokers_of.items()]


def _time_share(facts: Facts) -> float:
    begin, end = facts.sources.begin, facts.sources.end
    if begin is None or end is None:
        return 1.0
    first, last = facts.asked.begin or begin, facts.asked.end or end
    requested_ms = round((last - first).total_seconds() * 1000)
    covered_ms = max(0, round((min(last, end) - max(first, begin)).total_seconds() * 1000))
    if requested_ms <= 0:
        return 1.0
    with_log = max(1, len(facts.sources.brokers) - len(facts.sources.silent))
    missing_ms = sum(
        max(0, round((min(last, gap.end) - max(first, gap.begin)).total_seconds() * 1000)) for gap in facts.sources.gaps
    )
    return share(max(0, round(covered_ms - missing_ms / with_log)), requested_ms)


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
        tables=(*_file_table(facts, moments), *_table_of_left_out(sources), *_clock_table(facts)),
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


def _table_of_left_out(sources: Sources) -> tuple[Table, ...]:
    shown, all_ = len(sources.left_out), sources.left_out_all
    return field_table(
        (("file", lambda file: file.path), ("reason", lambda file: file.reason)),
        sources.left_out,
        "Files that were left out" + (f", the first {shown:,} of {all_:,}" if all_ > shown else ""),
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
