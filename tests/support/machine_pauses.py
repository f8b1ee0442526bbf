"""Pauses of the whole machine, in which clocks of processor time go on.

The host of a virtual machine may not run it for some time, of which the machine's kernel learns nothing. A step of a
program during which that happens seems to take longer, by any clock. A process with real-time priority observes these
pauses, since no other process delays it: it sleeps for a short time, and prints when it has slept for longer.
"""

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from .processes import Process

LEAST_S: Final = 0.01
_INTERVAL_S: Final = 0.002


class Span(NamedTuple):
    """Begin and end by `time.monotonic`, in seconds, which is one clock for all processes."""

    begin_s: float
    end_s: float


class Watch:
    """The process that watches the machine."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def pauses(self) -> list[Span]:
        """Returns those since the beginning, of at least LEAST_S."""
        *lines, _unfinished = self.process.text.split("\n")
        return [Span(*map(float, line.split())) for line in lines]


@contextlib.contextmanager
def watching() -> Iterator[Watch]:
    """Watch the machine until the block ends. No pauses are known to a user who may not have real-time priorities."""
    with tempfile.TemporaryDirectory() as folder:
        process = Process([sys.executable, "-m", __name__], output=Path(folder, "pauses"))
        try:
            yield Watch(process)
        finally:
            process.kill()


def unpaused_s(work_s: float, step: Span, pauses: Iterable[Span]) -> float:
    """Returns the processor time of a step without the pauses in it."""
    paused_s = sum(max(0.0, min(step.end_s, pause.end_s) - max(step.begin_s, pause.begin_s)) for pause in pauses)
    return max(0.0, work_s - paused_s)


def _watch() -> None:
    last_s = time.monotonic()
    while True:
        time.sleep(_INTERVAL_S)
        now_s = time.monotonic()
        if now_s - last_s - _INTERVAL_S >= LEAST_S:
            print(last_s + _INTERVAL_S, now_s, flush=True)
        last_s = now_s


if __name__ == "__main__":
    # Where it may: this ends at once for other users, and on other systems than Linux.
    with contextlib.suppress(PermissionError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        _watch()
