"""Listeners of brokers: protocols that differ from those of kactl, and connections without TLS to other hosts."""

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest

from kactl.actors.system import Controller
from kactl.admin import broker_listeners
from kactl.admin.broker_listeners import mismatches, without_controller, without_rack
from kactl.config.kafka_settings import KafkaConfig
from kactl.model import Broker, Endpoint
from kactl.stores.memory import MemoryStore
from tests.admin.conftest import Served, served
from tests.admin.test_health import checks_of
from tests.support.clocks import ManualClock

pytestmark = pytest.mark.anyio
PATIENCE_S = 30
CLUSTER = {
    "store.kind": "zookeeper",
    "store.connect": "127.0.0.1:1",
    "kafka.listener-name": "INTERNAL",
    "kafka.listeners": ["INTERNAL://127.0.0.1:9090"],
}


def broker(number: int, *endpoints: Endpoint) -> Broker:
    return Broker(number, 0, endpoints)


def internal(protocol: str = "PLAINTEXT", host: str = "127.0.0.1") -> Endpoint:
    return Endpoint("INTERNAL", host, 9090, protocol)


def message(brokers: str, protocol: str = "SASL_SSL") -> str:
    return (
        f"listener INTERNAL is {protocol} on {brokers} and PLAINTEXT here: brokers will not reach kactl; "
        f'set kafka.protocols.INTERNAL = "{protocol}"'
    )


@contextlib.asynccontextmanager
async def registered(store: MemoryStore, *brokers: Broker) -> AsyncIterator[None]:
    """Register brokers while the block runs."""
    async with store.another() as client:
        for each in brokers:
            await (await client.new_session(60_000)).register(each)
        yield


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Repeat a request until its result is as expected."""
    with anyio.fail_after(PATIENCE_S):
        while not await condition():
            pass


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_listeners, "LOOK_S", 0.01)
    monkeypatch.setattr(broker_listeners, "STANDBY_LOOK_S", 0.01)


def test_each_protocol_of_each_listener_is_named() -> None:
    brokers = [
        broker(3, internal("SASL_SSL"), Endpoint("CLIENT", "b", 1, "SSL")),
        broker(1, internal("SASL_SSL")),
        broker(2, internal("SSL")),
        broker(4, internal(), Endpoint("OTHER", "b", 1, "SSL")),
    ]
    own = [internal(), Endpoint("CLIENT", "a", 1, "SSL")]

    assert mismatches(brokers, own) == (message("brokers 1, 3"), message("broker 2", "SSL"))
    assert mismatches(brokers[3:], own) == ()


def test_listeners_without_kactl_are_named_with_the_remedy() -> None:
    brokers = [broker(1, internal(), Endpoint("CLIENT", "b", 1), Endpoint("OTHER", "b", 2))]
    listeners = ("INTERNAL://127.0.0.1:9190", "CLIENT://127.0.0.1:9191")
    kafka = KafkaConfig(listener_name="INTERNAL", listeners=listeners, visible_on=("INTERNAL",))

    assert without_controller(brokers, kafka) == (
        "listener CLIENT: admin clients find no controller there and fail; admin clients must use listener INTERNAL at "
        '127.0.0.1:9190, or add "CLIENT" to kafka.visible-on',
        "listener OTHER: admin clients find no controller there and fail; admin clients must use listener INTERNAL at "
        '127.0.0.1:9190, or add "OTHER://HOST:PORT" to kafka.listeners and kafka.visible-on',
    )
    assert without_controller(brokers, KafkaConfig(listeners=(*listeners, "OTHER://127.0.0.1:9192"))) == ()
    assert without_controller(brokers[:0], kafka) == ()
    assert without_controller([broker(1, internal())], KafkaConfig()) == (
        'listener INTERNAL: admin clients find no controller there and fail; add "INTERNAL://HOST:PORT" to '
        "kafka.listeners",
    )


def test_brokers_without_rack_beside_others_are_named() -> None:
    racked, bare = Broker(1, 0, rack="a"), Broker(2, 0)

    assert without_rack([racked, bare]).startswith("broker 2 without broker.rack, broker 1 with one: brokers cannot")
    assert (without_rack([racked]), without_rack([bare]), without_rack([])) == ("", "", "")


async def test_differing_protocol_is_reported_when_brokers_register(caplog: pytest.LogCaptureFixture) -> None:
    """S-34."""
    store = MemoryStore(clock=ManualClock())
    async with served(brokers=None, store=store, settings=CLUSTER) as server:

        async def differs() -> bool:
            return (await checks_of(server))["broker-listeners"].result == "warn"

        async def agrees() -> bool:
            return (await checks_of(server))["broker-listeners"].result == "pass"

        assert await agrees()
        async with registered(store, broker(1, internal("SASL_SSL"))):
            await until(differs)
            check = (await checks_of(server))["broker-listeners"]
        async with registered(store, broker(1, internal())):
            await until(agrees)

    assert check.detail == message("broker 1")
    errors = [record for record in caplog.records if record.getMessage() == message("broker 1")]
    assert [record.levelno for record in errors] == [logging.ERROR]


async def test_brokers_on_other_hosts_without_tls_are_insecure(caplog: pytest.LogCaptureFixture) -> None:
    """S-03. Those of this host, and those with TLS, are not."""
    store = MemoryStore(clock=ManualClock())
    secure = [
        broker(2, internal()),
        broker(3, internal("SASL_SSL", "192.0.2.3"), Endpoint("CLIENT", "192.0.2.3", 1)),
    ]
    async with (
        served(brokers=None, store=store, settings=CLUSTER) as server,
        registered(store, *secure),
    ):

        async def brokers_are_listed() -> bool:
            return bool(await listed(server, "brokers"))

        async def brokers_are_not_listed() -> bool:
            return not await listed(server, "brokers")

        async with registered(store, broker(1, internal("SASL_PLAINTEXT", "192.0.2.1"))):
            await until(brokers_are_listed)
            whats = await listed(server, "brokers")
            metrics = (await server.get("/metrics")).body.decode()
        await until(brokers_are_not_listed)

    what = "INTERNAL of broker 1 on other hosts has no TLS: others can read and change what is sent"
    assert whats == [f"kafka.listener-name: {what}"]
    assert f"brokers is insecure: kafka.listener-name: {what}" in caplog.text
    assert 'kactl_security_insecure{interface="brokers"} 1.0' in metrics
    assert 'kactl_security_insecure{interface="store"} 0.0' in metrics


async def listed(server: Served, interface: str) -> list[str]:
    items = (await server.get("/v1/controller")).json()["insecure"]
    return [item["what"] for item in items if item["interface"] == interface]


async def test_standby_reads_the_registrations_from_the_store() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with (
        Controller(5, store=store, clock=clock) as active,
        served(brokers=None, store=store.another(), node_id=6, settings=CLUSTER, clock=clock) as standby,
        registered(store, broker(1, internal("SSL"))),
    ):
        await active.wait_active()

        async def differs() -> bool:
            return (await checks_of(standby))["broker-listeners"].detail == message("broker 1", "SSL")

        await until(differs)
        assert not standby.controller.is_active
