"""Health checks by role, over HTTP, through failovers of a cluster with a manual clock."""

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import msgspec
import pytest
from aiohttp import web

import kactl
from kactl import admin
from kactl.model import Endpoint
from kactl.model.errors import BadRequest
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

SESSION_MS = 6_000
FAILOVERS = 20


class Cluster:
    """Three participants, each with its own server of health checks."""

    def __init__(self, clock: ManualClock, controller: kactl.Controller) -> None:
        self.clock = clock
        self.controller = controller
        self.participants: dict[int, kactl.Participant] = {}
        self.urls: dict[int, str] = {}
        self.http = aiohttp.ClientSession()

    async def statuses(self, path: str) -> dict[int, int]:
        """Returns the status of each participant."""
        statuses = {}
        for broker, url in self.urls.items():
            async with self.http.get(url + path) as response:
                statuses[broker] = response.status
        return statuses


@asynccontextmanager
async def serving(application: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def three(clock: ManualClock) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        controller = await stack.enter_async_context(kactl.Controller(100, clock=clock, auto_balance=False))
        cluster = Cluster(clock, controller)
        stack.push_async_callback(cluster.http.close)
        for broker in (1, 2, 3):
            participant = kactl.Participant(
                broker,
                store=controller.store,
                hub=controller.hub,
                clock=clock,
                session_timeout_ms=SESSION_MS,
                handler=kactl.PartitionHandler,
                endpoints=(Endpoint("app", "10.0.0.1", 8000 + broker),),
                shutdown_attempts=0,
            )
            cluster.participants[broker] = await stack.enter_async_context(participant)
            application = web.Application()
            application.add_subapp("/app", admin.roles(participant, prefix="/app"))
            cluster.urls[broker] = await stack.enter_async_context(serving(application)) + "/app"
        await settle()
        await controller.create_topic("orders", assignment={0: [1, 2, 3], 1: [2, 3, 1]})
        await clock.advance(100)
        yield cluster


@pytest.mark.slow
async def test_never_two_participants_lead_in_twenty_failovers(clock: ManualClock) -> None:
    led_by: list[int] = []
    async with three(clock) as cluster:
        for _ in range(FAILOVERS):
            statuses = await cluster.statuses("/roles/orders/0")
            (leader,) = (broker for broker, status in statuses.items() if status == 200)
            led_by.append(leader)
            cluster.participants[leader].pause()  # it hangs, and serves its health checks
            for step in range(60):
                await clock.advance(250)
                statuses = await cluster.statuses("/roles/orders/0")
                assert sorted(statuses.values()) in ([200, 503, 503], [503, 503, 503]), step
                if statuses[leader] == 503 and 200 in statuses.values():
                    break
            cluster.participants[leader].resume()
            for _ in range(4):
                await clock.advance(250)
                statuses = await cluster.statuses("/roles/orders/0")
                assert list(statuses.values()).count(200) <= 1
            await clock.advance(5_000)

    assert len(led_by) == FAILOVERS
    assert all(before != after for before, after in itertools.pairwise(led_by))


async def test_response_names_the_token_or_the_leader(clock: ManualClock) -> None:
    async with three(clock) as cluster:
        leader = cluster.participants[1].leadership("orders-0")
        assert leader is not None
        async with cluster.http.get(cluster.urls[1] + "/roles/orders/0") as own:
            assert (own.status, own.headers["Cache-Control"]) == (200, "no-store")
            assert msgspec.json.decode(await own.read())["token"] == str(leader.token)
        async with cluster.http.get(cluster.urls[2] + "/roles/orders/0") as other:
            route = msgspec.json.decode(await other.read())
            assert (other.status, route["leader"]) == (503, 1)
            assert route["endpoint"] == {"host": "10.0.0.1", "port": 8001}
        async with cluster.http.head(cluster.urls[1] + "/roles/orders/0") as head:
            assert (head.status, await head.read()) == (200, b"")
        async with cluster.http.head(cluster.urls[3] + "/roles/orders/0") as head:
            assert (head.status, await head.read()) == (503, b"")
        assert await cluster.statuses("/roles/orders") == {1: 200, 2: 200, 3: 503}
        assert await cluster.statuses("/roles/none") == {1: 503, 2: 503, 3: 503}
        assert await cluster.statuses("/roles/orders/7") == {1: 503, 2: 503, 3: 503}
        assert await cluster.statuses("/roles/orders/x") == {1: 404, 2: 404, 3: 404}
        await cluster.participants[1].kill()
        assert (await cluster.statuses("/roles/orders/0"))[1] == 503


def test_prefix_has_one_form() -> None:
    with pytest.raises(BadRequest, match="prefix"):
        admin.roles(kactl.Participant(1, store=kactl.MemoryStore(), hub=kactl.MemoryHub()), prefix="app")
