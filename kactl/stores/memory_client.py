"""Base of `MemoryStore`: the client's session, its watches, and access to the shared state."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio
import anyio.abc
import anyio.lowlevel

from kactl.clock import Clock, SystemClock
from kactl.errors import IllegalState
from kactl.runtime.background import Background, BlockStack

from .base import Changed, StoreEvent
from .deleted_topics import DeletedTopics
from .memory_state import MemorySession, MemoryState
from .watch_registry import Watches


class MemoryClient:
    """Base class of the parts of `MemoryStore`."""

    def __init__(self, state: MemoryState | None = None, *, clock: Clock | None = None) -> None:
        self.state = MemoryState() if state is None else state
        self._clock = SystemClock() if clock is None else clock
        self._watches = Watches()
        self._deleted_topics = DeletedTopics()
        self._session: int | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._stack: BlockStack | None = None
        self._broker_sessions: list[MemorySession] = []

    def another(self) -> Self:
        """Returns a second client of the same state."""
        return type(self)(self.state, clock=self._clock)

    async def __aenter__(self) -> Self:
        stack = BlockStack("the in-memory store")
        self._tasks = await stack.enter_async_context(Background("a broker's session in the in-memory store"))
        self._stack = stack
        self._session = self.state.open_session()
        self.state.watches.append(self._watches)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._session is None or self._stack is None:
            raise IllegalState("a MemoryStore was exited without being entered")
        self.state.watches.remove(self._watches)
        session, self._session = self._session, None
        self.state.end_session(session)
        for broker_session in self._broker_sessions:
            self._stack.push_async_callback(broker_session.close)
        return await self._stack.__aexit__(kind, error, trace)

    @property
    def trouble(self) -> str:
        return ""

    def expire(self) -> None:
        """End the client's own session as a server does after its timeout; a new session is opened at once."""
        if self._session is None:
            raise IllegalState("a MemoryStore has no session before it is entered")
        self.state.end_session(self._session)
        self._watches.fire(StoreEvent(Changed.SESSION_LOST))
        self._session = self.state.open_session()
        self._watches.fire(StoreEvent(Changed.SESSION_OPENED))

    def subscribe(self, listener: Callable[[StoreEvent], None]) -> None:
        self._watches.subscribe(listener)

    async def new_session(self, timeout_ms: int) -> MemorySession:
        state = await self._turn()
        session = MemorySession(state, self._clock, timeout_ms)
        assert self._tasks is not None
        self._broker_sessions.append(session)
        self._tasks.start_soon(session.expire_when_silent)
        return session

    async def _turn(self) -> MemoryState:
        """Returns the state after one turn of the event loop, since a call to a real store yields as well."""
        if self._session is None:
            raise IllegalState("a MemoryStore can only be used inside `async with`")
        await anyio.lowlevel.checkpoint()
        return self.state
