"""Sessions of participants with the controller: registers participants, grants heartbeats, ends silent sessions.

Runs beside the event loop of the controller, which may be busy with one event for seconds. It shares no state with it:
registrations begin and end in the store, and the event loop learns of them there, as of those in sessions with the
store. A heartbeat is answered at once, without waiting for anything.

`kactl.decide.machines.remote_sessions` decides. This module has the clock, the store and the messages.
"""

import collections
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import anyio
import anyio.abc

from kactl.decide.machines.remote_sessions import (
    CHECKS_PER_TIMEOUT,
    CONFIRMED_SHARE,
    NS_PER_MS,
    Phase,
    RemoteSession,
    SessionTable,
    Verdict,
    why_unusable,
)
from kactl.decide.messages.sessions import (
    Closed,
    EndpointVerified,
    Goodbye,
    Granted,
    Heartbeat,
    Identify,
    NotController,
    Refused,
    Register,
    Registered,
    SessionAnswer,
    SessionRequest,
    Unconfirmed,
    VerifyEndpoint,
    is_next_life,
)
from kactl.model import GIVEN_IDS, NO_EPOCH, Broker, Endpoint, Fence, given_name
from kactl.model.errors import BadRequest, BrokerIdTaken, ControllerMoved, EndpointUnreachable, KactlError, StoreError
from kactl.runtime.clock import Clock
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.stores.base import Store

from .channel import SendGate

log = logger(__name__)


# Bounds of the timeout that a participant may request.
TIMEOUT_MS_MIN: Final = 100
TIMEOUT_MS_MAX: Final = 600_000
# How often the sessions are compared with the clock in each timeout, to detect a blocked event loop.
_LOOKS_PER_TIMEOUT: Final = 8
# Checks of the controllership may overlap, so that a slow one does not delay the next.
_CHECKS_MAX: Final = 3
# Why sessions end.
EXPIRED: Final = "expired"
GOODBYE: Final = "goodbye"
NEXT_LIFE: Final = "next life"
REMOVED: Final = "removed"  # from the store, by hand
ENDS: Final = (EXPIRED, GOODBYE, NEXT_LIFE, REMOVED)
# Pause after a failure of the store.
_RETRY_MS: Final = 500
# A registration may be replaced between reading and writing it.
_TRIES_MAX: Final = 3


class SessionTerm:
    """The sessions of one controllership, and what waits for them.

    Attributes:
        loaded: set when the registrations of the predecessor are known, or the controllership has ended.
        over: set when the controllership has ended.
    """

    def __init__(self, fence: Fence, elected_ns: int) -> None:
        self.fence = fence
        self.table = SessionTable(elected_ns)
        self.loaded = anyio.Event()
        self.over = anyio.Event()
        self.checks_in_flight = 0
        self.peers: dict[int, Endpoint] = {}  # of all brokers
        self._began = anyio.Event()
        self._ending: set[int] = set()  # broker epochs of the sessions whose ends are being stored
        self._ends_tried = anyio.Event()
        self._locks: collections.defaultdict[int, anyio.Lock] = collections.defaultdict(anyio.Lock)

    def lock(self, broker: int) -> anyio.Lock:
        """Returns the lock of the registration of a broker: requests of its sessions are carried out in order."""
        return self._locks[broker]

    def know(self, brokers: Mapping[int, Broker]) -> None:
        """Remember the addresses of all registered brokers."""
        self.peers = {broker.id: broker.peer for broker in brokers.values() if broker.peer is not None}

    def ends_begin(self, sessions: Iterable[RemoteSession]) -> None:
        """The ends of some sessions are stored next."""
        self._ending.update(session.epoch for session in sessions)

    def end_tried(self, session: RemoteSession) -> None:
        """The end of a session was stored, or could not be."""
        self._ending.discard(session.epoch)
        if not self._ending:
            self.no_ends()

    def no_ends(self) -> None:
        """Wake the task that waits for ends."""
        self._ending.clear()
        self._ends_tried.set()
        self._ends_tried = anyio.Event()

    async def wait_for_ends(self) -> None:
        """Wait until the ends in progress are stored, or could not be."""
        if self._ending:
            await self._ends_tried.wait()

    def began(self) -> None:
        """Wake the tasks that wait for a session."""
        self._began.set()
        self._began = anyio.Event()

    async def wait_for_sessions(self) -> int:
        """Wait until there is a session. Returns the shortest timeout, in ms."""
        while (timeout_ms := self.table.timeout_ms_min) is None:
            await self._began.wait()
        return timeout_ms


class RemoteSessions:
    """Sessions of participants with one controller instance.

    Args:
        active: returns the active controller, as far as this instance knows.
        moved: called when the store rejects the fence: another controller was elected.
        gate: is paused while the controllership cannot be confirmed: another controller may have been elected.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        active: Callable[[], NotController],
        moved: Callable[[], None],
        gate: SendGate,
    ) -> None:
        self._gate = gate
        self._has_paused = False
        self._store = store
        self._clock = clock
        self._active = active
        self._moved = moved
        self._term: SessionTerm | None = None
        self._begin = anyio.Event()
        self._conditions = Conditions(log, clock.monotonic_ms)
        self.heartbeats = collections.Counter({verdict.value: 0 for verdict in Verdict})
        self.ended = collections.Counter(dict.fromkeys(ENDS, 0))  # by cause

    # -- the controllership

    def elected(self, fence: Fence) -> None:
        """Begin to serve, right after the election."""
        self.resigned()
        self._term = SessionTerm(fence, self._clock.lease_ns())
        self._begin.set()

    def take_over(self, brokers: Mapping[int, Broker]) -> None:
        """Take over the sessions of the predecessor, from the registrations in the store. Called once per election."""
        term = self._term
        if term is None:
            return
        now_ns = self._clock.lease_ns()
        term.know(brokers)
        for broker in brokers.values():
            if broker.session == "controller":
                term.table.take_over(broker, now_ns=now_ns)
        if len(term.table):
            log.info("took over the sessions of %d participants", len(term.table))
        term.loaded.set()
        term.began()

    def resigned(self) -> None:
        """Grant nothing from now on. Participants register with the next controller under the same epochs."""
        term, self._term = self._term, None
        self._has_paused = False  # the channels open the gate when they have closed
        if term is not None:
            term.over.set()
            term.loaded.set()
            term.no_ends()

    async def run(self) -> None:
        """Serve until cancelled, in each controllership."""
        while True:
            await self._begin.wait()
            self._begin = anyio.Event()
            term = self._term
            if term is None:
                continue
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_checks, term, tasks)
                tasks.start_soon(self._watch, term, tasks)
                await term.over.wait()
                tasks.cancel_scope.cancel()

    def left_ms(self, broker: int, epoch: int) -> float | None:
        """Returns for how long a session lasts without another heartbeat; None if the registration has none here."""
        session = None if self._term is None else self._term.table.get(broker)
        if session is None or session.epoch != epoch:
            return None
        return max(0.0, (session.ends_ns - self._clock.lease_ns()) / NS_PER_MS)

    def __len__(self) -> int:
        """Returns the number of sessions."""
        return 0 if self._term is None else len(self._term.table)

    def observe(self, brokers: Mapping[int, Broker], *, read_ns: int) -> None:
        """Compare the sessions with the registrations that were read from the store after `read_ns`.

        A registration whose commit got no response is found here, and one that was removed by hand.
        """
        term = self._term
        if term is None or not term.loaded.is_set():
            return
        term.know(brokers)
        unknown, gone = term.table.compare(dict(brokers), read_ns=read_ns)
        for broker in unknown:
            if not term.lock(broker.id).locked():
                term.table.begin(broker, now_ns=self._clock.lease_ns())
        for session in gone:
            if session.phase is not Phase.ENDING:
                log.warning("the registration of broker %d was removed from the store by hand", session.broker)
                self._remove(term, session, REMOVED)
        term.began()

    async def ends_stored(self) -> None:
        """Wait until the ends of sessions that have expired together are stored, so that one event handles all."""
        if self._term is not None:
            await self._term.wait_for_ends()

    def evict(self, broker: int, epoch: int) -> None:
        """Grant nothing to a registration any more, before `Store.evict` is called for it."""
        if self._term is not None:
            self._term.table.evict(broker, epoch)

    # -- requests

    async def answer(self, request: SessionRequest, *, received_ns: int) -> SessionAnswer:
        """See `kactl.transports.base.ControllerPort.session`."""
        term = self._term
        if term is None:
            return self._not_controller()
        if isinstance(request, Heartbeat):
            return self._heartbeat(term, request, received_ns)
        await term.loaded.wait()
        try:
            async with term.lock(request.broker):
                if self._term is not term:
                    return self._not_controller()
                answer = await self._carry_out(term, request)
        except ControllerMoved:
            self._depose(term)
            return self._not_controller()
        except KactlError as error:
            return Refused.of(error)
        return answer if self._term is term else self._not_controller()

    async def knows(self, request: Identify) -> bool:
        """Returns whether the id that a participant has had is that of its session with this controller, without
        waiting for the event loop: sessions last only as long as links are opened again."""
        term = self._term
        if term is None or request.broker not in GIVEN_IDS:
            return False
        await term.loaded.wait()
        session = term.table.get(request.broker)
        return (
            session is not None
            and session.incarnation.startswith(request.start)
            and given_name(session.name) == request.name
        )

    def standby(self) -> NotController | None:
        """Returns which instance is the active controller; None if it is this one."""
        return None if self._term is not None else self._not_controller()

    def active_term(self) -> tuple[int, int]:
        """See `kactl.transports.base.ControllerPort`."""
        term = self._term
        if term is None:
            return NO_EPOCH, 0
        return term.fence.epoch, (self._clock.lease_ns() - term.table.elected_ns) // NS_PER_MS

    def _heartbeat(self, term: SessionTerm, request: Heartbeat, received_ns: int) -> SessionAnswer:
        epoch, now_ns = term.fence.epoch, self._clock.lease_ns()
        verdict = Verdict.UNCONFIRMED
        if term.loaded.is_set():
            verdict = term.table.heartbeat(request.broker, request.broker_epoch, received_ns=received_ns, now_ns=now_ns)
        self.heartbeats[verdict.value] += 1
        if verdict is Verdict.UNCONFIRMED:
            return Unconfirmed(request.seq, epoch)
        session = term.table.get(request.broker)
        if verdict is Verdict.EXPIRED or session is None:
            reason = f"the session of broker {request.broker} under epoch {request.broker_epoch} has ended"
            return Refused("SessionExpired", reason, request.seq)
        return Granted(request.seq, session.timeout_ms, epoch)

    async def _carry_out(self, term: SessionTerm, request: SessionRequest) -> SessionAnswer:
        match request:
            case Register():
                return await self._register(term, request)
            case Goodbye():
                return await self._goodbye(term, request)
            case VerifyEndpoint():
                self._check_peer(term, request)
                return EndpointVerified(term.fence.epoch)
            case _:
                raise BadRequest("request", f"{type(request).__name__} is not of a session")

    async def _register(self, term: SessionTerm, request: Register) -> SessionAnswer:
        for _ in range(_TRIES_MAX):
            if self._term is not term:
                return self._not_controller()  # while the store was being asked; it may not know of it yet
            session = term.table.get(request.broker)
            if session is None:
                try:
                    return await self._begin_session(term, request)
                except BrokerIdTaken:
                    # A session with the store, or an earlier registration of which this controller got no response.
                    stored = await self._store.broker(request.broker)
                    if stored is not None and stored.session == "controller":
                        term.table.begin(stored, now_ns=self._clock.lease_ns())
                        term.began()
                        continue
                    raise
            if session.incarnation == request.incarnation and session.phase is Phase.LIVE:
                return self._registered(term, session)
            if is_next_life(session.incarnation, request.incarnation):
                await self._end_on_request(term, session, NEXT_LIFE)
                continue
            stored = await self._store.broker(request.broker)
            if stored is not None and stored.epoch == session.epoch:
                raise self._taken(session)
            self._remove(term, session, REMOVED)
        raise StoreError(f"the registration of broker {request.broker} keeps changing")

    def _taken(self, session: RemoteSession) -> BrokerIdTaken:
        now_ns = self._clock.lease_ns()
        ends_ms = max(0, session.ends_ns - now_ns) // NS_PER_MS
        # Its end does not tell when it was renewed: a session that was taken over lasts longer.
        renewed_ms = None if session.heard_ns is None else (now_ns - session.heard_ns) // NS_PER_MS
        return BrokerIdTaken(session.broker, renewed_ms=renewed_ms, ends_ms=ends_ms)

    async def _begin_session(self, term: SessionTerm, request: Register) -> SessionAnswer:
        self._check_peer(term, request)
        timeout_ms = min(max(request.timeout_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)
        broker = Broker(
            request.broker,
            NO_EPOCH,
            request.endpoints,
            request.rack,
            request.features,
            peer=request.peer,
            groups=request.groups,
            weight=request.weight,
            name=request.name,
        )
        sent_ns = self._clock.lease_ns()
        epoch = await self._store.register_remote(broker, request.incarnation, timeout_ms, term.fence)
        now_ns = self._clock.lease_ns()
        term.table.confirm(sent_ns)
        stored = broker.in_remote_session(request.incarnation, timeout_ms, epoch=epoch)
        session = term.table.begin(stored, now_ns=now_ns)
        term.began()
        log.info(
            "broker %d has registered under epoch %d, in a session of %d ms", request.broker, epoch, timeout_ms
        )  # fmt: skip
        return self._registered(term, session)

    def _check_peer(self, term: SessionTerm, request: Register | VerifyEndpoint) -> None:
        """Raises EndpointUnreachable if other participants cannot use the address in a request."""
        if request.peer is None:
            return
        others = [peer for broker, peer in term.peers.items() if broker != request.broker]
        unusable = why_unusable(request.peer, others)
        if unusable is not None:
            error = EndpointUnreachable(request.peer.host, request.peer.port, unusable)
            text = "the registration of broker %d is refused: %s"
            self._conditions.add(("peer", request.broker), logging.WARNING, text, request.broker, error)
            raise error
        text = "the address of broker %d can be used"
        self._conditions.end(("peer", request.broker), text, request.broker)
        term.peers[request.broker] = request.peer

    async def _goodbye(self, term: SessionTerm, request: Goodbye) -> SessionAnswer:
        session = term.table.get(request.broker)
        if session is not None and session.epoch == request.broker_epoch:
            await self._end_on_request(term, session, GOODBYE)
        return Closed(request.broker_epoch)

    def _registered(self, term: SessionTerm, session: RemoteSession) -> Registered:
        return Registered(session.epoch, session.timeout_ms, term.fence.epoch)

    def _not_controller(self) -> NotController:
        return self._active()

    # -- ends

    async def _end(self, term: SessionTerm, session: RemoteSession, cause: str) -> None:
        """End a session. From here on nothing is granted for it, whatever the store answers."""
        session.phase = Phase.ENDING
        await self._store.end_remote(session.broker, session.epoch, term.fence)
        self._remove(term, session, cause)

    async def _end_on_request(self, term: SessionTerm, session: RemoteSession, cause: str) -> None:
        """End a session before it expires.

        An end that cannot be stored is tried again like that of an expired session: the client may not repeat its
        request, and the broker id would be taken until the next controller.
        """
        was = session.phase
        try:
            await self._end(term, session, cause)
        except BaseException:
            if was is not Phase.ENDING:  # otherwise `_expire` goes on
                term.table.end_later(session, cause, now_ns=self._clock.lease_ns())
            raise

    def _remove(self, term: SessionTerm, session: RemoteSession, cause: str) -> None:
        if term.table.get(session.broker) is session:
            term.table.remove(session)
            self.ended[cause] += 1
            log.info("the session of broker %d under epoch %d has ended: %s", session.broker, session.epoch, cause)

    async def _expire(self, term: SessionTerm, session: RemoteSession) -> None:
        """End a session that has expired, or whose requested end could not be stored, however long the store takes."""
        cause = session.end_cause or EXPIRED
        if cause == EXPIRED:
            log.warning(
                "broker %d has sent no heartbeat for %d ms: its session ends", session.broker, session.timeout_ms
            )  # fmt: skip
        while self._term is term:
            try:
                async with term.lock(session.broker):
                    if self._term is term and term.table.get(session.broker) is session:
                        await self._end(term, session, cause)
                    text = "the session of broker %d needs no other attempt"
                    self._conditions.end(("end", session.broker), text, session.broker)
                    return
            except ControllerMoved:
                self._depose(term)
            except StoreError as error:
                text = "the session of broker %d could not be ended, trying again: %s"
                self._conditions.add(("end", session.broker), logging.WARNING, text, session.broker, error)
                term.end_tried(session)
                await self._clock.sleep_ms(_RETRY_MS)
            finally:
                term.end_tried(session)

    # -- tasks of a term

    async def _send_checks(self, term: SessionTerm, tasks: anyio.abc.TaskGroup) -> None:
        """Confirm the controllership while there are sessions."""
        while True:
            if not len(term.table):
                self._open_gate()
            timeout_ms = await term.wait_for_sessions()
            if term.checks_in_flight < _CHECKS_MAX:
                term.checks_in_flight += 1
                tasks.start_soon(self._check, term)
            await self._clock.sleep_ms(timeout_ms / CHECKS_PER_TIMEOUT)
            confirmed_ns = term.table.confirmed_ns
            last_ns = term.table.elected_ns if confirmed_ns is None else confirmed_ns
            is_late = (self._clock.lease_ns() - last_ns) * CONFIRMED_SHARE > timeout_ms * NS_PER_MS
            # The task may run once more after its controllership has ended. Nothing would open the gate again, also not
            # for the next controllership of this instance.
            if is_late and self._term is term:
                self._shut_gate()

    def _shut_gate(self) -> None:
        if self._gate.is_open:
            self._gate.pause("the store does not confirm that this instance is still the controller")
            self._has_paused = True

    def _open_gate(self) -> None:
        if self._has_paused:
            self._has_paused = False
            self._gate.open()

    async def _check(self, term: SessionTerm) -> None:
        sent_ns = self._clock.lease_ns()
        try:
            await self._store.check(term.fence)
            term.table.confirm(sent_ns)
            if self._term is term:
                self._open_gate()
        except ControllerMoved:
            self._depose(term)
        except StoreError as error:
            log.debug("the controllership could not be confirmed: %s", error)
        finally:
            term.checks_in_flight -= 1

    async def _watch(self, term: SessionTerm, tasks: anyio.abc.TaskGroup) -> None:
        """End the sessions that have expired."""
        while True:
            timeout_ms = await term.wait_for_sessions()
            begin_ns, end_ns = self._clock.lease_ns(), term.table.next_end_ns()
            planned_ns = int(timeout_ms * NS_PER_MS / _LOOKS_PER_TIMEOUT)
            if end_ns is not None:
                planned_ns = min(planned_ns, max(end_ns - begin_ns, NS_PER_MS))
            await self._clock.sleep_ms(planned_ns / NS_PER_MS)
            now_ns = self._clock.lease_ns()
            extended = term.table.delay(now_ns - begin_ns - planned_ns)
            if extended:
                log.warning(
                    "the controller did not run for %.0f ms: %d sessions are extended by that time",
                    (now_ns - begin_ns - planned_ns) / NS_PER_MS, len(extended),
                )  # fmt: skip
            expired = term.table.expire(now_ns=now_ns)
            term.ends_begin(expired)
            for session in expired:
                tasks.start_soon(self._expire, term, session)

    def _depose(self, term: SessionTerm) -> None:
        """Grant nothing any more: the store has rejected the fence."""
        if self._term is term:
            self.resigned()
            self._moved()
