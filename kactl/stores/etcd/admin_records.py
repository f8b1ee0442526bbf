"""Admin requests, features, maintenance, producer ids and notifications."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from kactl.model import NO_BROKER, Features, Fence, Maintenance, ProducerIdBlock, TopicPartition
from kactl.model.errors import RequestWaits, StoreDamaged, StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Notification
from kactl.stores.formats import admin_records, records

from . import messages
from .client import OPERATIONS_DEFAULT, Client, batches
from .keys import Interval, name_in
from .messages import DeleteRange, KeyValue, Put, Range
from .topics import bounded

log = logger(__name__)

# At 300 bytes for the longest names, well below what one value may hold.
PARTITIONS_PER_NOTIFICATION: Final = 3_000
_KEY_BITS: Final = 128

_Request = TypeVar("_Request")


class AdminRecords:
    """These records of one cluster.

    Args:
        unreadable_requests: receives the keys of requests that cannot be read, whose repair is to be reported.
        rng: draws the keys of notifications.
    """

    def __init__(self, client: Client, unreadable_requests: set[bytes], rng: random.Random) -> None:
        self._client = client
        self._unreadable_requests = unreadable_requests
        self._rng = rng

    # -- admin requests

    async def request_reassignment(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        data = admin_records.encode_reassignment(targets)
        await self._create_request(self._client.keys.reassignment_request, data, "reassignments")

    async def reassignment_request(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        key = self._client.keys.reassignment_request
        return await self._request(key, admin_records.decode_reassignment, {})

    async def set_reassignment_request(self, targets: Mapping[TopicPartition, tuple[int, ...]], fence: Fence) -> None:
        key = self._client.keys.reassignment_request
        data = admin_records.encode_reassignment(targets)
        await self._client.fenced(fence, [], [Put(key, bounded("partitions", data)) if targets else DeleteRange(key)])

    async def request_preferred_election(self, partitions: Collection[TopicPartition]) -> None:
        data = admin_records.encode_preferred_election(list(dict.fromkeys(partitions)))
        await self._create_request(self._client.keys.preferred_election_request, data, "preferred elections")

    async def preferred_election_request(self) -> list[TopicPartition] | None:
        key = self._client.keys.preferred_election_request
        return await self._request(key, admin_records.decode_preferred_election, [])

    async def delete_preferred_election_request(self, fence: Fence) -> None:
        await self._client.fenced(fence, [], [DeleteRange(self._client.keys.preferred_election_request)])

    async def _create_request(self, key: bytes, data: bytes, description: str) -> None:
        compare = [messages.created_at(key, 0)]
        if not (await self._client.txn(compare, [Put(key, bounded("partitions", data))])).succeeded:
            raise RequestWaits(description)

    async def _request(
        self, key: bytes, decode: Callable[[bytes | None], _Request], nothing: _Request
    ) -> _Request | None:
        stored = await self._client.get(key)
        if stored is None:
            return None
        try:
            return decode(stored.value)
        except records.Malformed as error:
            log.warning("%s is not a valid request and is ignored until it is repaired: %s", key.decode(), error)
            self._unreadable_requests.add(key)
            return nothing

    # -- features

    async def features(self) -> Features | None:
        key = self._client.keys.features
        stored = await self._client.get(key)
        if stored is None:
            return None
        try:
            return admin_records.decode_features(stored.value, stored.version - 1)
        except records.Malformed as error:
            remedy = "restore its content, or delete it if the cluster has never finalized a feature"
            raise _damaged(key, error, remedy) from None

    async def write_features(self, features: Features, fence: Fence) -> Features:
        key = self._client.keys.features
        put = Put(key, admin_records.encode_features(features))
        response = await self._client.fenced(fence, [], [put, Range(key, keys_only=True)])
        if not response.succeeded:
            raise StoreError("the features could not be written")
        version = messages.read(response, 1)[0].version - 1
        return Features(features.levels, enabled=features.enabled, format=features.format, version=version)

    async def write_maintenance(self, maintenance: Maintenance, fence: Fence) -> None:
        put = Put(self._client.keys.maintenance, bounded("maintenance", admin_records.encode_maintenance(maintenance)))
        await self._client.fenced(fence, [], [put])

    # -- producer ids

    async def producer_ids(self) -> tuple[ProducerIdBlock | None, int]:
        """See `Store.producer_ids`. Nothing has to be created: a missing key has the version 0."""
        key = self._client.keys.producer_ids
        stored = await self._client.get(key)
        if stored is None:
            return None, 0
        try:
            return admin_records.decode_producer_ids(stored.value), stored.version
        except records.Malformed as error:
            remedy = "write the last allocated block into it, or delete it if no producer id was ever allocated"
            raise _damaged(key, error, remedy) from None

    async def write_producer_ids(self, block: ProducerIdBlock, *, expected: int) -> bool:
        key = self._client.keys.producer_ids
        put = Put(key, admin_records.encode_producer_ids(block))
        return (await self._client.txn([messages.version_is(key, expected)], [put])).succeeded

    # -- notifications

    async def notify_isr(self, partitions: Sequence[TopicPartition]) -> None:
        keys = self._client.keys
        for part in batches(partitions, PARTITIONS_PER_NOTIFICATION):
            await self._notify(keys.isr_notifications, records.encode_isr_notification(part))

    async def notify_log_dir(self, broker: int) -> None:
        await self._notify(self._client.keys.log_dir_notifications, records.encode_log_dir_notification(broker))

    async def _notify(self, interval: Interval, data: bytes) -> None:
        key = interval.begin + b"%032x" % self._rng.getrandbits(_KEY_BITS)
        await self._client.txn([], [Put(key, data)])

    async def isr_notifications(self) -> list[Notification]:
        """Returns the notifications in the order of their creation. A malformed one names no partitions."""

        def decode(kv: KeyValue) -> Notification:
            return Notification(_text(kv.key), partitions=records.decode_isr_notification(kv.value))

        return await self._notifications(self._client.keys.isr_notifications, decode)

    async def log_dir_notifications(self) -> list[Notification]:
        """Returns the notifications in the order of their creation. A malformed one names no broker."""

        def decode(kv: KeyValue) -> Notification:
            return Notification(_text(kv.key), broker=records.decode_log_dir_notification(kv.value))

        return await self._notifications(self._client.keys.log_dir_notifications, decode)

    async def _notifications(
        self, interval: Interval, decode: Callable[[KeyValue], Notification]
    ) -> list[Notification]:
        found = []
        for kv in await self._client.read_interval(interval, by_creation=True):
            try:
                found.append(decode(kv))
            except records.Malformed as error:
                log.warning("notification %s is malformed and names nothing: %s", name_in(interval, kv.key), error)
                found.append(Notification(_text(kv.key), broker=NO_BROKER))
        return found

    async def delete_notifications(self, notifications: Sequence[Notification], fence: Fence) -> None:
        for part in batches(notifications, OPERATIONS_DEFAULT) or [[]]:
            await self._client.fenced(fence, [], [DeleteRange(_key(one)) for one in part])


def _text(key: bytes) -> str:
    """Returns the key of a notification as text. Another program may have written one that is not UTF-8."""
    return key.decode(errors="surrogateescape")


def _key(notification: Notification) -> bytes:
    return notification.key.encode(errors="surrogateescape")


def _damaged(key: bytes, error: records.Malformed, remedy: str) -> StoreDamaged:
    log.error("%s is malformed and is left unchanged: %s", key.decode(), error)
    return StoreDamaged(key.decode(), str(error), remedy)
