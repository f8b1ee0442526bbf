"""Journal of a run of the fuzzer: its finished parts, in a file, so that a run of hours goes on after an interruption.

The first line names the run. A journal of another run, of other targets or of other code is refused: its sum would be
of inputs that nobody has decoded.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

import kactl

from .runner import Figures
from .target import Target

_T = TypeVar("_T", bound=msgspec.Struct)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run: equal ones have the same inputs, and decode them by the same code.

    Attributes:
        decoders: the SHA-256 of the targets, and of the sources of kactl and of the fuzzer, in hexadecimal digits.
    """

    inputs: int
    seed: int
    decoders: str


class Part(msgspec.Struct, frozen=True):
    """A finished part of a run, and its costs."""

    seed: str
    target: str
    figures: Figures


class JournalError(ValueError):
    """The file is not a journal of this run."""


class Journal:
    """Journal in one file, which is created. One process writes it.

    Raises:
        JournalError: the file exists, and has another run or something else.

    Attributes:
        parts: those that were finished before, by their seed.
    """

    def __init__(self, path: Path, run: Run) -> None:
        self._path = path
        content = path.read_bytes() if path.exists() else b""
        # A process that is killed may leave a part of a line.
        *lines, torn = content.split(b"\n")
        found = _decoded(path, lines[0] if lines else torn, Run) if content else run
        if found != run:
            raise JournalError(f"{path} has another run: {found}, not {run}. Finish that one, or name another file")
        self.parts = {part.seed: part for part in (_decoded(path, line, Part) for line in lines[1:])}
        if not content:
            self._append(run)
        elif torn:
            os.truncate(path, len(content) - len(torn))

    def add(self, part: Part) -> None:
        self.parts[part.seed] = part
        self._append(part)

    def _append(self, line: msgspec.Struct) -> None:
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")


def _decoded(path: Path, line: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        raise JournalError(f"{path} is no journal of the fuzzer: {error}. Name another file") from error


def digest(targets: Iterable[Target]) -> str:
    """Returns the SHA-256 of the targets, and of the sources of kactl and of the fuzzer."""
    found = hashlib.sha256()
    for target in targets:
        for content in (target.name.encode(), b"%d" % target.rarity, *target.seeds):
            found.update(b"%d:" % len(content) + content)
    for folder in (Path(kactl.__file__).parent, Path(__file__).parent):
        for source in _sources(folder):
            found.update(source.read_bytes())
    return found.hexdigest()


def _sources(folder: Path) -> list[Path]:
    return sorted(
        Path(parent, name)
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
        if name.endswith(".py")
    )
