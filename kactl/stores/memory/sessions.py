"""Sessions on the server of the in-memory store: each client's own session, and the sessions of its brokers.

Sessions are ended by the server and by its clock, whatever has become of the client.
"""

import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from kactl.model import Broker, ControllerRecord, Fence
from kactl.model.errors import BrokerIdTaken, ControllerMoved, SessionExpired
from kactl.runtime.clock import Clock

from ..base import Changed, StoreEvent
from ..watch_registry import Watches
from .state import MemoryState

# Runs a coroutine function in a task of the server.
StartTask = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]


@dataclasses.dataclass(slots=True)
class BrokerLease:
    """A broker's session, as the server knows it."""

    id: int
    timeout_ms: int
    deadline_ms: float


class ClientSessions:
    """Server's side of one client: its watches, its own session, its brokers' sessions, and the controllership.

    Args:
        state: the data, shared with the other clients.
        clock: the server's.
        send: sends an event to the client.
        start_task: starts the tasks that wait for the end of a session.
    """

    def __init__(
        self, state: MemoryState, *, clock: Clock, send: Callable[[StoreEvent], None], start_task: StartTask
    ) -> None:
        self.state = state
        self.watches = Watches()
        self.watches.subscribe(send)
        self.session: int | None = None
        self._clock = clock
        self._send = send
        self._start_task = start_task
        self._leases: dict[int, BrokerLease] = {}

    # -- the client's own session

    def open_session(self) -> None:
        """Open the client's own session. A client has to read again whatever it watched in an earlier one."""
        if self.session is None:
            self.session = self.state.open_session()
            self.state.watches.append(self.watches)

    def expire(self) -> None:
        """End the client's own session after its timeout, and everything that depends on it."""
        if self.session is not None:
            session, self.session = self.session, None
            self.state.end_session(session)
            self._forget_watches()
            self._send(StoreEvent(Changed.SESSION_LOST))

    def disconnect(self) -> None:
        """End all sessions of a client that leaves."""
        if self.session is not None:
            session, self.session = self.session, None
            self._forget_watches()
            self.state.end_session(session)
        for broker_session in tuple(self._leases):
            self.close_session(broker_session)

    def _forget_watches(self) -> None:
        self.watches.clear()
        self.state.watches.remove(self.watches)

    # -- the controllership, which depends on that session

    def controller(self) -> ControllerRecord | None:
        self.watches.arm(Changed.CONTROLLER)
        return self.state.controller[0] if self.state.controller else None

    def contest(self, controller_id: int, *, take_over: bool, address: str) -> Fence:
        state = self.state
        if self.session is None:
            raise SessionExpired("the session of this client has ended: wait for SESSION_OPENED, then contest again")
        if state.controller and not take_over:
            raise ControllerMoved(ours=0, theirs=state.epoch)
        state.epoch += 1
        state.controller = (ControllerRecord(controller_id, state.epoch, self._clock.now_ms(), address), self.session)
        state.changed(Changed.CONTROLLER)
        return Fence(epoch=state.epoch, version=state.epoch)

    def resign(self, fence: Fence) -> None:
        state = self.state
        state.check(fence)
        if state.controller:
            state.controller = None
            state.changed(Changed.CONTROLLER_GONE)

    def check(self, fence: Fence) -> None:
        self.state.check(fence)

    # -- sessions of brokers, and the registrations that depend on them

    def new_session(self, timeout_ms: int) -> int:
        lease = BrokerLease(self.state.open_session(), timeout_ms, self._clock.monotonic_ms() + timeout_ms)
        self._leases[lease.id] = lease

        async def expire_when_silent() -> None:
            while lease.id in self.state.sessions:
                left_ms = lease.deadline_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    self.expire_session(lease.id)
                else:
                    await self._clock.sleep_ms(left_ms)

        self._start_task(expire_when_silent)
        return lease.id

    def register(self, session: int, broker: Broker) -> int:
        self._check_session(session)
        state = self.state
        if broker.id in state.brokers and state.brokers[broker.id][1] != session:
            lease = self._leases.get(state.brokers[broker.id][1] or 0)
            if lease is None:
                raise BrokerIdTaken(broker.id)
            ends_ms = int(lease.deadline_ms - self._clock.monotonic_ms())
            raise BrokerIdTaken(broker.id, renewed_ms=int(lease.timeout_ms) - ends_ms, ends_ms=ends_ms)
        return self._put_broker(broker, session)

    def _put_broker(self, broker: Broker, session: int | None) -> int:
        state = self.state
        state.broker_epoch += 1
        state.brokers[broker.id] = (msgspec.structs.replace(broker, epoch=state.broker_epoch), session)
        state.changed(Changed.BROKERS)
        return state.broker_epoch

    def register_remote(self, broker: Broker, incarnation: bytes, timeout_ms: int, fence: Fence) -> int:
        self.state.check(fence)
        remote = broker.in_remote_session(incarnation, timeout_ms)
        known, _ = self.state.brokers.get(broker.id, (None, None))
        if known is None:
            return self._put_broker(remote, None)
        if not known.has_remote_session(incarnation):
            raise BrokerIdTaken(broker.id)
        return known.epoch

    def end_remote(self, broker: int, epoch: int, fence: Fence) -> None:
        self.state.check(fence)
        known, session = self.state.brokers.get(broker, (None, None))
        if known is not None and known.epoch == epoch and session is None:
            del self.state.brokers[broker]
            self.state.changed(Changed.BROKERS)

    def evict(self, broker: int, epoch: int, fence: Fence) -> None:
        self.state.check(fence)
        known, session = self.state.brokers.get(broker, (None, None))
        if known is not None and known.epoch == epoch and not known.evicted:
            self.state.brokers[broker] = (msgspec.structs.replace(known, evicted=True), session)
            self.state.changed(Changed.BROKERS)

    def keep_alive(self, session: int) -> None:
        lease = self._check_session(session)
        lease.deadline_ms = self._clock.monotonic_ms() + lease.timeout_ms

    def expire_session(self, session: int) -> None:
        """End a broker's session after its timeout."""
        self.close_session(session)

    def close_session(self, session: int) -> None:
        self._leases.pop(session, None)
        self.state.end_session(session)

    def _check_session(self, session: int) -> BrokerLease:
        lease = self._leases.get(session)
        if lease is not None and self._clock.monotonic_ms() >= lease.deadline_ms:
            self.expire_session(session)
        if lease is None or session not in self.state.sessions:
            raise SessionExpired("the session of this broker has ended: open a new one and register again")
        if any(broker.evicted for broker, holder in self.state.brokers.values() if holder == session):
            raise SessionExpired("the controller has evicted this broker: open a new session and register again")
        return lease
