"""Waiting for conditions that change in the event loop."""

from collections.abc import Callable

import anyio

from kactl.runtime.clock import Clock


class Signal:
    """Wakes the one task that waits, which then looks at its condition again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = anyio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` returns true, which it does once."""
        while not condition():
            self._event = anyio.Event()
            await self._event.wait()

    async def wait_for(self, condition: Callable[[], bool], limit_ms: float) -> bool:
        """Wait until `condition` is true, but no longer than a time limit. Returns whether it is true."""
        if condition() or limit_ms <= 0:
            return condition()

        async def give_up() -> None:
            await self._clock.sleep_ms(limit_ms)
            timed.cancel_scope.cancel()

        # The clock is a parameter, so this class keeps the time limit itself instead of using the event loop's.
        async with anyio.create_task_group() as timed:
            timed.start_soon(give_up)
            await self.wait(condition)
            timed.cancel_scope.cancel()
        return condition()


class Slots:
    """Bounds the calls that run at once; those that wait go first in, first out."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: dict[Signal, None] = {}  # in order

    async def take(self, signal: Signal, is_cancelled: Callable[[], bool]) -> bool:
        """Wait for a slot, until `is_cancelled` is true. Returns whether it was taken."""
        await signal.wait(lambda: is_cancelled() or self._try_take(signal))
        if is_cancelled():
            self._waiting.pop(signal, None)
            self._wake()
            return False
        return True

    def _try_take(self, signal: Signal) -> bool:
        """Take a slot if one is free. Otherwise `signal` is set as soon as one may be."""
        if self._free and next(iter(self._waiting), signal) is signal:
            self._waiting.pop(signal, None)
            self._free -= 1
            return True
        self._waiting[signal] = None
        return False

    def release(self) -> None:
        self._free += 1
        self._wake()

    def _wake(self) -> None:
        if self._free and self._waiting:
            next(iter(self._waiting)).set()
