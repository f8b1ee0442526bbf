"""The store contract over memory."""

import pytest

from kactl.stores.base import Session, Store
from kactl.stores.memory import MemoryState, MemoryStore
from kactl.testing.contracts.store import StoreContract, Stores
from tests.support.clocks import ManualClock


class MemoryStores:
    """Clients of one state; the clock advances for a session to expire."""

    def __init__(self) -> None:
        self._state = MemoryState()
        self._clock = ManualClock()

    def open_client(self) -> Store:
        return MemoryStore(self._state, clock=self._clock)

    async def expire(self, client: Store) -> None:
        assert isinstance(client, MemoryStore)
        client.expire()

    async def expire_session(self, session: Session) -> None:
        await self._clock.advance(session.timeout_ms)


@pytest.fixture
def stores() -> Stores:
    return MemoryStores()


class TestMemoryStore(StoreContract):
    pass
