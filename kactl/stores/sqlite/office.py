"""Sessions, and what lives by them: the controllership and the registrations of brokers.

A session is a row with the moment at which it ends unless it is kept alive, by the wall clock of the host. Whoever sees
first that the moment has passed ends the session and all that lived by it.

Everything here runs in the database's thread.
"""

import msgspec

from kactl.errors import BrokerIdTaken, ControllerMoved, SessionExpired
from kactl.model import Broker, ControllerRecord, Fence
from kactl.store import Changed

from .database import Database
from .frame import seal, unseal

_ENCODER = msgspec.msgpack.Encoder()
_BROKER = msgspec.msgpack.Decoder(Broker)


class Office:
    """See the module. Each `now_ms` is the wall clock."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- sessions

    def open_session(self, timeout_ms: int, now_ms: int) -> int:
        with self._database.writing() as connection:
            cursor = connection.execute(
                "INSERT INTO sessions (timeout_ms, expires_ms) VALUES (?, ?)", (timeout_ms, now_ms + timeout_ms)
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def has_session(self, session: int) -> bool:
        return self._database.one("SELECT 1 FROM sessions WHERE id = ?", session) is not None

    def keep_alive(self, session: int, now_ms: int) -> None:
        """Let the session last for another timeout.

        Raises:
            SessionExpired: too late.
        """
        with self._database.writing() as connection:
            kept = connection.execute(
                "UPDATE sessions SET expires_ms = ? + timeout_ms WHERE id = ? AND expires_ms > ?",
                (now_ms, session, now_ms),
            )
            if not kept.rowcount:
                raise _expired(session)

    def close_sessions(self, sessions: list[int]) -> None:
        with self._database.writing():
            for session in sessions:
                self._end(session)

    def end_silent_sessions(self, now_ms: int) -> None:
        """End those whose time is up. Nothing is written when there are none."""
        if self._database.one("SELECT 1 FROM sessions WHERE expires_ms <= ? LIMIT 1", now_ms):
            with self._database.writing():
                self._end_silent(now_ms)

    # -- the controllership

    def controller(self) -> ControllerRecord | None:
        with self._database.reading() as connection:
            query = "SELECT controller, epoch, controller_since_ms FROM meta"
            controller, epoch, since_ms = connection.execute(query).fetchone()
        return None if controller is None else ControllerRecord(controller, epoch, since_ms)

    def contest(self, session: int, controller_id: int, *, take_over: bool, now_ms: int) -> Fence:
        with self._database.writing() as connection:
            self._end_silent(now_ms)
            self._check_alive(session)
            holder, epoch = connection.execute("SELECT controller, epoch FROM meta").fetchone()
            if holder is not None and not take_over:
                raise ControllerMoved(ours=0, theirs=epoch)
            connection.execute(
                "UPDATE meta SET epoch = ?, controller = ?, controller_session = ?, controller_since_ms = ?",
                (epoch + 1, controller_id, session, now_ms),
            )
            self._database.stamp(Changed.CONTROLLER)
        return Fence(epoch=epoch + 1, version=epoch + 1)

    def resign(self, fence: Fence) -> None:
        with self._database.writing():
            self._database.check_fence(fence)
            self._vacate("controller IS NOT NULL")

    def check(self, fence: Fence) -> None:
        with self._database.reading():
            self._database.check_fence(fence)

    # -- registrations

    def register(self, session: int, broker: Broker, now_ms: int) -> int:
        with self._database.writing() as connection:
            self._end_silent(now_ms)
            self._check_alive(session)
            holder = self._database.one("SELECT session FROM brokers WHERE id = ?", broker.id)
            if holder not in (None, session):
                raise BrokerIdTaken(broker.id)
            query = "UPDATE meta SET broker_epoch = broker_epoch + 1 RETURNING broker_epoch"
            epoch = int(connection.execute(query).fetchone()[0])
            data = seal(_ENCODER.encode(msgspec.structs.replace(broker, epoch=epoch)))
            connection.execute("INSERT OR REPLACE INTO brokers VALUES (?, ?, ?)", (broker.id, session, data))
            self._database.stamp(Changed.BROKERS)
        return epoch

    def brokers(self) -> dict[int, Broker]:
        with self._database.reading() as connection:
            rows = connection.execute("SELECT id, data FROM brokers ORDER BY id").fetchall()
        return {number: _BROKER.decode(unseal(data)) for number, data in rows}

    def broker(self, number: int) -> Broker | None:
        with self._database.reading():
            data = self._database.one("SELECT data FROM brokers WHERE id = ?", number)
        return None if data is None else _BROKER.decode(unseal(data))

    # -- inside a transaction

    def _check_alive(self, session: int) -> None:
        if not self.has_session(session):
            raise _expired(session)

    def _end_silent(self, now_ms: int) -> None:
        silent = self._database.connection.execute("SELECT id FROM sessions WHERE expires_ms <= ?", (now_ms,))
        for (session,) in silent.fetchall():
            self._end(session)

    def _end(self, session: int) -> None:
        connection = self._database.connection
        connection.execute("DELETE FROM sessions WHERE id = ?", (session,))
        self._vacate("controller_session = ?", session)
        if connection.execute("DELETE FROM brokers WHERE session = ?", (session,)).rowcount:
            self._database.stamp(Changed.BROKERS)

    def _vacate(self, condition: str, *values: int) -> None:
        vacated = self._database.connection.execute(
            "UPDATE meta SET controller = NULL, controller_session = NULL, controller_since_ms = NULL "
            f"WHERE {condition}",
            values,
        )
        if vacated.rowcount:
            self._database.stamp(Changed.CONTROLLER)


def _expired(session: int) -> SessionExpired:
    return SessionExpired(f"session {session} has ended: open another one, and register or contest again")
