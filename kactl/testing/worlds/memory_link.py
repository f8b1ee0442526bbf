"""Link of a client of the simulated in-memory store: operations, answers, events, and the client's own session."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import anyio.abc

from kactl.model.errors import StoreUnavailable
from kactl.stores.base import Changed, StoreEvent
from kactl.stores.memory import ServerConnection

from ..links import Channel
from ..nodes import Node

if TYPE_CHECKING:
    from .memory import MemoryWorld

P = ParamSpec("P")
T = TypeVar("T")

# Kind of the links, for `Links`.
KIND: Final = "store"
# Share of the session timeout between two messages of an idle client, as ZooKeeper's clients have it.
PING_SHARE: Final = 1 / 3
# Share of the session timeout without an answer after which a client reports SUSPENDED: as in the SQLite store.
SUSPENDED_SHARE: Final = 0.75
# Share of the session timeout after which an operation fails: before the session can have ended.
OPERATION_SHARE: Final = 2 / 3


class SimLink:
    """Link of one client of a `MemoryWorld`; see `kactl.stores.memory.Link`."""

    def __init__(self, world: "MemoryWorld", node: Node) -> None:
        self.node = node
        self._world = world
        self.connection = world.new_connection(node.name, self._send_event)
        self._rng = world.loop.streams[f"store:{node.name}"]
        self._to_server: Channel = world.links.channel(KIND, node.name, world.node.name)
        self._to_client: Channel = world.links.channel(KIND, world.node.name, node.name)
        self._receive: Callable[[StoreEvent], None] = lambda _: None
        self._is_open = False
        self._is_suspended = False
        self._is_lost = False  # the client knows that its session has ended
        self._renewals = 0  # sent so far
        self._alive_s = 0.0  # when the last message was sent of which the answer showed that the session exists
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def open(self, receive: Callable[[StoreEvent], None], tasks: anyio.abc.TaskGroup) -> None:
        self._receive = receive
        # Before the answer: the end of the session may be reported before this task runs again.
        self._is_open = True
        try:
            await self._ask("open_session", (), {}, is_faulty=False)
        except BaseException:
            self._is_open = False
            raise
        self._schedule_ping()
        self._await_silence()

    async def ask(
        self, operation: Callable[Concatenate[ServerConnection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        result: T = await self._ask(operation.__name__, args, kwargs, is_faulty=True)
        return result

    async def close(self) -> None:
        """Send a message that ends the sessions, without waiting for an answer. If it is lost, they expire."""
        self._is_open = False
        for timer in self._timers.values():
            timer.cancel()

        def leave() -> None:
            self.connection.disconnect()
            self._world.forget(self)

        self._to_server.send(leave, to=self._world.node)

    def expire(self) -> None:
        self._world.expire_session(self.node.name)

    # -- operations, on the client's node ------------------------------------------------------------------------------

    async def _ask(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_faulty: bool) -> Any:
        loop = asyncio.get_running_loop()
        call = self._new_call(name, args, kwargs)
        self._send(call, self._rng.random() if is_faulty else 1.0)
        limit_ms = OPERATION_SHARE * self._world.session_timeout_ms
        late = loop.call_later(
            limit_ms / 1000, call.fail, StoreUnavailable(f"the store did not answer {name} within {limit_ms:g} ms")
        )
        try:
            return await call.answered
        finally:
            late.cancel()

    def _new_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Call":
        return Call(name, args, kwargs)

    def _send(self, call: "Call", fate: float) -> None:
        """Send an operation. `fate` decides which fault strikes it, and is uniform below 1."""
        self._to_server.send(lambda: self._execute(call, fate), to=self._world.node, lost=lambda: self._lose(call))

    def _lose(self, call: "Call") -> None:
        call.fail(StoreUnavailable(f"the store did not receive {call.name}: the connection broke"))

    def _answer(self, call: "Call", result: Any) -> None:
        if not isinstance(result, StoreUnavailable):
            self._hear(call.sent_s)
        if isinstance(result, Exception):
            call.fail(result)
        elif not call.answered.done():
            call.answered.set_result(result)

    # -- the client's own session, on the client's node ----------------------------------------------------------------

    def _schedule_ping(self) -> None:
        if self._is_open:
            delay_s = PING_SHARE * self._world.session_timeout_ms / 1000
            self._timers["ping"] = asyncio.get_running_loop().call_later(delay_s, self._send_ping)

    def _send_ping(self) -> None:
        self._renew()
        self._schedule_ping()

    def _renew(self) -> None:
        """Renew the session, or open another one. Repeated at once if the connection breaks meanwhile."""
        if not self._is_open:
            return
        self._renewals += 1
        number, now_s = self._renewals, asyncio.get_running_loop().time()

        def lost() -> None:
            if number == self._renewals:
                self._renew()

        renewed = self._reopened if self._is_lost else lambda: self._pinged(now_s)
        self._to_server.send(renewed, to=self._world.node, lost=lost)

    def _await_silence(self) -> None:
        """Report SUSPENDED as soon as the server was silent for so long that the session may have ended."""
        if "silence" in self._timers:
            self._timers.pop("silence").cancel()
        if not self._is_open or self._is_lost or self._is_suspended:
            return
        loop = asyncio.get_running_loop()
        when_s = self._alive_s + SUSPENDED_SHARE * self._world.session_timeout_ms / 1000
        if when_s <= loop.time():
            self._is_suspended = True
            self._receive(StoreEvent(Changed.SUSPENDED))
        else:
            self._timers["silence"] = loop.call_at(when_s, self._await_silence)

    def _hear(self, sent_s: float) -> None:
        """Note that the session existed when the server answered a message."""
        if self._is_lost:
            return
        self._alive_s = max(self._alive_s, sent_s)
        if self._is_suspended and self._is_open:
            self._is_suspended = False
            self._receive(StoreEvent(Changed.CONNECTED))
            self._await_silence()

    def _receive_event(self, event: StoreEvent) -> None:
        if not self._is_open:
            return
        if event.what is Changed.SESSION_LOST:
            self._is_lost, self._is_suspended = True, False
            self._renew()
        self._receive(event)

    def _receive_opened(self, opened_s: float) -> None:
        """Receive the news that a new session was opened at a time of the loop."""
        if self._is_open:
            loop = self._world.loop
            self._is_lost = False
            self._alive_s = loop.time() - (loop.now_s - opened_s)
            self._receive(StoreEvent(Changed.SESSION_OPENED))
            self._await_silence()

    # -- on the server's node ------------------------------------------------------------------------------------------

    def _pinged(self, sent_s: float) -> None:
        if self.connection.session is not None:
            self.connection.touch()
            self._to_client.send(lambda: self._hear(sent_s), to=self.node)

    def _reopened(self) -> None:
        if self.connection.session is None:
            self.connection.open_session()
            opened_s = self._world.loop.now_s
            self._to_client.send(lambda: self._receive_opened(opened_s), to=self.node)

    def _execute(self, call: "Call", fate: float) -> None:
        if self.connection.session is not None:
            self.connection.touch()
        result = self._result(call)
        if fate < self._world.lost_answers:
            result = StoreUnavailable(f"the answer to {call.name} was lost: the connection broke")
        self._to_client.send(lambda: self._answer(call, result), to=self.node)

    def _result(self, call: "Call") -> Any:
        """Returns the result of an operation, or its error."""
        try:
            return getattr(self.connection, call.name)(*call.args, **call.kwargs)
        except Exception as error:
            return error

    def _send_event(self, event: StoreEvent) -> None:
        self._to_client.send(lambda: self._receive_event(event), to=self.node)


class Call:
    """An operation that a client has sent.

    Attributes:
        sent_s: the client's monotonic clock at that moment.
    """

    def __init__(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.args = args
        self.kwargs = kwargs
        self.sent_s = loop.time()
        self.answered: asyncio.Future[Any] = loop.create_future()

    def fail(self, error: Exception) -> None:
        """End the wait for the answer with an error, unless it has ended."""
        if not self.answered.done():
            self.answered.set_exception(error)
