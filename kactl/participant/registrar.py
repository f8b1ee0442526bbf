"""Registration of a participant: a session, a link to the network, and the broker's entry in the store."""

import logging
import math
from collections.abc import Callable
from typing import Final, NamedTuple

import anyio

from kactl.clock import Clock
from kactl.errors import BrokerIdTaken, Remedy, SessionExpired, StoreError
from kactl.model import Broker
from kactl.runtime.logs import logger
from kactl.stores.base import Session, Store

from .incarnation import Incarnation
from .leases.events import LeaseEvent
from .leases.pacemaker import Pacemaker
from .leases.terms import LeaseConfig
from .leases.watchdog import Watchdog
from .network import ParticipantNetwork
from .pause_gate import PauseGate

log = logger(__name__)

# Pause before the next attempt to open a session or to register.
RETRY_MS: Final = 500
# Time limit of each request at the end, in case the controller or the store hangs; the session then expires.
CLOSE_S: Final = 5.0


class Registration(NamedTuple):
    """One registration, which lasts until its session ends."""

    session: Session
    incarnation: Incarnation
    pacemaker: Pacemaker


class Registrar:
    """Registers a broker, again after each loss of its session.

    Args:
        make: returns a new incarnation.
        report: receives the events of leases.
        watchdog: watches the leaders of all incarnations.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        store: Store,
        network: ParticipantNetwork,
        clock: Clock,
        pause: PauseGate,
        session_timeout_ms: int,
        lease: LeaseConfig,
        make: Callable[[], Incarnation],
        report: Callable[[LeaseEvent], None],
        watchdog: Watchdog,
    ) -> None:
        self._broker = broker
        self._store = store
        self._network = network
        self._clock = clock
        self._pause = pause
        self._session_timeout_ms = session_timeout_ms
        self._lease = lease
        self._make = make
        self._report = report
        self._watchdog = watchdog

    async def register(self, patience_ms: float) -> Registration:
        """Open a session and register; retry for `patience_ms`.

        Raises:
            BrokerIdTaken, StoreError: the last failure.
            BadRequest: the session that the store has granted is too short for the margin of the lease.
        """
        give_up_at = self._clock.monotonic_ms() + patience_ms
        while True:
            await self._pause.wait_open()
            try:
                return await self._try(self._make())
            except StoreError as error:
                is_permanent = error.remedy is Remedy.REPORT and patience_ms < math.inf
                if is_permanent or self._clock.monotonic_ms() >= give_up_at:
                    raise
                level = logging.INFO if isinstance(error, BrokerIdTaken) else logging.WARNING
                log.log(level, "broker %d could not register, and retries: %s", self._broker.id, error)
            await self._clock.sleep_ms(RETRY_MS)

    async def _try(self, incarnation: Incarnation) -> Registration:
        session = await self._store.new_session(self._session_timeout_ms)
        try:
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
            self._watchdog.start(margin_ns=pacemaker.terms.margin_ns)
            # Connect first, because the controller may send requests before the response to the registration arrives
            # here.
            await incarnation.connect(self._network)
            incarnation.registered(await session.register(self._broker))
        except BaseException:
            await disconnect(incarnation)
            with anyio.move_on_after(CLOSE_S, shield=True):
                await close_session(self._broker.id, session)
            raise
        return Registration(session, incarnation, pacemaker)

    def _extend_watchdog(self, pacemaker: Pacemaker, bound_ns: int) -> None:
        self._watchdog.extend(bound_ns=bound_ns, margin_ns=pacemaker.terms.margin_ns)


async def disconnect(incarnation: Incarnation) -> None:
    """End an incarnation, and close its link to the network."""
    incarnation.end()
    with anyio.move_on_after(CLOSE_S, shield=True):
        await incarnation.disconnect()


async def close_session(broker: int, session: Session | None) -> None:
    """Close a session; log a failure of the store."""
    if session is None:
        return
    try:
        await session.close()
    except SessionExpired:
        return
    except StoreError as error:
        log.warning("broker %d could not close its session, which will expire: %s", broker, error)
