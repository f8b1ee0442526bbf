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
| is cancelled by `cancel_scope`       | succeed                   | none                                           |
| raises E, then is cancelled          | succeed                   | the cancellation, with E as its `__context__`  |

KeyboardInterrupt and SystemExit are never reduced to a note: raised by a background task, they replace E.
"Unchanged" means the same object with its traceback, `__cause__` and `__context__`.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, NoReturn, Self

import anyio
import anyio.abc
import anyio.lowlevel

from kactl.model.errors import IllegalState, KactlError

from . import forks
from .logs import logger

log = logger(__name__)


def event_loop() -> asyncio.AbstractEventLoop:
    """Returns the running event loop. Raises IllegalState under trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise IllegalState(
            "kactl runs in an event loop of asyncio, and none is running here: under trio it cannot be used (in tests "
            "with anyio's plug-in, define a fixture anyio_backend that returns 'asyncio')"
        ) from None


class Background:
    """Task group that cancels its tasks when the block ends.

        async with Background("the Kafka listener") as tasks:
            tasks.start_soon(...)

    The tasks run beside the block: in a task of their own, which the block starts and ends. So the block may be left in
    another task than it was entered in, as by fixtures of pytest and cells of notebooks. A cancellation of the block
    reaches the tasks at its end only, when what needs them has been closed in order.

    Args:
        owner: name of the owner of the tasks, for log lines and notes.
        failed: returns the exception that leaves the block in place of the failure of a task, which is its cause.
        interrupts: whether the failure of a task cancels the task that has entered the block.
        end_s: how long the block waits for the end of its tasks; None for ever. Later ones are logged and left alone.
    """

    def __init__(
        self,
        owner: str,
        *,
        failed: Callable[[BaseException], Exception] | None = None,
        interrupts: bool = True,
        end_s: float | None = None,
    ) -> None:
        self._owner = owner
        self._failed = failed
        self._interrupts = interrupts
        self._interrupted = False
        self._was_only_interrupted = False  # and not cancelled from outside, too
        self._end_s = end_s
        self._ends = asyncio.Event()

    async def __aenter__(self) -> anyio.abc.TaskGroup:
        self._loop = event_loop()
        self._block = asyncio.current_task()
        entered: asyncio.Future[anyio.abc.TaskGroup] = self._loop.create_future()
        self._host = self._loop.create_task(self._run(entered), name=f"tasks of {self._owner}")
        # The loop itself has weak references only. Those of the module would outlast a loop that ends before its tasks.
        vars(self._loop).setdefault("kactl_hosts", set()).add(self._host)
        self._host.add_done_callback(self._over)
        forks.share(self)
        try:
            self._tasks = await entered
        except BaseException:
            self._host.cancel()
            raise
        return self._tasks

    async def _run(self, entered: "asyncio.Future[anyio.abc.TaskGroup]") -> None:
        async with anyio.create_task_group() as tasks:
            if not entered.done():
                entered.set_result(tasks)
            try:
                await self._ends.wait()
            except asyncio.CancelledError:
                self._interrupt()
                raise
            tasks.cancel_scope.cancel()

    def _interrupt(self) -> None:
        """A task has failed, or the event loop ends: end the block."""
        block = self._block
        if self._interrupts and not self._interrupted and block is not None and not block.done():
            self._interrupted = True
            block.cancel()

    def _over(self, host: "asyncio.Task[None]") -> None:
        vars(self._loop)["kactl_hosts"].discard(host)
        if not (host.cancelled() or self._interrupted or self._ends.is_set()) and (error := host.exception()):
            log.error("%s has failed, which is raised when it is closed: %r", self._owner, error, exc_info=error)

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`: the tasks end, if the child uses the event loop at all."""
        self._loop.call_soon(self._ends.set)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._ends.set()
        cancelled = await self._join()
        failure = None if not self._host.done() or self._host.cancelled() else self._host.exception()
        if isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
            failure = failure.exceptions[0]
        own = None if isinstance(error, asyncio.CancelledError) else error
        if failure is not None and own is None:
            if self._failed is not None and isinstance(failure, Exception):
                raise self._failed(failure) from failure
            _raise_unchanged(failure)
        if failure is not None and own is not None:
            if not isinstance(failure, Exception):
                raise failure
            _attach(own, failure, self._owner)
        if cancelled is not None:
            raise cancelled
        if own is not None:
            await anyio.lowlevel.checkpoint_if_cancelled()
        # One of the tasks has cancelled the scope of all of them: the block has ended with them.
        return error is not own and failure is None and self._was_only_interrupted and not self._host.cancelled()

    async def _join(self) -> asyncio.CancelledError | None:
        """Wait for the end of all tasks. Returns a cancellation of this task meanwhile that was not `_interrupt`."""
        cancelled: asyncio.CancelledError | None = None
        until_s = None if self._end_s is None else self._loop.time() + self._end_s
        with anyio.CancelScope(shield=True):
            while not self._host.done():
                rest_s = None if until_s is None else until_s - self._loop.time()
                if rest_s is not None and rest_s <= 0:
                    log.error("%s ignores its cancellation, and is left alone: restart the process", self._owner)
                    break
                try:
                    await asyncio.wait([self._host], timeout=rest_s)
                except asyncio.CancelledError as error:
                    cancelled = error
            if self._interrupted and self._block is asyncio.current_task() and self._block is not None:
                try:
                    await asyncio.sleep(0)  # the cancellation may not have arrived yet
                except asyncio.CancelledError as error:
                    cancelled = error
                if not self._block.uncancel():
                    cancelled = None
                    self._was_only_interrupted = True
        return cancelled


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

    async def __aenter__(self) -> Self:
        event_loop()
        return await super().__aenter__()

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
    """Raise an exception that ends a start again: one of kactl without those that led to it, as it has the reason."""
    if isinstance(error, KactlError):
        error.ends_start = True
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
