"""File reports computed from the counters: levels, period, coverage, controllers and warnings for each file."""

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from .event_types import NO_LINE, EventType, Kind
from .tables import FILE_SCHEMA, LEVEL_SCHEMA
from .text.dispatch import BY_ID
from .text.format import FIRST, LAST, Version
from .text.probe import Probe
from .text.zone import is_ambiguous, zone_of
from .wording import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Number of unparsed lines, of different kinds, that are shown per file.
SAMPLES: Final = 5
# Unparsed lines are of one kind if their first words are equal, apart from numbers.
_ALIKE_WORDS: Final = 5
# Below this share, more is missing from a file than a few unknown lines explain.
COVERAGE_LOW: Final = 0.9
_LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_NO_EVENT: Final = (EventType.OTHER, EventType.HARMLESS, EventType.UNPARSED, *NO_LINE)
# Separator of format and level, as in P1@INFO.
_AT: Final = "@"
# Earlier times, mostly of 1970, are from machines whose clock was not set yet. The first Kafka was released later.
_EARLIEST: Final = datetime.datetime(2011, 1, 1, tzinfo=datetime.UTC)
# How each column is aggregated for a file; see `_sums`.
_AGGREGATED: Final = {
    **dict.fromkeys(("lines", "events", "harmless", "other", "unparsed", "clock_back", "unset"), "sum"),
    **dict.fromkeys(("levels", "formats", "controllers", "speakers", "reasons"), "distinct"),
    "begin": "min",
    "end": "max",
    "clock_back_ms": "max",
}
INFO_ONLY: Final = (
    "INFO only: it has no state changes of replicas or to OfflinePartition and no single requests; the beginnings of "
    "outages are taken from other files, or bounded"
)
WHOLE_SECONDS: Final = (
    "its times have no milliseconds: the order of its lines and those of other files within a second is not known, and "
    "offsets between clocks may be wrong by a second"
)


class FileReport(msgspec.Struct, frozen=True, kw_only=True):
    """Row of the table of files; see `tables.FILE_COLUMNS`. Times are microseconds since 1970, in UTC."""

    file_id: int
    path: str
    kind: Kind
    layout: str | None
    encoding: str
    compression: str | None
    bytes: int
    broker: int | None = None
    version: str | None = None
    levels: tuple[str, ...] = ()
    begin: int | None = None
    end: int | None = None
    lines: int = 0
    events: int = 0
    harmless: int = 0
    other: int = 0
    unparsed: int = 0
    coverage: float | None = None
    controllers: tuple[int, ...] = ()
    samples: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str | None = None

    @property
    def is_log(self) -> bool:
        return self.layout is not None


def levels(counted: pa.Table) -> pa.Table:
    """Returns the table of levels, from the counters; see `tables.LEVEL_COLUMNS`."""
    known = counted.filter(pc.and_(pc.greater(counted["lines"], 0), pc.greater_equal(counted["hour"], _EARLIEST)))
    keys = [name for name in LEVEL_SCHEMA.names if name != "lines"]
    summed = known.group_by(keys).aggregate([("lines", "sum")])
    return pa.table([summed[f"{name}_sum" if name == "lines" else name] for name in LEVEL_SCHEMA.names], LEVEL_SCHEMA)


def reports(
    events: "Callable[[], DataFrame]", counted: pa.Table, probes: Sequence[Probe], time_zone: str
) -> list[FileReport]:
    """Returns one report per file, in the order of the probes.

    Args:
        events: returns the events; called only if lines were not parsed. Then a few of these per file are collected.
    """
    sums = {row["file_id"]: row for row in _sums(counted)}
    samples: dict[int, list[str]] = {}
    if any(row["unparsed"] for row in sums.values()):  # otherwise a scan of all events would find nothing
        samples = {row["file_id"]: [line["text"] for line in row["samples"]] for row in _samples(events()).collect()}
    file_reports = []
    for number, probe in enumerate(probes):
        report = FileReport(
            file_id=number,
            path=probe.path,
            kind=probe.kind,
            layout=probe.layout or None,
            encoding=probe.encoding,
            compression=probe.packed or None,
            bytes=probe.size,
            broker=probe.broker,
            error=probe.error or None,
        )
        if number in sums:
            report = _filled(report, probe, sums[number], samples.get(number, []), time_zone)
        file_reports.append(report)
    return file_reports


def table(file_reports: Sequence[FileReport]) -> pa.Table:
    """Returns the table of files."""
    rows = [msgspec.structs.asdict(report) for report in file_reports]
    columns = {field.name: pa.array([row[field.name] for row in rows], field.type) for field in FILE_SCHEMA}
    return pa.table(columns, schema=FILE_SCHEMA)


def _sums(counted: pa.Table) -> list[dict[str, Any]]:
    """Returns sums, extremes and sets of values for each file that has counters."""
    types, lines = counted["type"], counted["lines"]
    is_event = pc.invert(pc.is_in(types, value_set=pa.array([str(type_) for type_ in _NO_EVENT])))
    is_jump = pc.equal(types, EventType.CLOCK_BACK)
    is_set = pc.fill_null(pc.greater_equal(counted["begin"], _EARLIEST), True)
    columns = {
        "file_id": counted["file_id"],
        "lines": lines,
        "events": pc.if_else(is_event, lines, 0),
        "harmless": pc.if_else(pc.equal(types, EventType.HARMLESS), lines, 0),
        "other": pc.if_else(pc.equal(types, EventType.OTHER), lines, 0),
        "unparsed": pc.if_else(pc.equal(types, EventType.UNPARSED), lines, 0),
        "clock_back": pc.if_else(is_jump, counted["rows"], 0),
        "clock_back_ms": pc.if_else(is_jump, counted["took_ms"], None),
        "unset": pc.if_else(is_set, 0, lines),
        "begin": pc.if_else(is_set, counted["begin"], None).cast(pa.int64()),
        "end": pc.if_else(is_set, counted["end"], None).cast(pa.int64()),
        "levels": counted["level"],
        # To skip nulls, Arrow would skip rows.
        "formats": pc.binary_join_element_wise(
            counted["format"], counted["level"], _AT, null_handling="replace", null_replacement=""
        ),
        "controllers": pc.if_else(is_event, counted["controller"], None),
        "speakers": counted["speaker"],
        "reasons": counted["reason"],
    }
    rows = pa.table(columns).group_by("file_id").aggregate(list(_AGGREGATED.items())).to_pylist()
    return [
        {name: row[f"{name}_{how}"] for name, how in _AGGREGATED.items()} | {"file_id": row["file_id"]} for row in rows
    ]


def _known(values: list[Any]) -> list[Any]:
    return sorted(value for value in values if value is not None)


def _samples(events: "DataFrame") -> "DataFrame":
    """Returns the first unparsed line of each kind, the most frequent kinds first."""
    from pyspark.sql import functions as f

    begin = f.regexp_replace(f.substring_index("text", " ", _ALIKE_WORDS), "[0-9]+", "0")
    line = f.struct("offset", f.substring("text", 1, 500).alias("text"))
    alike = (
        events.where(f.col("type") == EventType.UNPARSED)
        .groupBy("file_id", f.substring(begin, 1, 200).alias("begin"))
        .agg(f.struct((-f.count("*")).alias("rank"), f.min(line).alias("line")).alias("kind"))
    )
    ranked = alike.groupBy("file_id").agg(f.sort_array(f.collect_list("kind")).alias("kinds"))
    return ranked.select("file_id", f.slice("kinds", 1, SAMPLES).getField("line").alias("samples"))


def _filled(report: FileReport, probe: Probe, sums: dict[str, Any], samples: list[str], time_zone: str) -> FileReport:
    known = sums["events"] + sums["unparsed"]
    speakers = _known(sums["speakers"])
    report = msgspec.structs.replace(
        report,
        broker=speakers[0] if len(speakers) == 1 else None,
        version=guess_version(sums["formats"]),
        levels=tuple(level for level in _LEVELS if level in sums["levels"]),
        coverage=sums["events"] / known if known else None,
        controllers=tuple(_known(sums["controllers"])),
        samples=tuple(samples),
        error=max(_known(sums["reasons"]), default=None),
        **{name: sums[name] for name in ("begin", "end", "lines", "events", "harmless", "other", "unparsed")},
    )
    return msgspec.structs.replace(report, warnings=tuple(_warnings(report, probe, sums, time_zone)))


def _warnings(report: FileReport, probe: Probe, sums: dict[str, Any], time_zone: str) -> list[str]:
    warnings = []
    if report.kind is Kind.STATE_CHANGE and report.events and "TRACE" not in report.levels:
        warnings.append(INFO_ONLY)
    if report.coverage is not None and report.coverage < COVERAGE_LOW:
        warnings.append(f"only {report.coverage:.0%} of the relevant lines were parsed")
    if probe.whole_seconds:
        warnings.append(WHOLE_SECONDS)
    if probe.years_ahead:
        warnings.append(
            f"its years are {probe.years_ahead} ahead, as on machines with the Buddhist calendar: that was subtracted"
        )
    if sums["unset"]:
        warnings.append(
            f"{count(sums['unset'], 'line')} of it {'has a time' if sums['unset'] == 1 else 'have times'} before "
            f"{_EARLIEST.year}, as of a machine whose clock was not set: not counted as part of its period"
        )
    speakers = _known(sums["speakers"])
    if report.events and not speakers:
        warnings.append("no line names the broker that wrote it")
    elif report.events and len(speakers) > 1:
        warnings.append("several brokers wrote it")
    if sums["clock_back"]:
        times = "once" if sums["clock_back"] == 1 else f"{sums['clock_back']} times"
        warnings.append(f"the clock went back {times}, by up to {sums['clock_back_ms'] / 1000:.1f} s")
    local = report.begin is not None and report.end is not None and report.kind not in (Kind.DUMP, Kind.KACTL)
    if local and is_ambiguous(report.begin or 0, report.end or 0, zone_of(time_zone)):
        warnings.append(
            f"clocks in {time_zone} were set back during its period: times of that hour may be an hour early"
        )
    return warnings


# -- versions ----------------------------------------------------------------------------------------------------------


def guess_version(seen: Iterable[str]) -> str | None:
    """Infer the versions that write all given formats, each with its level.

    Returns:
        "2.6-3.1", "4.1+" or "1.0"; "mixed" if no version writes all of them, as in a file that spans an upgrade; None
        if no known format is given.
    """
    since, until, is_known = FIRST, LAST, False
    for key in seen:
        name, _, level = key.partition(_AT)
        form = BY_ID.get(name)
        if form is None:
            continue
        is_known = True
        since, until = max(since, form.since), min(until, form.until)
        if form.raised is not None and level == "INFO":
            since = max(since, form.raised)
        if form.raised is not None and level == "TRACE":
            until = min(until, (form.raised[0], form.raised[1] - 1))
    if not is_known:
        return None
    if since > until:
        return "mixed"
    if since == until:
        return _written(since)
    return f"{_written(since)}+" if until == LAST else f"{_written(since)}-{_written(until)}"


def _written(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
