"""Longest step of the event loop, in units of processor time.

An event loop is held for as long as one step takes. Wall time would count what other programs do meanwhile.
"""

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .processor_time import unit_s

# A unit is about a millisecond on a processor of 2024. Memory that another program uses makes a step up to twice as
# long as its unit says; a lease may be as short as a few hundred.
STEP_UNITS_MAX = 100


class Steps:
    """Steps of this thread's event loops since `longest_step` began, or the last call of `take`."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._what = ""

    def add(self, used_s: float, what: Any) -> None:
        if used_s > self._longest_s:
            self._longest_s, self._what = used_s, repr(what)

    def take(self) -> tuple[float, str]:
        """Returns the longest step in units, and what it was."""
        longest = self._longest_s / unit_s(), self._what
        self._longest_s, self._what = 0.0, ""
        return longest


@contextmanager
def loop_steps() -> Iterator[Steps]:
    """Measure the steps of asyncio's own event loop while the block runs."""
    steps, run = Steps(), asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        begun_s = time.thread_time()
        run(handle)
        steps.add(time.thread_time() - begun_s, handle)

    gc.collect()
    gc.freeze()  # objects of earlier tests are not visited by collections in a step
    setattr(asyncio.Handle, "_run", measured)  # noqa: B010, because type checkers know no such method
    try:
        yield steps
    finally:
        setattr(asyncio.Handle, "_run", run)  # noqa: B010
        gc.unfreeze()
