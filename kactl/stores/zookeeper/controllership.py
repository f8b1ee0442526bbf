"""The controllership: the ephemeral /controller, and /controller_epoch, whose version is the fence.

In sticky mode /controller is persistent: brokers, which contest when it is deleted, then never do, not even while no
kactl instance runs. The active instance holds another, ephemeral node, the lock; a persistent /controller without the
lock means that there is no controller.

An election writes all nodes in one multi. If its connection breaks, the multi is sent again and may find its own
writes; the election succeeded if the ephemeral node is of this session and the epoch is the requested one.

Source: KafkaZkClient.registerControllerAndIncrementControllerEpoch, tryRegisterKRaftControllerAsActiveController.
"""

from collections.abc import Sequence
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, ZookeeperError

from kactl.model import NO_BROKER, ControllerRecord, Fence
from kactl.model.errors import ControllerMoved, StoreDamaged, StoreError
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.stores.base import Outcome
from kactl.stores.formats import records
from kactl.stores.formats.json_text import INT32_MAX

from . import fenced_writes, layout, request
from .client import Client
from .responses import Responses
from .watches import Kind, Watches, ask

log = logger(__name__)

# Each lost race means that another instance was elected in between.
TAKE_OVERS_MAX: Final = 20
_FIRST: Final = 0


async def read(client: Client, watches: Watches | None, *, sticky: bool) -> ControllerRecord | None:
    """Returns the active controller; an unreadable owner is logged and has the id NO_BROKER."""
    watched = watches is not None
    paths = [layout.CONTROLLER, layout.LOCK] if sticky else [layout.CONTROLLER]
    requests = [client.exists(path, watch=watched) for path in paths]
    requests += [client.get(layout.CONTROLLER), client.get(layout.CONTROLLER_EPOCH)]
    *stats, controller, epoch = await ask(client, watches, requests, [(path, Kind.DATA) for path in paths])
    if isinstance(controller, NoNodeError):
        return None
    data, stat = _content(layout.CONTROLLER, controller)
    if sticky and not stat.ephemeralOwner and stats[1] is None:
        return None
    number = _FIRST if isinstance(epoch, NoNodeError) else _epoch(epoch)[0]
    client.epoch_seen = max(client.epoch_seen, number)
    try:
        controller_id, since_ms, address = records.decode_controller(data)
    except records.Malformed as error:
        log.warning("the owner of %s cannot be read: %s", layout.CONTROLLER, error)
        controller_id, since_ms, address = NO_BROKER, None, ""
    return ControllerRecord(controller_id, number, stat.ctime if since_ms is None else since_ms, address)


async def contest(
    client: Client, controller_id: int, *, take_over: bool, address: str, sticky: bool, clock: Clock
) -> Fence:
    """Take the controllership; see `Store.contest`. `clock` gives the time that is stored with it.

    Raises:
        ControllerMoved: another instance holds it, or was faster; with `take_over`, was faster at every attempt.
        StoreDamaged: the stored epoch is malformed.
    """
    ours = 0
    if sticky:
        await _create_lock_folder(client)
    for _ in range(TAKE_OVERS_MAX if take_over else 1):
        reads = [client.exists(layout.CONTROLLER), client.exists(layout.LOCK), client.get(layout.CONTROLLER_EPOCH)]
        controller, lock, epoch = (await client.ask_all(reads)).results
        if not take_over and _is_held(client, controller, lock, sticky=sticky):
            raise ControllerMoved(ours=0, theirs=None if isinstance(epoch, NoNodeError) else _epoch(epoch)[0])
        number, version = await _first_epoch(client) if isinstance(epoch, NoNodeError) else _epoch(epoch)
        # After a restored backup, or a loss, the stored epoch is one that was given away before.
        number = max(number, client.epoch_seen)
        if number >= INT32_MAX:
            raise _damaged(f"{number} is the highest possible epoch")
        ours = number + 1
        operations = [request.put(client.path(layout.CONTROLLER_EPOCH), records.encode_epoch(ours), version)]
        data = records.encode_controller(controller_id, clock.now_ms(), address)
        operations += _taking(client, layout.CONTROLLER, controller, data, ephemeral=not sticky)
        if sticky:
            operations += _taking(client, layout.LOCK, lock, str(controller_id).encode(), ephemeral=True)
        responses = await client.ask_all([request.multi(operations)])
        fence = await _won(client, responses, ours, proof=layout.LOCK if sticky else layout.CONTROLLER)
        if fence is not None:
            client.epoch_seen = ours
            return fence
    raise ControllerMoved(ours=0, theirs=ours)


def _is_held(client: Client, controller: Any, lock: Any, *, sticky: bool) -> bool:
    """Returns whether another instance is active, by the results of `exists` for both nodes."""
    if controller is None or not sticky or controller.ephemeralOwner:
        return controller is not None
    return lock is not None and lock.ephemeralOwner != client.session_id


def _taking(client: Client, path: str, stat: Any, data: bytes, *, ephemeral: bool) -> list[Any]:
    """Returns the operations that make a node this session's, whichever session owns it."""
    create = client.create(path, data, ephemeral=ephemeral)
    return [create] if stat is None else [request.delete(client.path(path), stat.version), create]


async def _create_lock_folder(client: Client) -> None:
    folder = layout.LOCK.rpartition("/")[0]
    created = await client.ask(client.create(folder, None))
    if isinstance(created, ZookeeperError) and not isinstance(created, NodeExistsError):
        raise StoreError(f"{folder} could not be created: {created!r}")


async def _first_epoch(client: Client) -> tuple[int, int]:
    """Create /controller_epoch, unless it exists. Returns the epoch and its version."""
    created = await client.ask(client.create(layout.CONTROLLER_EPOCH, records.encode_epoch(_FIRST)))
    if isinstance(created, ZookeeperError) and not isinstance(created, NodeExistsError):
        raise StoreError(f"{layout.CONTROLLER_EPOCH} could not be created: {created!r}")
    return _epoch(await client.ask(client.get(layout.CONTROLLER_EPOCH)))


async def _won(client: Client, responses: Responses, epoch: int, *, proof: str) -> Fence | None:
    """Returns the fence of a successful election, None if another instance was faster. `proof` is the ephemeral
    node.
    """
    result = responses.results[0]
    error = request.first_error(result)
    if error is None:
        return Fence(epoch, int(result[0].version))
    if not isinstance(error, BadVersionError | NodeExistsError | NoNodeError):
        raise StoreError(f"the election failed: {error!r}")
    if not responses.repeated:
        return None
    owned, stored = (await client.ask_all([client.exists(proof), client.get(layout.CONTROLLER_EPOCH)])).results
    if owned is None or owned.ephemeralOwner != client.session_id:
        return None
    number, version = _epoch(stored)
    return Fence(epoch, version) if number == epoch else None


async def resign(client: Client, fence: Fence, *, sticky: bool, before: Sequence[fenced_writes.Op] = ()) -> None:
    """Delete, under the fence, the node that marks this instance as active; a missing one is skipped.

    Args:
        before: operations that precede it in the same transaction.
    """
    path = layout.LOCK if sticky else layout.CONTROLLER
    (outcome,) = await fenced_writes.commit(client, [[*before, fenced_writes.delete(path)]], fence, batch=1)
    if outcome != Outcome.COMMITTED:
        raise StoreError(f"{path} could not be deleted")


async def check(client: Client, fence: Fence) -> None:
    """See `Store.check`. Sends a multi, since a server may respond to a read with old data."""
    check = request.check(client.path(layout.CONTROLLER_EPOCH), fence.version)
    error = request.first_error(await client.ask(request.multi([check])))
    if isinstance(error, BadVersionError):
        raise ControllerMoved(ours=fence.epoch)
    if error is not None:
        raise StoreError(f"{layout.CONTROLLER_EPOCH} could not be checked: {error!r}")


def _epoch(node: Any) -> tuple[int, int]:
    data, stat = _content(layout.CONTROLLER_EPOCH, node)
    try:
        return records.decode_epoch(data), stat.version
    except records.Malformed as error:
        raise _damaged(str(error)) from None


def _damaged(reason: str) -> StoreDamaged:
    remedy = "write the highest epoch that any broker has seen, as decimal text, into it"
    log.error("%s is malformed and is left unchanged: %s", layout.CONTROLLER_EPOCH, reason)
    return StoreDamaged(layout.CONTROLLER_EPOCH, reason, remedy)


def _content(path: str, node: Any) -> tuple[bytes | None, Any]:
    if isinstance(node, ZookeeperError):
        raise StoreError(f"{path} could not be read: {node!r}")
    data, stat = node
    return data, stat
