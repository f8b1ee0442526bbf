"""Notifications from brokers to the controller: partitions with a written ISR, and brokers with a failed directory.

Source: KafkaZkClient.propagateIsrChanges, propagateLogDirEvent, deleteIsrChangeNotifications.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.exceptions import NoNodeError, ZookeeperError

from kactl.model import Fence, TopicPartition
from kactl.model.errors import StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Notification, Outcome
from kactl.stores.formats import records

from . import fenced_writes, layout, topic_node
from .client import Client
from .watches import Watches

log = logger(__name__)

# At 300 bytes for the longest names, well below the 1 MB that a node may hold.
PARTITIONS_MAX: Final = 3_000


async def notify_isr(client: Client, partitions: Sequence[TopicPartition]) -> None:
    blocks = [partitions[begin : begin + PARTITIONS_MAX] for begin in range(0, len(partitions), PARTITIONS_MAX)]
    path = f"{layout.ISR_NOTIFICATIONS}/{layout.ISR_NOTIFICATION_PREFIX}"
    await _create(client, path, [records.encode_isr_notification(block) for block in blocks])


async def notify_log_dir(client: Client, broker: int) -> None:
    path = f"{layout.LOG_DIR_NOTIFICATIONS}/{layout.LOG_DIR_NOTIFICATION_PREFIX}"
    await _create(client, path, [records.encode_log_dir_notification(broker)])


async def _create(client: Client, path: str, notices: Sequence[bytes]) -> None:
    """Create notifications. One that was lost with its connection may be created twice, which is harmless."""
    responses = await client.ask_all([client.create(path, data, sequential=True) for data in notices])
    for result in responses.results:
        if isinstance(result, ZookeeperError):
            raise StoreError(f"nothing could be written under {path}: {result!r}")


async def isr(client: Client, watches: Watches | None) -> list[Notification]:
    """Returns the notifications in the order of their creation. A malformed one names no partitions."""

    def decode(key: str, data: bytes | None) -> Notification:
        return Notification(key, partitions=records.decode_isr_notification(data))

    return await _list(client, layout.ISR_NOTIFICATIONS, layout.ISR_NOTIFICATION_PREFIX, watches, decode)


async def log_dir(client: Client, watches: Watches | None) -> list[Notification]:
    """Returns the notifications in the order of their creation. A malformed one names no broker."""

    def decode(key: str, data: bytes | None) -> Notification:
        return Notification(key, broker=records.decode_log_dir_notification(data))

    return await _list(client, layout.LOG_DIR_NOTIFICATIONS, layout.LOG_DIR_NOTIFICATION_PREFIX, watches, decode)


async def _list(
    client: Client,
    parent: str,
    prefix: str,
    watches: Watches | None,
    decode: Callable[[str, bytes | None], Notification],
) -> list[Notification]:
    keys = []
    for name in await topic_node.names(client, parent, watches):
        if name.startswith(prefix):
            keys.append(f"{parent}/{name}")
        else:
            log.warning("%s/%s is not a notification and is ignored", parent, name)
    notifications: list[Notification] = []
    for key, node in zip(keys, await client.read_all(keys), strict=True):
        if isinstance(node, NoNodeError):
            continue
        notifications.append(_read(key, node, decode))
    return notifications


def _read(key: str, node: Any, decode: Callable[[str, bytes | None], Notification]) -> Notification:
    if isinstance(node, ZookeeperError):
        raise StoreError(f"{key} could not be read: {node!r}")
    try:
        return decode(key, node[0])
    except records.Malformed as error:
        log.warning("%s is malformed and names nothing: %s", key, error)
        return Notification(key)


async def remove(client: Client, notifications: Sequence[Notification], fence: Fence, *, batch: int) -> None:
    """Delete notifications; see `Store.delete_notifications`. A notification's key is its path."""
    groups = [[fenced_writes.delete(notification.key)] for notification in notifications]
    outcomes = await fenced_writes.commit(client, groups, fence, batch=batch)
    left = [one.key for one, outcome in zip(notifications, outcomes, strict=True) if outcome != Outcome.COMMITTED]
    if left:
        raise StoreError(f"{len(left)} notifications could not be deleted, the first is {left[0]}")
