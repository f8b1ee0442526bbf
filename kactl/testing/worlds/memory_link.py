"""Link of a client of the simulated in-memory store: operations, answers, events, and the client's own session."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import anyio.abc

from kactl.model import Fence
from kactl.model.errors import ControllerMoved, StoreError, StoreUnavailable
from kactl.stores.base import Changed, StoreEvent
from kactl.stores.memory import ServerConnection

from ..history import Written
from ..links import Channel
from ..nodes import Node
from .memory_connection import SimConnection

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
        self.connection = SimConnection(world, node.name, self._send_event)
        self._world = world
        self._rng = world.loop.streams[f"store:{node.name}"]
        self._to_server: Channel = world.links.channel(KIND, node.name, world.node.name)
        self._to_client: Channel = world.links.channel(KIND, world.node.name, node.name)
        self._receive: Callable[[StoreEvent], None] = lambda _: None
        self._on_way: Counter[StoreEvent] = Counter()
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
        world, faults = self._world, self._world.faults
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Any] = loop.create_future()
        call = Call(
            world.next_txn(),
            name,
            args,
            kwargs,
            is_write=name in world.writes,
            sent=len(world.history.events),
            sent_s=loop.time(),
        )
        fate = self._rng.random() if is_faulty else 1.0

        def lost() -> None:
            self._record_unknown(call, done=False)
            _fail(answered, StoreUnavailable(f"the store did not receive {name}: the connection broke"))

        stops = world.stops

        def arrive() -> None:
            if world.stops == stops:
                self._execute(call, answered, fate - faults.lost_requests)
            else:  # the server that it was sent to has ended
                self._later(lost)

        if fate < faults.lost_requests:
            self._later(lost)
        else:
            self._to_server.send(arrive, to=world.node, lost=lost)
        limit_ms = OPERATION_SHARE * world.session_timeout_ms
        late = loop.call_later(
            limit_ms / 1000,
            lambda: _fail(answered, StoreUnavailable(f"the store did not answer {name} within {limit_ms:g} ms")),
        )
        try:
            return await answered
        finally:
            late.cancel()

    def _later(self, callback: Callable[[], None]) -> None:
        """Run a function of the client about a round trip later."""
        low, high = self._to_server.latency_ms
        when_s = self._world.loop.now_s + 2 * self._rng.uniform(low, high) / 1000
        self._world.links.call_at(when_s, callback, on=self.node)

    def _answer(self, call: "Call", answered: "asyncio.Future[Any]", result: Any) -> None:
        """Receive an answer."""
        is_error = isinstance(result, Exception)
        if call.is_write and (answered.done() or isinstance(result, StoreUnavailable)):
            self._record_unknown(call, done=call.is_done)
        elif call.is_write and not is_error:
            self._record("store.answered", txn=call.txn)
        if not isinstance(result, StoreUnavailable):
            self._hear(call.sent_s)
        if is_error:
            _fail(answered, result)
        elif not answered.done():
            answered.set_result(result)

    def _record_unknown(self, call: "Call", *, done: bool) -> None:
        if call.is_write:
            self._record("store.unknown", txn=call.txn, done=done)

    def _record(self, kind: str, **fields: Any) -> None:
        self._world.history.record(kind, node=self.node.name, client=self.node.name, **fields)

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
        self._on_way[event] -= 1
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

    def _execute(self, call: "Call", answered: "asyncio.Future[Any]", fate: float) -> None:
        """Execute an operation and send its answer."""
        faults = self._world.faults
        result: Any
        if self.connection.session is not None:
            self.connection.touch()
        if 0 <= fate < faults.refusals:
            result = StoreError(f"the store refused {call.name}")
        else:
            result = self._result(call)
            if faults.refusals <= fate < faults.refusals + faults.lost_answers:
                result = StoreUnavailable(f"the answer to {call.name} was lost: the connection broke")
        self._to_client.send(lambda: self._answer(call, answered, result), to=self.node)

    def _result(self, call: "Call") -> Any:
        """Returns the result of an operation, or its error, and records its writes."""
        world = self._world
        operation = getattr(self.connection, call.name)
        fence = next((arg for arg in call.args if isinstance(arg, Fence)), None)
        epoch = None if fence is None else fence.epoch
        written, outcome = Written([], []), "ok"
        result: Any
        try:
            after = world.before(call.name, *call.args, **call.kwargs)
            result = operation(*call.args, **call.kwargs)
            written = after(result)
            call.is_done = call.is_write
        except Exception as error:
            result = error
            outcome = "fenced" if isinstance(error, ControllerMoved) and fence is not None else "error"
        if call.is_write:
            world.record(
                self.node.name, call.operation, written, sent=call.sent, fence=epoch, txn=call.txn, outcome=outcome
            )
        return result

    def _send_event(self, event: StoreEvent) -> None:
        faults, rng = self._world.faults, self._rng
        # The end of a session is reported once, and each write of a watched partition, too.
        is_change = event.what not in (Changed.SESSION_LOST, Changed.LEADERSHIP)
        if is_change and self._on_way[event] > 0 and rng.random() < faults.coalesced_events:
            return
        if rng.random() < faults.late_events:
            self._to_client.delay(rng.uniform(0, faults.late_ms))
        for _ in range(2 if is_change and rng.random() < faults.doubled_events else 1):
            self._on_way[event] += 1
            self._to_client.send(lambda: self._receive_event(event), to=self.node)


class Call:
    """An operation that a client has sent.

    Attributes:
        operation: its name in the history.
        sent: length of the history when it was sent.
        sent_s: the client's monotonic clock at that moment.
        is_write: whether it may write, so that the history contains it.
        is_done: whether the server has carried it out.
    """

    def __init__(
        self,
        txn: int,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        is_write: bool,
        sent: int,
        sent_s: float,
    ) -> None:
        self.txn = txn
        self.name = name
        self.args = args
        self.kwargs = kwargs
        self.sent = sent
        self.sent_s = sent_s
        self.is_write = is_write
        self.operation = _operation_name(name, args)
        self.is_done = False


def _fail(answered: "asyncio.Future[Any]", error: Exception) -> None:
    if not answered.done():
        answered.set_exception(error)


def _operation_name(name: str, args: tuple[Any, ...]) -> str:
    """Returns the name of an operation in the history: of the method of `Store` or `Session` that sends it."""
    if name == "notify":
        return "notify_isr" if args[0] is Changed.ISR_NOTIFICATIONS else "notify_log_dir"
    return "close" if name == "close_session" else name
