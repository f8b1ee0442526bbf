"""Server's side of a client of the simulated in-memory store: sessions that expire, and their history."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from kactl.stores.base import StoreEvent
from kactl.stores.memory import ServerConnection

from ..clock import LoopClock
from ..history import After
from ..nodes import on

if TYPE_CHECKING:
    from .memory import MemoryWorld


class SimConnection(ServerConnection):
    """Server's side of one client, with a deadline for the client's own session, and recorded sessions."""

    def __init__(self, world: "MemoryWorld", client: str, send: Callable[[StoreEvent], None]) -> None:
        super().__init__(world.state, clock=LoopClock(world.loop), send=send, start_task=self._start)
        self._world = world
        self._client = client
        self._deadline_s = 0.0
        self._brokers: dict[int, int] = {}  # broker by session

    # -- the client's own session

    def open_session(self) -> None:
        self.touch()
        if self.session is None:
            super().open_session()
            assert self.session is not None
            self._record_session(self.session, "opened")
            self._wait_for(self.session)

    def touch(self) -> None:
        """Renew the client's own session: a message has arrived."""
        self._deadline_s = self._world.loop.now_s + self._world.session_timeout_ms / 1000

    def expire(self) -> None:
        with on(self._world.node):
            session = self.session
            if session is not None:
                after = self._world.before("close_session", session)
                super().expire()
                self._record_end(session, "expired", after)

    def disconnect(self) -> None:
        for broker_session in tuple(self._leases):
            after = self._world.before("close_session", broker_session)
            super().close_session(broker_session)
            self._record_end(broker_session, "closed", after, by=self._client)
        session = self.session
        if session is not None:
            after = self._world.before("close_session", session)
            super().disconnect()
            self._record_end(session, "closed", after, by=self._client)

    def restart(self) -> None:
        """Give all sessions their whole timeout again: the server was down."""
        self.touch()
        for lease in self._leases.values():
            lease.deadline_ms = self._clock.monotonic_ms() + lease.timeout_ms

    def _wait_for(self, session: int) -> None:
        """Wait for the deadline of a session."""

        def check() -> None:
            if self.session != session:
                return
            if self._world.loop.now_s >= self._deadline_s:
                self.expire()
            else:
                self._wait_for(session)

        self._world.links.call_at(self._deadline_s, check, on=self._world.node)

    # -- sessions of brokers

    def register(self, session: int, broker: Any) -> int:
        epoch = super().register(session, broker)
        if session not in self._brokers:
            self._brokers[session] = broker.id
            self._record_session(session, "opened")
        return epoch

    def expire_session(self, session: int) -> None:
        with on(self._world.node):
            after = self._world.before("close_session", session)
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
        for session in tuple(self._leases):
            self.expire_session(session)

    def _start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with on(self._world.node):
            self._world.loop.create_task(main())

    # -- history

    def _record_end(self, session: int, what: str, after: After, *, by: str = "") -> None:
        world = self._world
        operation = "expire" if what == "expired" else "close"
        world.record(by, operation, after(None), sent=len(world.history.events))
        self._record_session(session, what)

    def _record_session(self, session: int, what: str) -> None:
        world, broker = self._world, self._brokers.get(session, -1)
        world.history.record(
            "store.session", node=world.node.name, session=session, client=self._client, broker=broker, what=what
        )
