"""What a process must do again and again, or lose it: keep its session alive, and look at what others have changed."""

from collections.abc import Callable
from typing import Final

from kactl.clock import Clock
from kactl.errors import SessionExpired, StoreError
from kactl.model import Broker, Fence
from kactl.runtime.logs import logger
from kactl.stores.base import Changed, StoreEvent

from .thread import DatabaseThread

_LOGGER = logger(__name__)

# How soon a change by another process is seen. SQLite tells nobody; asking takes about 0.1 ms.
POLL_MS: Final = 50
# How long brokers took to miss one of them, in Kafka's default settings of many years.
SESSION_TIMEOUT_MS: Final = 6_000
# Two renewals may fail, and the session still lasts.
RENEWALS_PER_TIMEOUT: Final = 3
# When so much of the timeout has passed since the last renewal, the session may be over before anybody says so: all
# processes of a host share one clock, but whoever wakes late finds out late.
DOUBT_AFTER: Final = 0.75
_NO_SESSION: Final = 0  # SQLite numbers from 1


class Lease:
    """The sessions of one process.

    Args:
        tell: is told of the loss of our own session, and of the next one.
    """

    def __init__(
        self, thread: DatabaseThread, tell: Callable[[StoreEvent], None], *, clock: Clock, timeout_ms: int
    ) -> None:
        self._thread = thread
        self._tell = tell
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._renewed_ms = 0  # boot time
        self._others: list[int] = []
        self._is_doubtful = False
        self.session = _NO_SESSION
        self.trouble = ""  # why the store could not be tended at the last try; read in the loop's thread only

    async def open(self) -> None:
        """Begin a session of our own. Sessions that are abandoned or have run out are ended first."""
        abandoned = await self._thread.run(self._thread.sessions.end_abandoned_sessions)
        if abandoned:
            _LOGGER.info("%d sessions of the process that ran here before are ended", abandoned)
        await self._thread.run(self._thread.sessions.end_silent_sessions)
        self._renewed_ms = self._clock.boot_time().ms
        self.session = await self._thread.run(self._thread.sessions.open_session, self._timeout_ms)

    async def open_another(self, timeout_ms: int) -> "SqliteSession":
        """A session for a broker; its owner keeps it alive."""
        number = await self._thread.run(self._thread.sessions.open_session, timeout_ms)
        self._others.append(number)
        return SqliteSession(self._thread, number, timeout_ms)

    async def close(self) -> None:
        """End all of them, so that nobody has to wait until they run out."""
        try:
            await self._thread.run(self._thread.sessions.close_sessions, [self.session, *self._others])
        except StoreError:
            _LOGGER.warning("the sessions of this process could not be ended and have to run out", exc_info=True)

    async def contest(self, controller_id: int, *, take_over: bool) -> Fence:
        return await self._thread.run(
            self._thread.sessions.contest,
            self.session,
            controller_id,
            take_over=take_over,
        )

    async def tend(self) -> None:
        """Does not end by itself. A store that fails is tried again; meanwhile the session may run out."""
        while True:
            await self._clock.sleep_ms(POLL_MS)
            try:
                await self._tend_once()
                if self.trouble:
                    _LOGGER.error("the store can be tended again")
                self.trouble = ""
                self._trust()
            except StoreError as error:
                self._doubt()
                if not self.trouble:
                    # It soon costs the process its controllership, and nobody else tells the person who can help.
                    _LOGGER.error("the store cannot be tended, and is tried again every %d ms: %s", POLL_MS, error)
                self.trouble = str(error)

    def _doubt(self) -> None:
        """The store fails: see whether our session may have run out by now."""
        late = self._clock.boot_time().ms - self._renewed_ms >= DOUBT_AFTER * self._timeout_ms
        if late and not self._is_doubtful and self.session != _NO_SESSION:
            self._is_doubtful = True
            self._tell(StoreEvent(Changed.SUSPENDED))

    def _trust(self) -> None:
        if self._is_doubtful and self.session != _NO_SESSION:
            self._tell(StoreEvent(Changed.CONNECTED))
        self._is_doubtful = False

    async def _tend_once(self) -> None:
        if self.session != _NO_SESSION and not await self._thread.run(self._look):
            self.session = _NO_SESSION
            self._is_doubtful = False
            self._tell(StoreEvent(Changed.SESSION_LOST))
        if self.session == _NO_SESSION:
            await self.open()
            self._tell(StoreEvent(Changed.SESSION_OPENED))

    def _look(self) -> bool:
        """In the database's thread: all that is due. Whether our session stands."""
        sessions, now_ms = self._thread.sessions, self._clock.boot_time().ms
        if now_ms - self._renewed_ms >= self._timeout_ms / RENEWALS_PER_TIMEOUT:
            try:
                sessions.keep_alive(self.session)
            except SessionExpired:
                return False
            self._renewed_ms = now_ms
        sessions.end_silent_sessions()
        self._thread.database.tidy()
        return sessions.has_session(self.session)


class SqliteSession:
    """A broker's session; see `kactl.stores.base.Session`. `id` is its row in the table of leases."""

    def __init__(self, thread: DatabaseThread, number: int, timeout_ms: int) -> None:
        self._thread = thread
        self._timeout_ms = timeout_ms
        self.id = number

    @property
    def timeout_ms(self) -> int:
        return self._timeout_ms

    async def register(self, broker: Broker) -> int:
        return await self._thread.run(self._thread.sessions.register, self.id, broker)

    async def keep_alive(self) -> None:
        if not self._thread.is_open:
            raise SessionExpired(f"session {self.id} has ended with the store that it was opened through")
        await self._thread.run(self._thread.sessions.keep_alive, self.id)

    async def close(self) -> None:
        if self._thread.is_open:  # else it has ended already
            await self._thread.run(self._thread.sessions.close_sessions, [self.id])
