"""Identification of brokers on a listener that does not authenticate.

A connection is identified as a broker's by two facts together:

* its source address is one under which that broker is registered (the resolved hosts of its endpoints), or belongs to
  one of `kafka.broker-networks`;
* a request on it contains that broker's id and the epoch of its current registration.

Requests of brokers are accepted only from the first: whoever connects from elsewhere cannot drain a broker, or take its
producer ids.

This is not authentication. A process on the address of a broker that knows the broker's epoch (the transaction id of
its registration, which ZooKeeper shows to its clients) is treated as that broker, and uses only the resources reserved
for that broker: its part of the memory pool and of the connections. A process on that address which does not know the
epoch has the limits of a client, and may replace connections from the same address that are not identified yet.
"""

import asyncio
import contextlib
import ipaddress
import logging
import struct
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kactl.model import NO_EPOCH, Broker
from kactl.model.errors import MalformedMessage
from kactl.runtime.addresses import plain_address
from kactl.runtime.conditions import FailureLog
from kactl.runtime.logs import logger
from kactl.runtime.resolver import is_numeric, resolve

from .api_keys import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, CONTROLLED_SHUTDOWN
from .field_types import Elements, body_begin
from .frames import Head

log = logger(__name__)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Requests that begin with the broker's id and epoch: the first version with the epoch, and the first flexible one.
_BROKER_REQUESTS: Final = {CONTROLLED_SHUTDOWN: (2, 3), ALTER_PARTITION: (0, 0), ALLOCATE_PRODUCER_IDS: (0, 0)}
# Client id, tagged fields, broker id and epoch fit into this size: the client id of a broker has about 20 bytes.
PREFIX_SIZE: Final = 1024
_CLAIM: Final = struct.Struct(">iq")
# Interval between two refreshes of the registrations, and the time for which a resolved address is used.
_REFRESH_S: Final = 1.0
_RESOLVED_S: Final = 60.0
_UPDATE_INTERVAL_S: Final = 0.02
_RESOLVE_TIMEOUT_S: Final = 5.0
# A broker has a handful of endpoints: 1,000 names are about 300 brokers.
_NAMES_MAX: Final = 1000


class Claim(NamedTuple):
    """A broker's id, and the epoch of its registration."""

    broker: int
    epoch: int


def is_broker_request(key: int) -> bool:
    return key in _BROKER_REQUESTS


def claim_of(head: Head, prefix: bytes) -> Claim | None:
    """Returns the broker and epoch that a request contains; None if it contains none, or is malformed."""
    first, flexible = _BROKER_REQUESTS[head.key]
    if head.version < first:
        return None
    try:
        begin = body_begin(prefix, Elements(PREFIX_SIZE), has_tags=head.version >= flexible)
        claim = Claim(*_CLAIM.unpack_from(prefix, begin))
    except (MalformedMessage, struct.error):
        return None
    return None if claim.epoch == NO_EPOCH else claim


class BrokerAddresses:
    """The addresses from which the registered brokers connect.

    Args:
        brokers: returns the registered brokers; none while another instance is active.
        networks: networks from which brokers connect besides the addresses that they are registered under.
        clock: returns the time in seconds.
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
        self._updated_s = -_UPDATE_INTERVAL_S
        self._clock = clock

    @property
    def count(self) -> int:
        """The number of registered brokers, as of the last update."""
        return len(self._live)

    def __contains__(self, address: object) -> bool:
        """Returns whether a registered broker may connect from an address.

        Networks count only while a broker is registered.
        """
        return address in self._all or (bool(self._live) and self._in_networks(str(address)))

    def is_live(self, claim: Claim) -> bool:
        """Returns whether the claim is a broker's current registration, as of the last update."""
        broker = self._live.get(claim.broker)
        return broker is not None and broker.epoch == claim.epoch

    def proves(self, address: str, claim: Claim) -> bool:
        """Returns whether a claim is a broker's current registration, and the address is one of that broker."""
        if not self.is_live(claim):
            # The broker may have just registered; the interval bounds the updates that false claims cause.
            if self._clock() - self._updated_s >= _UPDATE_INTERVAL_S:
                self.update()
            if not self.is_live(claim):
                return False
        hosts = {endpoint.host for endpoint in self._live[claim.broker].endpoints}
        return any(address in self._addresses(host) for host in hosts) or self._in_networks(address)

    def may_be(self, address: str, broker: int) -> bool:
        """Returns whether a broker may connect from an address: one that it is registered under, or of a network.

        True also if the broker is not registered, which the controller's answer says, and while its names have not been
        looked up yet.
        """
        if broker not in self._live and self._clock() - self._updated_s >= _UPDATE_INTERVAL_S:
            self.update()
        known = self._live.get(broker)
        if known is None or self._in_networks(address):
            return True
        hosts = {endpoint.host for endpoint in known.endpoints}
        return any(
            address in self._addresses(host) or not (is_numeric(host) or host in self._resolved) for host in hosts
        )

    def update(self) -> None:
        """Read the current registrations; new host names count once they are resolved."""
        self._updated_s = self._clock()
        self._live = {broker.id: broker for broker in self._brokers()}
        self._all = frozenset().union(*(self._addresses(host) for host in self._hosts()))

    async def refresh(self) -> None:
        """Update, and resolve names that are new or expired. If that fails, the last addresses are kept."""
        self.update()
        now_s = self._clock()
        hosts = self._hosts()
        self._resolved = {host: entry for host, entry in self._resolved.items() if host in hosts}
        due = [
            host
            for host in hosts
            if not is_numeric(host) and (host not in self._resolved or now_s - self._resolved[host][0] > _RESOLVED_S)
        ]
        if due:
            await asyncio.gather(*map(self._resolve, due))
            self.update()

    async def run(self) -> None:
        """Refresh until cancelled."""
        failures = FailureLog(log)
        while True:
            try:
                await self.refresh()
            except Exception as error:
                text = "the addresses of the registered brokers cannot be refreshed; the last ones are used"
                failures.add(logging.ERROR, error, text)
            else:
                failures.end("the addresses of the registered brokers are refreshed again")
            await asyncio.sleep(_REFRESH_S)

    def _hosts(self) -> set[str]:
        hosts = sorted({endpoint.host for broker in self._live.values() for endpoint in broker.endpoints})
        return set(hosts[:_NAMES_MAX])

    def _addresses(self, host: str) -> frozenset[str]:
        if is_numeric(host):
            return frozenset((plain_address(host),))
        return self._resolved.get(host, (0.0, frozenset()))[1]

    def _in_networks(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)

    async def _resolve(self, host: str) -> None:
        addresses: frozenset[str] | None = None
        with contextlib.suppress(OSError):
            found = await resolve(host, 0, limit_s=_RESOLVE_TIMEOUT_S)
            addresses = frozenset(plain_address(each.host) for each in found)
        before = self._resolved.get(host, (0.0, frozenset[str]()))[1]
        if addresses is None:
            log.debug("the name %s of a broker cannot be resolved", host)
        # A failure is cached as long as a success, so that the resolver is not called at each refresh.
        self._resolved[host] = (self._clock(), before if addresses is None else addresses)
