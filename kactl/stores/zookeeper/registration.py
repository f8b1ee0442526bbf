"""Broker registrations: ephemeral nodes. Their creation transaction is the broker epoch.

kactl's own participants register each in a session of its own.

Source: KafkaZkClient.registerBroker.
"""

from typing import Any

from kazoo.exceptions import NoNodeError, ZookeeperError

from kactl.errors import StoreError
from kactl.model import Broker
from kactl.runtime.logs import logger
from kactl.stores.formats.json_text import Malformed
from kactl.stores.formats.registration import decode, is_broker_id

from . import layout
from .client import Client
from .watches import Kind, Watches

log = logger(__name__)


async def read_all(client: Client, watches: Watches | None) -> dict[int, Broker]:
    """Returns all registrations; those that end meanwhile, and unreadable ones, are left out."""
    watched = watches is not None
    listed = await client.ask(client.children(layout.BROKERS, watch=watched))
    if isinstance(listed, ZookeeperError):
        raise StoreError(f"{layout.BROKERS} could not be listed: {listed!r}")
    if watches is not None:
        watches.record_read(layout.BROKERS, Kind.CHILDREN, listed)
    ids = sorted(int(name) for name in listed[0] if _is_id(name))
    responses = await client.ask_all([client.get(layout.broker(number), watch=watched) for number in ids])
    brokers = {number: _read(number, node, watches) for number, node in zip(ids, responses.results, strict=True)}
    return {number: broker for number, broker in brokers.items() if broker is not None}


async def read_one(client: Client, number: int, watches: Watches | None) -> Broker | None:
    node = await client.ask(client.get(layout.broker(number), watch=watches is not None))
    return _read(number, node, watches)


def _read(number: int, node: Any, watches: Watches | None) -> Broker | None:
    path = layout.broker(number)
    if watches is not None:
        watches.record_read(path, Kind.DATA, node)
    if isinstance(node, NoNodeError):
        return None
    if isinstance(node, ZookeeperError):
        raise StoreError(f"{path} could not be read: {node!r}")
    data, stat = node
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
