"""The finalized features, and the last allocated block of producer ids.

A malformed node is never overwritten: its content cannot be recovered from anywhere else.

Source: FeatureZNode, ProducerIdBlockZNode; KafkaController.enableFeatureVersioning, ZkProducerIdManager.
"""

from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, ZookeeperError

from kactl.model import NO_VERSION, Features, Fence, ProducerIdBlock
from kactl.model.errors import StoreDamaged, StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Outcome
from kactl.stores.formats import admin_records, records

from . import fenced_writes, layout, request
from .client import Client

log = logger(__name__)

# Each attempt fails only if another client writes at that moment.
TRIES_MAX: Final = 10


async def read(client: Client) -> Features | None:
    """See `Store.features`."""
    node = await client.ask(client.get(layout.FEATURES))
    if isinstance(node, NoNodeError):
        return None
    data, stat = _content(layout.FEATURES, node)
    try:
        return admin_records.decode_features(data, stat.version)
    except records.Malformed as error:
        remedy = "restore its content, or delete it if the cluster has never finalized a feature"
        raise _damaged(layout.FEATURES, error, remedy) from None


async def write(client: Client, features: Features, fence: Fence) -> Features:
    """See `Store.write_features`.

    Returns:
        the features, with the version of the written node.
    """
    data = admin_records.encode_features(features)
    for _ in range(TRIES_MAX):
        stat = await client.ask(client.exists(layout.FEATURES))
        if isinstance(stat, ZookeeperError):
            raise StoreError(f"{layout.FEATURES} could not be read: {stat!r}")
        expected = NO_VERSION if stat is None else stat.version
        op = (
            fenced_writes.create(layout.FEATURES, data)
            if stat is None
            else fenced_writes.put(layout.FEATURES, data, expected)
        )
        (outcome,) = await fenced_writes.commit(client, [[op]], fence, batch=1)
        if outcome == Outcome.COMMITTED:
            return Features(features.levels, enabled=features.enabled, format=features.format, version=expected + 1)
        if outcome == Outcome.FAILED:
            raise StoreError(f"{layout.FEATURES} could not be written: check its permissions")
    raise StoreError(f"{layout.FEATURES} could not be written: another client keeps writing it; try again")


async def producer_ids(client: Client) -> tuple[ProducerIdBlock | None, int]:
    """See `Store.producer_ids`. A missing node is created without data, as brokers create it."""
    node = await client.ask(client.get(layout.PRODUCER_IDS))
    if isinstance(node, NoNodeError):
        created = await client.ask(client.create(layout.PRODUCER_IDS, None))
        if isinstance(created, ZookeeperError) and not isinstance(created, NodeExistsError):
            raise StoreError(f"{layout.PRODUCER_IDS} could not be created: {created!r}")
        node = await client.ask(client.get(layout.PRODUCER_IDS))
    data, stat = _content(layout.PRODUCER_IDS, node)
    if data is None:
        return None, stat.version
    try:
        return admin_records.decode_producer_ids(data), stat.version
    except records.Malformed as error:
        remedy = "write the last allocated block into it, or delete it if no producer id was ever allocated"
        raise _damaged(layout.PRODUCER_IDS, error, remedy) from None


async def write_producer_ids(client: Client, block: ProducerIdBlock, *, expected: int) -> bool:
    """See `Store.write_producer_ids`. A write that succeeded before its connection broke counts as successful."""
    path, data = layout.PRODUCER_IDS, admin_records.encode_producer_ids(block)
    responses = await client.ask_all([request.put(client.path(path), data, expected)])
    result = responses.results[0]
    if isinstance(result, BadVersionError | NoNodeError):
        if not responses.repeated:
            return False
        (node,) = await client.read_all([path])
        return not isinstance(node, ZookeeperError) and (node[0], node[1].version) == (data, expected + 1)
    if isinstance(result, ZookeeperError):
        raise StoreError(f"{path} could not be written: {result!r}")
    return True


def _content(path: str, node: Any) -> tuple[bytes | None, Any]:
    if isinstance(node, ZookeeperError):
        raise StoreError(f"{path} could not be read: {node!r}")
    data, stat = node
    return data, stat


def _damaged(path: str, error: records.Malformed, remedy: str) -> StoreDamaged:
    log.error("%s is malformed and is left unchanged: %s", path, error)
    return StoreDamaged(path, str(error), remedy)
