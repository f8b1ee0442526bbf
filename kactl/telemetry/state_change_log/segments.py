"""Files of the state-change log: the newest has no number, and a higher number is older."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kactl.runtime.rotating_file import RotatingFile

NAME: Final = "state-change.log"


def open_segments(folder: Path, *, bytes_max: int, count_max: int) -> RotatingFile:
    """Open the files of a folder for writing. See `RotatingFile`."""
    return RotatingFile(folder, NAME, bytes_max=bytes_max, count_max=count_max)


def paths(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, newest first, up to the first missing number."""
    path, age = folder / NAME, 0
    while path.exists():
        yield path
        age += 1
        path = folder / f"{NAME}.{age}"
