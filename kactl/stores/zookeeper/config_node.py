"""Configurations of single topics, and of all brokers.

Source: AdminZkClient.fetchEntityConfig, changeEntityConfig.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from kazoo.exceptions import NodeExistsError, NoNodeError, ZookeeperError

from kactl.model.errors import StoreError
from kactl.runtime.logs import logger
from kactl.stores.formats import records

from . import layout, request
from .client import Client

log = logger(__name__)

_ALL_BROKERS: Final = "all brokers"


async def of_topics(client: Client, topics: Collection[str]) -> dict[str, dict[str, str] | None]:
    """See `Store.topic_configs`."""
    wanted = list(dict.fromkeys(topics))
    nodes = await client.read_all([layout.topic_config(name) for name in wanted])
    return {
        name: _decode(layout.topic_config(name), f"topic {name}", node)
        for name, node in zip(wanted, nodes, strict=True)
    }


async def of_all_brokers(client: Client) -> dict[str, str]:
    """See `Store.default_config`."""
    (node,) = await client.read_all([layout.DEFAULT_CONFIG])
    return _decode(layout.DEFAULT_CONFIG, _ALL_BROKERS, node) or {}


def _decode(path: str, owner: str, node: Any) -> dict[str, str] | None:
    if isinstance(node, NoNodeError):
        return {}
    if isinstance(node, ZookeeperError):
        log.warning("%s: the configuration of %s could not be read: %r", path, owner, node)
        return None
    try:
        return records.decode_config(node[0])
    except records.Malformed as error:
        log.warning("%s: the configuration of %s is malformed: %s", path, owner, error)
        return None


async def set_of_topic(client: Client, name: str, config: Mapping[str, str]) -> None:
    """See `Store.set_topic_config`."""
    notice = records.encode_config_change(name)
    await _write(client, layout.topic_config(name), config, owner=f"topic {name!r}", notice=notice)


async def set_of_all_brokers(client: Client, config: Mapping[str, str]) -> None:
    """See `Store.set_default_config`."""
    notice = records.encode_default_config_change()
    await _write(client, layout.DEFAULT_CONFIG, config, owner=_ALL_BROKERS, notice=notice)


async def _write(client: Client, path: str, config: Mapping[str, str], *, owner: str, notice: bytes) -> None:
    """Replace a configuration, and notify brokers and controllers by the notice that they watch for."""
    notification = client.create(f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}", notice, sequential=True)
    there = await client.ask(client.exists(path))
    operation = put_or_create(client, path, config, exists=there is not None)
    error = request.first_error(await client.ask(request.multi([operation, notification])))
    if isinstance(error, NoNodeError | NodeExistsError):
        # It was created or deleted in between, or the first attempt succeeded before the connection broke.
        operation = put_or_create(client, path, config, exists=isinstance(error, NodeExistsError))
        error = request.first_error(await client.ask(request.multi([operation, notification])))
    if error is not None:
        raise StoreError(f"the configuration of {owner} could not be written: {error!r}")


def put_or_create(client: Client, path: str, config: Mapping[str, str], *, exists: bool) -> Any:
    """Returns the request, or the part of a multi, that writes a configuration."""
    data = records.encode_config(config)
    return request.put(client.path(path), data) if exists else client.create(path, data)
