"""One call of application code, in a task of its own that can be cancelled and given up, and the result of an order."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import anyio

from kactl.model.errors import ErrorCode
from kactl.runtime import delays


class StartTask(Protocol):
    """Starts a task that lives as long as its participant."""

    def __call__(self, main: Callable[[], Coroutine[Any, Any, None]], /) -> object: ...


class InnerCancellation(Exception):
    """A call has ended by a cancellation that the participant did not request: it has failed."""

    def __init__(self) -> None:
        super().__init__("one of its tasks, or a task that it awaited, was cancelled by something else")


class Phase:
    """A call in progress.

    Args:
        on_end: called when it has ended.
        what: the call, for the lines about a program that does not end.
        is_last: it belongs to the end of the registration or of the replica.

    Attributes:
        ended: whether it has ended.
        error: what it raised; None if it has succeeded, or was cancelled by `cancel`.
    """

    def __init__(
        self, main: Callable[[], Awaitable[object]], on_end: Callable[[], None], what: str, *, is_last: bool = False
    ) -> None:
        self.what = what
        self._is_last = is_last
        self._main = main
        self._on_end = on_end
        self._scope = anyio.CancelScope()
        self.ended = False
        self.error: Exception | None = None

    @property
    def delays(self) -> bool:
        """See `kactl.runtime.delays`."""
        return self._is_last or self._scope.cancel_called

    async def run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        delays.calls[task] = self
        try:
            with self._scope:
                await self._main()
        except ExceptionGroup as group:
            # The tasks of a leader run in a group, which wraps even a single exception.
            self.error = group.exceptions[0] if len(group.exceptions) == 1 else group
        except Exception as error:
            self.error = error
        except asyncio.CancelledError as error:
            if anyio.current_effective_deadline() == -math.inf:
                raise  # the tasks of the participant end
            # It would cancel all tasks of the participant, and so its block.
            self.error = InnerCancellation()
            self.error.__cause__ = error
        finally:
            del delays.calls[task]
            self.ended = True
            self._on_end()

    def cancel(self) -> None:
        self._scope.cancel()


class Ticket:
    """The result of one order, as far as the response to its request is concerned.

    Attributes:
        finished: whether the result is known.
        accepted: the response was sent without an error before the result was known.
        error: NONE if the order was carried out, or replaced by a newer one.
    """

    __slots__ = ("_on_finish", "accepted", "error", "finished")

    def __init__(self, on_finish: Callable[[], None]) -> None:
        self.finished = self.accepted = False
        self.error = ErrorCode.NONE
        self._on_finish = on_finish

    def finish(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Set the result. Later calls have no effect."""
        if not self.finished:
            self.finished, self.error = True, error
            self._on_finish()
