"""Broker registrations. Their creation transaction is the broker epoch.

A registration is an ephemeral node: of a Kafka broker, or of one of kactl's participants, each in a session of its own.
That of a participant whose session is with the controller is a persistent node, which only the controller writes. The
entry of a controller is no registration; see `controller_entry`.

Source: KafkaZkClient.registerBroker.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, ZookeeperError

from kactl.model import Broker, Fence, Maintenance
from kactl.model.errors import BrokerIdTaken, ControllerMoved, StoreError, StoreUnavailable
from kactl.runtime.logs import logger
from kactl.stores.formats import admin_records
from kactl.stores.formats import registration as format
from kactl.stores.formats.json_text import Malformed
from kactl.stores.formats.registration import decode, is_broker_id

from . import layout, request
from .client import Client
from .watches import Kind, Watches, ask

log = logger(__name__)

# A write is tried again if the registration has changed since it was read.
_TRIES_MAX: Final = 10
_PERSISTENT: Final = 0  # the owner of a node that no session owns


async def read_all(client: Client, watches: Watches | None) -> dict[int, Broker]:
    """Returns all registrations; those that end meanwhile, and unreadable ones, are left out."""
    return decoded(await read_nodes(client, watches))


async def read_with_maintenance(client: Client, watches: Watches | None) -> tuple[dict[int, Any], Maintenance]:
    """Returns what `read_nodes` returns, and the maintenance, which is read together with it."""
    nodes, (node,) = await _read_nodes(client, watches, client.get(layout.MAINTENANCE))
    if isinstance(node, NoNodeError):
        return nodes, Maintenance()
    if isinstance(node, ZookeeperError):
        raise StoreError(f"{layout.MAINTENANCE} could not be read: {node!r}")
    return nodes, admin_records.decode_maintenance(node[0], layout.MAINTENANCE)


async def read_nodes(client: Client, watches: Watches | None) -> dict[int, Any]:
    """Returns (data, stat) or an error for each node of a registration, and of a controller."""
    return (await _read_nodes(client, watches))[0]


async def _read_nodes(client: Client, watches: Watches | None, *others: Any) -> tuple[dict[int, Any], list[Any]]:
    """Returns the nodes, and the results of other reads, which are sent with those of the nodes."""
    watched = watches is not None
    listing = [client.children(layout.BROKERS, watch=watched)]
    (listed,) = await ask(client, watches, listing, [(layout.BROKERS, Kind.CHILDREN)])
    if isinstance(listed, ZookeeperError):
        raise StoreError(f"{layout.BROKERS} could not be listed: {listed!r}")
    ids = sorted(int(name) for name in listed[0] if _is_id(name))
    nodes = await _read(client, ids, watches, *others)
    return dict(zip(ids, nodes, strict=False)), nodes[len(ids) :]


def decoded(nodes: Mapping[int, Any]) -> dict[int, Broker]:
    brokers = {number: _decoded(number, node) for number, node in nodes.items()}
    return {number: broker for number, broker in brokers.items() if broker is not None}


async def read_one(client: Client, number: int, watches: Watches | None) -> Broker | None:
    (node,) = await _read(client, [number], watches)
    return _decoded(number, node)


async def _read(client: Client, ids: Sequence[int], watches: Watches | None, *others: Any) -> list[Any]:
    paths = [layout.broker(number) for number in ids]
    reads = [client.get(path, watch=watches is not None) for path in paths]
    return await ask(client, watches, [*reads, *others], [(path, Kind.DATA) for path in paths])


def _decoded(number: int, node: Any) -> Broker | None:
    path = layout.broker(number)
    if isinstance(node, NoNodeError):
        return None
    if isinstance(node, ZookeeperError):
        raise StoreError(f"{path} could not be read: {node!r}")
    data, stat = node
    if format.is_controller(data):
        return None
    try:
        return decode(number, data, stat.czxid)
    except Malformed as error:
        log.warning("%s is no registration, the broker is left out: %s", path, error)
        return None


def _is_id(name: str) -> bool:
    if not is_broker_id(name):
        log.warning("%s/%s is no broker", layout.BROKERS, name)
        return False
    return True


# -- written by the controller


async def register_remote(
    client: Client, broker: Broker, incarnation: bytes, timeout_ms: int, fence: Fence, *, now_ms: int
) -> int:
    """See `Store.register_remote`."""
    path = client.path(layout.broker(broker.id))
    data = format.encode(broker.in_remote_session(incarnation, timeout_ms), now_ms)
    for _ in range(_TRIES_MAX):
        result = await fenced(client, [request.create(path, None), request.put(path, data, 0)], fence)
        error = request.first_error(result)
        if error is None:
            return int(result[-1].czxid)
        if not isinstance(error, NodeExistsError):
            raise StoreError(f"broker {broker.id} could not be registered: {error!r}")
        # Another registration, or this one: the response to its first write was lost.
        known = await _stored(client, broker.id)
        if known is not None:
            registered, _, stat = known
            if registered.has_remote_session(incarnation) and stat.ephemeralOwner == _PERSISTENT:
                return int(stat.czxid)
            raise BrokerIdTaken(broker.id)
    raise StoreUnavailable(f"broker {broker.id} could not be registered: its registration keeps changing")


async def end_remote(client: Client, number: int, epoch: int, fence: Fence) -> None:
    """See `Store.end_remote`."""
    for _ in range(_TRIES_MAX):
        known = await _stored(client, number)
        if known is None or known[0].epoch != epoch or known[2].ephemeralOwner != _PERSISTENT:
            await _check(client, fence)
            return
        delete = request.delete(client.path(layout.broker(number)), known[2].version)
        if await _written(client, delete, fence):
            return
    raise StoreUnavailable(f"the registration of broker {number} could not be removed: it keeps changing")


async def evict(client: Client, number: int, epoch: int, fence: Fence) -> None:
    """See `Store.evict`. The mark changes the version of the node, which renewals of its session check."""
    for _ in range(_TRIES_MAX):
        known = await _stored(client, number)
        if known is None or known[0].epoch != epoch or known[0].evicted:
            await _check(client, fence)
            return
        _, data, stat = known
        put = request.put(client.path(layout.broker(number)), format.encode_evicted(data), stat.version)
        if await _written(client, put, fence):
            return
    raise StoreUnavailable(f"broker {number} could not be evicted: its registration keeps changing")


async def _written(client: Client, operation: Any, fence: Fence) -> bool:
    """Send one write under the fence. Returns False if the node has changed since it was read."""
    error = request.first_error(await fenced(client, [operation], fence))
    if error is not None and not isinstance(error, BadVersionError | NoNodeError):
        raise StoreError(f"a registration could not be written: {error!r}")
    return error is None


async def _check(client: Client, fence: Fence) -> None:
    error = request.first_error(await fenced(client, [], fence))
    if error is not None:
        raise StoreError(f"{layout.CONTROLLER_EPOCH} could not be checked: {error!r}")


async def fenced(client: Client, operations: list[Any], fence: Fence) -> Any:
    """Returns the result of a multi whose first operation checks the fence.

    Raises:
        ControllerMoved: the fence is not the stored one.
    """
    check = request.check(client.path(layout.CONTROLLER_EPOCH), fence.version)
    result = await client.ask(request.multi([check, *operations]))
    if isinstance(result, list) and isinstance(result[0], BadVersionError):
        raise ControllerMoved(ours=fence.epoch)
    return result


async def _stored(client: Client, number: int) -> tuple[Broker, bytes, Any] | None:
    """Returns a registration with its data and the stat of its node, or None.

    Raises:
        StoreError: it cannot be read.
    """
    node = await client.ask(client.get(layout.broker(number)))
    if isinstance(node, NoNodeError):
        return None
    if isinstance(node, ZookeeperError):
        raise StoreError(f"{layout.broker(number)} could not be read: {node!r}")
    data, stat = node
    try:
        return decode(number, data, stat.czxid), data or b"", stat
    except Malformed as error:
        raise StoreError(f"{layout.broker(number)} is no registration: {error}") from None
