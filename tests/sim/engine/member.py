"""Members of a simulated cluster: processes that start, pause, stop and die. Each start is a new node."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from kactl.testing.history import History
from kactl.testing.loop import SimLoop
from kactl.testing.nodes import Node


class Member:
    """A controller instance or a broker.

    Args:
        name: of all its nodes.
        main: returns the main coroutine of a new process, which runs on the node.

    Attributes:
        node: the present process, or the last one.
        incarnation: number of starts.
    """

    def __init__(
        self, loop: SimLoop, history: History, name: str, main: Callable[[Node], Coroutine[Any, Any, None]]
    ) -> None:
        self._loop = loop
        self._history = history
        self._main = main
        self._task: asyncio.Task[None] | None = None
        self.name = name
        self.node: Node | None = None
        self.incarnation = 0

    @property
    def is_up(self) -> bool:
        """Whether a process runs or is paused."""
        return self.node is not None and self.node.state != "killed"

    @property
    def is_running(self) -> bool:
        return self.node is not None and self.node.state == "running"

    def start(self) -> None:
        """Start a process, unless one is up."""
        if self.is_up:
            return
        self.incarnation += 1
        self.node = self._loop.node(self.name)
        self._history.record("node.start", node=self.name, incarnation=self.incarnation)
        self._task = self._loop.start(self.node, self._main(self.node))
        self._task.add_done_callback(self._ended)

    def kill(self) -> None:
        """End the process as `kill -9` does."""
        if self.node is not None and self.is_up:
            self._loop.kill(self.node)
            self._history.record("node.crash", node=self.name, incarnation=self.incarnation, clean=False)

    def pause(self) -> None:
        if self.node is not None:
            self._loop.pause(self.node)

    def suspend(self) -> None:
        """Suspend the machine of the process."""
        if self.node is not None:
            self._loop.suspend(self.node)

    def resume(self) -> None:
        if self.node is not None:
            self._loop.resume(self.node)

    async def stop(self, *, timeout_s: float = 30) -> None:
        """End the process as SIGTERM does, and kill it when it takes too long.

        It may be killed meanwhile. A process that starts after it runs on.
        """
        task, node, incarnation = self._task, self.node, self.incarnation
        if task is None or node is None or not self.is_up:
            return
        task.cancel()
        await asyncio.wait([task], timeout=timeout_s)
        if node.state != "killed":
            self._loop.kill(node)
            self._history.record("node.crash", node=self.name, incarnation=incarnation, clean=task.done())

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Record an error that ended the process."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._history.record("node.failed", node=self.name, error=_kinds(error))
            if self.node is not None:
                self._loop.kill(self.node)


def _kinds(error: BaseException) -> str:
    """Returns the class of an error, and those inside a group. Its text may name a file, whose folder is another one in
    each process."""
    if isinstance(error, BaseExceptionGroup):
        return f"{type(error).__name__} of {', '.join(map(_kinds, error.exceptions))}"
    return type(error).__name__
