"""Manual clock that only advances when a test moves it."""

import asyncio
import heapq
import itertools
from typing import Final

from kactl.runtime.clock import BootTime, SystemClock

# More event loop iterations than the tasks of any test need until they all wait. A loop that exceeds it is a bug.
TURNS_MAX: Final = 100_000
_UPTIME_MS: Final = 3_600_000


async def settle() -> None:
    """Run all other tasks until each of them waits for a test, a timer or a thread."""
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    # Every step of a task and every callback that can run is in this queue of asyncio's loop. uvloop does not show its
    # own; its tasks are searched, which is slow: the set of all tasks also holds those that are not collected yet.
    ready = getattr(loop, "_ready", None)
    for _ in range(TURNS_MAX):
        await asyncio.sleep(0)
        if ready:
            continue
        if ready is not None or all(_waits(task) for task in asyncio.all_tasks(loop) if task is not me):
            return
    raise AssertionError(f"tasks were still busy after {TURNS_MAX} turns of the event loop")


def _waits(task: "asyncio.Task[object]") -> bool:
    waited_for = getattr(task, "_fut_waiter", None)
    return waited_for is not None and not waited_for.done()


class ManualClock:
    """A `Clock` that only advances in `advance`. Sleepers wake in the order of their deadlines.

    Sleepers with one deadline wake in the order in which they began to sleep. Between two deadlines all tasks settle.

    Args:
        start_ms: the wall clock at the beginning; the monotonic clock begins at 0, boot time an hour later.

    Attributes:
        step_ms: offset by which the wall clock was set forward, or back.
        boot: the boot of the host that boot time belongs to.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms
        self.step_ms = 0
        self.boot = "first boot"
        self._passed_ms = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        return self._start_ms + self.step_ms + int(self._passed_ms)

    def monotonic_ms(self) -> float:
        return self._passed_ms

    def boot_time(self) -> BootTime:
        return BootTime(self.boot, _UPTIME_MS + int(self._passed_ms))

    def lease_ns(self) -> int:
        return int(self._passed_ms * 1_000_000)

    async def sleep_ms(self, delay_ms: float) -> None:
        if delay_ms <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._passed_ms + delay_ms, next(self._order), woken))
        await woken

    @property
    def sleepers(self) -> int:
        """Returns the number of sleepers."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    def jump(self, delay_ms: float) -> None:
        """Let time pass in which nothing runs: the process is stopped, or its event loop is blocked.

        Sleepers that are late wake in the next `advance`.
        """
        self._passed_ms += delay_ms

    async def advance(self, delay_ms: float) -> None:
        """Advance the time, and run everything that becomes due."""
        target = self._passed_ms + delay_ms
        await settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            deadline = self._sleepers[0][0]
            self._passed_ms = max(self._passed_ms, deadline)
            while self._sleepers and self._sleepers[0][0] == deadline:
                _, _, woken = heapq.heappop(self._sleepers)
                if not woken.done():  # its sleeper may have been cancelled
                    woken.set_result(None)
            await settle()
        self._passed_ms = target


class SteppedClock(SystemClock):
    """The machine's clocks with an offset added to the wall clock.

    Args:
        step_ms: the offset; negative is back.
    """

    def __init__(self, step_ms: int) -> None:
        self.step_ms = step_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.step_ms
