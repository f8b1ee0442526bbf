"""Processor time and memory of process groups.

Every process of the race is started as the leader of its own group, and its children stay in that group.

Source: Linux, proc(5).
"""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.support.processes import HarnessError

_PROC: Final = Path("/proc")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
# Position in /proc/<pid>/stat, counted after the program's name.
_GROUP, _USER, _SYSTEM = 2, 11, 12
_PEAK: Final = "VmHWM:"

# A process is idle if it uses less than this share of a core.
CALM_SHARE: Final = 0.05


def cpu_s(group: int) -> float:
    """Returns user and system time so far, of all threads; ended processes count only if they were waited for."""
    ticks = 0
    for _, fields in _members(group):
        ticks += int(fields[_USER]) + int(fields[_SYSTEM])
    return ticks / _TICKS_PER_S


def peak_mb(group: int) -> float:
    """Returns the peak resident memory, summed over the processes."""
    total_kb = 0
    for pid, _ in _members(group):
        try:
            lines = (_PROC / pid / "status").read_text().splitlines()
        except OSError:
            continue
        total_kb += sum(int(line.split()[1]) for line in lines if line.startswith(_PEAK))
    return total_kb / 1024


def wait_calm(groups: Iterable[int], *, window_s: float, limit_s: float) -> None:
    """Waits until the processes together are idle for a while.

    Raises:
        HarnessError: they remain busy.
    """
    watched = list(groups)
    deadline = time.monotonic() + limit_s
    before = sum(map(cpu_s, watched))
    while True:
        time.sleep(window_s)
        now = sum(map(cpu_s, watched))
        # The kernel counts in hundredths, of which one may be left from before.
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
