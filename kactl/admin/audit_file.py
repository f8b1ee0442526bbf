"""Files of the audit trail: one JSON record a line, in `audit.log`, `audit.log.1` and so on; a higher number is older.

The numbers of the records have no gaps, also across restarts of the server, so that `verify` finds removed ones. A
write that fails leaves nothing: the next one begins where it began.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kactl.model.errors import BadConfig
from kactl.runtime.private_files import make_folder
from kactl.runtime.rotating_file import RotatingFile

from .schema import AuditRecord

KEY: Final = "audit.folder"
NAME: Final = "audit.log"
# Longer than any record.
_TAIL_BYTES: Final = 1 << 20


class AuditFile(RotatingFile):
    """The files of one folder. See `RotatingFile`.

    Raises:
        BadConfig: the folder cannot be used, or its newest file does not end with a record.

    Attributes:
        last_seq: the number of the last record; 0 without one.
    """

    def __init__(self, folder: Path, *, bytes_max: int, count_max: int) -> None:
        folder = folder.absolute()
        make_folder(folder, KEY)
        try:
            self.last_seq = _last_seq(folder)
            super().__init__(folder, NAME, bytes_max=bytes_max, count_max=count_max)
        except OSError as error:
            raise BadConfig(KEY, f"{folder} cannot be used: {error.strerror}") from None

    def write(self, content: bytes) -> None:
        """Append records. A full file is rotated before: the last number is in the newest one, also if it is alone."""
        self.rotate_if_full()
        super().write(content)


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
