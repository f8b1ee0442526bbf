"""Snapshots of all partitions, beside the files of the log.

The log holds changes, and a snapshot holds what they change: with the newest snapshot before a time, and the events
between, the state at that time is known. One is written when a takeover is complete, and one when a new file of the log
begins, so that a reader never replays more than one file.
"""

import contextlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np

from kactl.decide.state.cluster import Cluster
from kactl.model import NO_BROKER
from kactl.runtime.private_files import open_private

# A file that is gone or cut off.
_DAMAGED: Final = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)
_PREFIX: Final = "partitions-"
_SUFFIX: Final = ".npz"
_COLUMNS: Final = (
    "partition",
    "state",
    "leader",
    "leader_epoch",
    "partition_epoch",
    "controller_epoch",
    "recovering",
    "replicas",
    "isr",
)


class Snapshot(NamedTuple):
    """All partitions at one moment, as columns.

    Attributes:
        seq: the newest event that it includes.
        names: the topics.
        topic: int32[n], position in `names`.
        columns: `_COLUMNS` by name, of n values each; replicas int32[W, n], in assignment order, and isr int32[W, n], a
            set, have NO_BROKER in unused positions.
    """

    seq: int
    time_ms: int
    names: tuple[str, ...]
    topic: Any
    columns: dict[str, Any]

    @classmethod
    def of(cls, cluster: Cluster, *, seq: int, time_ms: int) -> Self:
        """Copy the partitions of a cluster."""
        table = cluster.table
        rows = table.rows(table.all())
        numbers, topic = np.unique(rows.topic, return_inverse=True)
        columns = {name: getattr(rows, name) for name in _COLUMNS if name != "isr"}
        columns["replicas"] = np.where(rows.assigned, rows.replicas, np.int32(NO_BROKER))
        columns["isr"] = np.where(rows.in_sync, rows.replicas, np.int32(NO_BROKER))
        names = tuple(table.topic_at(number).name for number in numbers.tolist())
        return cls(seq, time_ms, names, topic.astype(np.int32), columns)


def write(folder: Path, snapshot: Snapshot) -> None:
    """Write a snapshot. Called in a thread.

    Raises:
        OSError: it is not there, or not complete and ignored by readers.
    """
    path = folder / f"{_PREFIX}{snapshot.seq}{_SUFFIX}"
    unfinished = path.with_suffix(".tmp")
    with open_private(unfinished, "wb") as file:
        np.savez_compressed(
            file,
            seq=np.int64(snapshot.seq),
            time_ms=np.int64(snapshot.time_ms),
            names=np.array(snapshot.names, np.str_),
            topic=snapshot.topic,
            **snapshot.columns,
        )
    unfinished.replace(path)


def read(path: Path) -> Snapshot | None:
    """Read a snapshot; None if it is gone or damaged. Called in a thread."""
    try:
        with path.open("rb") as content, np.load(content, allow_pickle=False) as file:
            columns = {name: file[name] for name in _COLUMNS}
            names = tuple(file["names"].tolist())
            return Snapshot(int(file["seq"]), int(file["time_ms"]), names, file["topic"], columns)
    except _DAMAGED:
        return None


def times(folder: Path) -> list[tuple[int, int, Path]]:
    """Returns number of the newest event, time and file of each snapshot, oldest first. Called in a thread."""
    found = []
    for number, path in paths(folder):
        with contextlib.suppress(*_DAMAGED), path.open("rb") as content, np.load(content, allow_pickle=False) as file:
            found.append((number, int(file["time_ms"]), path))
    return found


def paths(folder: Path) -> Iterator[tuple[int, Path]]:
    """Yields the number of the newest event in each snapshot, and its file; oldest first."""
    found = []
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        number = path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        if number.isdecimal():
            found.append((int(number), path))
    yield from sorted(found)


def remove_before(folder: Path, seq: int) -> None:
    """Remove the snapshots that are older than event `seq`, but the newest of them. Called in a thread.

    That one and the events after it are the oldest state that is known.
    """
    old = [path for number, path in paths(folder) if number < seq]
    for path in old[:-1]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
