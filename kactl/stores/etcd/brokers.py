"""Broker registrations. The revision at which one was created is the broker epoch."""

from kactl.model import Broker
from kactl.runtime.logs import logger
from kactl.stores.formats import registration
from kactl.stores.formats.json_text import Malformed

from .client import Client
from .keys import name_in
from .messages import KeyValue

log = logger(__name__)


class Brokers:
    """The registrations of one cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read_all(self) -> dict[int, Broker]:
        """Returns all registrations; unreadable ones are logged and left out."""
        interval = self._client.keys.brokers
        brokers = []
        for kv in await self._client.read_interval(interval):
            name = name_in(interval, kv.key)
            if not registration.is_broker_id(name):
                log.warning("brokers/%s is no broker", name)
                continue
            broker = _decode(int(name), kv)
            if broker is not None:
                brokers.append(broker)
        return {broker.id: broker for broker in sorted(brokers, key=lambda broker: broker.id)}

    async def read_one(self, number: int) -> Broker | None:
        kv = await self._client.get(self._client.keys.broker(number))
        return None if kv is None else _decode(number, kv)


def _decode(number: int, kv: KeyValue) -> Broker | None:
    try:
        return registration.decode(number, kv.value, kv.create_revision)
    except Malformed as error:
        log.warning("brokers/%d is no registration, the broker is left out: %s", number, error)
        return None
