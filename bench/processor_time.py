"""Processor time of this process and its descendants: Spark's Java and Python processes.

Spark's workers have process groups of their own, so descendants are found by their parents. Ended processes count only
if their parent waited for them. Source: Linux, proc(5).
"""

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
# Positions in /proc/<pid>/stat, counted after the program's name.
_PARENT: Final = 1
_TIMES: Final = slice(11, 15)


def cpu_s() -> float:
    """Returns user and system time so far, of all threads and of ended children that were waited for."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in os.listdir(_PROC):
        if entry.isdigit():
            try:
                fields = (_PROC / entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # the process has ended
            parents[int(entry)] = int(fields[_PARENT])
            ticks[int(entry)] = sum(map(int, fields[_TIMES]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks.get(pid, 0) for pid in ours) / _TICKS_PER_S
