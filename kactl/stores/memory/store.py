"""Client of the in-memory store, and its link to the server.

Most methods execute the operation of the same name on the server; see `operations`.
"""

import functools
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

import anyio.abc
import anyio.lowlevel

from kactl.decide.state.rows import Ints
from kactl.model import NO_BROKER, Broker, Fence, TopicPartition
from kactl.model.errors import IllegalState, StoreError
from kactl.runtime import forks
from kactl.runtime.background import Background, BlockStack
from kactl.runtime.clock import Clock, SystemClock

from ..base import Assignments, Changed, Notification, SessionBound, StoreEvent
from ..deleted_topics import DeletedTopics
from ..opening import check_unopened
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


def _asked(
    operation: Callable[Concatenate[ServerConnection, P], T],
) -> Callable[Concatenate["MemoryStore", P], Coroutine[Any, Any, T]]:
    """Returns the method that executes an operation on the server."""

    @functools.wraps(operation)
    async def ask(store: "MemoryStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._open_link.ask(operation, *args, **kwargs)

    return ask


class MemoryStore:
    """Store in memory, for tests, and for clusters that may forget everything when their process ends.

        async with kactl.Controller(1) as controller: ...  # has such a store, as controller.store

    Clients of one `MemoryState` share its content.

    Args:
        state: shared with other clients; a new one if None.
        clock: of the server, for the sessions of brokers. The client's own session ends on leaving the context, or by
            `expire`.
        link: way to the server; a direct call to `state`, by `clock`, if None.
    """

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

    # -- the controllership

    controller = _asked(ServerConnection.controller)

    async def contest(self, controller_id: int, *, take_over: bool = False, address: str = "") -> Fence:
        return await self._open_link.ask(ServerConnection.contest, controller_id, take_over=take_over, address=address)

    resign = _asked(ServerConnection.resign)
    check = _asked(ServerConnection.check)

    # -- brokers and topics

    brokers = _asked(ServerConnection.brokers)
    broker = _asked(ServerConnection.broker)
    membership = _asked(ServerConnection.membership)
    write_maintenance = _asked(ServerConnection.write_maintenance)
    register_remote = _asked(ServerConnection.register_remote)
    end_remote = _asked(ServerConnection.end_remote)
    evict = _asked(ServerConnection.evict)
    create_topic = _asked(ServerConnection.create_topic)
    create_topics = _asked(ServerConnection.create_topics)
    write_assignment = _asked(ServerConnection.write_assignment)
    topic_id_copies = _asked(ServerConnection.topic_id_copies)
    write_topic_ids = _asked(ServerConnection.write_topic_ids)
    topic_configs = _asked(ServerConnection.topic_configs)
    set_topic_config = _asked(ServerConnection.set_topic_config)
    default_config = _asked(ServerConnection.default_config)
    set_default_config = _asked(ServerConnection.set_default_config)

    async def topics(self) -> list[str]:
        is_watched = self._listener is not None
        numbers = await self._open_link.ask(ServerConnection.topics, watched=is_watched)
        if is_watched:
            self._deleted_topics.compare(numbers)
        return sorted(numbers)

    def take_deleted_topics(self) -> frozenset[str]:
        return self._deleted_topics.take()

    async def assignments(self, topics: Collection[str]) -> Assignments:
        assignments, numbers = await self._open_link.ask(ServerConnection.assignments, topics)
        if self._listener is not None:
            for name, number in numbers.items():
                self._deleted_topics.record_read(name, number)
        return assignments

    # -- leadership

    leaderships = _asked(ServerConnection.leaderships)
    commit = _asked(ServerConnection.commit)
    write_isr = _asked(ServerConnection.write_isr)
    changes = _asked(ServerConnection.changes)
    watch_leaderships = _asked(ServerConnection.watch_leaderships)

    # -- notifications

    delete_notifications = _asked(ServerConnection.delete_notifications)

    async def notify_isr(self, partitions: Sequence[TopicPartition]) -> None:
        await self._open_link.ask(ServerConnection.notify, Changed.ISR_NOTIFICATIONS, tuple(partitions), NO_BROKER)

    async def notify_log_dir(self, broker: int) -> None:
        await self._open_link.ask(ServerConnection.notify, Changed.LOG_DIR_NOTIFICATIONS, (), broker)

    async def isr_notifications(self) -> list[Notification]:
        return await self._open_link.ask(ServerConnection.notifications, Changed.ISR_NOTIFICATIONS)

    async def log_dir_notifications(self) -> list[Notification]:
        return await self._open_link.ask(ServerConnection.notifications, Changed.LOG_DIR_NOTIFICATIONS)

    # -- deletion, admin requests, features and producer ids

    mark_deletion = _asked(ServerConnection.mark_deletion)
    deletions = _asked(ServerConnection.deletions)
    unmark_deletions = _asked(ServerConnection.unmark_deletions)
    partitions_begun = _asked(ServerConnection.partitions_begun)
    request_reassignment = _asked(ServerConnection.request_reassignment)
    reassignment_request = _asked(ServerConnection.reassignment_request)
    set_reassignment_request = _asked(ServerConnection.set_reassignment_request)
    request_preferred_election = _asked(ServerConnection.request_preferred_election)
    preferred_election_request = _asked(ServerConnection.preferred_election_request)
    delete_preferred_election_request = _asked(ServerConnection.delete_preferred_election_request)
    features = _asked(ServerConnection.features)
    write_features = _asked(ServerConnection.write_features)
    producer_ids = _asked(ServerConnection.producer_ids)
    write_producer_ids = _asked(ServerConnection.write_producer_ids)

    async def delete_topics(self, topics: Mapping[str, Ints], fence: Fence) -> dict[str, StoreError]:
        await self._open_link.ask(ServerConnection.delete_topics, topics, fence)
        for topic in topics:
            self._deleted_topics.forget(topic)
        return {}


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
