"""Background tasks of an `async with` block, and the exception that leaves the block.

anyio's task group wraps every exception that passes it in an ExceptionGroup, so `except kactl.TopicExists` around
`async with kactl.Controller(...)` would never match. The classes below separate the block's own exception from those of
background tasks and of closing:

| block                                | background tasks, closing | exception that leaves                          |
| ------------------------------------ | ------------------------- | ---------------------------------------------- |
| returns                              | succeed                   | none                                           |
| raises E                             | succeed                   | E, unchanged                                   |
| raises E                             | fail with F               | E; F is logged and added to E as a note        |
| returns, or is cancelled because of F | fail with F              | F, unchanged; a group only if several failed.  |
|                                      |                           | Out of a controller: ControllerFailed from F   |
| is cancelled from outside            | succeed                   | the cancellation                               |
| raises E, then is cancelled          | succeed                   | the cancellation, with E as its `__context__`  |

KeyboardInterrupt and SystemExit are never reduced to a note: raised by a background task, they replace E.
"Unchanged" means the same object with its traceback, `__cause__` and `__context__`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, NoReturn, Self

import anyio
import anyio.abc

from kactl.errors import KactlError

from . import forks
from .logs import logger

log = logger(__name__)


class Background:
    """Task group that cancels its tasks when the block ends.

        async with Background("the Kafka listener") as tasks:
            tasks.start_soon(...)

    Args:
        owner: name of the owner of the tasks, for log lines and notes.
        failed: returns the exception that leaves the block in place of the failure of a task, which is its cause.
    """

    def __init__(self, owner: str, *, failed: Callable[[BaseException], Exception] | None = None) -> None:
        self._owner = owner
        self._failed = failed
        self._tasks = anyio.create_task_group()

    async def __aenter__(self) -> anyio.abc.TaskGroup:
        self._loop = asyncio.get_running_loop()
        forks.share(self)
        return await self._tasks.__aenter__()

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`: the tasks end, if the child uses the event loop at all."""
        self._loop.call_soon(self._tasks.cancel_scope.cancel)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._tasks.cancel_scope.cancel()
        own = None if isinstance(error, asyncio.CancelledError) else error
        failure: BaseException
        try:
            if own is None:
                # A cancellation has to pass the group, which knows whether it was the group's own.
                return bool(await self._tasks.__aexit__(kind, error, trace))
            await self._tasks.__aexit__(None, None, None)
            return False
        except BaseExceptionGroup as group:
            failure = group.exceptions[0] if len(group.exceptions) == 1 else group
        except asyncio.CancelledError as raised:
            if raised is error:
                return False  # see `BlockStack`
            raise
        if own is None:
            if self._failed is not None and isinstance(failure, Exception):
                raise self._failed(failure) from failure
            _raise_unchanged(failure)
        if not isinstance(failure, Exception):
            raise failure
        _attach(own, failure, self._owner)
        return False


class ShieldedTasks:
    """Tasks that are cancelled when the block ends, and not when it is cancelled from outside.

    A cancellation reaches the block and all tasks around it at once. What ends these tasks in order is closed before
    the block ends.

    Args:
        owner: name of the owner of the tasks, for log lines and notes.
    """

    def __init__(self, owner: str) -> None:
        self._background = Background(owner)
        self._tasks: anyio.abc.TaskGroup | None = None
        self._scopes: set[anyio.CancelScope] = set()
        self._has_ended = False

    async def __aenter__(self) -> Self:
        self._tasks = await self._background.__aenter__()
        self._loop = asyncio.get_running_loop()
        forks.share(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._cancel()
        return await self._background.__aexit__(kind, error, trace)

    def _cancel(self) -> None:
        self._has_ended = True
        for scope in self._scopes:
            scope.cancel()

    def _abandon(self) -> None:
        """See `Background._abandon`."""
        self._loop.call_soon(self._cancel)

    def start_soon(self, main: Callable[[], Coroutine[Any, Any, None]], /) -> None:
        """Start a task. Its first step runs even if the block ends before it."""

        async def run() -> None:
            with anyio.CancelScope(shield=not self._has_ended) as scope:
                self._scopes.add(scope)
                try:
                    await main()
                finally:
                    self._scopes.discard(scope)

        assert self._tasks is not None
        self._tasks.start_soon(run)


class BlockStack(AsyncExitStack):
    """Exit stack of an `async with` block: a failure to close does not replace the exception of the block.

    What is closed must not raise the exception that it was given: AsyncExitStack would make that exception its own
    `__context__`, and anyio, which looks for a cancellation there, would never end. It returns False instead.

    Args:
        owner: name of the closed object, for log lines and notes.
    """

    def __init__(self, owner: str = "kactl") -> None:
        super().__init__()
        self._owner = owner

    def callback(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """As AsyncExitStack's, but a process that was forked in the block does not close what belongs to its parent."""
        here = forks.home()

        def close() -> None:
            if not here.left:
                call(*args, **kwargs)

        return super().callback(close)

    def push_async_callback(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """See `callback`."""
        here = forks.home()

        async def close() -> None:
            if not here.left:
                await call(*args, **kwargs)

        return super().push_async_callback(close)

    def pop_all(self) -> "BlockStack":
        """Move the callbacks to a new stack with the same owner."""
        moved = super().pop_all()
        moved._owner = self._owner
        return moved

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None:
        try:
            return bool(await super().__aexit__(kind, error, trace))
        except BaseException as failure:
            if failure is error:
                return False
            if error is None or isinstance(error, asyncio.CancelledError) or not isinstance(failure, Exception):
                raise
            _attach(error, failure, self._owner)
            return False


def raise_alone(error: BaseException) -> NoReturn:
    """Raise an exception again: an error of kactl without those that led to it, because its message has the reason."""
    if isinstance(error, KactlError):
        raise error from None
    raise error


def _attach(error: BaseException, failure: BaseException, owner: str) -> None:
    """Log a failure that does not leave the block, and add it to the exception that does."""
    log.error("%s failed while another exception left its block: %r", owner, failure, exc_info=failure)
    error.add_note(f"{owner} failed, too: {type(failure).__name__}: {failure}")


def _raise_unchanged(error: BaseException) -> NoReturn:
    """Raise an exception that was caught elsewhere, and keep the `__context__` that it was raised with."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context
