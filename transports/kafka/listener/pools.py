"""Memory pools for requests: one for clients, one for brokers, and the share of each connection.

    Share ──reserve──▶ enough for its owner and in the pool? ──yes──▶ reserved until `release`
                                  └──no──▶ wait, the connection is not read ──time limit──▶ PeerRejected("busy")

An owner is an address or a broker. It never holds more than its part of the pool, so that one address cannot exhaust
the pool.
"""

import asyncio
from collections import Counter, deque
from typing import Final, NamedTuple

from .counters import PeerRejected
from .limits import BROKER_POOL_REQUESTS, CLIENT_POOL_REQUESTS, EXPANSION, FREE_COST, Limits

Owner = str | int


class _Waiting(NamedTuple):
    size: int
    reserved: "asyncio.Future[None]"


class Pool:
    """A pool of memory in bytes.

    Args:
        size: the limit of all owners together.
        owner_size: the limit of one owner.
        name: the name in error messages.
    """

    def __init__(self, size: int, owner_size: int, name: str) -> None:
        self.size = size
        self.owner_size = owner_size
        self.name = name
        self.held = 0
        self._owners: Counter[Owner] = Counter()
        # Waiters of each owner, in order. At most one for each connection: a connection waits for one reservation.
        self._waiting: dict[Owner, deque[_Waiting]] = {}

    def try_take(self, owner: Owner, size: int) -> bool:
        """Take memory without waiting. Returns False if there is not enough."""
        if self.held + size > self.size or self._owners[owner] + size > self.owner_size:
            return False
        self.held += size
        self._owners[owner] += size
        return True

    async def take(self, owner: Owner, size: int, *, timeout_s: float) -> None:
        """Take memory as soon as there is enough.

        Raises:
            PeerRejected: there was not enough for `timeout_s`.
        """
        if self.try_take(owner, size):
            return
        waiting = _Waiting(size, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(owner, deque()).append(waiting)
        try:
            async with asyncio.timeout(timeout_s):
                await waiting.reserved
        except BaseException as error:
            if waiting.reserved.done() and not waiting.reserved.cancelled():
                self.give(owner, size)
            else:
                self._serve(owner)  # those behind it may need less
            if isinstance(error, TimeoutError):
                raise self.full(size) from None
            raise

    def give(self, owner: Owner, size: int) -> None:
        """Return memory to the pool, and serve waiters: the first ones of this owner, then those of the others."""
        self.held -= size
        self._owners[owner] -= size
        if not self._owners[owner]:
            del self._owners[owner]
        for waiting_owner in (owner, *(other for other in list(self._waiting) if other != owner)):
            self._serve(waiting_owner)

    def _serve(self, owner: Owner) -> None:
        queue = self._waiting.get(owner)
        while queue:
            size, reserved = queue[0]
            if not reserved.done():
                if not self.try_take(owner, size):
                    return
                reserved.set_result(None)
            queue.popleft()  # reserved, or cancelled
        self._waiting.pop(owner, None)

    def full(self, size: int) -> PeerRejected:
        return PeerRejected(
            "busy",
            f"a request needs {size} bytes, and {self.held} of {self.size} for {self.name} are in use "
            f"(at most {self.owner_size} by one of them): send fewer large requests at a time",
        )


class Pools(NamedTuple):
    """The pools of a listener. Clients never take memory from the pool of brokers."""

    clients: Pool
    brokers: Pool

    @classmethod
    def of(cls, limits: Limits) -> "Pools":
        client = limits.request_size_max * EXPANSION
        broker = max(limits.broker_request_size_max, limits.request_size_max) * EXPANSION
        return cls(
            Pool(client * CLIENT_POOL_REQUESTS, client, "clients"),
            Pool(broker * BROKER_POOL_REQUESTS, broker, "brokers"),
        )


class Share:
    """Memory of one connection: a free part outside of the pool, then a reservation in the pool."""

    def __init__(self, pool: Pool, owner: Owner, *, timeout_s: float) -> None:
        self._pool = pool
        self._owner = owner
        self._timeout_s = timeout_s
        self._reserved = 0
        self._used = 0

    def move(self, pool: Pool, owner: Owner) -> None:
        """Reserve from another pool from now on. Nothing may be reserved."""
        assert not self._reserved, "a request is being handled"
        self._pool, self._owner = pool, owner

    async def reserve(self, size: int) -> None:
        """Reserve at least that much, including the later calls of `charge`; at most the limit of one owner.

        Raises:
            Refused: the pool was full for too long.
        """
        more = min(size, self._pool.owner_size) - self._reserved
        if more > 0:
            await self._pool.take(self._owner, more, timeout_s=self._timeout_s)
            self._reserved += more

    def charge(self, size: int) -> None:
        """Account for memory that is about to be allocated: from the reservation, then from the pool.

        Raises:
            Refused: there is not enough.
        """
        self._used += size
        missing = self._used - self._reserved - FREE_COST
        if missing > 0:
            # In steps, so that the pool is not called for each element.
            more = max(missing, _STEP)
            if not self._pool.try_take(self._owner, more):
                raise self._pool.full(more)
            self._reserved += more

    def release(self) -> None:
        """Return the whole reservation to the pool."""
        self._used = 0
        if self._reserved:
            self._pool.give(self._owner, self._reserved)
            self._reserved = 0


_STEP: Final = 64 * 1024
