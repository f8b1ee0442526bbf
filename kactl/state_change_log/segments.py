"""Lines in files: the newest in one, older ones in others behind a number, the oldest of which is removed."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

NAME: Final = "state-change.log"


def paths(folder: Path) -> Iterator[Path]:
    """The files of a folder, the newest first, up to the first number that is missing."""
    path, age = folder / NAME, 0
    while path.exists():
        yield path
        age += 1
        path = folder / f"{NAME}.{age}"


class Segments:
    """The files of one folder: `state-change.log`, `state-change.log.1`, `.2` and so on, the higher the older.

    What was written is with the operating system at once, and on the disk when that sees fit: a crash of ours loses
    nothing, one of the machine the last seconds.

    Args:
        folder: made where there is none; nobody else writes there.
        bytes_max: a file that has grown over it becomes an older one.
        count_max: all files together; at least 1.

    Raises:
        OSError: the folder cannot be used.
    """

    def __init__(self, folder: Path, *, bytes_max: int, count_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._count_max = count_max
        folder.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO | None = self._open()

    def write(self, lines: Sequence[bytes]) -> None:
        """Some lines, each with its newline.

        Raises:
            OSError: they could not be written, perhaps some of them were; the next call tries again with its own.
        """
        if self._file is None:
            self._file = self._open()
        try:
            self._file.write(b"".join(lines))
            self._file.flush()
            if self._file.tell() > self._bytes_max:
                self._turn()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Nothing happens the second time."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _path(self, age: int) -> Path:
        return self._folder / (f"{NAME}.{age}" if age else NAME)

    def _open(self) -> BinaryIO:
        file = self._path(0).open("ab+")
        end = file.seek(0, os.SEEK_END)
        if end:
            # A line that was broken off must not swallow the next one.
            file.seek(end - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        return file

    def _turn(self) -> None:
        self.close()
        self._path(self._count_max - 1).unlink(missing_ok=True)
        for age in range(self._count_max - 2, -1, -1):
            if self._path(age).exists():
                self._path(age).rename(self._path(age + 1))
        self._file = self._open()
