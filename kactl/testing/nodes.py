"""Simulated processes. A node is paused, slowed down, stopped or killed as a whole.

Tasks, timers and callbacks inherit the context variable `NODE`, so the loop knows the node of every handle without any
help of the simulated program.
"""

import asyncio
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal

State = Literal["running", "paused", "killed"]

# Delay of a function that runs in an executor.
JOB_MS: Final = (0.0, 5.0)


class NodeClock:
    """Clocks of one node. The loop's own time is exact; a node's monotonic clock runs at its own rate.

    The monotonic clock stands still while the machine is suspended, and the clock for leases goes on.

    Attributes:
        wall_offset_ms: difference between the node's wall clock and the true one; may jump at any moment.
        rate: speed of the node's monotonic clock, from 0.9 to 1.1.
    """

    def __init__(self) -> None:
        self.wall_offset_ms = 0.0
        self.rate = 1.0
        self._ahead_s = 0.0
        self._suspended_at_s: float | None = None
        self._since_s = 0.0  # loop time of the last change of rate
        self._then_s = 0.0  # node time at that moment

    def set_rate(self, rate: float, now_s: float) -> None:
        """Change the rate from now on; the clock itself does not jump.

        Raises:
            ValueError: it differs by more than a tenth from 1.
        """
        if not 0.9 <= rate <= 1.1:
            raise ValueError(f"rate {rate} is outside 0.9 to 1.1: no real clock differs by more")
        if self._suspended_at_s is not None:
            self.wake(now_s)
            self.suspend(now_s)
        self._then_s, self._since_s, self.rate = self.of(now_s), now_s, rate

    def of(self, loop_s: float) -> float:
        """Returns the node's time at a time of the loop."""
        if self._suspended_at_s is not None:
            loop_s = min(loop_s, self._suspended_at_s)
        return self._then_s + (loop_s - self._since_s) * self.rate

    def suspend(self, now_s: float) -> None:
        """The machine is suspended from now on."""
        self._suspended_at_s = now_s

    def wake(self, now_s: float) -> None:
        """The machine is suspended no more."""
        self._ahead_s = self.ahead_s(now_s)
        self._then_s, self._since_s, self._suspended_at_s = self.of(now_s), now_s, None

    @property
    def is_suspended(self) -> bool:
        return self._suspended_at_s is not None

    def ahead_s(self, loop_s: float) -> float:
        """Returns how far the clock for leases is ahead of the monotonic one."""
        if self._suspended_at_s is None:
            return self._ahead_s
        return self._ahead_s + (loop_s - self._suspended_at_s) * self.rate

    def to_loop(self, node_s: float) -> float:
        """Returns the first time of the loop at which the node's clock shows a time.

        A timer that fires before its time, if only by a rounding error, may be set again for ever.
        """
        loop_s = self._since_s + (node_s - self._then_s) / self.rate
        while self.of(loop_s) < node_s:
            loop_s = math.nextafter(loop_s, math.inf)
        return loop_s


class Node:
    """A simulated process. `SimLoop` carries out what the methods of the loop set here.

    Attributes:
        name: unique within the run; names of incarnations after a restart may be equal.
        tasks: tasks that were created on the node and have not ended, in the order of creation.
        withheld: handles that became ready while the node was paused, in order.
        pauses: how often it was paused.
        slow_ms: each handle is delayed by up to this many ms; 0 for none.
        job_ms: range of the delay of each function that the node gives to an executor.
    """

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.clock = NodeClock()
        self.state: State = "running"
        self.pauses = 0
        self.tasks: dict[asyncio.Task[object], None] = {}
        self._prune_at = 64
        self.withheld: list[Any] = []
        self.slow_ms = 0.0
        self.job_ms = JOB_MS
        self.busy_until_s = 0.0

    def add(self, task: "asyncio.Task[object]") -> None:
        """Add a task that was created on the node. Tasks that have ended are removed from time to time."""
        self.tasks[task] = None
        if len(self.tasks) > self._prune_at:
            self.tasks = {task: None for task in self.tasks if not task.done()}
            self._prune_at = 2 * len(self.tasks) + 64

    def __repr__(self) -> str:
        return f"<node {self.name}, {self.state}>"


NODE: Final[ContextVar[Node | None]] = ContextVar("NODE", default=None)


@contextmanager
def on(node: Node) -> Iterator[None]:
    """Run the block as code of that node: tasks that it creates belong to the node."""
    token = NODE.set(node)
    try:
        yield
    finally:
        NODE.reset(token)
