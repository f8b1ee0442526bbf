"""Files made tables: found, looked at, cut into splits, read on all cores, kept as Parquet.

    paths ─look─▶ probes ─cut─▶ splits ─pack─▶ tasks ─read─▶ events ─┬─▶ DIR/events
                                                                     └─▶ tally ─┬─▶ DIR/levels
                                                       probes ──────────────────┴─▶ DIR/files

Everything is written into a folder beside its place and moved there once all of it is whole; what stood there before
goes first, and `ingest.json`, without which nothing is taken for whole, comes last.
"""

import contextlib
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Final

import msgspec

from kactl.errors import BadRequest

from . import overview, progress
from .event_types import Kind
from .folder_lock import lock_folder
from .overview import FileReport
from .reading import read, read_counters
from .storage import NEW, Location
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
from .text import probe, splits
from .text.probe import Probe
from .text.splits import SPLIT_BYTES
from .text.zone import zone_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORK: Final = ".ingest-"
_WORKS: Final = (WORK, JOBS_WORK)
# So few are looked at here, within a second; more are worth a round of Spark.
_LOOK_HERE: Final = 128
# Spark kills a task's Python two seconds after the task.
_TRY_S: Final = 0.2
_TRIES: Final = 25
_GONE: Final = 3
# What the jobs made of old logs goes with them; and what stands beside a file while it is written, if one was killed.
_MANIFESTS: Final = (MANIFEST, JOBS_MANIFEST)
_OURS: Final = frozenset({EVENTS, FILES, LEVELS, JOBS_FOLDER, *_MANIFESTS, *(f"{name}{NEW}" for name in _MANIFESTS)})


class NothingToIngest(BadRequest):
    """No file that was named is a log that can be read."""


class NotOurs(BadRequest):
    """A folder holds something that ingest did not write, and would have to remove."""


class NotWritable(BadRequest):
    """The tables cannot be written there."""


class Ingested(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: the manifest that was written, and what is to be said of each file."""

    manifest: Manifest
    files: tuple[FileReport, ...]


def ingest(
    spark: "SparkSession",
    sources: Sequence[str],
    out: str,
    *,
    time_zone: str = "UTC",
    split_bytes: int = SPLIT_BYTES,
    on_progress: progress.ProgressCallback = progress.no_progress,
) -> Ingested:
    """Read logs and write the tables.

    Args:
        sources: files and folders, or URIs that all machines see.
        out: the folder; its tables are replaced as one.
        time_zone: of the logs, as a name or offset.

    Raises:
        NothingToIngest: and what each file is instead; the folder is as it was.
        NotOurs, NotWritable: see `check_target`; nothing was read.
        UnknownZone: there is no such time zone.
        InUse: another process writes into the folder.
    """
    from py4j.protocol import Py4JError

    zone_of(time_zone)
    place = Location(out)
    check_target(place)
    on_progress("look for files", 0, 0)
    probes = _look(spark, list(find(sources, but=place)), on_progress)
    logs = [(number, found) for number, found in enumerate(probes) if found.is_log]
    if not logs:
        raise NothingToIngest("LOGS", _why_nothing(sources, probes))
    work = place / f"{WORK}{uuid.uuid4().hex[:12]}"
    place.make()
    with lock_folder(place):
        spark.sparkContext.addJobTag(_tag(work))
        try:
            work.make()
            with progress.step(spark, "read", on_progress):
                pieces = list(splits.cut(logs, split_bytes))
                read(spark, pieces, work, time_zone, split_bytes)
            with progress.step(spark, "sum up", on_progress):
                counted = read_counters(spark, work)
                overview.levels(counted).coalesce(1).write.parquet(f"{work.uri}/{LEVELS}")
                reports = overview.reports(read_events(spark, work), counted, probes, time_zone)
                table = spark.createDataFrame(overview.table(reports))
                table.coalesce(1).write.parquet(f"{work.uri}/{FILES}")
            manifest = _manifest(sources, reports, time_zone, work)
            _put_in_place(work, place, manifest)
        except BaseException:
            _give_up(spark, work)
            raise
        finally:
            with contextlib.suppress(Py4JError, OSError):
                spark.sparkContext.removeJobTag(_tag(work))
    return Ingested(manifest=manifest, files=tuple(reports))


def check_target(place: Location) -> None:
    """See to it that a folder can be replaced.

    Raises:
        NotOurs: it is none, or holds what ingest did not write.
        NotWritable: nobody may write there, or not we.
    """
    if place.exists() and not place.is_folder():
        raise NotOurs("--out", f"{place} is a file: name a folder")
    if not place.may_be_written():
        raise NotWritable("--out", f"{place} cannot be written: choose another folder, or see to its permissions")
    strange = [name for name in place.names() if name not in _OURS and not name.startswith(_WORKS)]
    if strange:
        raise NotOurs("--out", f"{place} holds {strange[0]}, which is none of our tables: name a new or empty folder")


def find(sources: Iterable[str], *, but: Location | None = None) -> Iterator[str]:
    """All files, each once, in the order of paths; what is not there is given as it was named.

    One that has several names, by links or by where one stands, is found under the first of them.

    Args:
        but: a folder of which nothing is wanted, such as our own one.
    """
    without = None if but is None else f"{but.real}/"
    found: dict[tuple[int, int] | str, str] = {}
    for source in sources:
        try:
            for each in Location(source).files():
                if without is None or not each.real.startswith(without):
                    found.setdefault(each.identity, str(each))
        except OSError:
            found[source] = source
    yield from sorted(found.values())


def _look(spark: "SparkSession", paths: list[str], on_progress: progress.ProgressCallback) -> list[Probe]:
    """What each is, in their order."""
    if len(paths) <= _LOOK_HERE:
        return [probe.probe(path) for path in paths]
    with progress.step(spark, "look at files", on_progress):
        slices = min(len(paths), 4 * spark.sparkContext.defaultParallelism)
        looked = spark.sparkContext.parallelize(paths, slices).map(_looked_at).collect()
    return [msgspec.json.decode(each, type=Probe) for each in looked]


def _looked_at(path: str) -> bytes:
    return msgspec.json.encode(probe.probe(path))


def _why_nothing(sources: Sequence[str], probes: Sequence[Probe]) -> str:
    if not probes:
        return f"{', '.join(sources)}: there are no files: name the folder that holds state-change.log and its kin"
    said = "; ".join(f"{each.path} {each.error or 'is empty'}" for each in probes[:3])
    more = f"; and {len(probes) - 3} more" if len(probes) > 3 else ""
    return f"no file is a log that can be read: {said}{more}"


def _tag(work: Location) -> str:
    """By which Spark knows what it does for one ingest: in a session of others there may be more."""
    return f"kactl-{work.name.rpartition(WORK)[2]}"


def _give_up(spark: "SparkSession", work: Location) -> None:
    """Leave nothing behind. Tasks that run go on writing, into folders that they make anew, until they hear of it."""
    from py4j.protocol import Py4JError

    left = _GONE
    for _ in range(_TRIES):
        with contextlib.suppress(Py4JError, OSError):
            spark.sparkContext.cancelJobsWithTag(_tag(work))
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
        sources=tuple(probe.shown(each) for each in sources),
        files=sum(each.kind not in (Kind.EMPTY, Kind.FOREIGN, Kind.UNREADABLE) for each in reports),
        lines=sum(each.lines for each in reports),
        events=sum(each.events for each in reports),
        unparsed=sum(each.unparsed for each in reports),
        parts=count_files(work / EVENTS),
    )


def _put_in_place(work: Location, place: Location, manifest: Manifest) -> None:
    """From the first step on until the last, the folder holds no tables as far as anybody can see."""
    for name in (MANIFEST, JOBS_MANIFEST, JOBS_FOLDER):
        (place / name).remove()
    for name in (EVENTS, FILES, LEVELS):
        (place / name).remove()
        (work / name).move_to(place / name)
    for name in place.names():
        if name.startswith(_WORKS):
            (place / name).remove()  # ours, and of those that were killed before us
    (place / MANIFEST).write(msgspec.json.format(msgspec.json.encode(manifest)))
