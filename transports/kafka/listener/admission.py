"""Admission of connections, and eviction of others at a limit.

               ┌── general part ──────────────────┬─ reserved ─┐
    clients    │ at most n of one address         │            │
    candidates │ at most n unidentified of one address          │   a broker's address, not identified yet
    brokers    │ at most BROKER_CONNECTIONS_MAX of one broker   │   identified
               └──────────────────────────────────┴────────────┘

At a limit a new connection replaces another. A client replaces the client that has been idle for the longest time, at
least for GRACE_S; clients that have never completed a request come first. A candidate replaces a client, or the oldest
candidate of its address: a broker sends the request that identifies it within milliseconds, and is then among the
youngest. An identified connection, or one with a request in progress, is never replaced. Addresses that are not a
broker's have a rate limit for new connections.
"""

import time
from collections import Counter
from collections.abc import Callable, Container
from typing import Final

from kactl.runtime.addresses import group_of
from kactl.runtime.budget import RATES, Budget, Unit
from kactl.runtime.places import Place, Places

from .counters import ListenerCounters, PeerRejected
from .limits import Limits

# A tenth of all connections is reserved for brokers, or this many for each broker, but at most half. A broker has one
# connection each for ISRs, forwarded requests and its shutdown, and old ones while it reconnects.
_RESERVED_PART: Final = 10
RESERVED_PER_BROKER: Final = 8
# Further identified connections of one broker become unidentified, the oldest first.
BROKER_CONNECTIONS_MAX: Final = 16
# A client sends its first request at once; after a second its connection may be replaced.
GRACE_S: Final = 1.0
# Unidentified connections of one broker's address, as a part of all. A process there that connects without pause
# replaces all of them only after so many attempts, of which the acceptor takes a few in each turn of the loop.
_CANDIDATES_PART: Final = 4
# Connections that an address that is not a broker's may open in a second, after a burst; half of its limit if that is
# more. Tools open one or two.
RATE_MAX_S: Final = RATES[Unit.CONNECTIONS].per_s
# Ranks, those that have never completed a request first.
_CLIENTS: Final = (0, 1)
_CANDIDATES: Final = (2, 3)


class Slot(Place):
    """The place of one connection.

    Attributes:
        address: the peer's address; `group` is its `group_of`.
        is_candidate: whether the address is a broker's.
        is_proven: whether the connection has completed a request.
        is_serving: whether a request is in progress.
        is_evicted: whether it was closed for another connection.
    """

    def __init__(self, address: str, *, is_candidate: bool) -> None:
        self.address = address
        self.owner = self.group = group_of(address)
        self.is_candidate = is_candidate
        self.is_proven = False
        self.is_serving = False
        self.is_evicted = False

    @property
    def broker(self) -> int | None:
        """The broker that the connection is identified as."""
        return self.owner if isinstance(self.owner, int) else None

    @property
    def kind(self) -> str:
        return "brokers" if self.broker is not None else "candidates" if self.is_candidate else "clients"

    @property
    def idle_rank(self) -> int | None:
        """The rank that it has now."""
        if self.broker is not None or self.is_serving:
            return None
        return (_CANDIDATES if self.is_candidate else _CLIENTS)[self.is_proven]

    def make_way(self) -> None:
        self.is_evicted = True
        super().make_way()


def _rate_s(limit: int) -> float:
    return max(RATE_MAX_S, limit // 2)


class Admission(Places[Slot]):
    """Admits connections, and closes others.

    Args:
        connections_max: the limit of all connections, from the configuration or the number of descriptors.
        broker_addresses: contains the addresses of registered brokers.
        brokers: returns the number of registered brokers.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        connections_max: int,
        broker_addresses: Container[str],
        brokers: Callable[[], int],
        counters: ListenerCounters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("the Kafka listener", clock)
        self._per_address_max = limits.connections_per_address_max
        self._overrides = limits.connections_overrides
        self._max = connections_max
        self._candidates_max = max(self._per_address_max, connections_max // _CANDIDATES_PART)
        # Its own one: addresses that only connect must not displace the accounts of principals.
        self._budget = Budget(clock, time.thread_time)
        self._broker_addresses = broker_addresses
        self._brokers = brokers
        self._counters = counters
        self._kinds = Counter[str]()

    @property
    def reserved(self) -> int:
        """The number of connections that are reserved for brokers."""
        return min(self._max // 2, max(self._max // _RESERVED_PART, RESERVED_PER_BROKER * self._brokers()))

    def admit(self, address: str) -> Slot:
        """Admit a connection. Returns its slot, idle until the first request.

        Raises:
            PeerRejected: it is not admitted; close it.
        """
        slot = Slot(address, is_candidate=address in self._broker_addresses)
        if slot.is_candidate:
            self._admit_candidate(slot)
        else:
            self._admit_client(slot)
        self.enter(slot, slot.idle_rank)
        return slot

    def serve(self, slot: Slot) -> None:
        """Mark a request as in progress: the connection is not replaced until `wait` is called."""
        slot.is_serving = True
        self.set_rank(slot, None)

    def wait(self, slot: Slot) -> None:
        """Mark the connection as idle, after its request is complete."""
        slot.is_proven = True
        slot.is_serving = False
        self.set_rank(slot, None)  # its idle time begins anew
        self.set_rank(slot, slot.idle_rank)

    def identify(self, slot: Slot, broker: int) -> None:
        """Identify the connection as a broker's. If the broker has too many, its oldest becomes a candidate again."""
        if slot in self:
            self.move(slot, broker, None)
            if len(self.of(broker)) > BROKER_CONNECTIONS_MAX:
                self.forget(next(iter(self.of(broker))))

    def forget(self, slot: Slot) -> None:
        """Remove the identification of a connection."""
        if slot.broker is not None and slot in self:
            self.move(slot, slot.group, None)
            self.set_rank(slot, slot.idle_rank)

    def enter(self, place: Slot, rank: int | None) -> None:
        super().enter(place, rank)
        self._count_kind(place, 1)

    def leave(self, place: Slot) -> None:
        if place in self:
            super().leave(place)
            self._count_kind(place, -1)

    def _count_kind(self, slot: Slot, change: int) -> None:
        self._kinds[slot.kind] += change
        self._counters.connections = len(self)
        self._counters.identified = self._kinds["brokers"]

    def _admit_candidate(self, slot: Slot) -> None:
        own = next((each for each in self.of(slot.owner) if not each.is_serving), None)
        if len(self.of(slot.owner)) >= self._candidates_max:
            self._replace(own, self._full_of(slot.group, self._candidates_max))
        elif len(self) >= self._max:
            self._replace(next(self.waiting(*_CLIENTS), own) or next(self.waiting(*_CANDIDATES), None), self._full())

    def _admit_client(self, slot: Slot) -> None:
        group, limit = slot.group, self._overrides.get(slot.group, self._per_address_max)
        price = RATE_MAX_S / _rate_s(limit)
        if limit and self._budget.charge(group, {Unit.CONNECTIONS: price}) is not None:
            raise PeerRejected(
                "connection_rate",
                f"{group} opens more than {_rate_s(limit):g} connections a second: keep connections open, or raise "
                "kafka.max-connections-per-ip",
            )
        if len(self.of(group)) >= limit:
            self._replace(self.first_of(group, *_CLIENTS, grace_s=GRACE_S), self._full_of(group, limit))
        elif self._kinds["clients"] >= self._max - self.reserved:
            self._replace(next(self.waiting(*_CLIENTS, grace_s=GRACE_S), None), self._full())
        elif len(self) >= self._max:
            raise self._full()

    def _replace(self, victim: Slot | None, full: PeerRejected) -> None:
        if victim is None:
            raise full
        self.replace(victim)

    def _full(self) -> PeerRejected:
        return PeerRejected(
            "connections",
            f"{len(self)} connections are open, at most {self._max} are allowed and {self.reserved} of these "
            "are reserved for brokers: close connections, or raise kafka.max-connections",
        )

    def _full_of(self, group: str, limit: int) -> PeerRejected:
        return PeerRejected(
            "connections_per_address",
            f"{limit} connections of {group} are open, the limit of one address: close "
            "some, or raise kafka.max-connections-per-ip, or its override for the address",
        )
