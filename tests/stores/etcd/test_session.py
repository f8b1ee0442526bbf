"""The client's own session, without a server."""

from types import SimpleNamespace
from typing import cast

import pytest

from kactl.model.errors import StoreUnavailable
from kactl.stores.base import Changed, StoreEvent
from kactl.stores.etcd.client import Client
from kactl.stores.etcd.keys import Keys
from kactl.stores.etcd.messages import LeaseResponse
from kactl.stores.etcd.session import OwnSession
from tests.support.clocks import ManualClock

pytestmark = pytest.mark.anyio

LEASE = 7


class SilentClient:
    """A client without a server: a renewal takes as long as it may, and fails."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    async def keep_alive(self, lease: int, *, limit_ms: float) -> int:
        assert lease == LEASE
        await self._clock.advance(limit_ms)
        raise StoreUnavailable("no answer in time")


@pytest.mark.parametrize("timeout_ms", [1_000, 2_000, 3_000, 30_000])
async def test_session_is_suspended_before_its_timeout(timeout_ms: int) -> None:
    clock, events = ManualClock(), dict[StoreEvent, float]()
    client = cast(Client, SilentClient(clock))

    def listen(event: StoreEvent) -> None:
        events[event] = clock.monotonic_ms()

    session = OwnSession(client, listen, clock=clock, timeout_ms=timeout_ms, on_lost=events.clear)
    session.lease = LEASE
    pause_ms = timeout_ms / 3

    while not events:
        await clock.advance(pause_ms)
        pause_ms = await session.attempt()

    assert events == {StoreEvent(Changed.SUSPENDED): pytest.approx(0.75 * timeout_ms)}


class SlowClient:
    """A client of a server that receives each request at once, and whose responses take `response_ms`."""

    def __init__(self, clock: ManualClock, response_ms: float) -> None:
        self._clock = clock
        self._response_ms = response_ms
        self.keys = Keys("/kactl", "test")

    async def keep_alive(self, lease: int, *, limit_ms: float) -> int:
        await self._clock.advance(self._response_ms)
        return 1

    async def check_cluster(self) -> None: ...

    async def grant_lease(self, ttl_s: int) -> LeaseResponse:
        await self._clock.advance(self._response_ms)
        return cast(LeaseResponse, SimpleNamespace(ID=LEASE, TTL=ttl_s))

    async def txn(self, *_: object) -> None:
        await self._clock.advance(self._response_ms)


@pytest.mark.parametrize("begins", ["opened", "renewed"])
async def test_session_counts_from_the_sending_of_a_request(begins: str) -> None:
    """The server counts from its receipt, which may be at any time between sending and response."""
    clock, events = ManualClock(), dict[StoreEvent, float]()
    client = SlowClient(clock, response_ms=400)

    def listen(event: StoreEvent) -> None:
        events[event] = clock.monotonic_ms()

    session = OwnSession(cast(Client, client), listen, clock=clock, timeout_ms=3_000, on_lost=events.clear)
    await session.open()
    if begins == "renewed":
        await clock.advance(1_000)
    sent_ms = 0.0 if begins == "opened" else clock.monotonic_ms()
    if begins == "renewed":
        await session.attempt()
    session._client = cast(Client, SilentClient(clock))

    while not events:
        await clock.advance(await session.attempt())

    assert events == {StoreEvent(Changed.SUSPENDED): pytest.approx(sent_ms + 0.75 * 3_000)}
