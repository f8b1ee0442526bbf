"""Handles of the simulated loop: callbacks that are ready, and timers.

They hold what those of asyncio hold, without its debug mode, and know the task of which they are a step.
"""

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Any, Final

from .nodes import NODE

# Name of the callback that wakes a task. The callback of the first step has no name.
_WAKEUP: Final = "task_wakeup"


class _Numbered:
    """An object with its sequence number as hash, so that the order of sets does not depend on addresses."""

    number: int

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimTask(_Numbered, asyncio.Task[Any]):
    """A task of the simulated loop."""

    def __init__(self, coro: Any, *, loop: Any, **kwargs: Any) -> None:
        node = NODE.get()
        self.node_name = "" if node is None else node.name
        self.number = next(loop.task_numbers)  # first: the constructor adds the task to sets
        if kwargs.get("name") is None:
            kwargs["name"] = f"task {self.number}"  # asyncio numbers the tasks of all loops of the process
        super().__init__(coro, loop=loop, **kwargs)

    def set_name(self, value: object) -> None:
        """Set the name. The loop of Python 3.13 sets None where no name is given."""
        if value is not None:
            super().set_name(value)


class SimFuture(_Numbered, asyncio.Future[Any]):
    """A future of the simulated loop."""

    def __init__(self, *, loop: Any) -> None:
        self.number = next(loop.future_numbers)
        super().__init__(loop=loop)


class SimHandle(asyncio.Handle):
    """A callback that is ready.

    Attributes:
        task: of which the callback is a step; None for a plain callback.
    """

    __slots__ = ("task",)

    def __init__(
        self,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback: Any = callback
        self._args: Any = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        owner = getattr(callback, "__self__", None)
        # `Task.cancel` is a plain callback.
        is_step = owner.__class__ is SimTask and getattr(callback, "__name__", _WAKEUP) == _WAKEUP
        self.task: SimTask | None = owner if is_step else None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None


class SimTimer(asyncio.TimerHandle):
    """A callback that runs at a time of its node."""

    __slots__ = ()

    task = None

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback: Any = callback
        self._args: Any = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = False

    def cancel(self) -> None:
        """Cancel the timer. It stays with the loop until its time."""
        self._cancelled = True
        self._callback = self._args = None


class NodeTimer(SimTimer):
    """A timer that code of a node has set, by the node's own clock."""

    __slots__ = ()
