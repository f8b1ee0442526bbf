"""Log files: the newest has no number, older files have a number, and the file with the highest number is removed."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, cast

from kactl.runtime.private_files import drop_group, is_at, open_private

NAME: Final = "state-change.log"


def paths(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, newest first, up to the first missing number."""
    path, age = folder / NAME, 0
    while path.exists():
        yield path
        age += 1
        path = folder / f"{NAME}.{age}"


class Segments:
    """The files of one folder: `state-change.log`, `state-change.log.1`, `.2` and so on; a higher number is older.

    Each write is passed to the operating system at once and is not synchronised to the disk. A crash of the process
    loses nothing; a crash of the machine may lose the last seconds.

    Args:
        folder: created if it does not exist. No other process may write there. A newest file that is removed or renamed
            is begun again.
        bytes_max: a file larger than this is rotated.
        count_max: number of files, including the newest; at least 1.

    Raises:
        OSError: the folder cannot be created or written.

    Attributes:
        rotations: number of files that were begun after the first.
    """

    def __init__(self, folder: Path, *, bytes_max: int, count_max: int) -> None:
        self.folder = folder.absolute()  # the working directory may change
        self.rotations = 0
        self._bytes_max = bytes_max
        self._count_max = count_max
        self._file: BinaryIO | None = self._open()

    def write(self, lines: Sequence[bytes]) -> None:
        """Append lines, each of which ends with a newline.

        Raises:
            OSError: the lines were not written, or only partly. The next call opens the file again.
        """
        if self._file is not None and not is_at(self._path(0), self._file.fileno()):
            self.close()
        if self._file is None:
            self._file = self._open()
        try:
            self._file.write(b"".join(lines))
            self._file.flush()
            if self._file.tell() > self._bytes_max:
                self._rotate()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the newest file; a second call has no effect."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _path(self, age: int) -> Path:
        return self.folder / (f"{NAME}.{age}" if age else NAME)

    def _open(self) -> BinaryIO:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        drop_group(self.folder, self.folder.lstat())
        # Names of topics and principals are not for every user of the host.
        file = cast(BinaryIO, open_private(self._path(0), "ab+"))
        end = file.seek(0, os.SEEK_END)
        if end:
            # End an incomplete last line, so that it does not absorb the next one.
            file.seek(end - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        return file

    def _rotate(self) -> None:
        self.rotations += 1
        self.close()
        self._path(self._count_max - 1).unlink(missing_ok=True)
        for age in range(self._count_max - 2, -1, -1):
            if self._path(age).exists():
                self._path(age).rename(self._path(age + 1))
        self._file = self._open()
