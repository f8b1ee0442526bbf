"""Time of one event by stage: the functions of each stage are wrapped while the event runs.

Each moment counts for one stage: for the innermost running function, or, if none runs, for the stage that is awaited.
The sum of the stages is therefore at most the total, even if one stage waits for the store while others run."""

import contextlib
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any


class Stages:
    """Milliseconds by stage."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self._running: list[str] = []
        self._awaited: list[str] = []
        self._since = time.perf_counter()

    def reset(self) -> None:
        self.ms = {}
        self._since = time.perf_counter()

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Counts the block, which must not await, for `stage`, without the time spent in nested stages."""
        self._turn()
        self._running.append(stage)
        try:
            yield
        finally:
            self._turn()
            self._running.pop()

    @contextlib.contextmanager
    def awaited(self, stage: str) -> Iterator[None]:
        """Counts the block for `stage` while no other stage runs."""
        self._turn()
        self._awaited.append(stage)
        try:
            yield
        finally:
            self._turn()
            self._awaited.remove(stage)

    def wrap(self, owner: Any, stage: str, *names: str) -> None:
        """Wraps the functions `names` of an object or module, so that they count for `stage`."""
        for name in names:
            setattr(owner, name, self._wrapped(getattr(owner, name), stage))

    def _turn(self) -> None:
        """Adds the elapsed time to the current stage, before a stage begins or ends."""
        now = time.perf_counter()
        stage = self._running[-1] if self._running else self._awaited[-1] if self._awaited else None
        if stage is not None:
            self.ms[stage] = self.ms.get(stage, 0.0) + (now - self._since) * 1000
        self._since = now

    def _wrapped(self, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            async def timed_later(*args: Any, **kwargs: Any) -> Any:
                with self.awaited(stage):
                    return await function(*args, **kwargs)

            return timed_later

        def timed_now(*args: Any, **kwargs: Any) -> Any:
            with self.timed(stage):
                return function(*args, **kwargs)

        return timed_now
