"""Turns of TLS connections, so that many at a time do not hold the event loop.

A step of a handshake signs or verifies, which takes 0.1 to some milliseconds, and cannot be interrupted. A connection
whose handshake has succeeded may send 600 small records in 16 KB, of which each takes 5 to 30 µs. Strangers may do both
at the same time: without turns, an iteration of the loop would carry out all of it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

# Of each iteration of the loop. One step at least is carried out.
SLICE_S: Final = 0.005


class Turns:
    """Steps of many connections, in the order in which they were asked for."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        # In this iteration, in which the next one was scheduled.
        self._spent_s = 0.0
        self._is_scheduled = False

    def take(self, step: Callable[[], None]) -> bool:
        """Carry out a step now, or in a later iteration of the loop. Returns whether it was carried out."""
        is_now = not self._waiting and self._spent_s < SLICE_S
        if is_now:
            self._run(step)
        else:
            self._waiting.append(step)
        self._schedule()
        return is_now

    def _run(self, step: Callable[[], None]) -> None:
        begun_s = self._clock()
        try:
            step()
        finally:
            self._spent_s += self._clock() - begun_s

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Begin the slice of an iteration. Nothing is scheduled after one without steps."""
        self._is_scheduled = False
        self._spent_s = 0.0
        while self._waiting and self._spent_s < SLICE_S:
            step = self._waiting.popleft()
            # Before the step, which may raise.
            self._schedule()
            self._run(step)


class TlsTurns:
    """Turns of the connections of one interface.

    Attributes:
        handshakes: steps until the handshake is complete.
        records: steps after it, for which a flood of handshakes does not wait, nor the other way round.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.handshakes = Turns(clock)
        self.records = Turns(clock)
