"""Base of `MemoryStore`: its link, its listener, and the sessions of its brokers."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from kactl.model import Broker
from kactl.model.errors import IllegalState
from kactl.runtime import forks
from kactl.runtime.background import Background, BlockStack
from kactl.runtime.clock import Clock, SystemClock
from kactl.stores.opening import check_unopened

from ..base import SessionBound, StoreEvent
from ..deleted_topics import DeletedTopics
from .link import DirectLink, Link
from .operations import ServerConnection
from .state import MemoryState


class MemoryClient:
    """Base class of the parts of `MemoryStore`."""

    def __init__(
        self, state: MemoryState | None = None, *, clock: Clock | None = None, link: Link | None = None
    ) -> None:
        self.state = MemoryState() if state is None else state
        self._clock = SystemClock() if clock is None else clock
        self._direct = link is None
        self._link: Link = DirectLink(self.state, self._clock) if link is None else link
        self._listener: Callable[[StoreEvent], None] | None = None
        self._deleted_topics = DeletedTopics()
        self._stack: BlockStack | None = None

    def another(self) -> Self:
        """Returns a second client of the same state, with a direct link.

        Raises:
            IllegalState: this client has a link of its own kind; open another one where it was made.
        """
        if not self._direct:
            raise IllegalState("a MemoryStore with a link that was passed in cannot be copied: create another link")
        return type(self)(self.state, clock=self._clock)

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`: the cluster in memory is the parent's."""
        gone: Any = forks.Gone("the in-memory store", self._home)
        self._link = gone

    @property
    def is_open(self) -> bool:
        return self._stack is not None

    async def __aenter__(self) -> Self:
        check_unopened(self)
        self._home = forks.share(self)
        async with BlockStack("the in-memory store") as stack:
            tasks = await stack.enter_async_context(Background("a broker's session in the in-memory store"))
            await self._link.open(self._receive, tasks)
            stack.push_async_callback(self._link.close)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._stack is None:
            raise IllegalState("a MemoryStore was exited without being entered")
        stack, self._stack = self._stack, None
        return await stack.__aexit__(kind, error, trace)

    @property
    def trouble(self) -> str:
        return ""

    def expire(self) -> None:
        """End the client's own session as a server does after its timeout; the client opens a new one."""
        self._link.expire()

    def subscribe(self, listener: Callable[[StoreEvent], None]) -> None:
        self._listener = listener

    async def new_session(self, timeout_ms: int) -> "MemorySession":
        session = await self._open_link.ask(ServerConnection.new_session, timeout_ms)
        # A direct link has the server's clock; a link of another kind may lead to a server with its own.
        bound = SessionBound(kind="counted", same_clock=self._direct)
        return MemorySession(self._link, session, timeout_ms, bound)

    @property
    def _open_link(self) -> Link:
        if self._stack is None:
            raise IllegalState("a MemoryStore can only be used inside `async with`")
        return self._link

    def _receive(self, event: StoreEvent) -> None:
        if self._listener:
            self._listener(event)


class MemorySession:
    """A broker's session; see `kactl.stores.base.Session`."""

    def __init__(self, link: Link, session: int, timeout_ms: int, bound: SessionBound) -> None:
        self._link = link
        self._id = session
        self._timeout_ms = timeout_ms
        self._bound = bound

    @property
    def timeout_ms(self) -> int:
        return self._timeout_ms

    @property
    def bound(self) -> SessionBound:
        return self._bound

    async def register(self, broker: Broker) -> int:
        return await self._link.ask(ServerConnection.register, self._id, broker)

    async def renew(self, sent_ns: int) -> None:
        await self._link.ask(ServerConnection.keep_alive, self._id)

    async def keep_alive(self) -> None:
        await self._link.ask(ServerConnection.keep_alive, self._id)

    async def close(self) -> None:
        await self._link.ask(ServerConnection.close_session, self._id)
