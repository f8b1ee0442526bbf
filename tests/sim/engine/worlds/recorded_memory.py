"""Simulated in-memory store with random faults, and with every operation in the history."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from kactl.model import Fence
from kactl.model.errors import ControllerMoved, StoreError, StoreUnavailable
from kactl.stores.base import Changed, StoreEvent
from kactl.testing.history import History
from kactl.testing.links import ANY, Links
from kactl.testing.loop import SimLoop
from kactl.testing.nodes import Node, on
from kactl.testing.worlds.memory import MemoryWorld
from kactl.testing.worlds.memory_connection import SimConnection
from kactl.testing.worlds.memory_link import KIND, Call, SimLink

from . import memory_writes
from .written import After, Written


class StoreFaults(msgspec.Struct):
    """Rates of random faults, as probabilities; they may be changed during a run.

    Attributes:
        lost_requests: an operation never reaches the server: StoreUnavailable, nothing is done.
        lost_answers: the answer is lost: StoreUnavailable, and the operation is done.
        refusals: the server refuses an operation with StoreError; nothing is done.
        late_events: an event, and all that the server sends after it, is delayed by up to `late_ms`.
        doubled_events: an event is sent twice.
        coalesced_events: an event is left out, if an equal one has not reached the client yet.
    """

    lost_requests: float = 0.0
    lost_answers: float = 0.0
    refusals: float = 0.0
    late_events: float = 0.0
    late_ms: float = 1_000.0
    doubled_events: float = 0.0
    coalesced_events: float = 0.0


class RecordedMemoryWorld(MemoryWorld):
    """A simulated in-memory store.

    Args:
        history: receives the events `store.*`.

    Attributes:
        faults: random faults.
        stops: how often the server was stopped.
    """

    def __init__(
        self, loop: SimLoop, history: History, links: Links, *, name: str = "store", session_timeout_ms: float = 6_000.0
    ) -> None:
        super().__init__(loop, links, name=name, session_timeout_ms=session_timeout_ms)
        self.history = history
        self.faults = StoreFaults()
        self.is_stopped = False
        self.stops = 0
        self._txns = 0

    @property
    def session_end_ms(self) -> float:
        """The longest time from the last message of a client to the end of its session."""
        return self.session_timeout_ms

    def new_link(self, node: Node) -> "RecordedLink":
        return RecordedLink(self, node)

    def new_connection(self, client: str, send: Callable[[StoreEvent], None]) -> "RecordedConnection":
        return RecordedConnection(self, client, send)

    # -- faults --------------------------------------------------------------------------------------------------------

    def delay(self, node: str, delay_ms: float) -> None:
        """Let nothing that the server sends to a node from now on arrive within this time."""
        self.links.channel(KIND, self.node.name, node).delay(delay_ms)

    def expire_brokers(self, node: str) -> None:
        """End the sessions of the brokers on a node at the server now."""
        for link in self.clients.get(node, ()):
            _of(link).expire_brokers()

    def stop(self) -> None:
        """Stop the server. Operations on their way are lost, answers and events arrive. Sessions do not end."""
        if not self.is_stopped:
            self.is_stopped = True
            self.stops += 1
            self.loop.pause(self.node)
            self.links.cut(ANY, self.node.name, kind=KIND, both=False)

    def start(self) -> None:
        """Start the server again. All sessions have their whole timeout from now on."""
        if self.is_stopped:
            self.is_stopped = False
            with on(self.node):
                for link in self._links():
                    _of(link).restart()
            self.links.heal(ANY, self.node.name, kind=KIND, both=False, deliver=False)
            self.loop.resume(self.node)

    def set_faults(self, rates: Mapping[str, float]) -> None:
        """Set the rates of random faults by name; those that are left out have their defaults."""
        self.faults = StoreFaults(**rates)

    def remove_topic(self, topic: str) -> None:
        """Remove a topic from the store by hand, as an operator with a tool of the store does."""
        with on(self.node):
            after = memory_writes.remove_topic(self.state, topic)
            self.state.delete_topic(topic)
            self.record("", "remove_topic", after(None), sent=len(self.history.events))

    def close(self) -> None:
        """Nothing remains of this store."""

    # -- for the links -------------------------------------------------------------------------------------------------

    def next_txn(self) -> int:
        """Returns the number of a new operation."""
        self._txns += 1
        return self._txns

    def record(
        self,
        client: str,
        operation: str,
        written: Written,
        *,
        sent: int,
        fence: int | None = None,
        txn: int = 0,
        outcome: str = "ok",
    ) -> None:
        """Record a `store.commit`."""
        if outcome == "ok" and written.conflicts and not written.ops:
            outcome = "conflict"
        self.history.record(
            "store.commit",
            node=self.node.name,
            txn=txn or self.next_txn(),
            client=client,
            operation=operation,
            sent=sent,
            fence=fence,
            ops=written.ops,
            conflicts=written.conflicts,
            outcome=outcome,
        )

    def _links(self) -> Iterator[SimLink]:
        for links in self.clients.values():
            yield from links


class RecordedConnection(SimConnection):
    """Server's side of one client, with its sessions in the history."""

    def __init__(self, world: RecordedMemoryWorld, client: str, send: Callable[[StoreEvent], None]) -> None:
        super().__init__(world, send)
        self._recorded = world
        self._client = client
        self._brokers: dict[int, int] = {}  # broker by session

    # -- the client's own session

    def open_session(self) -> None:
        is_new = self.session is None
        super().open_session()
        if is_new:
            assert self.session is not None
            self._record_session(self.session, "opened")

    def expire(self) -> None:
        with on(self._world.node):
            session = self.session
            if session is not None:
                after = memory_writes.end_of_session(self.state, session)
                super().expire()
                self._record_end(session, "expired", after)

    def disconnect(self) -> None:
        for broker_session in tuple(self._leases):
            after = memory_writes.end_of_session(self.state, broker_session)
            super().close_session(broker_session)
            self._record_end(broker_session, "closed", after, by=self._client)
        session = self.session
        if session is not None:
            after = memory_writes.end_of_session(self.state, session)
            super().disconnect()
            self._record_end(session, "closed", after, by=self._client)

    def restart(self) -> None:
        """Give all sessions their whole timeout again: the server was down."""
        self.touch()
        for lease in self._leases.values():
            lease.deadline_ms = self._clock.monotonic_ms() + lease.timeout_ms

    # -- sessions of brokers

    def register(self, session: int, broker: Any) -> int:
        epoch = super().register(session, broker)
        if session not in self._brokers:
            self._brokers[session] = broker.id
            self._record_session(session, "opened")
        return epoch

    def expire_session(self, session: int) -> None:
        with on(self._world.node):
            after = memory_writes.end_of_session(self.state, session)
            is_open = session in self.state.sessions
            super().close_session(session)
            if is_open:
                self._record_end(session, "expired", after)

    def close_session(self, session: int) -> None:
        is_open = session in self.state.sessions
        super().close_session(session)
        if is_open:
            self._record_session(session, "closed")

    def expire_brokers(self) -> None:
        """End the sessions of all brokers of this client."""
        for session in tuple(self._leases):
            self.expire_session(session)

    # -- history

    def _record_end(self, session: int, what: str, after: After, *, by: str = "") -> None:
        world = self._recorded
        operation = "expire" if what == "expired" else "close"
        world.record(by, operation, after(None), sent=len(world.history.events))
        self._record_session(session, what)

    def _record_session(self, session: int, what: str) -> None:
        world, broker = self._recorded, self._brokers.get(session, -1)
        world.history.record(
            "store.session", node=world.node.name, session=session, client=self._client, broker=broker, what=what
        )


class RecordedLink(SimLink):
    """Link of one client, with random faults and with its operations in the history."""

    def __init__(self, world: RecordedMemoryWorld, node: Node) -> None:
        super().__init__(world, node)
        self._recorded = world
        self._on_way: Counter[StoreEvent] = Counter()

    def _new_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "RecordedCall":
        world = self._recorded
        return RecordedCall(name, args, kwargs, txn=world.next_txn(), sent=len(world.history.events))

    def _send(self, call: Call, fate: float) -> None:
        world = self._recorded
        stops, faults = world.stops, world.faults

        def arrive() -> None:
            if world.stops == stops:
                self._execute(call, fate - faults.lost_requests)
            else:  # the server that it was sent to has ended
                self._later(lambda: self._lose(call))

        if fate < faults.lost_requests:
            self._later(lambda: self._lose(call))
        else:
            self._to_server.send(arrive, to=world.node, lost=lambda: self._lose(call))

    def _lose(self, call: Call) -> None:
        self._record_unknown(call, done=False)
        super()._lose(call)

    def _later(self, callback: Callable[[], None]) -> None:
        """Run a function of the client about a round trip later."""
        low, high = self._to_server.latency_ms
        when_s = self._world.loop.now_s + 2 * self._rng.uniform(low, high) / 1000
        self._world.links.call_at(when_s, callback, on=self.node)

    def _answer(self, call: Call, result: Any) -> None:
        assert isinstance(call, RecordedCall)
        if call.is_write and (call.answered.done() or isinstance(result, StoreUnavailable)):
            self._record_unknown(call, done=call.is_done)
        elif call.is_write and not isinstance(result, Exception):
            self._record("store.answered", txn=call.txn)
        super()._answer(call, result)

    def _record_unknown(self, call: Call, *, done: bool) -> None:
        assert isinstance(call, RecordedCall)
        if call.is_write:
            self._record("store.unknown", txn=call.txn, done=done)

    def _record(self, kind: str, **fields: Any) -> None:
        self._recorded.history.record(kind, node=self.node.name, client=self.node.name, **fields)

    def _receive_event(self, event: StoreEvent) -> None:
        self._on_way[event] -= 1
        super()._receive_event(event)

    # -- on the server's node ------------------------------------------------------------------------------------------

    def _execute(self, call: Call, fate: float) -> None:
        faults = self._recorded.faults
        result: Any
        if self.connection.session is not None:
            self.connection.touch()
        if 0 <= fate < faults.refusals:
            result = StoreError(f"the store refused {call.name}")
        else:
            result = self._result(call)
            if faults.refusals <= fate < faults.refusals + faults.lost_answers:
                result = StoreUnavailable(f"the answer to {call.name} was lost: the connection broke")
        self._to_client.send(lambda: self._answer(call, result), to=self.node)

    def _result(self, call: Call) -> Any:
        """Returns the result of an operation, or its error, and records its writes."""
        assert isinstance(call, RecordedCall)
        world = self._recorded
        writes = memory_writes.WRITES.get(call.name)
        fence = next((arg for arg in call.args if isinstance(arg, Fence)), None)
        after: After | None = None
        try:
            after = None if writes is None else writes(world.state, *call.args, **call.kwargs)
        except Exception as error:
            result: Any = error
        else:
            result = super()._result(call)
        written, outcome = Written([], []), "ok"
        if isinstance(result, Exception):
            outcome = "fenced" if isinstance(result, ControllerMoved) and fence is not None else "error"
        elif after is not None:
            written = after(result)
            call.is_done = True
        if call.is_write:
            epoch = None if fence is None else fence.epoch
            world.record(
                self.node.name, call.operation, written, sent=call.sent, fence=epoch, txn=call.txn, outcome=outcome
            )
        return result

    def _send_event(self, event: StoreEvent) -> None:
        faults, rng = self._recorded.faults, self._rng
        # The end of a session is reported once, and each write of a watched partition, too.
        is_change = event.what not in (Changed.SESSION_LOST, Changed.LEADERSHIP)
        if is_change and self._on_way[event] > 0 and rng.random() < faults.coalesced_events:
            return
        if rng.random() < faults.late_events:
            self._to_client.delay(rng.uniform(0, faults.late_ms))
        for _ in range(2 if is_change and rng.random() < faults.doubled_events else 1):
            self._on_way[event] += 1
            super()._send_event(event)


class RecordedCall(Call):
    """An operation that a client has sent.

    Attributes:
        operation: its name in the history: of the method of `Store` or `Session` that sends it.
        sent: length of the history when it was sent.
        is_write: whether it may write, so that the history contains it.
        is_done: whether the server has carried it out.
    """

    def __init__(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, txn: int, sent: int) -> None:
        super().__init__(name, args, kwargs)
        self.txn = txn
        self.sent = sent
        self.is_write = name in memory_writes.WRITES
        self.operation = "close" if name == "close_session" else name
        if name == "notify":
            self.operation = "notify_isr" if args[0] is Changed.ISR_NOTIFICATIONS else "notify_log_dir"
        self.is_done = False


def _of(link: SimLink) -> RecordedConnection:
    assert isinstance(link.connection, RecordedConnection)
    return link.connection
