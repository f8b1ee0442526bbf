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
from collections.abc import Callable, Container
from typing import Final

from kactl.runtime.addresses import group_of

from .counters import PeerRejected
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
RATE_MAX_S: Final = 50
# Addresses with a known rate; an evicted address counts as a new one.
_RATES_MAX: Final = 10_000


class Slot:
    """The place of one connection.

    Attributes:
        address: the peer's address; `group` is its `group_of`.
        is_candidate: whether the address is a broker's.
        broker: the broker that the connection is identified as.
        is_proven: whether the connection has completed a request.
        is_serving: whether a request is in progress.
        since_s: the time since which the connection is idle.
        is_evicted: whether it was closed for another connection.
        close: closes the connection; called at most once.
    """

    def __init__(self, address: str, *, is_candidate: bool, now_s: float) -> None:
        self.address = address
        self.group = group_of(address)
        self.is_candidate = is_candidate
        self.broker: int | None = None
        self.is_proven = False
        self.is_serving = False
        self.is_evicted = False
        self.since_s = now_s
        self.close: Callable[[], object] = lambda: None


class _Waiting:
    """Idle slots in the order of their idle time; those that have never completed a request come first."""

    def __init__(self) -> None:
        self._unproven: dict[Slot, None] = {}
        self._proven: dict[Slot, None] = {}

    def add(self, slot: Slot) -> None:
        (self._proven if slot.is_proven else self._unproven)[slot] = None

    def discard(self, slot: Slot) -> None:
        self._unproven.pop(slot, None)
        self._proven.pop(slot, None)

    def longest(self, *, before_s: float) -> Slot | None:
        """Returns the first slot that has been idle since before then."""
        for slots in (self._unproven, self._proven):
            slot = next(iter(slots), None)
            if slot is not None and slot.since_s <= before_s:
                return slot
        return None


class _Group:
    """The unidentified connections of one address, the oldest first."""

    def __init__(self) -> None:
        self.slots: dict[Slot, None] = {}
        self.waiting = _Waiting()

    def oldest(self) -> Slot | None:
        """Returns the oldest slot without a request in progress."""
        return next((slot for slot in self.slots if not slot.is_serving), None)


class _Rates:
    """Token buckets: each address may open twice as many connections as its limit, and regains its rate."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, group: str, now_s: float, limit: int) -> bool:
        """Take a token. Returns False if the address has none left."""
        burst = 2.0 * limit
        left, then_s = self._left.pop(group, (burst, now_s))
        left = min(burst, left + (now_s - then_s) * _rate_s(limit))
        if len(self._left) >= _RATES_MAX:
            del self._left[next(iter(self._left))]
        self._left[group] = (left - 1 if left >= 1 else left, now_s)
        return left >= 1


def _rate_s(limit: int) -> int:
    return max(RATE_MAX_S, limit // 2)


class Admission:
    """Admits connections, and closes others through their slots.

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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_address_max = limits.connections_per_address_max
        self._overrides = limits.connections_overrides
        self._max = connections_max
        self._candidates_max = max(self._per_address_max, connections_max // _CANDIDATES_PART)
        self._rates = _Rates()
        self._broker_addresses = broker_addresses
        self._brokers = brokers
        self._clock = clock
        self._groups: dict[str, _Group] = {}
        self._clients = _Waiting()
        self._candidates = _Waiting()
        self._identified: dict[int, dict[Slot, None]] = {}
        self._slots: set[Slot] = set()
        self._clients_count = 0

    @property
    def count(self) -> int:
        return len(self._slots)

    @property
    def identified_count(self) -> int:
        return sum(map(len, self._identified.values()))

    @property
    def reserved(self) -> int:
        """The number of connections that are reserved for brokers."""
        return min(self._max // 2, max(self._max // _RESERVED_PART, RESERVED_PER_BROKER * self._brokers()))

    def admit(self, address: str) -> Slot:
        """Admit a connection. Returns its slot, idle until the first request.

        Raises:
            Refused: it is not admitted; close it.
        """
        now_s = self._clock()
        slot = Slot(address, is_candidate=address in self._broker_addresses, now_s=now_s)
        if slot.is_candidate:
            self._admit_candidate(slot, now_s)
        else:
            self._admit_client(slot, now_s)
        self._slots.add(slot)
        self._count_in(slot)
        self._wait(slot)
        return slot

    def serve(self, slot: Slot) -> None:
        """Mark a request as in progress: the connection is not replaced until `wait` is called."""
        if slot in self._slots:
            slot.is_serving = True
            self._stop_waiting(slot)

    def wait(self, slot: Slot) -> None:
        """Mark the connection as idle, after its request is complete."""
        if slot in self._slots:
            slot.is_proven = True
            slot.is_serving = False
            slot.since_s = self._clock()
            self._wait(slot)

    def identify(self, slot: Slot, broker: int) -> None:
        """Identify the connection as a broker's. If the broker has too many, its oldest becomes a candidate again."""
        if slot not in self._slots:
            return
        self.forget(slot)
        self._stop_waiting(slot)
        self._count_out(slot)
        slot.broker = broker
        of_broker = self._identified.setdefault(broker, {})
        of_broker[slot] = None
        if len(of_broker) > BROKER_CONNECTIONS_MAX:
            self.forget(next(iter(of_broker)))

    def forget(self, slot: Slot) -> None:
        """Remove the identification of a connection."""
        if slot.broker is None or slot not in self._slots:
            return
        self._leave_broker(slot)
        self._count_in(slot)
        self._wait(slot)

    def leave(self, slot: Slot) -> None:
        """Remove a connection after its descriptor is closed."""
        if slot not in self._slots:
            return
        self._slots.discard(slot)
        self._stop_waiting(slot)
        if slot.broker is not None:
            self._leave_broker(slot)
        else:
            self._count_out(slot)

    def make_room(self, count: int) -> int:
        """Close up to `count` idle connections to free their descriptors. Returns the number closed."""
        closed = 0
        while closed < count:
            slot = self._clients.longest(before_s=self._clock()) or self._candidates.longest(before_s=self._clock())
            if slot is None:
                break
            self._close(slot)
            closed += 1
        return closed

    def _admit_candidate(self, slot: Slot, now_s: float) -> None:
        group = self._groups.get(slot.group)
        if group is not None and len(group.slots) >= self._candidates_max:
            self._replace(group.oldest(), self._full_of(slot.group, self._candidates_max))
        elif len(self._slots) >= self._max:
            of_address = None if group is None else group.oldest()
            victim = self._clients.longest(before_s=now_s) or of_address or self._candidates.longest(before_s=now_s)
            self._replace(victim, self._full())

    def _admit_client(self, slot: Slot, now_s: float) -> None:
        group, limit = self._groups.get(slot.group), self._overrides.get(slot.group, self._per_address_max)
        if limit and not self._rates.take(slot.group, now_s, limit):
            raise PeerRejected(
                "connection_rate",
                f"{slot.group} opens more than {_rate_s(limit)} connections a second: keep connections open, or raise "
                "kafka.max-connections-per-ip",
            )
        if (0 if group is None else len(group.slots)) >= limit:
            victim = None if group is None else group.waiting.longest(before_s=now_s - GRACE_S)
            self._replace(victim, self._full_of(slot.group, limit))
        elif self._clients_count >= self._max - self.reserved:
            self._replace(self._clients.longest(before_s=now_s - GRACE_S), self._full())
        elif len(self._slots) >= self._max:
            raise self._full()

    # -- bookkeeping ---------------------------------------------------------------------------------------------------

    def _replace(self, victim: Slot | None, full: PeerRejected) -> None:
        if victim is None:
            raise full
        self._close(victim)

    def _close(self, slot: Slot) -> None:
        """Evict a slot. It is removed at once, since its descriptor is closed almost before the next accept."""
        self.leave(slot)
        slot.is_evicted = True
        slot.close()

    def _wait(self, slot: Slot) -> None:
        if slot.broker is None and not slot.is_serving:
            self._groups[slot.group].waiting.add(slot)
            (self._candidates if slot.is_candidate else self._clients).add(slot)

    def _stop_waiting(self, slot: Slot) -> None:
        group = self._groups.get(slot.group)
        if group is not None:
            group.waiting.discard(slot)
        self._clients.discard(slot)
        self._candidates.discard(slot)

    def _count_in(self, slot: Slot) -> None:
        self._groups.setdefault(slot.group, _Group()).slots[slot] = None
        self._clients_count += not slot.is_candidate

    def _count_out(self, slot: Slot) -> None:
        group = self._groups[slot.group]
        del group.slots[slot]
        if not group.slots:
            del self._groups[slot.group]
        self._clients_count -= not slot.is_candidate

    def _leave_broker(self, slot: Slot) -> None:
        assert slot.broker is not None
        of_broker = self._identified[slot.broker]
        del of_broker[slot]
        if not of_broker:
            del self._identified[slot.broker]
        slot.broker = None

    def _full(self) -> PeerRejected:
        return PeerRejected(
            "connections",
            f"{len(self._slots)} connections are open, at most {self._max} are allowed and {self.reserved} of these "
            "are reserved for brokers: close connections, or raise kafka.max-connections",
        )

    def _full_of(self, group: str, limit: int) -> PeerRejected:
        return PeerRejected(
            "connections_per_address",
            f"{limit} connections of {group} are open, the limit of one address: close "
            "some, or raise kafka.max-connections-per-ip, or its override for the address",
        )
