"""The client's own session, without a server."""

from typing import cast

import pytest

from kactl.errors import StoreUnavailable
from kactl.stores.base import Changed, StoreEvent
from kactl.stores.etcd.client import Client
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
