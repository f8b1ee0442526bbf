"""The session of one of kactl's own participants: a connection to ZooKeeper, and the registration that lives by it.

The client keeps the session alive for as long as the process runs. A participant that stops saying that it lives is
held to the same timeout by us: then its session is closed.
"""

import asyncio
import contextlib
import time
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError, ZookeeperError
from kazoo.protocol.states import KazooState

from kactl.errors import BrokerIdTaken, SessionExpired, StoreError, StoreUnavailable
from kactl.model import Broker

from . import connection, layout, registration, request
from .client import Client

# A node of one of our own ended sessions is taken away and the registration tried again; one or two rounds are
# needed, more only if somebody else comes and goes meanwhile.
_TRIES_MAX = 5
# A heartbeat and a registration.
_IN_FLIGHT = 2


class ZooKeeperSession:
    """See the module. Opened by `ZooKeeperStore.new_session`.

    Args:
        ended: session ids of this process that have ended; ours is added when it does. Their nodes, which the server
            may still hold, do not stand in our way.
        kind: of the client's link.
    """

    def __init__(self, connect: str, *, timeout_ms: int, ended: set[int], kind: connection.Kind) -> None:
        self._client = Client(
            connect, session_timeout_ms=timeout_ms, max_in_flight=_IN_FLIGHT, on_state=self._on_state, kind=kind
        )
        self._timeout_ms = timeout_ms
        self._ended = ended
        self._id: int | None = None
        self.is_over = False
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def timeout_ms(self) -> int:
        """As it was asked for; the server may have granted another one."""
        return self._timeout_ms

    async def open(self) -> None:
        """Connect.

        Raises:
            StoreUnavailable: there is no server.
        """
        await self._client.open()
        self._id = self._client.session_id
        self._touch()
        self._watch_clock()

    async def register(self, broker: Broker) -> int:
        """See `Session.register`. The node is made and filled in one multi, as Kafka does.

        Raises:
            StoreUnavailable: whether it stands is unknown; registering again tells.
        """
        await self.keep_alive()
        path = self._client.path(layout.broker(broker.id))
        data = registration.encode(broker, time.time_ns() // 1_000_000)
        made = request.multi([request.create(path, None, ephemeral=True), request.put(path, data, 0)])
        for _ in range(_TRIES_MAX):
            result = await self._ask(made)
            if not isinstance(result, ZookeeperError) and not isinstance(result[0], ZookeeperError):
                return int(result[1].czxid)
            if not isinstance(result, list) or not isinstance(result[0], NodeExistsError):
                raise StoreError(f"broker {broker.id} could not be registered: {result!r}")
            epoch = await self._claim(broker, data)
            if epoch is not None:
                return epoch
        raise BrokerIdTaken(broker.id)

    async def _claim(self, broker: Broker, data: bytes) -> int | None:
        """What to make of a node that stands: it is ours already, or of an earlier session of ours, and deleted."""
        path = layout.broker(broker.id)
        found = await self._ask(self._client.exists(path))
        if found is None or isinstance(found, ZookeeperError):
            return None
        if found.ephemeralOwner == self._id:
            # Registered before, or our multi was done before its connection broke: the data may be new.
            stat = await self._ask(request.put(self._client.path(path), data))
            return None if isinstance(stat, ZookeeperError) else int(stat.czxid)
        if found.ephemeralOwner not in self._ended:
            raise BrokerIdTaken(broker.id)
        gone = await self._ask(request.delete(self._client.path(path), found.version))
        if isinstance(gone, ZookeeperError) and not isinstance(gone, NoNodeError):
            raise BrokerIdTaken(broker.id)
        return None

    async def keep_alive(self) -> None:
        """See `Session.keep_alive`. Asks the server, which may have ended the session before we hear of it."""
        self._check()
        self._touch()
        await self._ask(self._client.exists(layout.BROKERS))

    async def close(self) -> None:
        """End the session now; its registration is gone when this returns, if the server can be reached."""
        self._end()
        await self._client.close()
        if self._closing is not None:
            await asyncio.wait([self._closing])

    async def _ask(self, what: Any) -> Any:
        self._check()
        try:
            return await self._client.ask(what)
        except StoreUnavailable:
            self._check()  # closed under us: that is an end of the session and no outage
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

    # -- the participant's own silence

    def _touch(self) -> None:
        self._deadline = asyncio.get_running_loop().time() + self._timeout_ms / 1000

    def _watch_clock(self) -> None:
        """Look again when the deadline as it stands now has come; then it may have moved on."""
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
