"""Who is the controller: the ephemeral /controller, and /controller_epoch, whose version is the fence.

Where it is to be sticky, /controller is made to stay: brokers, who contest when it goes, then never do, not even while
no instance of ours runs. Which instance acts is told by an ephemeral node besides it, the lock; a /controller that
stays, with nobody at the lock, is held by nobody.

An election writes all of it in one multi. If a connection breaks while it is on its way, it is sent again and may find
that it had been done; it won if what is ephemeral is of our own session, and the epoch is the one we asked for.

Source: KafkaZkClient.registerControllerAndIncrementControllerEpoch, tryRegisterKRaftControllerAsActiveController.
"""

import time
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, ZookeeperError

from kactl.errors import ControllerMoved, StoreDamaged, StoreError
from kactl.model import NO_BROKER, ControllerRecord, Fence
from kactl.runtime.logs import logger
from kactl.stores.base import Outcome

from . import fenced_writes, layout, request
from .client import Client
from .json_node import INT32_MAX
from .responses import Responses
from .watches import Kind, Watches

log = logger(__name__)

# Each lost race means that somebody else was elected in between.
TAKE_OVERS_MAX: Final = 20
_FIRST: Final = 0


async def read(client: Client, watches: Watches | None, *, sticky: bool) -> ControllerRecord | None:
    """Who holds it; an owner that cannot be read is logged and has the id NO_BROKER."""
    watched = watches is not None
    paths = [layout.CONTROLLER, layout.LOCK] if sticky else [layout.CONTROLLER]
    requests = [client.exists(path, watch=watched) for path in paths]
    responses = await client.ask_all([*requests, client.get(layout.CONTROLLER), client.get(layout.CONTROLLER_EPOCH)])
    *seen, held, epoch = responses.results
    if watches is not None:
        for path, found in zip(paths, seen, strict=True):
            watches.record_read(path, Kind.DATA, found)
    if isinstance(held, NoNodeError):
        return None
    data, stat = _found(layout.CONTROLLER, held)
    if sticky and not stat.ephemeralOwner and seen[1] is None:
        return None
    number = _FIRST if isinstance(epoch, NoNodeError) else _epoch(epoch)[0]
    try:
        controller_id, since_ms = layout.decode_controller(data)
    except layout.Malformed as error:
        log.warning("somebody holds %s and cannot be told: %s", layout.CONTROLLER, error)
        controller_id, since_ms = NO_BROKER, None
    return ControllerRecord(controller_id, number, stat.ctime if since_ms is None else since_ms)


async def contest(client: Client, controller_id: int, *, take_over: bool, sticky: bool) -> Fence:
    """Take the controllership; see `Store.contest`.

    Raises:
        ControllerMoved: somebody holds it, or was faster; with `take_over`, was faster time and again.
        StoreDamaged: the stored epoch is no number.
    """
    ours = 0
    if sticky:
        await _make_room(client)
    for _ in range(TAKE_OVERS_MAX if take_over else 1):
        looks = [client.exists(layout.CONTROLLER), client.exists(layout.LOCK), client.get(layout.CONTROLLER_EPOCH)]
        held, lock, epoch = (await client.ask_all(looks)).results
        if not take_over and _is_held(client, held, lock, sticky=sticky):
            raise ControllerMoved(ours=0, theirs=None if isinstance(epoch, NoNodeError) else _epoch(epoch)[0])
        number, version = await _first_epoch(client) if isinstance(epoch, NoNodeError) else _epoch(epoch)
        if number >= INT32_MAX:
            raise _damaged(f"{number} is the highest epoch there is")
        ours = number + 1
        operations = [request.put(client.path(layout.CONTROLLER_EPOCH), layout.encode_epoch(ours), version)]
        data = layout.encode_controller(controller_id, time.time_ns() // 1_000_000)
        operations += _taking(client, layout.CONTROLLER, held, data, ephemeral=not sticky)
        if sticky:
            operations += _taking(client, layout.LOCK, lock, str(controller_id).encode(), ephemeral=True)
        responses = await client.ask_all([request.multi(operations)])
        fence = await _won(client, responses, ours, proof=layout.LOCK if sticky else layout.CONTROLLER)
        if fence is not None:
            return fence
    raise ControllerMoved(ours=0, theirs=ours)


def _is_held(client: Client, held: Any, lock: Any, *, sticky: bool) -> bool:
    """Whether somebody else acts, by what `exists` found of both nodes."""
    if held is None or not sticky or held.ephemeralOwner:
        return held is not None
    return lock is not None and lock.ephemeralOwner != client.session_id


def _taking(client: Client, path: str, held: Any, data: bytes, *, ephemeral: bool) -> list[Any]:
    """What makes a node ours, whoever has it."""
    made = request.create(client.path(path), data, ephemeral=ephemeral)
    return [made] if held is None else [request.delete(client.path(path), held.version), made]


async def _make_room(client: Client) -> None:
    folder = layout.LOCK.rpartition("/")[0]
    made = await client.ask(request.create(client.path(folder), None))
    if isinstance(made, ZookeeperError) and not isinstance(made, NodeExistsError):
        raise StoreError(f"{folder} could not be made: {made!r}")


async def _first_epoch(client: Client) -> tuple[int, int]:
    """Make /controller_epoch, unless somebody else is faster."""
    path = client.path(layout.CONTROLLER_EPOCH)
    made = await client.ask(request.create(path, layout.encode_epoch(_FIRST)))
    if isinstance(made, ZookeeperError) and not isinstance(made, NodeExistsError):
        raise StoreError(f"{layout.CONTROLLER_EPOCH} could not be made: {made!r}")
    return _epoch(await client.ask(client.get(layout.CONTROLLER_EPOCH)))


async def _won(client: Client, responses: Responses, epoch: int, *, proof: str) -> Fence | None:
    """What an election's multi gave us; None if somebody was faster. `proof` is ephemeral, and ours if we won."""
    result = responses.results[0]
    error = request.first_error(result)
    if error is None:
        return Fence(epoch, int(result[0].version))
    if not isinstance(error, BadVersionError | NodeExistsError | NoNodeError):
        raise StoreError(f"the election failed: {error!r}")
    if not responses.repeated:
        return None
    held, stored = (await client.ask_all([client.exists(proof), client.get(layout.CONTROLLER_EPOCH)])).results
    if held is None or held.ephemeralOwner != client.session_id:
        return None
    number, version = _epoch(stored)
    return Fence(epoch, version) if number == epoch else None


async def resign(client: Client, fence: Fence, *, sticky: bool) -> None:
    """Delete under the fence what says that we hold it; nothing to do where it is gone already."""
    path = layout.LOCK if sticky else layout.CONTROLLER
    (outcome,) = await fenced_writes.commit(client, [[fenced_writes.delete(path)]], fence, batch=1)
    if outcome != Outcome.COMMITTED:
        raise StoreError(f"{path} could not be deleted")


async def check(client: Client, fence: Fence) -> None:
    """See `Store.check`. By a multi, since a server may answer a read with what stood there some time ago."""
    check = request.check(client.path(layout.CONTROLLER_EPOCH), fence.version)
    error = request.first_error(await client.ask(request.multi([check])))
    if isinstance(error, BadVersionError):
        raise ControllerMoved(ours=fence.epoch)
    if error is not None:
        raise StoreError(f"{layout.CONTROLLER_EPOCH} could not be checked: {error!r}")


def _epoch(found: Any) -> tuple[int, int]:
    """The controller epoch and its version."""
    data, stat = _found(layout.CONTROLLER_EPOCH, found)
    try:
        return layout.decode_epoch(data), stat.version
    except layout.Malformed as error:
        raise _damaged(str(error)) from None


def _damaged(reason: str) -> StoreDamaged:
    remedy = "write the highest epoch that any broker has seen, as decimal text, into it"
    log.error("%s is left as it is: %s", layout.CONTROLLER_EPOCH, reason)
    return StoreDamaged(layout.CONTROLLER_EPOCH, reason, remedy)


def _found(path: str, found: Any) -> tuple[bytes | None, Any]:
    if isinstance(found, ZookeeperError):
        raise StoreError(f"{path} could not be read: {found!r}")
    data, stat = found
    return data, stat
