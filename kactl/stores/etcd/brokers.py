"""Broker registrations. The revision at which one was created is the broker epoch.

A registration in a session with the store is attached to the lease of the session; one in a session with the controller
has no lease, and only the controller writes it.
"""

from collections.abc import Sequence
from typing import Final

from kactl.model import Broker, Fence, Maintenance, Membership
from kactl.model.errors import BrokerIdTaken, StoreUnavailable
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.stores.formats import admin_records, registration
from kactl.stores.formats.json_text import Malformed

from . import messages
from .client import Client
from .keys import name_in
from .messages import DeleteRange, KeyValue, Put, Range

log = logger(__name__)

# A write is tried again if the registration has changed since it was read.
_TRIES_MAX: Final = 10
_NO_LEASE: Final = 0


class Brokers:
    """The registrations of one cluster."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def read_all(self) -> dict[int, Broker]:
        """Returns all registrations; unreadable ones are logged and left out."""
        return self._decoded(await self._client.read_interval(self._client.keys.brokers))

    async def membership(self) -> Membership:
        """See `Store.membership`: one transaction reads both."""
        keys = self._client.keys
        kvs, stored = await self._client.read_part([Range(*keys.brokers), Range(keys.maintenance)])
        place = keys.maintenance.decode()
        maintenance = admin_records.decode_maintenance(stored[0].value, place) if stored else Maintenance()
        return Membership(self._decoded(kvs), maintenance)

    def _decoded(self, kvs: Sequence[KeyValue]) -> dict[int, Broker]:
        interval = self._client.keys.brokers
        brokers = []
        for kv in kvs:
            name = name_in(interval, kv.key)
            if not registration.is_broker_id(name):
                log.warning("brokers/%s is no broker", name)
                continue
            broker = _decode(int(name), kv)
            if broker is not None:
                brokers.append(broker)
        return {broker.id: broker for broker in sorted(brokers, key=lambda broker: broker.id)}

    async def read_one(self, number: int) -> Broker | None:
        kv = await self._client.get(self._client.keys.broker(number))
        return None if kv is None else _decode(number, kv)

    # -- written by the controller

    async def register_remote(self, broker: Broker, incarnation: bytes, timeout_ms: int, fence: Fence) -> int:
        """See `Store.register_remote`."""
        key = self._client.keys.broker(broker.id)
        value = registration.encode(broker.in_remote_session(incarnation, timeout_ms), self._clock.now_ms())
        absent = [messages.created_at(key, 0)]
        response = await self._client.fenced(fence, absent, [Put(key, value)], [Range(key)])
        if response.succeeded:
            return response.header.revision
        (kv,) = messages.read(response, 1)
        known = _decode(broker.id, kv)
        if known is None or kv.lease != _NO_LEASE or not known.has_remote_session(incarnation):
            raise BrokerIdTaken(broker.id)
        return known.epoch  # the response to its first write was lost

    async def end_remote(self, number: int, epoch: int, fence: Fence) -> None:
        """See `Store.end_remote`."""
        kv = await self._client.get(self._client.keys.broker(number))
        if kv is None or kv.create_revision != epoch or kv.lease != _NO_LEASE:
            await self._client.check(fence)
            return
        # Without a lease it can only be marked, or removed by this very call.
        await self._client.fenced(fence, [messages.created_at(kv.key, epoch)], [DeleteRange(kv.key)])

    async def evict(self, number: int, epoch: int, fence: Fence) -> None:
        """See `Store.evict`."""
        for _ in range(_TRIES_MAX):
            kv = await self._client.get(self._client.keys.broker(number))
            if kv is None or kv.create_revision != epoch or registration.is_evicted(kv.value):
                await self._client.check(fence)
                return
            put = Put(kv.key, registration.encode_evicted(kv.value), lease=kv.lease)
            same = [messages.written_at(kv.key, kv.mod_revision)]
            if (await self._client.fenced(fence, same, [put])).succeeded:
                return
        raise StoreUnavailable(f"broker {number} could not be evicted: its registration keeps changing")


def _decode(number: int, kv: KeyValue) -> Broker | None:
    try:
        return registration.decode(number, kv.value, kv.create_revision)
    except Malformed as error:
        log.warning("brokers/%d is no registration, the broker is left out: %s", number, error)
        return None
