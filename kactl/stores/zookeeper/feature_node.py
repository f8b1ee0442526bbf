"""The finalized features, and the block of producer ids that was given away last.

An entry that makes no sense is never overwritten: what it said cannot be told any more by anybody else.

Source: FeatureZNode, ProducerIdBlockZNode; KafkaController.enableFeatureVersioning, ZkProducerIdManager.
"""

from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, ZookeeperError

from kactl.errors import StoreDamaged, StoreError
from kactl.model import NO_VERSION, Features, Fence, ProducerIdBlock
from kactl.runtime.logs import logger
from kactl.stores.base import Outcome

from . import admin_layout, fenced_writes, layout, request
from .client import Client

log = logger(__name__)

# Each try fails only if somebody else writes at that moment.
TRIES_MAX: Final = 10


async def read(client: Client) -> Features | None:
    """See `Store.features`."""
    node = await client.ask(client.get(layout.FEATURES))
    if isinstance(node, NoNodeError):
        return None
    data, stat = _found(layout.FEATURES, node)
    try:
        return admin_layout.decode_features(data, stat.version)
    except layout.Malformed as error:
        remedy = "put back what stood there, or delete it if the cluster never agreed on any feature"
        raise _damaged(layout.FEATURES, error, remedy) from None


async def write(client: Client, features: Features, fence: Fence) -> Features:
    """See `Store.write_features`.

    Returns:
        them, with the version of the node as we wrote it.
    """
    data = admin_layout.encode_features(features)
    for _ in range(TRIES_MAX):
        stat = await client.ask(client.exists(layout.FEATURES))
        if isinstance(stat, ZookeeperError):
            raise StoreError(f"{layout.FEATURES} could not be looked at: {stat!r}")
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
            raise StoreError(f"{layout.FEATURES} could not be written: see who may write it")
    raise StoreError(f"{layout.FEATURES} could not be written: somebody writes it all the time; try again")


async def producer_ids(client: Client) -> tuple[ProducerIdBlock | None, int]:
    """See `Store.producer_ids`. A node that is missing is made without data, as brokers make it."""
    node = await client.ask(client.get(layout.PRODUCER_IDS))
    if isinstance(node, NoNodeError):
        made = await client.ask(request.create(client.path(layout.PRODUCER_IDS), None))
        if isinstance(made, ZookeeperError) and not isinstance(made, NodeExistsError):
            raise StoreError(f"{layout.PRODUCER_IDS} could not be made: {made!r}")
        node = await client.ask(client.get(layout.PRODUCER_IDS))
    data, stat = _found(layout.PRODUCER_IDS, node)
    if data is None:
        return None, stat.version
    try:
        return admin_layout.decode_producer_ids(data), stat.version
    except layout.Malformed as error:
        remedy = "write the last block that was given away into it, or delete it if no producer id ever was"
        raise _damaged(layout.PRODUCER_IDS, error, remedy) from None


async def write_producer_ids(client: Client, block: ProducerIdBlock, *, expected: int) -> bool:
    """See `Store.write_producer_ids`. A write that was done before its connection broke counts as done."""
    path, data = layout.PRODUCER_IDS, admin_layout.encode_producer_ids(block)
    responses = await client.ask_all([request.put(client.path(path), data, expected)])
    result = responses.results[0]
    if isinstance(result, BadVersionError | NoNodeError):
        if not responses.repeated:
            return False
        (found,) = await client.read_all([path])
        return not isinstance(found, ZookeeperError) and (found[0], found[1].version) == (data, expected + 1)
    if isinstance(result, ZookeeperError):
        raise StoreError(f"{path} could not be written: {result!r}")
    return True


def _found(path: str, node: Any) -> tuple[bytes | None, Any]:
    if isinstance(node, ZookeeperError):
        raise StoreError(f"{path} could not be read: {node!r}")
    data, stat = node
    return data, stat


def _damaged(path: str, error: layout.Malformed, remedy: str) -> StoreDamaged:
    log.error("%s is not what it should be, and is left as it is: %s", path, error)
    return StoreDamaged(path, str(error), remedy)
