"""From the history to the files, behind the controller's back: it never waits for a line to be written.

Events are taken from the ring some hundred at a time, while the controller rests if it rests at all, and made lines in
a thread. Where it was busy for so long that the ring has let events go, the log says so.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import anyio

from kactl.clock import Clock
from kactl.messages.log import AnyEvent, encode
from kactl.runtime.background import Background
from kactl.runtime.logs import logger
from kactl.telemetry.event_log import History

from .kafka_text import render
from .segments import Segments

# A millisecond of the event loop's time.
AT_ONCE: Final = 200
# How long, in all, writing waits for the controller to rest; the ring has room for more than happens meanwhile.
_REST_MS: Final = 10.0
_REST_TRIES: Final = 100
_LOG: Final = logger(__name__)

# Events to lines; called in a thread.
Render = Callable[[Sequence[AnyEvent]], list[bytes]]


def as_json(events: Sequence[AnyEvent]) -> list[bytes]:
    """As `kactl watch -o jsonl` prints them."""
    return [encode(event) + b"\n" for event in events]


def as_kafka(controller_id: int) -> Render:
    """As Kafka's own controller would have written them."""

    def lines(events: Sequence[AnyEvent]) -> list[bytes]:
        rendered = (render(event, controller_id=controller_id) for event in events)
        return [line for line in rendered if line is not None]

    return lines


@contextlib.asynccontextmanager
async def kept(
    history: History, segments: Segments, lines: Render, *, clock: Clock, busy: Callable[[], bool] = lambda: False
) -> AsyncIterator[None]:
    """Keep what happens while the block runs; what happened in it is written when it ends.

    Args:
        busy: whether the controller has something better to do.
    """
    keeper = _Keeper(history, segments, lines, clock, busy)
    try:
        async with Background("the state-change log") as tasks:
            tasks.start_soon(keeper.run, name="state-change log")
            yield
    finally:
        with anyio.CancelScope(shield=True):
            while await keeper.write_some():
                pass
        segments.close()


class _Keeper:
    def __init__(
        self, history: History, segments: Segments, lines: Render, clock: Clock, busy: Callable[[], bool]
    ) -> None:
        self._history = history
        self._segments = segments
        self._lines = lines
        self._clock = clock
        self._busy = busy
        self._at = max(history.oldest, history.first) - 1
        self._failing = False

    async def run(self) -> None:
        while True:
            for _ in range(_REST_TRIES):
                if not self._busy():
                    break
                await self._clock.sleep_ms(_REST_MS)
            if not await self.write_some():
                await self._history.changed()

    async def write_some(self) -> bool:
        """Write what comes next; false if there is nothing."""
        events, at = self._history.read(self._at, limit=AT_ONCE)
        if not events and at >= self._history.seq:
            return False
        # A batch is written to its end, or a line could stand there twice.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._write, events)
            self._at = at
        return True

    def _write(self, events: Sequence[AnyEvent]) -> None:
        try:
            self._segments.write(self._lines(events))
            self._failing = False
        except OSError as error:
            if not self._failing:  # once, not for each batch until somebody makes room
                _LOG.warning("the state-change log cannot be written (%s): see to its disk; events go missing", error)
            self._failing = True
