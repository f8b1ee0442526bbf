"""Events that come by themselves after a while. They end with the controllership that asked for them."""

import asyncio
from collections.abc import Callable

from kactl.clock import Clock
from kactl.errors import KactlError
from kactl.messages.events import Event
from kactl.runtime.logs import logger

log = logger(__name__)


class Timers:
    """See the module.

    Args:
        enqueue: where events go when their time has come.
    """

    def __init__(self, clock: Clock, enqueue: Callable[[Event], None]) -> None:
        self._clock = clock
        self._enqueue = enqueue
        self._running: dict[Event, asyncio.Task[None]] = {}

    def set(self, event: Event, delay_ms: float) -> None:
        """Let `event` come after `delay_ms`; if it was set already, then in place of that."""
        self.cancel(event)
        running = asyncio.get_running_loop().create_task(self._later(event, delay_ms), name=f"timer: {event.label}")
        self._running[event] = running

    async def _later(self, event: Event, delay_ms: float) -> None:
        await self._clock.sleep_ms(delay_ms)
        del self._running[event]
        try:
            self._enqueue(event)
        except KactlError as refused:
            log.info("%s does not come: %s", event.label, refused)

    def is_set(self, event: Event) -> bool:
        return event in self._running

    def cancel(self, event: Event) -> None:
        """Let `event` not come, if it was set."""
        running = self._running.pop(event, None)
        if running is not None:
            running.cancel()

    def cancel_all(self) -> None:
        for event in list(self._running):
            self.cancel(event)
