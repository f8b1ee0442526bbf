"""Link between a client of the in-memory store and its server."""

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import anyio.abc
import anyio.lowlevel

from kactl.model.errors import IllegalState
from kactl.runtime.clock import Clock

from ..base import Changed, StoreEvent
from .operations import ServerConnection
from .state import MemoryState

P = ParamSpec("P")
T = TypeVar("T")


class Link(Protocol):
    """Way of one client to the server and back.

    Answers and events travel in one ordered stream: an event that precedes an answer at the server is received before
    the answer.
    """

    async def open(self, receive: Callable[[StoreEvent], None], tasks: anyio.abc.TaskGroup) -> None:
        """Open the client's session.

        Args:
            receive: called for each event, in the order in which the server sent them.
            tasks: background tasks of the client.

        Raises:
            StoreUnavailable: the server cannot be reached.
        """

    async def ask(
        self, operation: Callable[Concatenate[ServerConnection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Execute an operation on the server. Returns its result, or raises its error.

        Raises:
            StoreUnavailable: the outcome is unknown.
        """

    async def close(self) -> None:
        """End all sessions of the client."""

    def expire(self) -> None:
        """End the client's own session as the server does after its timeout."""


class DirectLink:
    """Link to a server in the same process: an operation is a call after one turn of the event loop.

    Events reach their listener inside the operation that caused them. The server has no tasks of its own; its waits for
    the end of a session are background tasks of the client that opened it.
    """

    def __init__(self, state: MemoryState, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._receive: Callable[[StoreEvent], None] | None = None
        self.connection: ServerConnection | None = None

    async def open(self, receive: Callable[[StoreEvent], None], tasks: anyio.abc.TaskGroup) -> None:
        self._receive = receive
        self.connection = ServerConnection(
            self._state, clock=self._clock, send=receive, start_task=lambda main: tasks.start_soon(main)
        )
        self.connection.open_session()

    async def ask(
        self, operation: Callable[Concatenate[ServerConnection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        assert self.connection is not None
        # A call to a real server yields to other tasks as well.
        await anyio.lowlevel.checkpoint()
        return operation(self.connection, *args, **kwargs)

    async def close(self) -> None:
        assert self.connection is not None
        self.connection.disconnect()

    def expire(self) -> None:
        if self.connection is None or self._receive is None:
            raise IllegalState("a MemoryStore has no session before it is entered")
        self.connection.expire()
        self.connection.open_session()
        self._receive(StoreEvent(Changed.SESSION_OPENED))
