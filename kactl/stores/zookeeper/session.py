"""The session of one of kactl's own participants: a connection to ZooKeeper, and the registration that depends on it.

The client keeps the session alive for as long as the process runs. A participant that stops calling `renew` is held to
the same timeout here: its session is closed then.

Pings and reads prove nothing about the session: a server that follows answers them by itself, and one that is cut off
from its leader goes on doing so for some time, while the leader expires the session. A renewal is therefore a
transaction, which only the leader answers, and which checks that the registration still stands.
"""

import asyncio
import contextlib
import random
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, ZookeeperError
from kazoo.protocol.states import KazooState

from kactl.model import Broker
from kactl.model.errors import BrokerIdTaken, SessionExpired, StoreError, StoreUnavailable
from kactl.runtime.clock import Clock
from kactl.runtime.patience import Patience
from kactl.stores.base import SessionBound
from kactl.stores.formats import registration

from . import connection, layout, request
from .acls import NodeAcls
from .client import Client

# A node of an ended session of this process is deleted and the registration retried; one or two rounds are needed, more
# only if another client registers and leaves meanwhile.
_TRIES_MAX = 5
# A renewal, the next one if it is late, and a registration.
_IN_FLIGHT = 3
_BOUND: Final = SessionBound(kind="witnessed")


class ZooKeeperSession:
    """One participant's session, opened by `ZooKeeperStore.new_session`.

    Args:
        ended: ids of sessions of this process that have ended; this one is added when it ends. Their nodes, which may
            still exist on the server, do not prevent a registration.
        factory: of the client's connection; see `connection.make`.
        rng: of the client's connection.
        clock: for the time that is stored in a registration.
        credentials: of the client's connection.
        acls: the permissions of the registration.
    """

    def __init__(
        self,
        connect: str,
        *,
        timeout_ms: int,
        ended: set[int],
        factory: connection.Factory | None,
        rng: random.Random,
        clock: Clock,
        credentials: connection.Credentials = connection.NONE,
        acls: NodeAcls | None = None,
    ) -> None:
        self._client = Client(
            connect,
            session_timeout_ms=timeout_ms,
            max_in_flight=_IN_FLIGHT,
            on_state=self._on_state,
            factory=factory,
            rng=rng,
            credentials=credentials,
            acls=acls,
        )
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._ended = ended
        self._id: int | None = None
        self._registered: tuple[str, int] | None = None  # the path of the registration, and the version of its data
        self.is_over = False
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def timeout_ms(self) -> int:
        """The timeout that the server has granted, which may differ from the requested one."""
        return self._timeout_ms

    @property
    def bound(self) -> SessionBound:
        return _BOUND

    async def open(self) -> None:
        """Connect.

        Raises:
            StoreUnavailable: there is no server.
        """
        what = "the session with ZooKeeper is not open"
        await self._client.open(Patience(what, self._clock, self._timeout_ms))
        self._id, self._timeout_ms = self._client.session_id, self._client.granted_timeout_ms
        self._touch()
        self._watch_clock()

    async def register(self, broker: Broker) -> int:
        """See `Session.register`. The node is created and filled in one multi, as Kafka does.

        Raises:
            StoreUnavailable: it is unknown whether the broker is registered; registering again shows it.
        """
        await self.keep_alive()
        path = layout.broker(broker.id)
        data = registration.encode(broker, self._clock.now_ms())
        registration_request = request.multi(
            [self._client.create(path, None, ephemeral=True), request.put(self._client.path(path), data, 0)]
        )
        for _ in range(_TRIES_MAX):
            result = await self._ask(registration_request)
            if not isinstance(result, ZookeeperError) and not isinstance(result[0], ZookeeperError):
                self._registered = self._client.path(path), result[1].version
                return int(result[1].czxid)
            if not isinstance(result, list) or not isinstance(result[0], NodeExistsError):
                raise StoreError(f"broker {broker.id} could not be registered: {result!r}")
            epoch = await self._claim(broker, data)
            if epoch is not None:
                return epoch
        raise BrokerIdTaken(broker.id)

    async def _claim(self, broker: Broker, data: bytes) -> int | None:
        """Take over an existing node of this session, or delete one of an ended session of this process.

        Returns:
            the broker epoch, or None to try again.
        """
        path = layout.broker(broker.id)
        found = await self._ask(self._client.get(path))
        if isinstance(found, ZookeeperError):
            return None
        stored, node = found
        if node.ephemeralOwner == self._id:
            if registration.is_evicted(stored):
                raise SessionExpired(f"the controller has evicted broker {broker.id}: register in a new session")
            # Registered before, or the multi succeeded before its connection broke: the data may be new.
            stat = await self._ask(request.put(self._client.path(path), data))
            if isinstance(stat, ZookeeperError):
                return None
            self._registered = self._client.path(path), stat.version
            return int(stat.czxid)
        if node.ephemeralOwner not in self._ended:
            raise registration.taken(broker.id, stored)
        deleted = await self._ask(request.delete(self._client.path(path), node.version))
        if isinstance(deleted, ZookeeperError) and not isinstance(deleted, NoNodeError):
            raise BrokerIdTaken(broker.id)
        return None

    async def renew(self, sent_ns: int) -> None:
        """See `Session.renew`. Before the registration there is nothing to check, and any response counts."""
        self._check()
        self._touch()
        if self._registered is None:
            await self._ask(self._client.exists(layout.BROKERS))
            return
        path, version = self._registered
        error = request.first_error(await self._ask(request.multi([request.check(path, version)])))
        if isinstance(error, NoNodeError | BadVersionError):
            raise SessionExpired(f"the registration {path} was removed or changed: register again in a new session")
        if error is not None:
            raise StoreError(f"the registration {path} could not be checked: {error!r}")

    async def keep_alive(self) -> None:
        await self.renew(0)

    async def close(self) -> None:
        """End the session; its registration is gone on return, if the server can be reached."""
        self._end()
        await self._client.close()
        if self._closing is not None:
            await asyncio.wait([self._closing])

    async def _ask(self, request: Any) -> Any:
        self._check()
        try:
            return await self._client.ask(request)
        except StoreUnavailable:
            self._check()  # closed meanwhile: the session has ended, this is no outage
            raise

    def _check(self) -> None:
        if self.is_over:
            raise SessionExpired("the session of the broker has ended; open a new one and register again")

    def _on_state(self, state: str) -> None:
        if state == KazooState.LOST:
            self._end()

    def _end(self) -> None:
        self.is_over = True
        if self._id is not None:
            self._ended.add(self._id)
        if self._timer is not None:
            self._timer.cancel()

    # -- timeout of the participant itself

    def _touch(self) -> None:
        self._deadline = asyncio.get_running_loop().time() + self._timeout_ms / 1000

    def _watch_clock(self) -> None:
        """End the session at its deadline; `keep_alive` moves the deadline, so look again when it has come."""
        loop = asyncio.get_running_loop()
        if self.is_over:
            return
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._watch_clock)
            return
        self._end()
        self._closing = loop.create_task(self._close_quietly())

    async def _close_quietly(self) -> None:
        with contextlib.suppress(StoreError):
            await self._client.close()
