"""Writer of the state-change log: reads events from the event log and writes them to files.

The controller never waits for it. Events are read from the ring in batches while the controller is idle, and are
formatted and written in a thread. If the controller is busy for so long that the ring drops events, the log contains
a `Reset` in their place.
-the state-change log cannot be written (%s), events are lost: check its disk
+cannot write the state-change log (%s), events are lost: check disk
-self._seq = seq
+self._seq = seq
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import anyio

from kactl.decide.messages.log import AnyEvent, ControllerEvent, encode
from kactl.runtime.background import Background
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.runtime.rotating_file import RotatingFile
from kactl.runtime.threads import run_in_thread
from kactl.telemetry.event_log import EventLog

from . import snapshots
from .as_of import oldest_seq
from .kafka_text import render
from .snapshots import Snapshot

# Formatting and writing this many takes a millisecond of the event loop's time.
BATCH_SIZE: Final = 200
# Upper bound of the wait for an idle controller: tries times pause. The ring has room for the events of that time.
_REST_MS: Final = 10.0
_REST_TRIES: Final = 100
_LOG: Final = logger(__name__)

# Formats events as lines; called in a thread.
Render = Callable[[Sequence[AnyEvent]], list[bytes]]


def as_json(events: Sequence[AnyEvent]) -> list[bytes]:
    """Returns one JSON line for each event, as `kactl watch -o jsonl` prints them."""
    return [encode(event) + b"\n" for event in events]


def as_kafka(controller_id: int) -> Render:
    """Returns a formatter for the lines that Kafka's own controller writes."""

    def lines(events: Sequence[AnyEvent]) -> list[bytes]:
        rendered = (render(event, controller_id=controller_id) for event in events)
        return [line for line in rendered if line is not None]

    return lines


@contextlib.asynccontextmanager
async def kept(
    history: EventLog,
    segments: RotatingFile,
    lines: Render,
    *,
    clock: Clock,
    busy: Callable[[], bool] = lambda: False,
    snapshot: Callable[[], Snapshot | None] = lambda: None,
) -> AsyncIterator[Callable[[], int]]:
    """Write the events that occur while the block runs. All of them have been written when the block ends.

    Yields a function that returns the number of events that are not written yet.

    Args:
        busy: returns whether the controller has events to handle; writing is then postponed for a bounded time.
        snapshot: returns the present partitions, to be written beside the log after a takeover and whenever a file is
            full; None while this instance is not the controller.
    """
    keeper = _Keeper(history, segments, lines, clock, busy, snapshot)
    try:
        async with Background("the state-change log") as tasks:
            tasks.start_soon(keeper.run, name="state-change log")
            yield keeper.lag
    finally:
        with anyio.CancelScope(shield=True):
            while await keeper.write_some():
                pass
        segments.close()


class _Keeper:
    def __init__(
        self,
        history: EventLog,
        segments: RotatingFile,
        lines: Render,
        clock: Clock,
        busy: Callable[[], bool],
        snapshot: Callable[[], Snapshot | None],
    ) -> None:
        self._history = history
        self._segments = segments
        self._lines = lines
        self._clock = clock
        self._busy = busy
        self._snapshot = snapshot
        self._rotations = segments.rotations
        self._seq = max(history.oldest, history.first) - 1
        self._failing = False

    async def run(self) -> None:
        while True:
            for _ in range(_REST_TRIES):
                if not self._busy():
                    break
                await self._clock.sleep_ms(_REST_MS)
            if not await self.write_some():
                await self._history.changed()

    def lag(self) -> int:
        """Returns the number of events that are not written yet."""
        return self._history.seq - max(self._seq, self._history.oldest - 1)

    async def write_some(self) -> bool:
        """Write the next batch. Returns False if there are no more events."""
        events, seq = self._history.read(self._seq, limit=BATCH_SIZE)
        if not events and seq >= self._history.seq:
            return False
        # A batch is always written completely: a second attempt would repeat lines.
        with anyio.CancelScope(shield=True):
            await run_in_thread(self._write, events)
            self._seq = seq
            if self._segments.rotations > self._rotations or any(map(_is_takeover, events)):
                self._rotations = self._segments.rotations
                snapshot = self._snapshot()
                if snapshot is not None:
                    await run_in_thread(self._write_snapshot, snapshot)
        return True

    def _write_snapshot(self, snapshot: Snapshot) -> None:
        folder = self._segments.folder
        try:
            snapshots.write(folder, snapshot)
            snapshots.remove_before(folder, oldest_seq(folder))
        except OSError as error:
            _LOG.warning("no snapshot of the partitions can be written (%s): check its disk", error)

    def _write(self, events: Sequence[AnyEvent]) -> None:
        try:
            self._segments.write(b"".join(self._lines(events)))
            self._segments.rotate_if_full()
            self._failing = False
        except OSError as error:
            if not self._failing:  # log once, not for every batch until the disk is writable again
                _LOG.warning("the state-change log cannot be written (%s), events are lost: check its disk", error)
            self._failing = True


def _is_takeover(event: AnyEvent) -> bool:
    return isinstance(event, ControllerEvent) and event.what == "elected"
