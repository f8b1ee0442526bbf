"""Registrations of a participant, one after the other: each lasts until its session is lost.

    start ──▶ registering ──▶ serving ──session lost──▶ registering
                   └─────────────┴──end──▶ ended

A registration ends in this order: no request is accepted and no lease is left, the application has stopped, the session
is closed, and the link to the network is closed.
"""

import enum
import logging
from typing import Final

import anyio
import anyio.abc

from kactl.runtime import forks
from kactl.runtime.clock import Clock
from kactl.runtime.conditions import FailureLog
from kactl.runtime.logs import logger
from kactl.runtime.patience import Patience
from kactl.stores.base import Session

from .incarnation import Incarnation
from .own_id import OwnId
from .registrar import Registrar, Registration, close_session
from .sessions import RemoteSession

log = logger(__name__)

# How long the application may take to stop, besides two margins of the lease. Its leases have ended before.
STOP_S: Final = 5.0
CLOSE_S: Final = 5.0
# A report that is lost makes successors wait, and nothing else.
LEAVE_S: Final = 1.0


class Life(enum.Enum):
    """State of a participant; `kactl.participant.participant` has the transitions."""

    NEW = "new"
    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


class Lives:
    """The registrations of one participant, from one start to the next end.

    Args:
        start_timeout_ms: how long the first registration is tried; None for ever.

    Attributes:
        ended: set when everything has stopped.
    """

    def __init__(self, own: OwnId, registrar: Registrar, clock: Clock, *, start_timeout_ms: float | None) -> None:
        self.ended = anyio.Event()
        self._own = own
        self._registrar = registrar
        self._clock = clock
        self._start_timeout_ms = start_timeout_ms
        self._scope = anyio.CancelScope()
        self._current: Registration | None = None
        self._silent = False
        self._failures = FailureLog(log, clock.monotonic_ms)
        self._home = forks.share(self)

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`: a child ends as if it had been killed."""
        self._silent = True

    @property
    def incarnation(self) -> Incarnation | None:
        """The present registration; None if there is none."""
        return None if self._current is None else self._current.incarnation

    @property
    def session(self) -> Session | None:
        return None if self._current is None else self._current.session

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Register and serve until `end`. Reports that it has started after the first registration.

        Raises:
            BrokerIdTaken, StoreError, ControllerUnreachable: why there was no first registration.
        """
        has_started = False
        try:
            with self._scope:
                while not self._home.left:
                    limit_ms = None if has_started else self._start_timeout_ms
                    patience = Patience(f"broker {self._own} is not registered", self._clock, limit_ms)
                    self._current = await self._registrar.register(patience, at_start=not has_started)
                    patience.ended()
                    if not has_started:
                        task_status.started()
                        has_started = True
                    await self._serve(self._current)
                    await self._finish()
            if not has_started:
                task_status.started()  # ended before it was registered
        finally:
            await self._finish()
            self.ended.set()

    async def end(self, *, silent: bool = False) -> None:
        """End the present registration, and wait.

        Args:
            silent: as if the process had been killed: the application is not called, and the session is not closed.
        """
        self._silent |= silent
        self._scope.cancel()
        if self._current is not None:
            self._current.incarnation.end()  # no response is sent from here on, while its tasks still end
        await self.ended.wait()

    async def _serve(self, registration: Registration) -> None:
        """Serve until the session is lost."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(registration.endpoint.run)
                if isinstance(registration.session, RemoteSession):
                    tasks.start_soon(_renew_over_each_link, registration)
                await registration.incarnation.run(registration.pacemaker)
                tasks.cancel_scope.cancel()
            log.warning("broker %s has lost its registration and registers again", self._own)
        except Exception as error:
            self._failures.add(logging.ERROR, error, "broker %s has failed, and registers again", str(self._own))

    async def _finish(self) -> None:
        """End the present registration, if there is one; see the module docstring. Bounded, and not cancelled."""
        registration, self._current = self._current, None
        if registration is None:
            return
        incarnation, margin_s = registration.incarnation, registration.pacemaker.margin_ms / 1000
        incarnation.end()
        with anyio.CancelScope(shield=True):
            if not self._silent:
                with anyio.move_on_after(STOP_S + 2 * margin_s):
                    await self._stop_application(incarnation)
                if self._scope.cancel_called and registration.session.bound.kind == "witnessed":
                    with anyio.move_on_after(LEAVE_S):
                        await incarnation.leave()
                with anyio.move_on_after(CLOSE_S):
                    await close_session(self._own.broker, registration.session)
            with anyio.move_on_after(CLOSE_S):
                await incarnation.disconnect()

    async def _stop_application(self, incarnation: Incarnation) -> None:
        try:
            await incarnation.notify_stopped()
        except Exception:
            log.exception("the application of broker %s has failed to stop", self._own)


async def _renew_over_each_link(registration: Registration) -> None:
    """Renew a session with the controller as soon as a link was opened again. Renewals have failed without one: the
    next one would be sent up to a sixth of the session timeout later, when this controller may have failed as well."""
    link = registration.incarnation.link
    while True:
        await link.wait_lost()
        await link.wait_open()
        if not link.is_open:
            return  # closed for good
        registration.pacemaker.renew_now()
