"""The controllership: `controller`, which ends with its holder's session, and `epoch`, whose version is the fence."""

from typing import Final

from kactl.model import NO_BROKER, ControllerRecord, Fence
from kactl.model.errors import ControllerMoved, SessionExpired, StoreDamaged, StoreError, StoreUnavailable
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.stores.formats import records
from kactl.stores.formats.json_text import INT32_MAX

from . import messages
from .calls import EtcdError
from .client import Client, is_lost_lease
from .messages import DeleteRange, KeyValue, Put, Range

log = logger(__name__)

# Each lost race means that another instance was elected in between.
TAKE_OVERS_MAX: Final = 20


async def read(client: Client) -> ControllerRecord | None:
    """Returns the active controller; an unreadable owner is logged and has the id NO_BROKER."""
    controller, epoch = await client.read_all([Range(client.keys.controller), Range(client.keys.epoch)])
    if not controller:
        return None
    number = _epoch(epoch[0]) if epoch else 0
    client.epoch_seen = max(client.epoch_seen, number)
    try:
        controller_id, since_ms, address = records.decode_controller(controller[0].value)
    except records.Malformed as error:
        log.warning("the owner in %s cannot be read: %s", client.keys.controller.decode(), error)
        controller_id, since_ms, address = NO_BROKER, None, ""
    return ControllerRecord(controller_id, number, since_ms or 0, address)


async def contest(
    client: Client, controller_id: int, lease: int, *, take_over: bool, address: str, clock: Clock
) -> Fence:
    """Take the controllership for a session; see `Store.contest`.

    Raises:
        SessionExpired: the session has ended.
        ControllerMoved: another instance holds it, or was faster; with `take_over`, was faster at every attempt.
        StoreDamaged: the stored epoch is malformed.
    """
    keys = client.keys
    ours = 0
    for _ in range(TAKE_OVERS_MAX if take_over else 1):
        controller, epoch = await client.read_all([Range(keys.controller, keys_only=True), Range(keys.epoch)])
        number, version = (_epoch(epoch[0]), epoch[0].version) if epoch else (0, 0)
        # A controllership of this very session is of an election with a lost response.
        if controller and not take_over and controller[0].lease != lease:
            raise ControllerMoved(ours=0, theirs=number)
        # After a restored backup, or a loss, the stored epoch is one that was given away before.
        number = max(number, client.epoch_seen)
        if number >= INT32_MAX:
            raise _damaged(client, f"{number} is the highest possible epoch")
        ours = number + 1
        compare = [messages.version_is(keys.epoch, version)]
        if not take_over:
            compare.append(messages.written_at(keys.controller, controller[0].mod_revision if controller else 0))
        value = records.encode_controller(controller_id, clock.now_ms(), address)
        puts = [Put(keys.controller, value, lease=lease), Put(keys.epoch, records.encode_epoch(ours))]
        try:
            succeeded = (await client.txn(compare, puts)).succeeded
        except EtcdError as error:
            if is_lost_lease(error):
                raise SessionExpired("the session of this client has ended: wait for SESSION_OPENED") from error
            raise
        except StoreUnavailable:
            # Elected or not: an epoch of ours that has not been overwritten is the proof.
            succeeded = await _won(client, value, lease, ours)
            if not succeeded:
                raise
        if succeeded:
            client.epoch_seen = ours
            return Fence(ours, version + 1)
    raise ControllerMoved(ours=0, theirs=ours)


async def _won(client: Client, value: bytes, lease: int, ours: int) -> bool:
    """Returns whether an election without a response succeeded, and still stands."""
    keys = client.keys
    controller, epoch = await client.read_all([Range(keys.controller), Range(keys.epoch)])
    if not controller or not epoch:
        return False
    held = (controller[0].value, controller[0].lease) == (value, lease)
    return held and _epoch(epoch[0]) == ours and controller[0].mod_revision == epoch[0].mod_revision


async def resign(client: Client, fence: Fence) -> None:
    """See `Store.resign`."""
    response = await client.fenced(fence, [], [DeleteRange(client.keys.controller)])
    if not response.succeeded:
        raise StoreError(f"{client.keys.controller.decode()} could not be deleted")


def _epoch(kv: KeyValue) -> int:
    try:
        return records.decode_epoch(kv.value)
    except records.Malformed as error:
        raise _malformed(kv.key, str(error)) from None


def _damaged(client: Client, reason: str) -> StoreDamaged:
    return _malformed(client.keys.epoch, reason)


def _malformed(key: bytes, reason: str) -> StoreDamaged:
    remedy = "write the highest epoch that any broker has seen, as decimal text, into it"
    log.error("%s is malformed and is left unchanged: %s", key.decode(), reason)
    return StoreDamaged(key.decode(), reason, remedy)
