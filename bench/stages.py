"""Where the time of one event goes: the functions of each stage are wrapped while it runs.

A stage's time is its own: what is called from within another stage counts only for the inner one.
"""

import contextlib
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any


class Stages:
    """Adds up milliseconds by stage."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self._inner: list[float] = []

    def reset(self) -> None:
        self.ms = {}

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the block for `stage`, less what it spends in other stages."""
        self._inner.append(0.0)
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = (time.perf_counter() - began) * 1000
            inner = self._inner.pop()
            self.ms[stage] = self.ms.get(stage, 0.0) + spent - inner
            if self._inner:
                self._inner[-1] += spent

    def wrap(self, owner: Any, stage: str, *names: str) -> None:
        """Let the functions `names` of an object or module count for `stage`."""
        for name in names:
            setattr(owner, name, self._wrapped(getattr(owner, name), stage))

    def _wrapped(self, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            async def timed_later(*args: Any, **kwargs: Any) -> Any:
                with self.timed(stage):
                    return await function(*args, **kwargs)

            return timed_later

        def timed_now(*args: Any, **kwargs: Any) -> Any:
            with self.timed(stage):
                return function(*args, **kwargs)

        return timed_now
