"""Registration of a participant: a link to the network, a session, and the broker's entry in the store."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import anyio
import msgspec

from kactl.decide.machines.remote_sessions import why_unusable
from kactl.model import NO_BROKER, Broker, Endpoint
from kactl.model.errors import (
    BrokerIdTaken,
    ControllerUnreachable,
    EndpointUnreachable,
    KactlError,
    NotAuthorized,
    ProtocolMismatch,
    Remedy,
    SessionExpired,
    StoreError,
)
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.runtime.patience import Patience
from kactl.runtime.time_limit import limited
from kactl.stores.base import Session
from kactl.transports.base import ParticipantNetwork

from .incarnation import Incarnation
from .leases.events import LeaseEvent
from .leases.pacemaker import Pacemaker
from .leases.terms import LeaseConfig, handover_wait_ms
from .leases.watchdog import Watchdog
from .own_endpoint import OwnEndpoint
from .own_id import OwnId
from .pause_gate import PauseGate
from .sessions import SessionSource

log = logger(__name__)

# How long a registration in the store waits for the link to the active controller.
LINK_MS: Final = 2_000
# Pause before the next attempt to open a session or to register.
RETRY_MS: Final = 500
# The same over one link, which opens within milliseconds. An election takes longer.
LINK_RETRY_MS: Final = 50
# How much later than its process a renewal may end.
_ARRIVAL_MS: Final = 1_000
# How much later than its timeout etcd or ZooKeeper may end a session: some ticks, or the election of a leader.
_LATE_END_MS: Final = 10_000
# Time limit of each request at the end, in case the controller or the store hangs; the session then expires.
CLOSE_S: Final = 5.0
# Failures that may be over at the next attempt, or are by the end of an operator's work.
_FAILURES: Final = (StoreError, ControllerUnreachable, EndpointUnreachable, NotAuthorized, ProtocolMismatch)


class Registration(NamedTuple):
    """One registration, which lasts until its session ends."""

    session: Session
    incarnation: Incarnation
    pacemaker: Pacemaker
    endpoint: OwnEndpoint


class Registrar:
    """Registers a broker, again after each loss of its session.

    Args:
        sessions: opens a session for each registration.
        controllers: addresses of the controllers, if the network needs them.
        make: returns a new incarnation of a broker.
        start: returns the beginning of the ids of incarnations.
        report: receives the events of leases.
        watchdog: watches the leaders of all incarnations.
    """

    def __init__(
        self,
        broker: Broker,
        own: OwnId,
        *,
        sessions: SessionSource,
        network: ParticipantNetwork,
        controllers: Sequence[str],
        clock: Clock,
        pause: PauseGate,
        lease: LeaseConfig,
        make: Callable[[int], Incarnation],
        start: Callable[[], bytes],
        report: Callable[[LeaseEvent], None],
        watchdog: Watchdog,
    ) -> None:
        self._broker = broker
        self._own = own
        self._sessions = sessions
        self._network = network
        self._controllers = controllers
        self._clock = clock
        self._pause = pause
        self._lease = lease
        self._make = make
        self._start = start
        self._report = report
        self._watchdog = watchdog

    async def register(self, patience: Patience, *, at_start: bool) -> Registration:
        """Open a session and register. An attempt that may succeed later is repeated.

        Args:
            at_start: whether this is the first registration of the program.

        Raises:
            BrokerIdTaken, StoreError, ControllerUnreachable, EndpointUnreachable: the last failure.
            NotAuthorized, ProtocolMismatch: every controller has refused the link. At a start this is raised at once.
            BadRequest: the session that was granted is too short for the margin of the lease.
        """
        reason: KactlError | None = None
        refused_ms: float | None = None  # when the id was first found to be taken
        while True:
            await self._pause.wait_open()
            try:
                broker = await self._own.find(self._start())
                self._broker = msgspec.structs.replace(self._broker, id=broker, name=self._own.name)
                return await self._try(self._make(broker), patience)
            except BrokerIdTaken as error:
                now_ms = self._clock.monotonic_ms()
                refused_ms = now_ms if refused_ms is None else refused_ms
                if self._own.is_unnamed:
                    self._own.broker = NO_BROKER  # another participant was given it as well: there are others
                    reason = error
                    patience.failed(error)
                    continue
                taken = _judged(error, waited_ms=now_ms - refused_ms, name=self._own.name)
                if at_start and taken.is_alive:
                    raise taken from None
                if not isinstance(reason, BrokerIdTaken):
                    wait_ms = max(taken.ends_ms or 0, patience.rest_ms)
                    log.warning("broker %s waits for up to %.1f s: %s", self._own, wait_ms / 1000, taken)
                reason = taken
                patience.failed(taken, ends_ms=taken.ends_ms or 0, is_logged=True)
            except _FAILURES as error:
                if at_start and _is_permanent(error):
                    raise
                # After a refusal, the reason is not that the next link has not been opened yet.
                if reason is None or not isinstance(error, ControllerUnreachable):
                    reason = error
                patience.failed(reason)
            await self._clock.sleep_ms(RETRY_MS)

    async def _try(self, incarnation: Incarnation, patience: Patience) -> Registration:
        session: Session | None = None
        try:
            # Connect first, because the controller may send requests before the response to the registration arrives
            # here.
            link = await incarnation.connect(self._network, self._controllers)
            endpoint = self._own_endpoint(incarnation, link.peer)
            await self._wait_linked(incarnation)
            await endpoint.verify_if_linked()
            session = await self._sessions.open(link)
            epoch = await self._registered(session, self._broker_in(session, incarnation, link.peer), patience)
            pacemaker = self._pacemaker(session, incarnation)
            await self._watchdog.start(margin_ns=pacemaker.terms.margin_ns)
            incarnation.registered(epoch)
        except BaseException:
            incarnation.end()
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(CLOSE_S):
                    await close_session(self._broker.id, session)
                with anyio.move_on_after(CLOSE_S):
                    await incarnation.disconnect()
            raise
        return Registration(session, incarnation, pacemaker, endpoint)

    async def _registered(self, session: Session, broker: Broker, patience: Patience) -> int:
        """Register, and repeat it over the same link until a controller answers. Returns the broker epoch."""
        late = ControllerUnreachable(f"no controller has answered the registration of broker {broker.id}")
        while True:
            await self._pause.wait_open()
            # One attempt at least, also without any time.
            rest_ms = max(patience.rest_ms, LINK_RETRY_MS)
            try:
                return await limited(self._clock, rest_ms, lambda: session.register(broker), late)
            except ControllerUnreachable as error:
                patience.failed(error)
            await self._clock.sleep_ms(LINK_RETRY_MS)

    async def _wait_linked(self, incarnation: Incarnation) -> None:
        """Wait for the link for a while: without it the controller would fence the registration."""
        link = incarnation.link
        try:
            # A refusal of every controller ends a registration with one at once.
            await limited(
                self._clock, LINK_MS, link.wait_tried if self._sessions.verifies else link.wait_open, TimeoutError()
            )
        except TimeoutError:
            if not self._sessions.verifies:
                log.info("broker %d registers without a link to a controller", self._broker.id)

    def _own_endpoint(self, incarnation: Incarnation, peer: Endpoint | None) -> OwnEndpoint:
        return OwnEndpoint(
            self._broker.id,
            incarnation.incarnation,
            peer,
            incarnation.link,
            self._clock,
            is_verified=self._sessions.verifies,
        )

    def _broker_in(self, session: Session, incarnation: Incarnation, peer: Endpoint | None) -> Broker:
        is_witnessed = session.bound.kind == "witnessed"
        return msgspec.structs.replace(
            self._broker,
            incarnation=incarnation.incarnation,
            timeout_ms=int(session.timeout_ms),
            peer=peer,
            handover_wait_ms=handover_wait_ms(session.timeout_ms, self._lease) if is_witnessed else 0,
        )

    def _pacemaker(self, session: Session, incarnation: Incarnation) -> Pacemaker:
        pacemaker = Pacemaker(
            self._broker.id,
            session,
            clock=self._clock,
            pause=self._pause,
            config=self._lease,
            holder=incarnation,
            report=self._report,
            extended=lambda bound_ns: self._extend_watchdog(pacemaker, bound_ns),
        )
        return pacemaker

    def _extend_watchdog(self, pacemaker: Pacemaker, bound_ns: int) -> None:
        self._watchdog.extend(bound_ns=bound_ns, margin_ns=pacemaker.terms.margin_ns)


def _judged(error: BrokerIdTaken, *, waited_ms: float, name: str) -> BrokerIdTaken:
    """Returns the error with whether the other process is alive: it has renewed its session lately, while this one
    waited. What a process has sent before it was killed may arrive for a while."""
    is_alive = error.renewed_ms is not None and error.renewed_ms < waited_ms - _ARRIVAL_MS
    ends_ms = error.ends_ms
    if ends_ms is not None and error.renewed_ms is None:
        # The store only knows the timeout of the session, and may end it late.
        ends_ms = max(0, ends_ms + _LATE_END_MS - int(waited_ms))
    return BrokerIdTaken(error.broker, renewed_ms=error.renewed_ms, ends_ms=ends_ms, is_alive=is_alive, name=name)


def _is_permanent(error: KactlError) -> bool:
    """Returns whether only a change of settings helps against an error."""
    if isinstance(error, EndpointUnreachable):
        return why_unusable(Endpoint("", error.host, error.port)) is not None
    return error.remedy is Remedy.REPORT


async def close_session(broker: int, session: Session | None) -> None:
    """Close a session; log a failure."""
    if session is None:
        return
    try:
        await session.close()
    except SessionExpired:
        return
    except (StoreError, ControllerUnreachable) as error:
        log.warning("broker %d could not close its session, which will expire: %s", broker, error)
