"""What processes write: lines by true time in, files by the machine's clock out.

Lines may be given in any order between two flushes; threads of a process are that far apart, and no further. A file is
named as log4j names it, rotated by the hour, and may be packed, or stand behind a container's name.
"""

import gzip
import time
from operator import itemgetter
from pathlib import Path
from typing import IO, Final

_MS: Final = tuple(f",{ms:03}] " for ms in range(1000))
_HOUR_S: Final = 3600
_FIRST: Final = itemgetter(0)


class Clock:
    """A machine's clock.

    Args:
        begin: the true time at which it is `offset_ms` ahead.
        drift_ppm: how much further it gets ahead, microseconds in a second.
    """

    def __init__(self, begin: float, offset_ms: int = 0, drift_ppm: float = 0.0) -> None:
        self.begin = begin
        self.offset_ms = offset_ms
        self.drift_ppm = drift_ppm
        self._seconds: dict[int, str] = {}

    def shows(self, at: float) -> float:
        return at + self.offset_ms + (at - self.begin) * self.drift_ppm / 1e6

    def stamp(self, shown: float) -> str:
        """`[2024-05-01 10:00:00,123] `, of a time that it shows."""
        second, ms = divmod(int(shown), 1000)
        text = self._seconds.get(second)
        if text is None:
            if len(self._seconds) > 10_000:
                self._seconds.clear()
            text = self._seconds[second] = time.strftime("[%Y-%m-%d %H:%M:%S", time.gmtime(second))
        return text + _MS[ms]


class Journal:
    """One log of one process.

    Args:
        path: of the newest file; rotated ones have the hour behind it.
        container: put before every line, as `docker-compose logs` does; empty for none.
        packed: whether rotated files are gzip.
        bare: whether lines have no time of ours, as JSON has not; such files are not rotated.

    Attributes:
        lines: true time and text, without a newline at its end; whoever writes appends here.
        written: physical lines in files so far.
    """

    def __init__(
        self, path: Path, clock: Clock, *, container: str = "", packed: bool = False, bare: bool = False
    ) -> None:
        self.path = path
        self.clock = clock
        self.lines: list[tuple[float, str]] = []
        self.written = 0
        self._container = f"{container}  | " if container else ""
        self._packed = packed
        self._bare = bare
        self._hour: int | None = None
        self._file: IO[bytes] | None = None
        self._last: Path | None = None

    def flush(self, before: float) -> None:
        """Write what happened before a time."""
        if not self.lines:
            return
        self.lines.sort(key=_FIRST)
        if self.lines[-1][0] < before:
            due, self.lines[:] = self.lines.copy(), []
        else:
            keep = next(at for at, line in enumerate(self.lines) if line[0] >= before)
            due, self.lines[:] = self.lines[:keep], self.lines[keep:]
        texts: list[str] = []
        stamp, shows, prefix = self.clock.stamp, self.clock.shows, self._container
        for at, text in due:
            shown = shows(at)
            hour = 0 if self._bare else int(shown) // (_HOUR_S * 1000)
            if hour != self._hour:
                self._write(texts)
                texts = []
                self._rotate(hour)
            line = text if self._bare else stamp(shown) + text
            texts.append(prefix + line.replace("\n", "\n" + prefix) if prefix else line)
        self._write(texts)

    def close(self) -> None:
        """The last file gets the plain name."""
        if self._file is not None:
            self._file.close()
            assert self._last is not None
            self._last.rename(self.path)
            self._file = None

    def _write(self, texts: list[str]) -> None:
        if texts:
            assert self._file is not None
            content = "\n".join(texts)
            self.written += content.count("\n") + 1
            self._file.write((content + "\n").encode())

    def _rotate(self, hour: int) -> None:
        if self._file is not None:
            self._file.close()
            if self._packed:
                assert self._last is not None
                self._last.with_name(self._last.name + ".gz").write_bytes(gzip.compress(self._last.read_bytes(), 1))
                self._last.unlink()
        name = time.strftime(f"{self.path.name}.%Y-%m-%d-%H", time.gmtime(hour * _HOUR_S))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._last = self.path.with_name(name)
        # A clock that is set back does not begin an hour anew.
        self._file = self._last.open("ab")
        self._hour = hour
