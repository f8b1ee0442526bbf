"""Tasks of an object that is no block: they end when the object is closed."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from . import forks
from .logs import logger

log = logger(__name__)


class Tasks:
    """Some tasks. A task that fails is logged and ends alone.

    Args:
        owner: for log lines.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tasks: set[asyncio.Task[Any]] = set()
        forks.share(self)

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`."""
        self.cancel()

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str | None = None) -> "asyncio.Task[Any]":
        """Start a task. Tasks begin in the order of the calls."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of %s failed: %r", self._owner, error, exc_info=error)

    def cancel(self) -> None:
        """Cancel all tasks, without waiting for them."""
        for task in tuple(self._tasks):
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks and wait for their end."""
        own = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not own]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
