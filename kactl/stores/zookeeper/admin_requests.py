"""Admin requests, stored by Kafka's older tools until the controller deletes them.

Source: KafkaZkClient.createPartitionReassignment, setOrCreatePartitionReassignment, getPartitionReassignment,
createPreferredReplicaElection, deletePreferredReplicaElection.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from kazoo.exceptions import NodeExistsError, NoNodeError, ZookeeperError

from kactl.model import Fence, TopicPartition
from kactl.model.errors import BadRequest, RequestWaits, StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Outcome
from kactl.stores.formats import admin_records, records

from . import fenced_writes, layout
from .client import Client
from .topic_node import NODE_BYTES_MAX
from .watches import Kind, Watches, ask

log = logger(__name__)

Targets = Mapping[TopicPartition, tuple[int, ...]]

# Each attempt fails only if another client creates or deletes the node at that moment.
TRIES_MAX: Final = 10

_Request = TypeVar("_Request")


async def request_reassignment(client: Client, targets: Targets) -> None:
    """See `Store.request_reassignment`."""
    await _create(client, layout.REASSIGNMENT_REQUEST, admin_records.encode_reassignment(targets), "reassignments")


async def reassignment(client: Client, watches: Watches | None) -> dict[TopicPartition, tuple[int, ...]] | None:
    """See `Store.reassignment_request`."""
    return await _read(client, layout.REASSIGNMENT_REQUEST, watches, admin_records.decode_reassignment, {})


async def set_reassignment(client: Client, targets: Targets, fence: Fence) -> None:
    """See `Store.set_reassignment_request`."""
    path = layout.REASSIGNMENT_REQUEST
    if not targets:
        await _delete(client, path, fence)
        return
    data = _bounded(admin_records.encode_reassignment(targets))
    for _ in range(TRIES_MAX):
        for op in (fenced_writes.put(path, data), fenced_writes.create(path, data)):
            (outcome,) = await fenced_writes.commit(client, [[op]], fence, batch=1)
            if outcome == Outcome.COMMITTED:
                return
            if outcome == Outcome.FAILED:
                raise StoreError(f"{path} could not be written: check its permissions")
    raise StoreError(f"{path} could not be written: another client keeps creating and deleting it; try again")


async def request_preferred_election(client: Client, partitions: Collection[TopicPartition]) -> None:
    """See `Store.request_preferred_election`."""
    data = admin_records.encode_preferred_election(list(dict.fromkeys(partitions)))
    await _create(client, layout.PREFERRED_ELECTION_REQUEST, data, "preferred elections")


async def preferred_election(client: Client, watches: Watches | None) -> list[TopicPartition] | None:
    """See `Store.preferred_election_request`."""
    return await _read(client, layout.PREFERRED_ELECTION_REQUEST, watches, admin_records.decode_preferred_election, [])


async def delete_preferred_election(client: Client, fence: Fence) -> None:
    """See `Store.delete_preferred_election_request`."""
    await _delete(client, layout.PREFERRED_ELECTION_REQUEST, fence)


async def _create(client: Client, path: str, data: bytes, description: str) -> None:
    responses = await client.ask_all([client.create(path, _bounded(data))])
    result = responses.results[0]
    if isinstance(result, NodeExistsError):
        if responses.repeated:
            (node,) = await client.read_all([path])
            if not isinstance(node, ZookeeperError) and node[0] == data:
                return  # written before the connection broke
        raise RequestWaits(description)
    if isinstance(result, ZookeeperError):
        raise StoreError(f"{path} could not be created: {result!r}")


def _bounded(data: bytes) -> bytes:
    """Reject data that is too large: a server would close the connection, at each attempt."""
    if len(data) > NODE_BYTES_MAX:
        reason = (
            f"they make a node of {len(data)} bytes, and ZooKeeper accepts {NODE_BYTES_MAX}: request fewer at a time"
        )
        raise BadRequest("partitions", reason)
    return data


async def _read(
    client: Client, path: str, watches: Watches | None, decode: Callable[[bytes | None], _Request], nothing: _Request
) -> _Request | None:
    requests: list[Any] = [client.exists(path, watch=watches is not None), client.get(path)]
    _, node = await ask(client, watches, requests, [(path, Kind.DATA)])
    if isinstance(node, NoNodeError):
        return None
    if isinstance(node, ZookeeperError):
        raise StoreError(f"{path} could not be read: {node!r}")
    try:
        return decode(node[0])
    except records.Malformed as error:
        log.warning("%s is not a valid request and is ignored until it is repaired: %s", path, error)
        if watches is not None:
            watches.record_read(path, Kind.DATA, None)  # so that the next content counts as a new request
        return nothing


async def _delete(client: Client, path: str, fence: Fence) -> None:
    (outcome,) = await fenced_writes.commit(client, [[fenced_writes.delete(path)]], fence, batch=1)
    if outcome != Outcome.COMMITTED:
        raise StoreError(f"{path} could not be deleted: check its children and its permissions")
