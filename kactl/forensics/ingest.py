"""Ingest of log files into Parquet tables.

    paths ─probe─▶ probes ─cut─▶ splits ─pack─▶ tasks ─read─▶ events ─┬─▶ DIR/events
                                                                      └─▶ counters ─┬─▶ DIR/levels
                                                        probes ─────────────────────┴─▶ DIR/files

All tables are written to a work folder inside DIR and moved to their final names once they are complete. The old tables
are removed before the first move. `ingest.json` is written last; tables without it count as incomplete.
"""

import contextlib
import functools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kactl.model.errors import BadRequest, KactlError

from . import overview, progress
from .event_types import NO_LOG, Kind
from .overview import FileReport
from .parquet_writer import write_table
from .reading import read
from .storage import NEW, Location, lock_folder
from .tables import (
    EVENTS,
    FILES,
    JOBS_FOLDER,
    JOBS_MANIFEST,
    JOBS_WORK,
    LEVELS,
    MANIFEST,
    Manifest,
    count_files,
    read_events,
)
from .text import archive, probe, splits
from .text.forms import Forms
from .text.probe import Probe
from .text.splits import SPLIT_BYTES
from .text.zone import zone_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORK: Final = ".ingest-"
_WORKS: Final = (WORK, JOBS_WORK)
# Up to this many files are probed in this process, within a second; more of them are probed by a Spark job.
_LOOK_HERE: Final = 128
# Spark kills the Python process of a task two seconds after the task. Until then it may recreate the work folder, which
# is therefore removed until it was absent this many times in a row.
_TRY_S: Final = 0.2
_TRIES: Final = 25
_GONE: Final = 3
_SHARED: Final = "all machines of --master must have access to the logs and the output folder under the same paths"
# What a file without lines of Kafka is if the end of its archive is missing.
_INCOMPLETE: Final = dict.fromkeys((Kind.FOREIGN, Kind.EMPTY), Kind.UNREADABLE)
# Names that ingest may remove: its tables, the results of jobs on them, and temporary files of killed writers.
_MANIFESTS: Final = (MANIFEST, JOBS_MANIFEST)
_OURS: Final = frozenset({EVENTS, FILES, LEVELS, JOBS_FOLDER, *_MANIFESTS, *(f"{name}{NEW}" for name in _MANIFESTS)})


class NothingToIngest(BadRequest):
    """None of the given files is a readable log."""


class NotOurs(BadRequest):
    """The output folder contains a file or folder that ingest did not write and would have to remove."""


class NotWritable(BadRequest):
    """The output folder cannot be written."""


class IncompleteTables(KactlError):
    """Workers of Spark could not read the files, or their tables are not in the output folder."""


class Ingested(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an ingest: the manifest that was written, and a report for each file."""

    manifest: Manifest
    files: tuple[FileReport, ...]


def ingest(
    spark: "SparkSession | Callable[[], SparkSession]",
    sources: Sequence[str],
    out: str,
    *,
    time_zone: str = "UTC",
    layouts: tuple[str, ...] = (),
    split_bytes: int = SPLIT_BYTES,
    on_progress: progress.ProgressCallback = progress.no_progress,
) -> Ingested:
    """Read logs and write the tables.

    Args:
        spark: the session, or a function that returns it. The function is not called for few logs, which are read in
            this process; see `reading.read`.
        sources: files and folders, or URIs that all machines of the Spark cluster can read.
        out: the output folder; its tables are replaced as a whole.
        time_zone: time zone of the logs, as a name or an offset.
        layouts: conversion patterns of lines, tried before the known layouts.

    Returns:
        The manifest and one report per file, in the order of paths.

    Raises:
        NothingToIngest: none of the files is a log. The message names their kinds. The folder is unchanged.
        NotOurs, NotWritable: see `check_target`; nothing was read.
        UnknownZone, UnknownPattern: the time zone does not exist; a layout cannot be read.
        InUse: another process writes to the folder.
        IncompleteTables: see `_check_complete`. The folder is unchanged.
    """
    zone_of(time_zone)
    Forms(layouts)
    place = Location(Location(out).absolute)
    check_target(place)
    on_progress("look for files", 0, 0)
    work = place / f"{WORK}{uuid.uuid4().hex[:12]}"
    session = _Session(spark, work)
    with contextlib.ExitStack() as held:
        paths = list(find(sources, but=place))
        unpacked: dict[str, _Unpacked] = {}
        if any(map(archive.is_archive, paths)):
            place.make()
            held.enter_context(lock_folder(place))
            paths, unpacked = _unpacked(paths, work)
        try:
            probes = _look(session, paths, layouts, on_progress)
            logs = [(number, probed) for number, probed in enumerate(probes) if probed.is_log]
            if not logs:
                raise NothingToIngest("LOGS", _why_nothing(sources, _shown(probes, unpacked)))
            if not unpacked:
                place.make()
                held.enter_context(lock_folder(place))
            work.make()
            pieces = list(splits.cut(logs, split_bytes, zone_of(time_zone)))
            counted = read(session, pieces, work, time_zone, split_bytes, on_progress)
            _check_complete(counted, logs, work)
            on_progress("sum up", 0, 0)
            shown = _shown(probes, unpacked)
            reports = overview.reports(lambda: read_events(session(), work), counted, shown, time_zone)
            reports = [_with_error(report, unpacked, path) for report, path in zip(reports, paths, strict=True)]
            for name, table in ((LEVELS, overview.levels(counted)), (FILES, overview.table(reports))):
                write_table(table, work / name)
            manifest = _manifest(sources, reports, time_zone, work)
            _put_in_place(work, place, manifest)
        except BaseException:
            _give_up(session, work)
            raise
        finally:
            session.release()
    return Ingested(manifest=manifest, files=tuple(reports))


class _Unpacked(NamedTuple):
    """A file from an archive: the name to show, and why it is not complete."""

    name: str
    error: str


def _unpacked(paths: list[str], work: Location) -> tuple[list[str], dict[str, _Unpacked]]:
    """Unpack the archives among the files into the work folder. Returns all files, and those from archives."""
    found, names = list[str](), dict[str, _Unpacked]()
    for number, path in enumerate(paths):
        if not archive.is_archive(path):
            found.append(path)
            continue
        for file, name, error in archive.unpack(path, work / f"unpacked/{number}", path):
            names[file] = _Unpacked(name, error)
            found.append(file)
    return found, names


def _shown(probes: Sequence[Probe], unpacked: Mapping[str, _Unpacked]) -> list[Probe]:
    """Return the probes with the names to show."""
    return [
        msgspec.structs.replace(probed, path=unpacked[probed.path].name) if probed.path in unpacked else probed
        for probed in probes
    ]


def _with_error(report: FileReport, unpacked: Mapping[str, _Unpacked], path: str) -> FileReport:
    error = unpacked[path].error if path in unpacked else ""
    return (
        msgspec.structs.replace(report, error=error, kind=_INCOMPLETE.get(report.kind, report.kind))
        if error
        else report
    )


def check_target(place: Location) -> None:
    """Check that the tables of a folder can be replaced.

    Raises:
        NotOurs: the path is not a folder, or the folder contains something that ingest did not write.
        NotWritable: this process has no permission to write there.
    """
    if place.exists() and not place.is_folder():
        raise NotOurs("--out", f"{place} is a file: name a folder")
    if not place.may_be_written():
        raise NotWritable("--out", f"{place} cannot be written: choose another folder, or change its permissions")
    foreign = [name for name in place.names() if name not in _OURS and not name.startswith(_WORKS)]
    if foreign:
        raise NotOurs("--out", f"{place} contains {foreign[0]}, which kactl did not write: name a new or empty folder")


def check_sources(sources: Sequence[str], place: Location, layouts: tuple[str, ...] = ()) -> None:
    """Check that there is a log among the files. Files after the first log are not read.

    Raises:
        NothingToIngest: there is none; the message names the reasons.
    """
    probes: list[Probe] = []
    for path in find(sources, but=place):
        if archive.is_archive(path):
            return
        probes.append(probe.probe(path, layouts))
        if probes[-1].is_log:
            return
    raise NothingToIngest("LOGS", _why_nothing(sources, probes))


def find(sources: Iterable[str], *, but: Location | None = None) -> Iterator[str]:
    """Yield all files, each once, in the order of paths. A missing source is yielded as it was given.

    A file with several names (links, relative and absolute paths) is yielded under the first one.

    Args:
        but: a folder to exclude, such as the output folder.
    """
    without = None if but is None else f"{but.real}/"
    paths: dict[tuple[int, int] | str, str] = {}
    for source in sources:
        try:
            for file in Location(source).files():
                if without is None or not file.real.startswith(without):
                    paths.setdefault(file.identity, str(file))
        except OSError:
            paths[source] = source
    yield from sorted(paths.values())


class _Session:
    """Spark session of one ingest, requested when it is first needed. A shared session may run several ingests."""

    def __init__(self, spark: "SparkSession | Callable[[], SparkSession]", work: Location) -> None:
        self._given = spark
        self._tag = f"kactl-{work.name.rpartition(WORK)[2]}"
        self._used: SparkSession | None = None

    def __call__(self) -> "SparkSession":
        """Return the session. Jobs of this thread get the tag of the ingest."""
        if self._used is None:
            self._used = self._given() if callable(self._given) else self._given
            self._used.sparkContext.addJobTag(self._tag)
        return self._used

    def cancel(self) -> None:
        """Cancel the jobs of the ingest."""
        if self._used is not None:
            self._used.sparkContext.cancelJobsWithTag(self._tag)

    def release(self) -> None:
        """Remove the tag. Java may have been killed already."""
        from py4j.protocol import Py4JError

        if self._used is not None:
            with contextlib.suppress(Py4JError, OSError):
                self._used.sparkContext.removeJobTag(self._tag)


def _look(
    session: _Session, paths: list[str], layouts: tuple[str, ...], on_progress: progress.ProgressCallback
) -> list[Probe]:
    """Probe the files, in the given order."""
    if len(paths) <= _LOOK_HERE:
        return [probe.probe(path, layouts) for path in paths]
    spark = session()
    with progress.step(spark, "look at files", on_progress):
        slices = min(len(paths), 4 * spark.sparkContext.defaultParallelism)
        names = [Location(path).absolute for path in paths]
        encoded = (
            spark.sparkContext.parallelize(names, slices).map(functools.partial(_encoded_probe, layouts)).collect()
        )
    probes = [msgspec.json.decode(each, type=Probe) for each in encoded]
    return [msgspec.structs.replace(probed, path=probe.shown(path)) for path, probed in zip(paths, probes, strict=True)]


def _encoded_probe(layouts: tuple[str, ...], path: str) -> bytes:
    return msgspec.json.encode(probe.probe(path, layouts))


def _check_complete(counted: pa.Table, logs: Sequence[tuple[int, Probe]], work: Location) -> None:
    """Check that the tasks have read the logs, and have written where this process can see it.

    On a cluster, workers may have another file system, or run as another user. A file that is gone since it was probed,
    or that is damaged, does not make the tables incomplete: its report contains the reason.

    Raises:
        IncompleteTables: a file can be read here but not by a worker, or tables are missing.
        NothingToIngest: no line of any file could be read.
    """
    broken = counted.filter(pc.is_valid(counted["reason"]))
    reasons = dict(zip(broken["file_id"].to_pylist(), broken["reason"].to_pylist(), strict=True))
    for number, log in logs:
        reason = reasons.get(number, "")
        if reason.startswith(splits.UNREADABLE) and probe.probe(log.path, log.patterns).is_log:
            raise IncompleteTables(f"{log.path} {reason} on a worker of Spark, but can be read here: {_SHARED}")
    written = set(counted["part"].unique().to_pylist()) - {""}
    seen = set(counted["file_id"].unique().to_pylist())
    if any(number not in seen for number, _ in logs) or any(not (work / EVENTS / part).exists() for part in written):
        raise IncompleteTables(f"workers of Spark have written events that are not in {work}: {_SHARED}")
    if not pc.sum(counted["lines"]).as_py():
        failed = [msgspec.structs.replace(log, error=reasons.get(number, "")) for number, log in logs]
        raise NothingToIngest("LOGS", _why_nothing((), failed))


def _why_nothing(sources: Sequence[str], probes: Sequence[Probe]) -> str:
    if not probes:
        return f"{', '.join(sources)}: there are no files: name the folder that holds state-change.log and its kin"
    reasons = "; ".join(f"{probed.path} {probed.error or 'is empty'}" for probed in probes[:3])
    more = f"; and {len(probes) - 3} more" if len(probes) > 3 else ""
    return f"no file is a log that can be read: {reasons}{more}"


def _give_up(session: _Session, work: Location) -> None:
    """Cancel the Spark jobs and remove the work folder. Running tasks recreate the folder until they are cancelled."""
    from py4j.protocol import Py4JError

    left = _GONE
    for _ in range(_TRIES):
        with contextlib.suppress(Py4JError, OSError):
            session.cancel()
        left = left - 1 if not work.exists() else _GONE
        if not left:
            return
        with contextlib.suppress(OSError):
            work.remove()
        time.sleep(_TRY_S)


# -- the end -----------------------------------------------------------------------------------------------------------


def _manifest(sources: Sequence[str], reports: Sequence[FileReport], time_zone: str, work: Location) -> Manifest:
    return Manifest(
        made_by=metadata.version("kactl"),
        time_zone=time_zone,
        time_ms=time.time_ns() // 1_000_000,
        sources=tuple(probe.shown(source) for source in sources),
        files=sum(report.kind not in NO_LOG for report in reports),
        lines=sum(report.lines for report in reports),
        events=sum(report.events for report in reports),
        unparsed=sum(report.unparsed for report in reports),
        parts=count_files(work / EVENTS),
    )


def _put_in_place(work: Location, place: Location, manifest: Manifest) -> None:
    """Move the tables to their final names. Until the manifest is written, readers see a folder without tables."""
    for name in (MANIFEST, JOBS_MANIFEST, JOBS_FOLDER):
        (place / name).remove()
    for name in (EVENTS, FILES, LEVELS):
        (place / name).remove()
        (work / name).move_to(place / name)
    for name in place.names():
        if name.startswith(_WORKS):
            (place / name).remove()  # the work folders of this process and of killed ones
    (place / MANIFEST).write(msgspec.json.format(msgspec.json.encode(manifest)))
