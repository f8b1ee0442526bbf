"""Periodic work of a process: renew its session, and poll for changes by other processes."""

from collections.abc import Callable
from typing import Final

from kactl.model import Broker, Fence
from kactl.model.errors import SessionExpired, StoreError, StoreReplaced
from kactl.runtime.clock import UNKNOWN_BOOT, UNKNOWN_CLOCK, Clock
from kactl.runtime.logs import logger
from kactl.stores.base import Changed, SessionBound, StoreEvent

from .thread import DatabaseThread

_LOGGER = logger(__name__)

# Delay until a change by another process is noticed. SQLite sends no notifications; a poll takes about 0.1 ms.
POLL_MS: Final = 50
# A third of the default session of participants with the controller: their leases outlast the controllership.
SESSION_TIMEOUT_MS: Final = 3_000
# Two renewals may fail without loss of the session.
RENEWALS_PER_TIMEOUT: Final = 3
# After this part of the timeout since the last renewal, the session may have ended unnoticed: all processes of a host
# share one clock, but a process that wakes up late detects it late.
SUSPENDED_AFTER: Final = 0.75
_NO_SESSION: Final = 0  # SQLite numbers from 1
# Sessions end by the boot time of the host, which all its processes read, in whole milliseconds.
_COUNTED: Final = SessionBound(kind="counted", same_clock=True, resolution_ns=1_000_000)
# Without the id of a boot, a session of an earlier boot cannot be told from one of this boot.
_WITNESSED: Final = SessionBound(kind="witnessed", same_clock=True, resolution_ns=1_000_000)


class Lease:
    """The sessions of one process.

    Args:
        listener: receives the loss of the client's own session, and the next session.
    """

    def __init__(
        self,
        thread: DatabaseThread,
        listener: Callable[[StoreEvent], None],
        *,
        clock: Clock,
        timeout_ms: int,
        poll_ms: float,
    ) -> None:
        self._thread = thread
        self._listener = listener
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._poll_ms = poll_ms
        self._renewed_ms = 0  # boot time
        self._broker_sessions: list[int] = []
        self._suspended = False
        self._is_watching = False  # whether it waits for sessions of another boot
        self.session = _NO_SESSION
        self.trouble = ""  # reason of the last failure; read in the loop's thread only

    async def open(self) -> None:
        """Open the client's own session. Abandoned and expired sessions are ended first."""
        abandoned = await self._thread.run(self._thread.sessions.end_abandoned_sessions)
        if abandoned:
            _LOGGER.info("ended %d sessions of an earlier process", abandoned)
        await self._thread.run(self._thread.sessions.end_silent_sessions)
        self._renewed_ms = self._clock.boot_time().ms
        self.session = await self._open_session(self._timeout_ms)

    async def open_another(self, timeout_ms: int) -> "SqliteSession":
        """Returns a session for a broker; its owner keeps it alive."""
        number = await self._open_session(timeout_ms)
        self._broker_sessions.append(number)
        bound = _WITNESSED if self._clock.boot_time().boot in (UNKNOWN_BOOT, UNKNOWN_CLOCK) else _COUNTED
        return SqliteSession(self._thread, number, timeout_ms, bound)

    async def _open_session(self, timeout_ms: int) -> int:
        sessions = self._thread.sessions
        while (number := await self._thread.run(sessions.open_session, timeout_ms)) is None:
            if not self._is_watching:
                self._is_watching = True
                _LOGGER.warning("sessions of another boot, or by another clock, are watched until their time is over")
            await self._clock.sleep_ms(self._poll_ms)
        self._is_watching = False
        return number

    async def close(self) -> None:
        """End all sessions of this process, so that they need not time out."""
        try:
            await self._thread.run(self._thread.sessions.close_sessions, [self.session, *self._broker_sessions])
        except StoreReplaced as error:
            _LOGGER.warning("%s", error)
        except StoreError:
            _LOGGER.warning("the sessions of this process could not be ended and will time out", exc_info=True)

    async def contest(self, controller_id: int, *, take_over: bool, address: str) -> Fence:
        return await self._thread.run(
            self._thread.sessions.contest,
            self.session,
            controller_id,
            take_over=take_over,
            address=address,
        )

    async def run(self) -> None:
        """Renew and poll until cancelled. A failure is retried; meanwhile the session may expire.

        Returns if the file was replaced: neither the old file nor the new one gets another session of this client.
        """
        while True:
            await self._clock.sleep_ms(self._poll_ms)
            try:
                await self._renew_and_poll()
                if self.trouble:
                    _LOGGER.error("the store can be used again")
                self.trouble = ""
                self._report_connected()
            except StoreReplaced as error:
                _LOGGER.error("%s", error)
                self.trouble = str(error)
                self._report_lost()
                return
            except StoreError as error:
                self._report_suspended()
                if not self.trouble:
                    # The failure soon costs the process its controllership, and there is no other report of it.
                    _LOGGER.error("the store cannot be used, retrying every %g ms: %s", self._poll_ms, error)
                self.trouble = str(error)

    def _report_suspended(self) -> None:
        """After a failure: report SUSPENDED if the session may have expired by now."""
        late = self._clock.boot_time().ms - self._renewed_ms >= SUSPENDED_AFTER * self._timeout_ms
        if late and not self._suspended and self.session != _NO_SESSION:
            self._suspended = True
            self._listener(StoreEvent(Changed.SUSPENDED))

    def _report_lost(self) -> None:
        if self.session != _NO_SESSION:
            self._listener(StoreEvent(Changed.SESSION_LOST))
        self.session = _NO_SESSION
        self._suspended = False

    def _report_connected(self) -> None:
        if self._suspended and self.session != _NO_SESSION:
            self._listener(StoreEvent(Changed.CONNECTED))
        self._suspended = False

    async def _renew_and_poll(self) -> None:
        if self.session != _NO_SESSION and not await self._thread.run(self._poll):
            self._report_lost()
        if self.session == _NO_SESSION:
            await self.open()
            self._listener(StoreEvent(Changed.SESSION_OPENED))

    def _poll(self) -> bool:
        """Do everything that is due, in the database's thread. Returns whether the session still exists."""
        sessions, now_ms = self._thread.sessions, self._clock.boot_time().ms
        self._thread.database.check_files()
        if now_ms - self._renewed_ms >= self._timeout_ms / RENEWALS_PER_TIMEOUT:
            try:
                sessions.keep_alive(self.session)
            except SessionExpired:
                return False
            self._renewed_ms = now_ms
        sessions.end_silent_sessions()
        self._thread.database.run_maintenance()
        return sessions.has_session(self.session)


class SqliteSession:
    """A broker's session; see `kactl.stores.base.Session`. `id` is its row in the table of leases."""

    def __init__(self, thread: DatabaseThread, number: int, timeout_ms: int, bound: SessionBound) -> None:
        self._thread = thread
        self._timeout_ms = timeout_ms
        self._bound = bound
        self.id = number

    @property
    def timeout_ms(self) -> int:
        return self._timeout_ms

    @property
    def bound(self) -> SessionBound:
        return self._bound

    async def register(self, broker: Broker) -> int:
        return await self._thread.run(self._thread.sessions.register, self.id, broker)

    async def renew(self, sent_ns: int) -> None:
        # The database's thread reads the same clock again, inside the transaction, so it counts from a later moment.
        await self.keep_alive()

    async def keep_alive(self) -> None:
        if not self._thread.is_open:
            raise SessionExpired(f"session {self.id} ended when its store was closed")
        await self._thread.run(self._thread.sessions.keep_alive, self.id)

    async def close(self) -> None:
        if self._thread.is_open:  # otherwise it has ended already
            await self._thread.run(self._thread.sessions.close_sessions, [self.id])
