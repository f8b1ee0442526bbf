"""Admin API servers on loopback, with a real controller, a store in memory and participants of this process."""

import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest
from aiohttp import web_app
from opentelemetry.trace import TracerProvider

from kactl.actors.system import Controller
from kactl.admin.identity.places import places_of
from kactl.admin.limits import Capacity
from kactl.admin.prometheus import telemetry_for_server
from kactl.admin.server import serve
from kactl.config.file import load
from kactl.config.settings import Config, SecurityConfig
from kactl.participant.group import Participants
from kactl.stores.memory import MemoryStore
from kactl.telemetry.past_states import PastStates
from kactl.transports.memory import MemoryHub
from tests.support import api_access
from tests.support.clocks import ManualClock, settle

JSON = {"Content-Type": "application/json"}


@dataclasses.dataclass
class Answered:
    """Response with its complete body."""

    status: int
    headers: Any
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def read(self, wanted: Any) -> Any:
        """Returns the body, decoded as the documented type."""
        assert self.headers["Content-Type"].startswith("application/json"), self.body
        return msgspec.json.decode(self.body, type=wanted)


@dataclasses.dataclass
class Served:
    """One server and its client."""

    controller: Controller
    participants: Participants | None
    clock: ManualClock
    url: str
    http: aiohttp.ClientSession
    token: str = ""

    @property
    def host(self) -> str:
        """The value of `Host` in a raw request, followed by a line with the token."""
        return f"{urlsplit(self.url).netloc}\r\nAuthorization: Bearer {self.token}"

    async def ask(self, method: str, path: str, **more: Any) -> Answered:
        async with self.http.request(method, self.url + path, **more) as response:
            return Answered(response.status, response.headers, await response.read())

    async def get(self, path: str, **more: Any) -> Answered:
        return await self.ask("GET", path, **more)

    async def post(self, path: str, body: Any = None, **more: Any) -> Answered:
        return await self.ask("POST", path, json={} if body is None else body, **more)

    async def state(self) -> Any:
        """Returns all state that a request could change."""
        views = [self.controller.partitions_of(topic.name) for topic in self.controller.topics()]
        return self.controller.snapshot(), views, await self.controller.store.topics(), self.controller.brokers()


@contextlib.asynccontextmanager
async def served(
    *,
    brokers: int | None = 3,
    store: MemoryStore | None = None,
    node_id: int = 0,
    listen: str = "127.0.0.1:0",
    settings: Mapping[str, object] | None = None,
    capacity: Capacity | None = None,
    clock: ManualClock | None = None,
    tracer_provider: TracerProvider | None = None,
    past: PastStates | None = None,
    security: SecurityConfig | None = None,
) -> AsyncIterator[Served]:
    """Run a server with the given number of participants; None runs none.

    Args:
        security: settings that only a configuration file may contain.
    """
    clock = ManualClock() if clock is None else clock
    store = MemoryStore(clock=clock) if store is None else store
    hub = MemoryHub()
    provider, render = telemetry_for_server()
    own = {"node-id": node_id, "api.listen": listen, "cluster": "test", "security.folder": str(_security_folder())}
    own |= {"api.reads-per-second": 100_000, "api.changes-per-second": 100_000}  # tests do not wait
    config = load(None, {}, own | dict(settings or {}))
    if security is not None:
        config = msgspec.structs.replace(config, security=security)
    async with contextlib.AsyncExitStack() as stack:
        # aiohttp keeps the applications of the last thousand handlers, and each garbage collection visits them.
        stack.callback(web_app._cached_build_middleware.cache_clear)
        controller = await stack.enter_async_context(
            Controller(
                node_id,
                store=store,
                hub=hub,
                clock=clock,
                meter_provider=provider,
                tracer_provider=tracer_provider,
                auto_balance=False,
            )
        )
        participants = None
        if brokers is not None:
            participants = Participants(brokers, store=store, hub=hub, clock=clock)
            await stack.enter_async_context(participants)
        await settle()
        address = await stack.enter_async_context(
            serve(controller, config, participants=participants, render_metrics=render, capacity=capacity, past=past)
        )
        token = _local_token(config)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        http = await stack.enter_async_context(aiohttp.ClientSession(headers=headers))
        yield Served(controller, participants, clock, address.url, http, token)


def _security_folder() -> Path:
    """Returns a folder for the servers of all tests of this process, so that one of them makes the token."""
    return Path(api_access.state_environment()[api_access.VARIABLE]) / f"security-{os.getpid()}"


def _local_token(config: Config) -> str:
    """Returns the token that the server has made for its own user; empty if it has made none."""
    local = places_of(config).local
    return "" if local is None else local.read_text(encoding="ascii").strip()


@contextlib.asynccontextmanager
async def with_orders() -> AsyncIterator[Served]:
    """Run a server with three participants and a topic of four partitions."""
    async with served() as opened:
        await opened.controller.create_topic("orders", partitions=4, replication_factor=3)
        await settle()
        yield opened


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """Server as in `with_orders`, which the test may change."""
    async with with_orders() as opened:
        yield opened


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[Served]:
    """Server as in `with_orders` of all tests of a file that change nothing. A new one takes longer than they do."""
    async with with_orders() as opened:
        yield opened


@contextlib.asynccontextmanager
async def beside_a_controller() -> AsyncIterator[Served]:
    """Run a standby beside controller 5."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with (
        Controller(5, store=store, clock=clock) as other,
        served(brokers=None, store=store.another(), node_id=6) as opened,
    ):
        await other.wait_active()
        await settle()
        yield opened


@pytest.fixture
async def standby() -> AsyncIterator[Served]:
    """Standby beside controller 5."""
    async with beside_a_controller() as opened:
        yield opened


@pytest.fixture(scope="module")
async def shared_standby() -> AsyncIterator[Served]:
    """Standby beside controller 5, of all tests of a file that change nothing."""
    async with beside_a_controller() as opened:
        yield opened
