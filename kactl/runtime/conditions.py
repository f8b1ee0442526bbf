"""Repeated conditions in the log: the beginning, once a minute the number of times, and the end.

`FailureLog` does so for the failures of an application's code, and keeps their tracebacks from filling the log.
"""

import asyncio
import contextlib
import dataclasses
import logging
import time
import traceback
from collections.abc import Callable, Hashable
from typing import Any, Final

from .escaping import escaped

# Of an exception in a line that has no traceback.
TOLD_MAX: Final = 300

# Between two lines about one condition that lasts.
REPEAT_MS: Final = 60_000
# Conditions of one owner at a time, such as a line for each partition. With more of them, the oldest begin anew.
CONDITIONS_MAX: Final = 10_000
# Different failures of an owner's conditions. With more of them, some tracebacks are logged again.
FAILURES_MAX: Final = 100
# A log that is rotated has the traceback of a failure that lasts.
TRACEBACK_EACH: Final = 100


@dataclasses.dataclass(slots=True)
class _Condition:
    level: int
    text: str
    values: tuple[object, ...]
    began_ms: float
    logged_ms: float
    count: int = 0
    unlogged: int = 0
    kinds: set[Hashable] = dataclasses.field(default_factory=set)


class Conditions:
    """Logs conditions that are repeated: the beginning, then once a minute the number of times, and the end.

    Repetitions between two lines are logged at level debug.

    Args:
        log: where to.
        now_ms: returns a time that never goes back.
        ends_alone: a condition ends when it was not repeated for a minute; for what has no other end, such as attempts
            of strangers. Without a running event loop, it ends without a line.
    """

    def __init__(
        self, log: logging.Logger, now_ms: Callable[[], float] | None = None, *, ends_alone: bool = False
    ) -> None:
        self._log = log
        self._now_ms = now_ms or _monotonic_ms
        self._ends_alone = ends_alone
        self._known: dict[Hashable, _Condition] = {}
        self._look: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Number of conditions that have begun and not ended."""
        return len(self._known)

    def add(
        self, key: Hashable, level: int, text: str, *values: object, kind: Hashable = None, exc_info: Any = None
    ) -> bool:
        """Count one occurrence. Returns whether there is a line about it.

        Args:
            key: identifies the condition for `end`.
            kind: an occurrence of another kind is logged at once.
        """
        now_ms, known = self._now_ms(), self._known.get(key)
        if known is None:
            known = self._known[key] = _Condition(level, text, values, now_ms, now_ms)
            if len(self._known) > CONDITIONS_MAX:
                del self._known[next(iter(self._known))]
        known.level, known.text, known.values = level, text, values
        known.count += 1
        if kind not in known.kinds and len(known.kinds) < FAILURES_MAX:
            known.kinds.add(kind)
            known.logged_ms = now_ms
            self._log.log(level, text, *values, exc_info=exc_info)
        elif now_ms - known.logged_ms >= REPEAT_MS:
            self._repeat(known, now_ms, exc_info)
        else:
            known.unlogged += 1
            self._log.debug(text, *values)
            return False
        if self._ends_alone and self._look is None:
            self._look_later()
        return True

    def end(self, key: Hashable, text: str, *values: object) -> None:
        """Log the end of a condition, at the level of its last line. No effect unless it has begun."""
        known = self._known.pop(key, None)
        if known is not None:
            self._log.log(known.level, text + self._so_far(known), *values)

    def forget(self, key: Hashable) -> None:
        """End a condition without a line: another one says so."""
        self._known.pop(key, None)

    def _repeat(self, known: _Condition, now_ms: float, exc_info: Any = None) -> None:
        known.logged_ms, known.unlogged = now_ms, 0
        self._log.log(known.level, known.text + self._so_far(known), *known.values, exc_info=exc_info)

    def _so_far(self, known: _Condition) -> str:
        seconds = (self._now_ms() - known.began_ms) / 1000
        return f" ({known.count:,} time{'s' * (known.count > 1)} in {seconds:,.0f} s)"

    def _look_again(self) -> None:
        """Log the conditions that were repeated in the last minute, and end those that were not."""
        self._look, now_ms = None, self._now_ms()
        for key, known in list(self._known.items()):
            if known.unlogged:
                self._repeat(known, now_ms)
            elif now_ms - known.logged_ms >= REPEAT_MS / 2:
                del self._known[key]
                if known.count > 1:
                    over = known.text + ": not repeated for a minute"
                    self._log.log(known.level, over + self._so_far(known), *known.values)
        if self._known:
            self._look_later()

    def _look_later(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._look = asyncio.get_running_loop().call_later(REPEAT_MS / 1000, self._look_again)


def _monotonic_ms() -> float:
    """Returns the time of the event loop, which a simulated one has of its own, and otherwise that of the process."""
    try:
        return asyncio.get_running_loop().time() * 1000
    except RuntimeError:
        return time.monotonic() * 1000


class FailureLog:
    """Logs failures of an application's code as `Conditions`: the first one of its kind with the traceback.

    Failures are of one kind if they have the same text without its values, class, and lines of code.
    """

    def __init__(self, log: logging.Logger, now_ms: Callable[[], float] | None = None) -> None:
        self._conditions = Conditions(log, now_ms)
        self._counts: dict[object, int] = {}

    def add(self, level: int, error: BaseException, text: str, *values: Hashable) -> None:
        """Count a failure. Failures with equal values are one condition."""
        frames = tuple((frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__))
        kind = text, type(error), frames or str(error)
        count = self._counts.pop(kind, 0)
        if count % TRACEBACK_EACH == 0:
            is_logged = self._conditions.add(values, level, text, *values, kind=kind, exc_info=error)
        else:
            told = text + ": %s (the first line of this failure has the traceback)"
            reason = escaped(repr(error), TOLD_MAX)
            is_logged = self._conditions.add(values, level, told, *values, reason, kind=kind)
        self._counts[kind] = count + is_logged
        if len(self._counts) > FAILURES_MAX:
            del self._counts[next(iter(self._counts))]

    def end(self, text: str, *values: Hashable) -> None:
        """Log the end of the failures with these values, if there were any."""
        self._conditions.end(values, text, *values)
