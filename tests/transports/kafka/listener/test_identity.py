"""Identification of brokers by their registered address and their epoch."""

import ipaddress

import pytest
from kio.schema.errors import ErrorCode as KioError

from kactl.decide.messages.broker import AllocateProducerIds, AlterPartitionReceived, ControlledShutdown
from kactl.model import Broker, Endpoint, ProducerIdBlock
from kactl.model.errors import BrokerNotRegistered
from kactl.runtime.addresses import plain_address
from kactl.transports.kafka.listener.counters import PeerRejected
from kactl.transports.kafka.listener.frames import Head
from kactl.transports.kafka.listener.identity import BrokerAddresses, Claim, claim_of
from kactl.transports.kafka.listener.limits import EXPANSION, MIB, Limits
from kactl.transports.kafka.listener.pools import Pools, Share

from .client import connected, frame, part, request_class
from .listener_stub import ControllerStub, listening, until

pytestmark = pytest.mark.anyio


def broker(broker_id: int, epoch: int, *hosts: str) -> Broker:
    return Broker(broker_id, epoch, tuple(Endpoint(f"L{index}", host, 9092) for index, host in enumerate(hosts)))


async def test_broker_is_identified_by_address_and_epoch() -> None:
    live = [broker(1, 7, "10.0.0.1", "localhost"), broker(2, 8, "::ffff:10.0.0.2")]
    addresses = BrokerAddresses(lambda: live)
    await addresses.refresh()

    assert addresses.proves("10.0.0.1", Claim(1, 7))
    assert addresses.proves("127.0.0.1", Claim(1, 7))
    assert addresses.proves("10.0.0.2", Claim(2, 8))
    assert not addresses.proves("10.0.0.1", Claim(1, 6))
    assert not addresses.proves("10.0.0.1", Claim(2, 8))
    assert not addresses.proves("10.0.0.3", Claim(1, 7))
    assert not addresses.proves("10.0.0.1", Claim(3, 7))
    assert "10.0.0.2" in addresses
    assert "10.0.0.3" not in addresses


async def test_unresolvable_name_matches_no_address() -> None:
    addresses = BrokerAddresses(lambda: [broker(1, 7, "no-such-host.invalid")])
    await addresses.refresh()

    assert not addresses.proves("127.0.0.1", Claim(1, 7))


def test_configured_networks_count_while_a_broker_is_registered() -> None:
    live: list[Broker] = []
    addresses = BrokerAddresses(lambda: live, [ipaddress.ip_network("10.9.0.0/16")])
    addresses.update()
    before = "10.9.0.1" in addresses
    live.append(broker(1, 7, "10.0.0.1"))
    addresses.update()

    assert not before
    assert "10.9.0.1" in addresses
    assert addresses.proves("10.9.0.1", Claim(1, 7))
    assert not addresses.proves("10.8.0.1", Claim(1, 7))


def test_new_registration_is_found_and_false_claims_cost_one_lookup() -> None:
    now_s, looks = 0.0, 0
    live = [broker(1, 7, "10.0.0.1")]

    def brokers() -> list[Broker]:
        nonlocal looks
        looks += 1
        return live

    addresses = BrokerAddresses(brokers, clock=lambda: now_s)
    addresses.update()
    live[:] = [broker(1, 9, "10.0.0.1")]
    now_s = 1.0
    proved = addresses.proves("10.0.0.1", Claim(1, 9))
    for epoch in range(100, 200):
        addresses.proves("10.0.0.1", Claim(1, epoch))

    assert proved
    assert looks == 2


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("FE80::1%eth0", "fe80::1"),
        ("a.example", "a.example"),
    ],
)
def test_addresses_are_normalized(address: str, plain: str) -> None:
    assert plain_address(address) == plain


@pytest.mark.parametrize(
    ("key", "version", "claim"),
    [(7, 1, None), (7, 2, Claim(2, 9)), (7, 3, Claim(2, 9)), (56, 0, Claim(2, 9)), (56, 3, Claim(2, 9)),
     (67, 0, Claim(2, 9))],
)  # fmt: skip
def test_claim_is_read_from_the_start_of_a_request(key: int, version: int, claim: Claim | None) -> None:
    values = {"broker_id": 2, "broker_epoch": 9, **({"topics": ()} if key == 56 else {})}
    if (key, version) == (7, 1):
        del values["broker_epoch"]
    content = frame(request_class(key, version)(**values), 1)[12:]

    assert claim_of(Head(key, version, 1, len(content)), content) == claim
    assert claim_of(Head(key, version, 1, len(content)), content[:5]) is None


async def test_only_identified_connections_may_send_large_proposals() -> None:
    """A rejected request gets a response, and the same connection is identified once its broker has registered."""
    isr = part(56, 3, "BrokerState")
    partition = part(56, 3, "PartitionData")(
        partition_index=1, leader_epoch=1, leader_recovery_state=0, partition_epoch=1,
        new_isr_with_epochs=tuple(isr(broker_id=number) for number in range(6000)),
    )  # fmt: skip
    topic = part(56, 3, "TopicData")(topic_id=None, partitions=(partition,) * 3)
    request = request_class(56, 3)(broker_id=2, broker_epoch=9, topics=(topic,))
    from kactl.decide.messages.broker import AlterPartitionReceived

    controller = ControllerStub({AlterPartitionReceived: lambda _: []})
    async with listening(controller) as (listener, port), connected(port) as client:
        rejected = await client.ask(request)
        before = list(controller.requests)
        controller.live = [broker(2, 9, "127.0.0.1")]
        answered = await client.ask(request)
        identified = listener.counters.identified
        controller.live = [broker(2, 10, "127.0.0.1")]
        await until(lambda: not listener.knows(Claim(2, 9)))
        again = await client.ask(request)

    assert (rejected.error_code.value, before) == (42, [])
    assert (answered.error_code.value, len(controller.requests)) == (0, 1)
    assert identified == 1
    assert again.error_code.value == 42
    assert listener.counters.rejected == {"elements": 2}


async def test_broker_from_another_address_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    controller = ControllerStub({ControlledShutdown: lambda _: []})
    controller.live = [broker(2, 9, "10.0.0.1")]
    async with listening(controller) as (listener, port), connected(port) as client:
        for _ in range(3):
            await client.ask(request_class(7, 3)(broker_id=2, broker_epoch=9))

    assert listener.counters.rejected == {"unidentified": 1, "denied": 3}
    assert "add it to kafka.broker-networks; the connection has the limits of a client" in caplog.text
    assert controller.requests == []


@pytest.mark.parametrize("key", [7, 56, 67])
async def test_requests_of_a_broker_are_accepted_from_its_address_only(key: int) -> None:
    """The host of another broker is no better than any other: it cannot speak for this one."""
    controller = ControllerStub(
        {
            ControlledShutdown: lambda _: [],
            AllocateProducerIds: lambda _: ProducerIdBlock(2, 0, 999),
            AlterPartitionReceived: lambda _: [],
        }
    )
    controller.live = [broker(1, 8, "127.0.0.1"), broker(2, 9, "10.0.0.1")]
    fields = {"topics": ()} if key == 56 else {}
    request = request_class(key, 3 if key == 7 else 0)(broker_id=2, broker_epoch=9, **fields)
    async with listening(controller) as (_, port), connected(port) as client:
        assert (await client.ask(request)).error_code is KioError.cluster_authorization_failed
    assert controller.requests == []

    async with listening(controller, checks_broker_addresses=False) as (_, port), connected(port) as client:
        assert (await client.ask(request)).error_code is KioError.none


@pytest.mark.parametrize("key", [7, 56, 67])
async def test_requests_of_a_broker_name_its_epoch(key: int) -> None:
    controller = ControllerStub()
    controller.live = [broker(2, 9, "127.0.0.1")]
    fields = {"topics": ()} if key == 56 else {}
    request = request_class(key, 3 if key == 7 else 0)(broker_id=2, broker_epoch=-1, **fields)
    async with listening(controller) as (_, port), connected(port) as client:
        assert (await client.ask(request)).error_code is KioError.stale_broker_epoch
    assert controller.requests == []


async def test_unknown_broker_is_answered_by_the_controller() -> None:
    controller = ControllerStub({ControlledShutdown: lambda _: BrokerNotRegistered(3)})
    controller.live = [broker(2, 9, "10.0.0.1")]
    async with listening(controller) as (_, port), connected(port) as client:
        response = await client.ask(request_class(7, 3)(broker_id=3, broker_epoch=9))
    assert response.error_code is KioError.broker_id_not_registered


async def test_pools_are_separate_and_each_owner_has_a_share() -> None:
    pools = Pools.of(Limits(request_size_max=MIB))
    shares = [Share(pools.clients, owner, timeout_s=0.01) for owner in ("a", "b", "c", "a", "d")]
    for share in shares[:3]:
        await share.reserve(MIB * EXPANSION)
    for share in shares[3:]:
        with pytest.raises(PeerRejected, match="send fewer large requests at a time"):
            await share.reserve(20_000)
    with pytest.raises(PeerRejected):
        shares[3].charge(100_000)
    Share(pools.clients, "a", timeout_s=0.01).charge(1000)  # small requests do not use a pool
    of_broker = Share(pools.brokers, 1, timeout_s=0.01)
    await of_broker.reserve(16 * MIB * EXPANSION)
    for share in (*shares, of_broker):
        share.release()

    assert pools.clients.held == pools.brokers.held == 0


async def test_waiting_reservation_is_served_when_memory_is_freed() -> None:
    import asyncio

    pools = Pools.of(Limits(request_size_max=MIB))
    first, second = Share(pools.clients, "a", timeout_s=20), Share(pools.clients, "a", timeout_s=20)
    await first.reserve(MIB * EXPANSION)
    waiting = asyncio.create_task(second.reserve(MIB * EXPANSION))
    await asyncio.sleep(0)
    cancelled = asyncio.create_task(Share(pools.clients, "a", timeout_s=20).reserve(1000))
    await asyncio.sleep(0)
    cancelled.cancel()
    first.release()
    await waiting

    assert pools.clients.held == MIB * EXPANSION
    second.release()
    assert pools.clients.held == 0
