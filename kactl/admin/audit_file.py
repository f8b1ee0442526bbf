"""Files of the audit trail: one JSON record a line, in `audit.log`, `audit.log.1` and so on; a higher number is older.

The numbers of the records have no gaps, also across restarts of the server, so that `verify` finds removed ones. A
write that fails leaves nothing: the next one begins where it began.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kactl.model.errors import BadConfig
from kactl.runtime.logs import logger
from kactl.runtime.private_files import drop_group, is_at, make_folder

from .schema import AuditRecord

log = logger(__name__)

KEY: Final = "audit.folder"
NAME: Final = "audit.log"
_MODE: Final = 0o600
# Longer than any record.
_TAIL_BYTES: Final = 1 << 20


class AuditFile:
    """The files of one folder. Its methods block; no other process may write there.

    Args:
        bytes_max: a file larger than this is rotated.
        count_max: number of files, including the newest; at least 1.

    Raises:
        BadConfig: the folder cannot be used, or its newest file does not end with a record.

    Attributes:
        last_seq: the number of the last record; 0 without one.
    """

    def __init__(self, folder: Path, *, bytes_max: int, count_max: int) -> None:
        self._folder = folder = folder.absolute()  # the working directory may change
        make_folder(folder, KEY)
        self._bytes_max = bytes_max
        self._count_max = count_max
        self._is_stuck = False  # the last rotation has failed
        try:
            self.last_seq = _last_seq(folder)
            self._descriptor: int | None = self._open()
        except OSError as error:
            raise BadConfig(KEY, f"{folder} cannot be used: {error.strerror}") from None

    def write(self, content: bytes) -> None:
        """Append lines. A file that is large enough is rotated before; if it cannot be, it grows.

        Raises:
            OSError: none of them was written.
        """
        if self._descriptor is not None and not is_at(self._folder / NAME, self._descriptor):
            log.error("%s was removed or renamed: the next records are in a new file", self._folder / NAME)
            self.close()
        if self._descriptor is None:
            self._descriptor = self._open()
        if os.fstat(self._descriptor).st_size > self._bytes_max:
            os.fsync(self._descriptor)
            self._descriptor = self._rotated(self._descriptor)
        end = os.fstat(self._descriptor).st_size
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            os.ftruncate(self._descriptor, end)
            raise

    def sync(self) -> None:
        """Force written records to the disk, so that they survive a crash of the machine.

        Raises:
            OSError: it may not.
        """
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the newest file; a second call has no effect."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def _open(self) -> int:
        path = self._folder / NAME
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
        drop_group(path, os.fstat(descriptor), descriptor)
        return descriptor

    def _rotated(self, descriptor: int) -> int:
        """Begin a new file. Returns its descriptor, or the same one if that is not possible."""
        try:
            self._move()
            begun = self._open()
        except OSError as error:
            if not self._is_stuck:
                log.error("%s cannot be rotated (%s), and grows: check the folder", self._folder / NAME, error.strerror)
            self._is_stuck = True
            return descriptor
        self._is_stuck = False
        os.close(descriptor)
        return begun

    def _move(self) -> None:
        """Make room for a new file: each file takes the place of the next older one, up to a gap."""
        if not _path(self._folder, 0).exists():
            return  # the last attempt could move it, and not begin another
        last = self._count_max - 1
        gap = next((age for age in range(1, last) if not _path(self._folder, age).exists()), last)
        if not last:
            _path(self._folder, 0).unlink()
        for age in range(gap - 1, -1, -1):
            _path(self._folder, age).replace(_path(self._folder, age + 1))


class Verified(NamedTuple):
    """Content of the files of a folder.

    Attributes:
        first, last: the numbers of the oldest and the newest record; 0 without one.
        problems: gaps, repetitions, and lines that are no records, oldest first.
    """

    records: int
    first: int
    last: int
    problems: tuple[str, ...]


def verify(folder: Path) -> Verified:
    """Compare the numbers of all records.

    Raises:
        OSError: the folder or a file in it cannot be read.
    """
    decoder = msgspec.json.Decoder(AuditRecord)
    count = first = last = 0
    problems: list[str] = []
    if not any(path.name == NAME or _is_old(path.name) for path in folder.iterdir()):
        problems.append(f"{folder} contains no {NAME}: name the folder of the audit trail")
    for path, number, line in _lines(folder):
        try:
            seq = decoder.decode(line).seq
        except (msgspec.MsgspecError, UnicodeDecodeError):
            problems.append(f"{path.name}:{number}: is no record")
            continue
        if count and seq > last + 1:
            missing = f"{last + 1}" if seq == last + 2 else f"{last + 1} to {seq - 1}"
            problems.append(f"{path.name}:{number}: missing before it: {missing}")
        elif count and seq <= last:
            problems.append(f"{path.name}:{number}: {seq} follows {last}")
        first = first if count else seq
        last = max(last, seq)
        count += 1
    return Verified(count, first, last, tuple(problems))


def _lines(folder: Path) -> Iterator[tuple[Path, int, bytes]]:
    """Yield all lines, oldest first, with their places."""
    ages = [0, *(int(path.name[len(NAME) + 1 :]) for path in folder.iterdir() if _is_old(path.name))]
    for age in sorted(ages, reverse=True):
        path = _path(folder, age)
        if age == 0 and not path.exists():
            continue  # just after a rotation
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield path, number, line


def _is_old(name: str) -> bool:
    return name.startswith(f"{NAME}.") and name[len(NAME) + 1 :].isdecimal()


def _last_seq(folder: Path) -> int:
    for age in (0, 1):
        path = _path(folder, age)
        if not path.exists() or not path.stat().st_size:
            continue
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().splitlines()
        try:
            return msgspec.json.decode(lines[-1], type=AuditRecord).seq
        except (msgspec.MsgspecError, UnicodeDecodeError):
            reason = f"{path} does not end with a record of the audit trail: run `kactl audit verify`, and move it away"
            raise BadConfig(KEY, reason) from None
    return 0


def _path(folder: Path, age: int) -> Path:
    return folder / (f"{NAME}.{age}" if age else NAME)
