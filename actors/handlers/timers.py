"""Delayed events. They are cancelled when the controllership ends."""

import asyncio
from collections.abc import Callable

from kactl.decide.messages.events import Event
from kactl.model.errors import KactlError
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.runtime.tasks import Tasks

log = logger(__name__)


class Timers:
    """Queues events after a delay.

    Args:
        enqueue: called with an event when its delay has passed.
    """

    def __init__(self, clock: Clock, enqueue: Callable[[Event], object]) -> None:
        self._clock = clock
        self._enqueue = enqueue
        self._tasks = Tasks("the timers of a controller")
        self._running: dict[Event, asyncio.Task[None]] = {}

    def set(self, event: Event, delay_ms: float) -> None:
        """Queue `event` after `delay_ms`. Replaces a timer that is already set for an equal event."""
        self.cancel(event)
        self._running[event] = self._tasks.spawn(self._later(event, delay_ms), name=f"timer: {event.label}")

    async def _later(self, event: Event, delay_ms: float) -> None:
        await self._clock.sleep_ms(delay_ms)
        del self._running[event]
        try:
            self._enqueue(event)
        except KactlError as refused:
            log.info("the timer of %s is dropped: %s", event.label, refused)

    @property
    def events(self) -> tuple[Event, ...]:
        """Events whose timers are set."""
        return tuple(self._running)

    def is_set(self, event: Event) -> bool:
        return event in self._running

    def cancel(self, event: Event) -> None:
        """Cancel the timer of `event`, if one is set."""
        running = self._running.pop(event, None)
        if running is not None:
            running.cancel()

    def cancel_all(self) -> None:
        for event in self.events:
            self.cancel(event)
