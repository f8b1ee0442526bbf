"""Participants with a name, or with nothing, in place of an id: over every network, kind of session and restart."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import kactl
from kactl.model import GIVEN_IDS
from kactl.model.errors import BadRequest, BrokerIdTaken, ControllerUnreachable, NotAuthorized
from kactl.stores.zookeeper import ZooKeeperStore
from tests.support.certificates import Authority
from tests.support.etcd_server import EtcdServer, require_etcd
from tests.support.zookeeper_fixtures import jars, zookeeper
from tests.support.zookeeper_server import ZooKeeperServer

__all__ = ["jars", "zookeeper"]

pytestmark = pytest.mark.anyio

PROCESS = f"{socket.gethostname()}:{os.getpid()}"
SECRET = "a secret of 16 bytes"
FIRST, SECOND = GIVEN_IDS[0], GIVEN_IDS[1]


def participant(name: str | None = None, **options: Any) -> kactl.Participant:
    return kactl.Participant(name=name, handler=kactl.PartitionHandler, **options)


@asynccontextmanager
async def cluster(store: Any = None, **options: Any) -> AsyncIterator[tuple[kactl.Controller, dict[str, Any]]]:
    """Yields an active controller on tcp, and how participants reach it."""
    network = kactl.TcpNetwork(listen="127.0.0.1:0", **{"secret": SECRET, **options})
    async with kactl.Controller(100, store=store, network=network) as controller:
        await controller.wait_active()
        assert network.address is not None
        yield controller, {"network": kactl.TcpNetwork(controllers=[network.address], secret=SECRET)}


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"broker_id": GIVEN_IDS[0]}, "which controllers give to participants without an id"),
        ({"broker_id": GIVEN_IDS[-1]}, "choose another one, or give name="),
        ({"broker_id": 1, "name": "a"}, "is given beside a broker id"),
        ({"name": "17"}, "would be a broker id: give it a letter"),
        ({"name": ""}, "is not 1 to 100 ASCII letters"),
        ({"name": "a:1"}, "is not 1 to 100 ASCII letters"),
        ({"name": "a" * 101}, "is not 1 to 100 ASCII letters"),
        ({"name": 17}, "is not text"),
    ],
)
def test_impossible_identity_is_rejected(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        kactl.Participant(**arguments, network=kactl.TcpNetwork(controllers=["127.0.0.1:1"]))


# -- one process -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", ["store", "controller"])
async def test_ids_are_given_over_the_network_of_one_process(session: str) -> None:
    async with kactl.Controller(100) as controller:
        options: dict[str, Any] = {"hub": controller.hub, "store": controller.store if session == "store" else None}
        async with participant("a", **options) as named, participant(**options) as unnamed:
            assert (named.id, named.name, unnamed.id, unnamed.name) == (FIRST, "a", SECOND, PROCESS)
            await named.ensure_topic("t", partitions=2, kind="ownership", wait="led")
            assert [len(node.leaderships()) for node in (named, unnamed)] == [1, 1]
            brokers = controller.cluster.brokers
            assert {broker.id: broker.name for broker in brokers.values()} == {FIRST: "a", SECOND: PROCESS}
        assert named.id == FIRST


async def test_chosen_id_has_no_name_and_needs_no_controller() -> None:
    hub, store = kactl.MemoryHub(), kactl.MemoryStore()
    async with store, kactl.Participant(1, hub=hub, store=store) as chosen:
        assert (chosen.id, chosen.name) == (1, "")
        with pytest.raises(ControllerUnreachable):
            await participant(hub=hub, store=store, start_timeout_ms=0).start()


async def test_id_of_an_unnamed_participant_is_free_after_its_end_unless_replicas_are_there() -> None:
    async with kactl.Controller(100) as controller:
        async with participant(hub=controller.hub) as first:
            assert first.id == FIRST
        async with participant(hub=controller.hub) as second:
            assert second.id == FIRST
            await second.ensure_topic("orders", assignment={0: [FIRST]})
        async with participant(hub=controller.hub) as third:
            assert third.id == SECOND  # a replica of orders is on the first id
            await third.restart()
            assert third.id == SECOND
        async with participant("a", hub=controller.hub) as named:
            assert named.id == SECOND
        async with participant(hub=controller.hub) as fourth:
            assert fourth.id == GIVEN_IDS[2]


async def test_killed_unnamed_participant_does_not_wait_for_its_former_session() -> None:
    async with kactl.Controller(100) as controller, participant(hub=controller.hub) as node:
        await node.kill()
        await node.start()

        assert node.id == SECOND


# -- tcp, and restarts of everything -----------------------------------------------------------------------------------


async def test_names_keep_their_ids_over_restarts_of_everything(tmp_path: Path) -> None:
    found = []
    for order in (["a", "b", None], [None, "b", "a"]):
        async with cluster(kactl.SqliteStore(tmp_path / "k.db")) as (_, options), AsyncExitStack() as stack:
            for name in order:
                node = await stack.enter_async_context(participant(name, **options))
                found.append((name, node.id))

    ids = dict(found)
    assert sorted(found[:3], key=str) == sorted(found[3:], key=str)
    assert len(set(ids.values())) == 3


async def test_names_keep_their_ids_and_links_over_a_takeover(tmp_path: Path) -> None:
    def controller(node_id: int) -> kactl.Controller:
        store = kactl.SqliteStore(tmp_path / "k.db")
        return kactl.Controller(node_id, store=store, network=kactl.TcpNetwork(listen="127.0.0.1:0", secret=SECRET))

    async with controller(100) as one, AsyncExitStack() as stack:
        await one.wait_active()
        two = await stack.enter_async_context(controller(101))
        addresses = [str(getattr(each.network, "address", "")) for each in (one, two)]
        network = kactl.TcpNetwork(controllers=addresses, secret=SECRET)
        nodes = [await stack.enter_async_context(participant(name, network=network)) for name in ("a", None)]
        before = [(node.id, node.epoch) for node in nodes]
        await nodes[0].ensure_topic("t", partitions=2, kind="ownership", wait="led")
        leaders = [leader for node in nodes for leader in node.leaderships()]

        await one.aclose()
        await two.wait_active()
        async with participant("b", network=network) as later:
            assert later.id not in {broker for broker, _ in before}

        assert [(node.id, await node.wait_linked()) for node in nodes] == before
        assert [leader.is_valid for leader in leaders] == [True, True]


async def test_second_live_process_with_a_name_is_refused() -> None:
    async with cluster() as (_, options), participant("a", session_timeout_ms=1_500, **options) as first:
        with pytest.raises(BrokerIdTaken, match=f"broker id {FIRST} of participant a .*a name of its own, or none"):
            await participant("a", **options).start()

        assert first.life is not None
        async with participant("b", **options) as other:
            assert other.id == SECOND


async def test_killed_process_with_a_name_is_replaced_when_its_session_has_ended() -> None:
    async with cluster() as (_, options), participant("a", session_timeout_ms=1_000, **options) as first:
        await first.kill()

        async with participant("a", **options) as second:
            assert (second.id, second.epoch > first.epoch) == (FIRST, True)


# -- who may have which id ---------------------------------------------------------------------------------------------


async def test_certificate_decides_which_name_a_participant_may_have(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    def tls(identity: str) -> kactl.Tls:
        signed = authority.sign(identity.replace("/", "-").replace("*", "any"), names=f"URI:kactl://kactl/{identity}")
        return kactl.Tls(ca=authority.cert, cert=signed.cert, key=signed.key)

    async with cluster(tls=tls("controller/100"), secret=None) as (controller, _):
        address = str(getattr(controller.network, "address", ""))

        def node(identity: str, **given: Any) -> kactl.Participant:
            network = kactl.TcpNetwork(listen="127.0.0.1:0", controllers=[address], tls=tls(identity))
            return kactl.Participant(**given, network=network, handler=kactl.PartitionHandler, start_timeout_ms=10_000)

        async with node("participant/a", name="a") as named, node("participant/*") as unnamed:
            assert (named.id, unnamed.id) == (FIRST, SECOND)
            assert {broker.peer is None for broker in controller.cluster.brokers.values()} == {False}
            refused: list[tuple[str, dict[str, Any]]] = [
                ("participant/b", {"name": "a"}),
                ("participant/*", {"name": "a"}),
                ("participant/a", {"broker_id": 1}),
                ("participant/a", {}),
                ("participant/1", {}),
                ("participant/1", {"name": "a"}),
            ]
            for identity, given in refused:
                with pytest.raises(NotAuthorized, match="its certificate names"):
                    await node(identity, **given).start()
            assert sorted(controller.cluster.brokers) == [FIRST, SECOND]
            assert controller.cluster.maintenance.names == {"a": FIRST}


# -- other stores ------------------------------------------------------------------------------------------------------


async def keeps_names(open_store: Any) -> None:
    for _ in range(2):
        async with cluster(open_store()) as (_, options):
            async with participant("a", store=open_store(), **options) as named, participant(**options) as unnamed:
                assert (named.id, unnamed.id) == (FIRST, SECOND)
            async with participant("a", **options) as named:
                assert named.id == FIRST


@pytest.mark.slow
async def test_names_over_etcd(tmp_path: Path) -> None:
    require_etcd()
    with EtcdServer(tmp_path) as server:
        with anyio.fail_after(120):
            await keeps_names(lambda: kactl.EtcdStore(server.url))


@pytest.mark.java
@pytest.mark.slow
async def test_names_over_zookeeper(zookeeper: ZooKeeperServer) -> None:
    with anyio.fail_after(120):
        await keeps_names(lambda: ZooKeeperStore(zookeeper.connect("/names")))
