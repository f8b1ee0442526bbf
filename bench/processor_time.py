"""Processor time of this process and of all that it has started: Spark's Java, and the Python beside it.

Workers make process groups of their own, so that the tree is followed by parents. Of processes that have ended only
what others have waited for is counted. Source: Linux, proc(5).
"""

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
# In /proc/<pid>/stat, counted from behind the program's name.
_PARENT: Final = 1
_TIMES: Final = slice(11, 15)


def cpu_s() -> float:
    """User and system time so far, all threads, children that were waited for included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in os.listdir(_PROC):
        if entry.isdigit():
            try:
                fields = (_PROC / entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            parents[int(entry)] = int(fields[_PARENT])
            ticks[int(entry)] = sum(map(int, fields[_TIMES]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks.get(pid, 0) for pid in ours) / _TICKS_PER_S
