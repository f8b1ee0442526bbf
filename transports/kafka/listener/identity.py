"""Identification of brokers on a listener that does not authenticate.

A connection is identified as a broker's by two facts together:

* its source address is one under which that broker is registered (the hosts of its endpoints, resolved), or is in one
  of `kafka.broker-networks`;
* a request on it names that broker's id with the epoch of its present registration.

This is not authentication. A process on the address of a broker that knows the broker's epoch (the id of the
transaction of its registration, which ZooKeeper shows to its clients) counts as that broker, and takes from what is
kept for that broker alone: its part of the memory pool and of the connections. A process on that address which does
not know the epoch has what clients have, and may take the place of connections from the same address that are not
identified yet.
"""

import asyncio
import contextlib
import ipaddress
import socket
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import anyio
import anyio.to_thread

from kactl.errors import MalformedMessage
from kactl.model import NO_EPOCH, Broker
from kactl.runtime.logs import logger

from .api_keys import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, CONTROLLED_SHUTDOWN
from .frames import Head
from .schema import STRING, Elements, Reader

log = logger(__name__)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Requests that begin with the broker's id and epoch: the first version that has the epoch, and the first flexible one.
_BROKER_REQUESTS: Final = {CONTROLLED_SHUTDOWN: (2, 3), ALTER_PARTITION: (0, 0), ALLOCATE_PRODUCER_IDS: (0, 0)}
# Client id, tagged fields, id and epoch fit in here, unless the client id is no broker's: these have some 20 bytes.
PREFIX_SIZE: Final = 1024
# How often registrations are looked at, and how long an address that a name resolved to is used.
_REFRESH_S: Final = 1.0
_RESOLVED_S: Final = 60.0
_LOOK_AGAIN_S: Final = 0.02
_RESOLVE_TIMEOUT_S: Final = 5.0
# Threads that resolve names; a resolver that hangs must not take those of others.
_RESOLVERS: Final = 4
# Registrations are brokers', and a broker has a handful of endpoints: 1,000 names are 300 brokers.
_NAMES_MAX: Final = 1000


class Claim(NamedTuple):
    """A broker's id, and the epoch of its registration."""

    broker: int
    epoch: int


def is_broker_request(key: int) -> bool:
    return key in _BROKER_REQUESTS


def claim_of(head: Head, prefix: bytes) -> Claim | None:
    """The broker and epoch that a request names; None if it names none, or cannot be read."""
    first, flexible = _BROKER_REQUESTS[head.key]
    if head.version < first:
        return None
    reader = Reader(prefix, flexible=False, elements=Elements(PREFIX_SIZE))
    try:
        STRING.read(reader)
        if head.version >= flexible:
            reader.tags()
        claim = Claim(reader.int32(), reader.int64())
    except MalformedMessage:
        return None
    return None if claim.epoch == NO_EPOCH else claim


def plain_address(host: str) -> str:
    """An address in its usual form, an IPv4 address in IPv6 as IPv4; anything else as it is."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


class BrokerAddresses:
    """From where the registered brokers connect.

    Args:
        brokers: the registered ones, at each call; none while another instance is the controller.
        networks: from which brokers connect besides the addresses that they are registered under.
        clock: in seconds.
    """

    def __init__(
        self,
        brokers: Callable[[], Iterable[Broker]],
        networks: Iterable[Network] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._brokers = brokers
        self._networks = tuple(networks)
        self._live: dict[int, Broker] = {}
        self._resolved: dict[str, tuple[float, frozenset[str]]] = {}
        self._all: frozenset[str] = frozenset()
        self._looked_s = -_LOOK_AGAIN_S
        self._clock = clock
        self._limiter: anyio.CapacityLimiter | None = None

    @property
    def count(self) -> int:
        """How many brokers are registered, as of the last look."""
        return len(self._live)

    def __contains__(self, address: object) -> bool:
        """Whether a registered broker connects from here. Networks count only while a broker is registered."""
        return address in self._all or (bool(self._live) and self._in_networks(str(address)))

    def is_live(self, claim: Claim) -> bool:
        """Whether that is the registration that a broker has, as of the last look."""
        broker = self._live.get(claim.broker)
        return broker is not None and broker.epoch == claim.epoch

    def proves(self, address: str, claim: Claim) -> bool:
        """Whether a claim is a registered broker's, and comes from where that broker is."""
        if not self.is_live(claim):
            # A broker that has just registered; claims that are made up do not cost a look each.
            if self._clock() - self._looked_s >= _LOOK_AGAIN_S:
                self.look()
            if not self.is_live(claim):
                return False
        hosts = {endpoint.host for endpoint in self._live[claim.broker].endpoints}
        return any(address in self._addresses(host) for host in hosts) or self._in_networks(address)

    def look(self) -> None:
        """Take over the present registrations; names that are new count once they are resolved."""
        self._looked_s = self._clock()
        self._live = {broker.id: broker for broker in self._brokers()}
        self._all = frozenset().union(*(self._addresses(host) for host in self._hosts()))

    async def refresh(self) -> None:
        """The same, and resolve what has to be. A name that cannot be resolved keeps its last addresses."""
        self.look()
        now_s = self._clock()
        hosts = self._hosts()
        self._resolved = {host: found for host, found in self._resolved.items() if host in hosts}
        due = [
            host
            for host in hosts
            if not _is_literal(host) and (host not in self._resolved or now_s - self._resolved[host][0] > _RESOLVED_S)
        ]
        if due:
            await asyncio.gather(*map(self._resolve, due))
            self.look()

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            try:
                await self.refresh()
            except Exception:
                log.exception("the addresses of the registered brokers cannot be refreshed; the last ones are used")
            await asyncio.sleep(_REFRESH_S)

    def _hosts(self) -> set[str]:
        hosts = sorted({endpoint.host for broker in self._live.values() for endpoint in broker.endpoints})
        return set(hosts[:_NAMES_MAX])

    def _addresses(self, host: str) -> frozenset[str]:
        if _is_literal(host):
            return frozenset((plain_address(host),))
        return self._resolved.get(host, (0.0, frozenset()))[1]

    def _in_networks(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)

    async def _resolve(self, host: str) -> None:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_RESOLVERS)
        found: frozenset[str] | None = None
        with anyio.move_on_after(_RESOLVE_TIMEOUT_S), contextlib.suppress(OSError, UnicodeError):
            found = await anyio.to_thread.run_sync(_look_up, host, limiter=self._limiter, abandon_on_cancel=True)
        before = self._resolved.get(host, (0.0, frozenset[str]()))[1]
        if found is None:
            log.debug("the name %s of a broker cannot be resolved", host)
        # A failure counts as long as a success: the resolver is not called at each look.
        self._resolved[host] = (self._clock(), before if found is None else found)


def _look_up(host: str) -> frozenset[str]:
    return frozenset(plain_address(str(found[4][0])) for found in socket.getaddrinfo(host, None))


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
