"""What processes use: processor time and memory, of all that belong to one process group.

Every process of the race is started as the head of a group of its own, and whatever it starts stays in that group.

Source: Linux, proc(5).
"""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.interop.processes import HarnessError

_PROC: Final = Path("/proc")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
# In /proc/<pid>/stat, counted from behind the program's name.
_GROUP, _USER, _SYSTEM = 2, 11, 12
_PEAK: Final = "VmHWM:"

# A process counts as calm when it uses less than this share of a core.
CALM_SHARE: Final = 0.05


def cpu_s(group: int) -> float:
    """User and system time so far, all threads; of processes that have ended only what others have waited for."""
    ticks = 0
    for _, fields in _members(group):
        ticks += int(fields[_USER]) + int(fields[_SYSTEM])
    return ticks / _TICKS_PER_S


def peak_mb(group: int) -> float:
    """The most that was ever resident, added up over the processes."""
    total_kb = 0
    for pid, _ in _members(group):
        try:
            lines = (_PROC / pid / "status").read_text().splitlines()
        except OSError:
            continue
        total_kb += sum(int(line.split()[1]) for line in lines if line.startswith(_PEAK))
    return total_kb / 1024


def wait_calm(groups: Iterable[int], *, window_s: float, limit_s: float) -> None:
    """Wait until processes together have used next to nothing for a while.

    Raises:
        HarnessError: they go on.
    """
    watched = list(groups)
    deadline = time.monotonic() + limit_s
    before = sum(map(cpu_s, watched))
    while True:
        time.sleep(window_s)
        now = sum(map(cpu_s, watched))
        # The kernel counts in hundredths, of which one may be a rest from before.
        if now - before <= CALM_SHARE * window_s + 1 / _TICKS_PER_S:
            return
        if time.monotonic() > deadline:
            raise HarnessError(f"{watched} did not come to rest within {limit_s:g} s")
        before = now


def _members(group: int) -> Iterator[tuple[str, list[str]]]:
    for entry in os.listdir(_PROC):
        if entry.isdigit():
            try:
                fields = (_PROC / entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            if int(fields[_GROUP]) == group:
                yield entry, fields
