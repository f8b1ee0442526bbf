"""Files with a record of their writes, truncations and syncs, and their content after a loss of power.

The file system keeps only what was synced, and any part of what was not: each later write may be there or not, whatever
became of the ones before it, and the last one that is there may end at a boundary of a sector.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

SECTOR_BYTES: Final = 512
# How much of the unsynced writes survives.
Survival = Literal["none", "all", "some", "some, torn"]
SURVIVALS: Final[tuple[Survival, ...]] = ("none", "all", "some", "some, torn")


class DiskEvent(NamedTuple):
    """One operation on a file.

    Attributes:
        kind: `name` for a new name of a file, `delete` for the removal of a name.
        file: number of the file.
        name: of the file, for `name` and `delete`.
        offset: of a write; the size after a truncation.
        note: operation of the program.
    """

    kind: Literal["name", "delete", "write", "truncate", "sync"]
    file: int
    name: str = ""
    offset: int = 0
    data: bytes = b""
    note: str = ""


class RecordedDisk:
    """Recorder of one folder, in the order of the operations."""

    def __init__(self) -> None:
        self.events: list[DiskEvent] = []
        self.note = ""
        self._next = itertools.count()
        self._numbers: dict[int, int] = {}  # by inode
        self._names: dict[str, int] = {}

    def opened(self, path: str) -> int:
        """Record that a file was opened. Returns its number."""
        inode = Path(path).stat().st_ino
        if (number := self._numbers.get(inode)) is None:
            number = self._numbers[inode] = next(self._next)
        name = Path(path).name
        if self._names.get(name) != number:
            self._names[name] = number
            self._add("name", number, name=name)
        return number

    def deleted(self, path: str, inode: int) -> None:
        """Record that a name was removed."""
        name = Path(path).name
        number = self._names.pop(name, None)
        if number is not None:
            self._add("delete", number, name=name)
        if number not in self._names.values():
            self._numbers.pop(inode, None)  # inodes are used again

    def wrote(self, file: int, offset: int, data: bytes) -> None:
        self._add("write", file, offset=offset, data=data)

    def truncated(self, file: int, size: int) -> None:
        self._add("truncate", file, offset=size)

    def synced(self, file: int) -> None:
        self._add("sync", file)

    def _add(self, kind: str, file: int, *, name: str = "", offset: int = 0, data: bytes = b"") -> None:
        self.events.append(DiskEvent(kind, file, name, offset, data, self.note))  # type: ignore[arg-type]


@dataclass
class _File:
    synced: bytearray = field(default_factory=bytearray)
    pending: list[DiskEvent] = field(default_factory=list)
    is_synced: bool = False


class Disk:
    """State of the recorded folder at a position, which only advances."""

    def __init__(self, events: list[DiskEvent]) -> None:
        self._events = events
        self._files: dict[int, _File] = {}
        self._names: dict[str, int] = {}  # as the program sees them
        self._durable_names: dict[str, int] = {}
        self.position = 0

    def advance(self, position: int) -> None:
        """Apply the events before a position."""
        for event in self._events[self.position : position]:
            self._apply(event)
        self.position = max(self.position, position)

    def _apply(self, event: DiskEvent) -> None:
        file = self._files.setdefault(event.file, _File())
        if event.kind == "name":
            # A second name is given by a link, which is made durable before the file is opened by it.
            if event.file in self._names.values():
                self._durable_names[event.name] = event.file
            self._names[event.name] = event.file
        elif event.kind == "delete":
            del self._names[event.name]
        elif event.kind == "sync":
            for pending in file.pending:
                _change(file.synced, pending, len(pending.data))
            file.pending.clear()
            if not file.is_synced:
                file.is_synced = True
                # SQLite syncs the folder with the first sync of a journal or log that it has created.
                self._durable_names = dict(self._names)
        else:
            file.pending.append(event)

    def lose_power(self, survival: Survival, rng: random.Random) -> dict[str, bytes]:
        """Returns the content of each file, by name, after a loss of power."""
        names = dict(self._durable_names)
        for name in sorted(self._durable_names.keys() | self._names.keys()):
            now = self._names.get(name)
            if names.get(name) != now and (survival == "all" or (survival != "none" and rng.random() < 0.5)):
                names.pop(name, None)
                if now is not None:
                    names[name] = now
        return {name: self._content(self._files[number], survival, rng) for name, number in names.items()}

    def _content(self, file: _File, survival: Survival, rng: random.Random) -> bytes:
        content = bytearray(file.synced)
        left = file.pending
        if survival == "none":
            left = []
        elif survival != "all":
            rate = rng.choice((0.1, 0.5, 0.9))
            left = [event for event in left if rng.random() < rate]
        for index, event in enumerate(left):
            length = len(event.data)
            if survival == "some, torn" and index == len(left) - 1 and event.kind == "write":
                length = _torn(event, rng)
            _change(content, event, length)
        return bytes(content)


def _change(content: bytearray, event: DiskEvent, length: int) -> None:
    """Apply a write of the first `length` bytes, or a truncation."""
    if event.kind == "truncate":
        del content[event.offset :]
        content.extend(bytes(event.offset - len(content)))
    elif length:
        content.extend(bytes(max(0, event.offset - len(content))))
        content[event.offset : event.offset + length] = event.data[:length]


def _torn(event: DiskEvent, rng: random.Random) -> int:
    """Returns a length at which the write may end: at a boundary of a sector, or its end."""
    first = SECTOR_BYTES - event.offset % SECTOR_BYTES
    ends: list[int] = [*range(first, len(event.data), SECTOR_BYTES), len(event.data)]
    return ends[rng.randrange(len(ends))]


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Write files into a folder, in place of all others."""
    for old in folder.iterdir():
        if old.name not in files:
            old.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def sync_positions(events: list[DiskEvent]) -> Iterator[int]:
    """Yields the positions directly before and after each sync."""
    for index, event in enumerate(events):
        if event.kind == "sync":
            yield index
            yield index + 1
