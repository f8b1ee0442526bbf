"""Listeners of Kafka's brokers, compared with the configuration of kactl.

A broker applies its own `listener.security.protocol.map` to the listener under which kactl is listed. If the protocols
differ, it does not reach kactl. Brokers whose listener has no TLS receive the state of the cluster in clear text.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from kactl.actors.system import Controller
from kactl.config.kafka_settings import KafkaConfig
from kactl.model import Broker, Endpoint
from kactl.model.errors import KactlError
from kactl.runtime.addresses import is_loopback
from kactl.runtime.logs import logger
from kactl.runtime.resolver import resolve

from . import exposure
from .exposure_report import ExposureReport

log = logger(__name__)

# The controller has the registrations at hand; a standby reads them from the store.
LOOK_S: Final = 5.0
STANDBY_LOOK_S: Final = 60.0
_LOOK_UP_S: Final = 15.0
_NAMED_MAX: Final = 10


def mismatches(brokers: Iterable[Broker], own: Sequence[Endpoint]) -> tuple[str, ...]:
    """Returns one text for each listener of kactl and other protocol that brokers have it with, in order."""
    found: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    protocols = {endpoint.listener: endpoint.protocol for endpoint in own}
    for broker in brokers:
        for endpoint in broker.endpoints:
            here = protocols.get(endpoint.listener)
            if here is not None and here != endpoint.protocol:
                found[endpoint.listener, endpoint.protocol, here].append(broker.id)
    return tuple(
        f"listener {listener} is {there} on {_named(ids)} and {here} here: brokers will not reach kactl; "
        f'set kafka.protocols.{listener} = "{there}"'
        for (listener, there, here), ids in sorted(found.items())
    )


def without_controller(brokers: Iterable[Broker], kafka: KafkaConfig) -> tuple[str, ...]:
    """Returns one text for each listener of brokers on which admin clients find no controller, in order.

    The list of brokers there does not contain kactl, whose id brokers return as the controller's. They cannot return
    another id: they send their own requests for the controller to it, and reject those of clients themselves.
    """
    there = {endpoint.listener for broker in brokers for endpoint in broker.endpoints}
    reached = {endpoint.listener for endpoint in kafka.advertised}
    addresses = ", ".join(f"{each.listener} at {each.host}:{each.port}" for each in kafka.advertised)
    instead = f"admin clients must use listener {addresses}, or " if addresses else ""
    own = {endpoint.listener for endpoint in kafka.endpoints}
    return tuple(
        f"listener {listener}: admin clients find no controller there and fail; {instead}"
        + (
            f'add "{listener}" to kafka.visible-on'
            if listener in own
            else f'add "{listener}://HOST:PORT" to kafka.listeners'
            + (" and kafka.visible-on" if kafka.visible_on is not None else "")
        )
        for listener in sorted(there - reached)
    )


def without_rack(brokers: Iterable[Broker]) -> str:
    """Returns a text if some brokers have racks and others have none; otherwise an empty one."""
    by_rack = defaultdict[bool, list[int]](list)
    for broker in brokers:
        by_rack[broker.rack is not None].append(broker.id)
    if not (by_rack[False] and by_rack[True]):
        return ""
    return (
        f"{_named(by_rack[False])} without broker.rack, {_named(by_rack[True])} with one: "
        "brokers cannot create topics, not even __consumer_offsets"
    )


def in_clear_text(brokers: Iterable[Broker], listener: str) -> dict[str, list[int]]:
    """Returns the brokers whose listener has no TLS, by its host."""
    found: dict[str, list[int]] = defaultdict(list)
    for broker in brokers:
        for endpoint in broker.endpoints:
            if endpoint.listener == listener and not endpoint.protocol.endswith("SSL"):
                found[endpoint.host].append(broker.id)
    return found


class BrokerListeners:
    """Watches the registrations of brokers.

    Args:
        report: receives which brokers are reached without TLS.

    Attributes:
        mismatches: differences between the listeners of brokers and those of kactl, one text for each.
        without_controller: see there.
        without_rack: see there.
    """

    def __init__(self, controller: Controller, kafka: KafkaConfig, report: ExposureReport) -> None:
        self._controller = controller
        self._kafka = kafka
        self._report = report
        self._seen: list[Broker] = []
        self.mismatches: tuple[str, ...] = ()
        self.without_controller: tuple[str, ...] = ()
        self.without_rack = ""

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Look at the registrations at the start and when they change, until cancelled."""
        while True:
            await self.look()
            await sleep(LOOK_S if self._controller.is_active else STANDBY_LOOK_S)

    async def look(self) -> None:
        """Compare the present registrations, if they have changed. A store that does not respond changes nothing."""
        try:
            brokers = (
                self._controller.brokers()
                if self._controller.is_active
                else list((await self._controller.store.brokers()).values())
            )
        except KactlError as error:
            log.debug("the registrations of brokers cannot be read: %s", error)
            return
        if brokers == self._seen:
            return
        self._seen = brokers
        self._compare(brokers)
        await self._report_clear_text(brokers)

    def _compare(self, brokers: list[Broker]) -> None:
        found = mismatches(brokers, self._kafka.endpoints)
        for text in found:
            if text not in self.mismatches:
                log.error("%s", text)
        self.mismatches = found
        self.without_controller = without_controller(brokers, self._kafka)
        racks = without_rack(brokers)
        if racks and racks != self.without_rack:
            log.error("%s", racks)
        self.without_rack = racks

    async def _report_clear_text(self, brokers: list[Broker]) -> None:
        hosts = in_clear_text(brokers, self._kafka.listener_name)
        are_local = await asyncio.gather(*map(_is_local, hosts))
        exposed = [id_ for ids, here in zip(hosts.values(), are_local, strict=True) if not here for id_ in ids]
        name = self._kafka.listener_name
        reason = f"{name} of {_named(exposed)} on other hosts has no TLS: others can read and change what is sent"
        self._report.update(exposure.BROKERS, "kafka.listener-name", reason if exposed else "")


async def _is_local(host: str) -> bool:
    try:
        return all(is_loopback(each.host) for each in await resolve(host, 0, limit_s=_LOOK_UP_S))
    except OSError:
        return False


def _named(ids: Sequence[int]) -> str:
    more = f" and {len(ids) - _NAMED_MAX} more" if len(ids) > _NAMED_MAX else ""
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, sorted(ids)[:_NAMED_MAX]))}{more}"
