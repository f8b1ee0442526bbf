"""Processor time in units of a piece of work that is always the same, measured beside what is judged.

A limit in seconds is another one on each machine, and beside other programs, which share caches and cores with a test.
The unit changes with them.
"""

import statistics
import time
from typing import Final

# Of work that an interpreter does mostly: small objects. It takes about a millisecond on a processor of 2024.
_ENTRIES: Final = 6_000
_REPEATED: Final = 5


def unit_s() -> float:
    """Returns the processor time of the piece of work at present; takes some milliseconds."""
    return statistics.median(_piece_s() for _ in range(_REPEATED))


def _piece_s() -> float:
    begun_s = time.thread_time()
    entries = [{"name": f"entry-{number}", "value": str(number)} for number in range(_ENTRIES)]
    assert sum(len(entry["name"]) + len(entry["value"]) for entry in entries) > _ENTRIES
    return time.thread_time() - begun_s


def used_s(pid: int) -> float:
    """Returns the processor time that another process has used."""
    return time.clock_gettime((~pid << 3) | 2)  # how Linux numbers these clocks, see clock_getcpuclockid(3)
