"""Sessions: leases of etcd. The client's own one, on which its controllership depends, and those of its brokers.

A lease is counted from the renewal's arrival at the server, so at the earliest from the moment at which the renewal was
sent. Each client keeps a key under its own lease: its deletion reports the end of the session at once.
"""

import math
from collections.abc import Callable
from typing import Final

import anyio

from kactl.model import Broker
from kactl.model.errors import SessionExpired, StoreError, StoreUnavailable
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.stores.base import Changed, SessionBound, StoreEvent
from kactl.stores.formats import registration

from . import messages
from .calls import EtcdError
from .client import Client, is_lost_lease
from .messages import DeleteRange, Put, Range

log = logger(__name__)

NO_SESSION: Final = 0
# Two renewals may fail without loss of the session.
_RENEWALS_PER_TIMEOUT: Final = 3
# After this part of the timeout since the last renewal, the session may have ended unnoticed.
_SUSPENDED_AFTER: Final = 0.75
_RETRY_MS: Final = 200
# A registration of this very session is replaced by deletion and creation; others may interfere in between.
_TRIES_MAX: Final = 10
_ENDED: Final = "the session of this client has ended: wait for SESSION_OPENED, then try again"


class OwnSession:
    """The session of one client.

    Args:
        listener: receives SUSPENDED, CONNECTED, SESSION_LOST and SESSION_OPENED.
        on_lost: called before SESSION_LOST is reported.
    """

    def __init__(
        self,
        client: Client,
        listener: Callable[[StoreEvent], None],
        *,
        clock: Clock,
        timeout_ms: int,
        on_lost: Callable[[], None],
    ) -> None:
        self._client = client
        self._listener = listener
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._on_lost = on_lost
        self._renewed_ms = 0.0
        self._suspended = False
        self._given_up = False
        self._check_now = anyio.Event()
        self.lease = NO_SESSION

    async def open(self) -> None:
        """Open a session. After an error there is none; a lease that was granted times out."""
        await self._client.check_cluster()
        sent_ms = self._clock.monotonic_ms()
        granted = await self._client.grant_lease(math.ceil(self._timeout_ms / 1000))
        await self._write_key(granted.ID)
        self._timeout_ms = granted.TTL * 1000
        self.lease, self._renewed_ms = granted.ID, sent_ms

    async def close(self) -> None:
        """End the session, so that it need not time out."""
        lease, self.lease = self.lease, NO_SESSION
        if lease != NO_SESSION:
            try:
                await self._client.revoke(lease)
            except StoreError:
                log.warning("the session of this process could not be ended and will time out", exc_info=True)

    @property
    def live_lease(self) -> int:
        """The lease of the present session.

        Raises:
            SessionExpired: there is none.
        """
        if self.lease == NO_SESSION:
            raise SessionExpired(_ENDED)
        return self.lease

    async def write_key(self) -> None:
        """Write this client's key, which ends with the session.

        Raises:
            SessionExpired: there is no session, or it has ended.
        """
        await self._write_key(self.live_lease)

    async def _write_key(self, lease: int) -> None:
        try:
            await self._client.txn([], [Put(self._client.keys.client(lease), b"", lease=lease)])
        except EtcdError as error:
            if is_lost_lease(error):
                raise SessionExpired(_ENDED) from error
            raise

    def on_key_deleted(self, key: bytes) -> None:
        """Handle the deletion of a client's key: renew at once if it is this client's."""
        if self.lease != NO_SESSION and key == self._client.keys.client(self.lease):
            self._check_now.set()

    def give_up(self) -> None:
        """End this session soon and open another one: what was read in it is void."""
        if self.lease != NO_SESSION:
            self._given_up = True
            self._check_now.set()

    async def run(self) -> None:
        """Renew until cancelled, and open the next session after a loss."""
        pause_ms = self._timeout_ms / _RENEWALS_PER_TIMEOUT
        while True:
            self._check_now = anyio.Event()
            with anyio.move_on_after(pause_ms / 1000):
                await self._check_now.wait()
            pause_ms = await self.attempt()

    async def attempt(self) -> float:
        """Renew once, or open the next session. Returns the pause before the next attempt, in milliseconds.

        Neither the attempt nor the pause lasts beyond the moment at which SUSPENDED is due.
        """
        self._report_suspended()
        try:
            await self._renew()
        except StoreError as error:
            log.debug("the session could not be renewed: %s", error)
            self._report_suspended()
            return self._until_suspended(_RETRY_MS)
        return self._timeout_ms / _RENEWALS_PER_TIMEOUT

    async def _renew(self) -> None:
        lease = self.lease
        if lease != NO_SESSION:
            sent_ms = self._clock.monotonic_ms()
            limit_ms = self._until_suspended(self._timeout_ms / _RENEWALS_PER_TIMEOUT)
            if not self._given_up and await self._client.keep_alive(lease, limit_ms=limit_ms):
                self._renewed_ms = sent_ms
                if self._suspended:
                    self._suspended = False
                    self._listener(StoreEvent(Changed.CONNECTED))
                return
            given_up = self._given_up
            self.lease, self._suspended, self._given_up = NO_SESSION, False, False
            self._on_lost()
            self._listener(StoreEvent(Changed.SESSION_LOST))
            if given_up:
                await self._client.revoke(lease)
        await self.open()
        self._listener(StoreEvent(Changed.SESSION_OPENED))

    def _report_suspended(self) -> None:
        """Report SUSPENDED if the session may have ended by now."""
        if self._left_ms <= 0 and not self._suspended and self.lease != NO_SESSION:
            self._suspended = True
            self._listener(StoreEvent(Changed.SUSPENDED))

    def _until_suspended(self, limit_ms: float) -> float:
        """Returns a limit, or the time that is left until SUSPENDED is due, if that is shorter."""
        return min(limit_ms, self._left_ms) if self._left_ms > 0 else limit_ms

    @property
    def _left_ms(self) -> float:
        """The time until SUSPENDED is due; 0 or less from then on."""
        return self._renewed_ms + _SUSPENDED_AFTER * self._timeout_ms - self._clock.monotonic_ms()


class EtcdSession:
    """A broker's session; see `kactl.stores.base.Session`.

    With one member of etcd its renewals are counted. With several they are witnessed: a former leader may revoke a
    lease that its successor has renewed (etcd's issue 15247, which releases 3.4.31 and 3.5.13 mitigate), and it may
    answer a renewal. Each renewal reads the registration too, which goes through the present leader, and shows an
    eviction.

    Attributes:
        lease: its id in etcd, NO_SESSION once it has ended.
    """

    def __init__(self, client: Client, granted: messages.LeaseResponse, clock: Clock, *, one_member: bool) -> None:
        self._client = client
        self._clock = clock
        self._timeout_ms = granted.TTL * 1000
        self._bound = SessionBound(kind="counted" if one_member else "witnessed")
        self._registered: bytes | None = None
        self.lease = granted.ID

    @property
    def timeout_ms(self) -> int:
        return self._timeout_ms

    @property
    def bound(self) -> SessionBound:
        return self._bound

    @property
    def is_open(self) -> bool:
        return self.lease != NO_SESSION

    async def register(self, broker: Broker) -> int:
        client, key = self._client, self._client.keys.broker(broker.id)
        value = registration.encode(broker, self._clock.now_ms())
        for _ in range(_TRIES_MAX):
            put = Put(key, value, lease=self._live_lease)
            try:
                response = await client.txn([messages.created_at(key, 0)], [put], [Range(key)])
            except EtcdError as error:
                if is_lost_lease(error):
                    raise self._expired() from error
                raise
            if response.succeeded:
                self._registered = key
                return response.header.revision
            present = messages.read(response, 0)[0]
            if present.lease != self.lease:
                raise registration.taken(broker.id, present.value)
            if registration.is_evicted(present.value):
                raise self._expired()
            # A later registration has a later broker epoch, which is the revision at which its key was created.
            await client.txn([messages.written_at(key, present.mod_revision)], [DeleteRange(key)])
        raise StoreUnavailable(f"broker {broker.id} could not be registered: its registration keeps changing")

    async def renew(self, sent_ns: int) -> None:
        limit_ms = self._timeout_ms / _RENEWALS_PER_TIMEOUT
        lease = self._live_lease
        alive = bool(await self._client.keep_alive(lease, limit_ms=limit_ms))
        if alive and self._bound.kind == "counted" and await self._client.members() != 1:
            # etcd has more members than at the start: a deposed one may have granted the renewal. The next session
            # counts with that.
            await self.close()
            raise self._expired()
        if alive and self._registered is not None:
            stored = await self._client.get(self._registered)
            alive = stored is not None and stored.lease == lease and not registration.is_evicted(stored.value)
        if not alive:
            self.lease = NO_SESSION
            raise self._expired()

    async def keep_alive(self) -> None:
        await self.renew(0)

    async def close(self) -> None:
        lease, self.lease = self.lease, NO_SESSION
        if lease != NO_SESSION:
            await self._client.revoke(lease)

    @property
    def _live_lease(self) -> int:
        if self.lease == NO_SESSION:
            raise self._expired()
        return self.lease

    def _expired(self) -> SessionExpired:
        return SessionExpired("the session of this broker has ended: open a new one and register again")
