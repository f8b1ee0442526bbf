"""Sessions and what depends on them: the controllership and the registrations of brokers.

A session is a lease: a row with the boot time at which it ends unless it is renewed. The first process that detects an
expired lease ends the session and everything that depends on it. A lease has expired if

* its end has been reached, by a clock that this process shares with its owner, or
* it was not renewed for its whole timeout while this process watched it, or no other process has the file open.

The second rule holds for a lease whose end cannot be compared with the clock of this process. Its owner ran in an
earlier boot of the host, or it runs in a container with a boot id or a clock of its own. In the latter case the lease
is renewed, and the file is refused.

The clock is read inside the write transaction. Write transactions of all processes of the host are serialized, so no
reading is older than the one of a stored lease.

Everything in this module runs in the database's thread.
"""

from typing import Final, NamedTuple

import msgspec

from kactl.model import Broker, ControllerRecord, Fence
from kactl.model.errors import BrokerIdTaken, ControllerMoved, SessionExpired
from kactl.runtime.clock import Clock
from kactl.stores.base import Changed

from .database import Database
from .frame import seal, unseal
from .other_boots import IS_BY_OTHER_CLOCK, IS_OVER, refusal

# The name of the record with the address of the controller; its version is the controller epoch.
_ADDRESS: Final = "controller address"

# Registrations in sessions with the controller depend on no lease. SQLite numbers leases from 1.
_REMOTE: Final = 0
_ENCODER = msgspec.msgpack.Encoder()
_BROKER = msgspec.msgpack.Decoder(Broker)


class Holder(NamedTuple):
    """An exclusive lock that a process holds until its end; it identifies abandoned sessions of earlier holders.

    Attributes:
        lock: the name of the lock, the same for every process that takes it; empty for none.
        turn: different each time that the lock is taken.
    """

    lock: str
    turn: str


NO_HOLDER: Final = Holder("", "")


class _Watched(NamedTuple):
    """A lease that seems over by a clock that cannot be compared.

    Attributes:
        expires_ms: by the clock of its owner.
        since_ms: since when it has not changed, by the clock of this process.
        was_renewed: while this process watched.
    """

    boot: str
    expires_ms: int
    since_ms: int
    was_renewed: bool


class Sessions:
    """Sessions, the controllership and registrations of one database.

    Args:
        holder: the lock that this process holds.
    """

    def __init__(self, database: Database, clock: Clock, *, holder: Holder = NO_HOLDER) -> None:
        self._database = database
        self._clock = clock
        self._holder = holder
        self._watched: dict[int, _Watched] = {}

    # -- sessions

    def open_session(self, timeout_ms: int) -> int | None:
        """Returns the number of a new lease; None as long as there are leases that may be over, and are watched.

        So all leases of a file are measured by one clock.

        Raises:
            StoreError: one of them is renewed: its owner has another boot id, or another clock.
        """
        with self._database.writing() as connection:
            self._end_silent()
            now = self._clock.boot_time()
            for lease in self._watched.values():
                if lease.was_renewed:
                    raise refusal(self._database.path, theirs=lease.boot, ours=now.boot)
            if self._watched:
                return None
            cursor = connection.execute(
                "INSERT INTO leases (timeout_ms, expires_ms, boot, lock, turn) VALUES (?, ?, ?, ?, ?)",
                (timeout_ms, now.ms + timeout_ms, now.boot, *self._holder),
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def has_session(self, session: int) -> bool:
        return self._database.one("SELECT 1 FROM leases WHERE id = ?", session) is not None

    def keep_alive(self, session: int) -> None:
        """Renew the lease for another timeout.

        Raises:
            SessionExpired: too late.
        """
        with self._database.writing() as connection:
            renewed = connection.execute(
                f"UPDATE leases SET expires_ms = :ms + timeout_ms WHERE id = :id AND NOT {IS_OVER} "
                "AND NOT EXISTS (SELECT 1 FROM brokers WHERE session = -:id)",
                {"id": session, **self._now()},
            )
            if not renewed.rowcount:
                raise _expired(session)

    def close_sessions(self, sessions: list[int]) -> None:
        with self._database.writing():
            for session in sessions:
                self._end(session)

    def end_silent_sessions(self) -> None:
        """End the sessions with an expired lease. Nothing is written if there are none."""
        with self._database.translated():
            query = f"SELECT 1 FROM leases WHERE {IS_OVER} LIMIT 1"
            is_due = self._database.connection.execute(query, self._now()).fetchone() is not None
        if is_due:
            with self._database.writing():
                self._end_silent()

    def end_abandoned_sessions(self) -> int:
        """End the sessions of earlier holders of this process's lock. Returns their number."""
        lock, turn = self._holder
        if not lock:
            return 0
        with self._database.writing() as connection:
            abandoned = connection.execute("SELECT id FROM leases WHERE lock = ? AND turn <> ?", (lock, turn))
            sessions = abandoned.fetchall()
            for (session,) in sessions:
                self._end(session)
        return len(sessions)

    # -- the controllership

    def controller(self) -> ControllerRecord | None:
        with self._database.reading() as connection:
            query = "SELECT controller, epoch, controller_since_ms FROM meta"
            controller, epoch, since_ms = connection.execute(query).fetchone()
            # An election by an earlier version of kactl leaves the address of the controller before.
            row = connection.execute(
                "SELECT data FROM records WHERE name = ? AND version = ?", (_ADDRESS, epoch)
            ).fetchone()
        address = "" if row is None else msgspec.msgpack.decode(unseal(row[0]), type=str)
        return None if controller is None else ControllerRecord(controller, epoch, since_ms, address)

    def contest(self, session: int, controller_id: int, *, take_over: bool, address: str) -> Fence:
        with self._database.writing() as connection:
            self._end_silent()
            self._check_alive(session)
            holder, epoch = connection.execute("SELECT controller, epoch FROM meta").fetchone()
            if holder is not None and not take_over:
                raise ControllerMoved(ours=0, theirs=epoch)
            connection.execute(
                "UPDATE meta SET epoch = ?, controller = ?, controller_session = ?, controller_since_ms = ?",
                (epoch + 1, controller_id, session, self._clock.now_ms()),
            )
            connection.execute("DELETE FROM records WHERE name = ?", (_ADDRESS,))
            if address:
                connection.execute(
                    "INSERT INTO records VALUES (?, ?, ?)", (_ADDRESS, epoch + 1, seal(_ENCODER.encode(address)))
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

    def register(self, session: int, broker: Broker) -> int:
        with self._database.writing() as connection:
            self._end_silent()
            self._check_alive(session)
            holder = self._database.one("SELECT session FROM brokers WHERE id = ?", broker.id)
            if holder == -session:
                raise _expired(session)
            if holder not in (None, session):
                raise self._taken(broker.id, holder)
            query = "UPDATE meta SET broker_epoch = broker_epoch + 1 RETURNING broker_epoch"
            epoch = int(connection.execute(query).fetchone()[0])
            self._put_broker(msgspec.structs.replace(broker, epoch=epoch), session)
        return epoch

    def _taken(self, broker: int, session: int) -> BrokerIdTaken:
        query = "SELECT timeout_ms, expires_ms, boot FROM leases WHERE id = ?"
        lease = self._database.connection.execute(query, (session,)).fetchone()
        now = self._clock.boot_time()
        if lease is None or lease[2] != now.boot:
            return BrokerIdTaken(broker)
        ends_ms = max(0, int(lease[1]) - now.ms)
        return BrokerIdTaken(broker, renewed_ms=max(0, int(lease[0]) - ends_ms), ends_ms=ends_ms)

    def register_remote(self, broker: Broker, incarnation: bytes, timeout_ms: int, fence: Fence) -> int:
        with self._database.writing() as connection:
            self._database.check_fence(fence)
            self._end_silent()
            known = self._broker(broker.id)
            if known is not None:
                if not known.has_remote_session(incarnation):
                    raise BrokerIdTaken(broker.id)
                return known.epoch
            query = "UPDATE meta SET broker_epoch = broker_epoch + 1 RETURNING broker_epoch"
            epoch = int(connection.execute(query).fetchone()[0])
            self._put_broker(broker.in_remote_session(incarnation, timeout_ms, epoch=epoch), _REMOTE)
        return epoch

    def end_remote(self, broker: int, epoch: int, fence: Fence) -> None:
        with self._database.writing() as connection:
            self._database.check_fence(fence)
            known = self._broker(broker)
            if known is not None and known.epoch == epoch and known.session == "controller":
                connection.execute("DELETE FROM brokers WHERE id = ?", (broker,))
                self._database.stamp(Changed.BROKERS)

    def evict(self, broker: int, epoch: int, fence: Fence) -> None:
        with self._database.writing():
            self._database.check_fence(fence)
            known = self._broker(broker)
            if known is not None and known.epoch == epoch and not known.evicted:
                session = self._database.one("SELECT session FROM brokers WHERE id = ?", broker)
                self._put_broker(msgspec.structs.replace(known, evicted=True), -int(session))

    def brokers(self) -> dict[int, Broker]:
        with self._database.reading() as connection:
            rows = connection.execute("SELECT id, data FROM brokers ORDER BY id").fetchall()
        return {number: _BROKER.decode(unseal(data)) for number, data in rows}

    def broker(self, number: int) -> Broker | None:
        with self._database.reading():
            return self._broker(number)

    # -- inside a transaction

    def _broker(self, number: int) -> Broker | None:
        data = self._database.one("SELECT data FROM brokers WHERE id = ?", number)
        return None if data is None else _BROKER.decode(unseal(data))

    def _put_broker(self, broker: Broker, session: int) -> None:
        """Write a registration.

        Args:
            session: the lease on which it depends, negative once the broker is evicted; or _REMOTE.
        """
        data = seal(_ENCODER.encode(broker))
        connection = self._database.connection
        connection.execute("INSERT OR REPLACE INTO brokers VALUES (?, ?, ?)", (broker.id, session, data))
        self._database.stamp(Changed.BROKERS)

    def _check_alive(self, session: int) -> None:
        if not self.has_session(session):
            raise _expired(session)

    def _now(self) -> dict[str, object]:
        return self._clock.boot_time()._asdict()

    def _end_silent(self) -> None:
        """End all leases that are over, and watch those that may be."""
        now, before, self._watched = self._clock.boot_time(), self._watched, {}
        query = f"SELECT id, timeout_ms, expires_ms, boot, {IS_BY_OTHER_CLOCK} FROM leases WHERE {IS_OVER}"
        leases = self._database.connection.execute(query, now._asdict()).fetchall()
        for session, timeout_ms, expires_ms, boot, is_other_clock in leases:
            if is_other_clock and session > self._database.abandoned:
                watched = before.get(session)
                if watched is None or watched.expires_ms != expires_ms:
                    watched = _Watched(boot, expires_ms, now.ms, was_renewed=watched is not None)
                if now.ms - watched.since_ms < timeout_ms:
                    self._watched[session] = watched
                    continue
            self._end(session)

    def _end(self, session: int) -> None:
        """End a session and all that depends on it. One that has ended is skipped.

        So is the number of no session, 0, which stands for the controller in registrations.
        """
        connection = self._database.connection
        if not connection.execute("DELETE FROM leases WHERE id = ?", (session,)).rowcount:
            return
        self._vacate("controller_session = ?", session)
        if connection.execute("DELETE FROM brokers WHERE session IN (?, ?)", (session, -session)).rowcount:
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
    return SessionExpired(f"session {session} has ended: open a new one, and register or contest again")
