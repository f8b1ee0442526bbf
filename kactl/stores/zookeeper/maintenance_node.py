"""Drains and held instances, in a node of kactl's own: Kafka's brokers and tools neither list nor read it."""

from kazoo.exceptions import NoNodeError

from kactl.model import Fence, Maintenance
from kactl.model.errors import StoreError
from kactl.stores.base import Outcome
from kactl.stores.formats import admin_records

from . import fenced_writes, layout
from .client import Client

_FOLDER = layout.MAINTENANCE.rpartition("/")[0]


async def write(client: Client, maintenance: Maintenance, fence: Fence) -> None:
    """See `Store.write_maintenance`."""
    path, data = layout.MAINTENANCE, admin_records.encode_maintenance(maintenance)
    # Only the controller writes the node, and nothing deletes it.
    (node,) = await client.read_all([path])
    if isinstance(node, NoNodeError):
        group = [fenced_writes.create(_FOLDER, None, optional=True), fenced_writes.create(path, data)]
    else:
        group = [fenced_writes.put(path, data)]
    (outcome,) = await fenced_writes.commit(client, [group], fence, batch=len(group))
    if outcome != Outcome.COMMITTED:
        raise StoreError(f"{path} could not be written: check its permissions")
