"""Adaptation of anyio to the simulated loop.

anyio keeps the child scopes of a cancel scope in a set whose order depends on memory addresses, and runs blocking
functions in threads of its own. In a simulation the order must be reproducible and there are no threads. Both are
changed here for code that runs on a `SimLoop`; elsewhere anyio behaves as before.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import anyio
from anyio._backends import _asyncio as backend

T = TypeVar("T")


class OrderedSet(Generic[T]):
    """Set that iterates in the order of insertion."""

    def __init__(self) -> None:
        self._items: dict[T, None] = {}

    def add(self, item: T) -> None:
        self._items[item] = None

    def discard(self, item: T) -> None:
        self._items.pop(item, None)

    def remove(self, item: T) -> None:
        del self._items[item]

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._items))

    def __len__(self) -> int:
        return len(self._items)


def forget(task: "asyncio.Task[Any]") -> None:
    """Drop anyio's state of a task that will never end: it refers to the task, and would keep it for ever."""
    backend._task_states.pop(task, None)


def close(task: "asyncio.Task[Any]") -> None:
    """Close the coroutine of a task, and the one that anyio runs in it, which would warn that it was never awaited if
    the task has not begun."""
    outer: Any = task.get_coro()
    not_begun = inspect.iscoroutine(outer) and inspect.getcoroutinestate(outer) == inspect.CORO_CREATED
    inner = getattr(outer.cr_frame.f_locals.get("self"), "_coro", None) if not_begun else None
    outer.close()
    if inspect.iscoroutine(inner):
        inner.close()


def install(is_simulated: Callable[[asyncio.AbstractEventLoop], bool]) -> None:
    """Adapt anyio. Further calls have no effect.

    Args:
        is_simulated: returns whether a loop is simulated.

    Raises:
        RuntimeError: the installed anyio differs from the versions that this module knows.
    """
    scope, threads = backend.CancelScope, backend.AsyncIOBackend
    if hasattr(scope.__init__, "__wrapped__"):
        return
    source = inspect.getsource(scope.__init__)
    if (
        "self._child_scopes: set" not in source
        or not hasattr(threads, "run_sync_in_worker_thread")
        or not hasattr(backend, "_task_states")
    ):
        raise RuntimeError(
            "the simulator does not know this version of anyio: install the version that kactl's constraints.txt names"
        )
    init = scope.__init__

    @functools.wraps(init)
    def ordered(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if is_simulated(asyncio.get_running_loop()):
            self._child_scopes = OrderedSet()
            self._tasks = OrderedSet()

    run_in_thread = threads.run_sync_in_worker_thread.__func__  # type: ignore[attr-defined]

    @functools.wraps(run_in_thread)
    async def inline(
        cls: Any, func: Callable[..., Any], args: Any, abandon_on_cancel: bool = False, limiter: Any = None
    ) -> Any:
        loop = asyncio.get_running_loop()
        if not is_simulated(loop):
            return await run_in_thread(cls, func, args, abandon_on_cancel, limiter)
        with anyio.CancelScope(shield=not abandon_on_cancel):
            return await loop.run_in_executor(None, func, *args)

    scope.__init__ = ordered  # type: ignore[method-assign]
    threads.run_sync_in_worker_thread = classmethod(inline)  # type: ignore[assignment, method-assign]
