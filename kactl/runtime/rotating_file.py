"""Files to which lines are appended: the newest has no number, and the one with the highest number is removed."""

import os
from pathlib import Path
from typing import Final

from .logs import logger
from .private_files import drop_group, is_at

log = logger(__name__)

_MODE: Final = 0o600


class RotatingFile:
    """The files of one folder: `name`, `name.1`, `name.2` and so on; a higher number is older.

    Its methods block; no other process may write there. Lines are passed to the operating system at once: a crash of
    the process loses none, one of the machine may lose the last seconds before `sync`.

    Args:
        folder: created if it does not exist.
        bytes_max: a file larger than this is full.
        count_max: number of files, including the newest; at least 1.

    Raises:
        OSError: the folder cannot be created, or the newest file not be opened.

    Attributes:
        path: of the newest file.
        rotations: number of files that were begun because another one was full.
    """

    def __init__(self, folder: Path, name: str, *, bytes_max: int, count_max: int) -> None:
        self.folder = folder.absolute()  # the working directory may change
        self.path = self.folder / name
        self.rotations = 0
        self._bytes_max = bytes_max
        self._count_max = count_max
        self._is_stuck = False  # the last rotation has failed
        self._descriptor: int | None = self._open()

    def write(self, content: bytes) -> None:
        """Append whole lines, in a new file if the newest one was removed or renamed.

        Raises:
            OSError: none of them was written.
        """
        descriptor = self._current()
        end = os.fstat(descriptor).st_size
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError:
            os.ftruncate(descriptor, end)
            raise

    def rotate_if_full(self) -> None:
        """Begin a new file if the newest one is full. It grows if that is not possible.

        Raises:
            OSError: the newest file cannot be opened, or not be forced to the disk.
        """
        descriptor = self._current()
        if os.fstat(descriptor).st_size <= self._bytes_max:
            return
        os.fsync(descriptor)
        try:
            self._move()
            self._descriptor = self._open()
        except OSError as error:
            if not self._is_stuck:
                log.error("%s cannot be rotated (%s), and grows: check the folder", self.path, error.strerror)
            self._is_stuck = True
            return
        os.close(descriptor)
        self._is_stuck = False
        self.rotations += 1

    def sync(self) -> None:
        """Force written lines to the disk, so that they survive a crash of the machine.

        Raises:
            OSError: they may not.
        """
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the newest file; a second call has no effect."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def _current(self) -> int:
        if self._descriptor is not None and not is_at(self.path, self._descriptor):
            log.error("%s was removed or renamed: the next lines are in a new file", self.path)
            self.close()
        if self._descriptor is None:
            self._descriptor = self._open()
        return self._descriptor

    def _open(self) -> int:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        drop_group(self.folder, self.folder.lstat())
        # Names of topics and principals are not for every user of the host.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, _MODE)
        status = os.fstat(descriptor)
        if status.st_mode & 0o077 and status.st_uid == os.geteuid():
            os.fchmod(descriptor, _MODE)
        if status.st_size and os.pread(descriptor, 1, status.st_size - 1) != b"\n":
            os.write(descriptor, b"\n")  # an incomplete line, as after a crash, does not absorb the next one
        return descriptor

    def _move(self) -> None:
        """Make room for a new file: each file takes the place of the next older one, up to a gap."""
        if not self.path.exists():
            return  # the last attempt could move it, and not begin another
        last = self._count_max - 1
        gap = next((age for age in range(1, last) if not self._aged(age).exists()), last)
        if not last:
            self.path.unlink()
        for age in range(gap - 1, -1, -1):
            self._aged(age).replace(self._aged(age + 1))

    def _aged(self, age: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{age}") if age else self.path
