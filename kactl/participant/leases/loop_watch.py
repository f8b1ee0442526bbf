"""Watch over the event loops of participants: a call that blocks one is named, with its stack, before it costs a lease.

One thread for each event loop has the loop set an event several times in each margin. It runs while a participant of
the loop is registered.
"""

import asyncio
import contextlib
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from typing import Final

from kactl.runtime.logs import logger

from .terms import NS_PER_MS

log = logger(__name__)

# A loop that is late by this many margins is blocked: most of a lease is left then. Shorter delays are no fault of the
# program on a busy machine.
_LATE_MARGINS: Final = 2
_LATE_S_MIN: Final = 0.5
_FRAMES: Final = 12
_STOP_S: Final = 5.0

_watches: "Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatch]]" = weakref.WeakKeyDictionary()


class LoopWatch:
    """The watch over the event loop of this thread.

    Attributes:
        late_s: by broker, the delay of the loop that is reported.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.late_s: dict[int, float] = {}
        self._loop = weakref.ref(loop)
        self._looped = threading.get_ident()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kactl loop watch", daemon=True)

    def start(self) -> None:
        with contextlib.suppress(RuntimeError):  # no thread can be started: nothing is reported
            self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        while not self._ended.wait(min(self.late_s.values(), default=_LATE_S_MIN) / 2):
            loop, answered, began_s = self._loop(), threading.Event(), time.monotonic()
            try:
                if loop is None:
                    return
                loop.call_soon_threadsafe(answered.set)
            except RuntimeError:  # it is closed
                return
            del loop
            if answered.wait(min(self.late_s.values(), default=_LATE_S_MIN)) or self._ended.is_set():
                continue
            self._report((time.monotonic() - began_s) * 1000)
            while not answered.wait(_LATE_S_MIN) and not self._ended.is_set():
                pass  # one report for each call

    def _report(self, late_ms: float) -> None:
        frame = sys._current_frames().get(self._looped)
        # A value of a log line is one line of 1,000 characters: the innermost frame is first.
        stack = [] if frame is None else traceback.extract_stack(frame)[: -_FRAMES - 1 : -1]
        log.warning(
            "the event loop has been blocked for %.0f ms, and no lease of broker %s is renewed meanwhile: call what "
            "blocks in a thread (anyio.to_thread.run_sync). It is at %s",
            late_ms,
            ", ".join(map(str, self.late_s)),
            " < ".join(f"{each.filename.rpartition('/')[2]}:{each.lineno} ({each.name})" for each in stack),
        )


@contextlib.contextmanager
def watched(broker: int, margin_ns: int) -> Iterator[None]:
    """Watch the running event loop for a broker, together with its other brokers."""
    loop = asyncio.get_running_loop()
    watch = _watches.get(loop)
    is_new = watch is None
    if watch is None:
        watch = _watches[loop] = LoopWatch(loop)
    watch.late_s[broker] = max(_LATE_MARGINS * margin_ns / NS_PER_MS / 1000, _LATE_S_MIN)
    if is_new:
        watch.start()
    try:
        yield
    finally:
        watch.late_s.pop(broker, None)
        if not watch.late_s:
            _watches.pop(loop, None)
            watch.stop()
