"""Log files of processes: lines are added with true times and written with the times of the machine's clock.

Lines may be added in any order between two flushes, like those of a process's threads. Files have the names that log4j
gives them and are rotated hourly. They may be compressed or have a container's name before each line.
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
        begin: true time at which the clock is `offset_ms` ahead.
        drift_ppm: drift in microseconds per second.
    """

    def __init__(self, begin: float, offset_ms: int = 0, drift_ppm: float = 0.0) -> None:
        self.begin = begin
        self.offset_ms = offset_ms
        self.drift_ppm = drift_ppm
        self._seconds: dict[int, str] = {}

    def shows(self, time_ms: float) -> float:
        return time_ms + self.offset_ms + (time_ms - self.begin) * self.drift_ppm / 1e6

    def stamp(self, shown: float) -> str:
        """Returns text such as `[2024-05-01 10:00:00,123] ` for a time of this clock."""
        second, ms = divmod(int(shown), 1000)
        text = self._seconds.get(second)
        if text is None:
            if len(self._seconds) > 10_000:
                self._seconds.clear()
            text = self._seconds[second] = time.strftime("[%Y-%m-%d %H:%M:%S", time.gmtime(second))
        return text + _MS[ms]


class Journal:
    """A log of a process.

    Args:
        path: path of the newest file; rotated files have the hour appended.
        container: name before every line, as in `docker-compose logs`; empty for none.
        packed: whether rotated files are compressed with gzip.
        bare: whether lines are written without a time, as for JSON. Such files are not rotated.

    Attributes:
        lines: true time and text without a final newline; processes append to it.
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
        """Writes the lines before a time."""
        if not self.lines:
            return
        self.lines.sort(key=_FIRST)
        if self.lines[-1][0] < before:
            due, self.lines[:] = self.lines.copy(), []
        else:
            keep = next(index for index, line in enumerate(self.lines) if line[0] >= before)
            due, self.lines[:] = self.lines[:keep], self.lines[keep:]
        texts: list[str] = []
        stamp, shows, prefix = self.clock.stamp, self.clock.shows, self._container
        for time_ms, text in due:
            shown = shows(time_ms)
            hour = 0 if self._bare else int(shown) // (_HOUR_S * 1000)
            if hour != self._hour:
                self._write(texts)
                texts = []
                self._rotate(hour)
            line = text if self._bare else stamp(shown) + text
            texts.append(prefix + line.replace("\n", "\n" + prefix) if prefix else line)
        self._write(texts)

    def close(self) -> None:
        """Closes the last file, which gets the name without an hour."""
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
        # If the clock is set back, lines are appended to the existing file of the hour.
        self._file = self._last.open("ab")
        self._hour = hour
