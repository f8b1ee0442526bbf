"""A store with latency and faults around another one."""

import asyncio
import random
from typing import Any

import pytest

from kactl.model import TopicRef
from kactl.model.errors import StoreUnavailable
from kactl.stores.base import Changed, Session, Store
from kactl.stores.memory import MemoryState, MemoryStore
from kactl.testing import LoopClock, SimLoop, sim
from kactl.testing.contracts.store import StoreContract, Stores
from kactl.testing.latent_store import LatentSession, LatentStore, StoreFaults

from .running import this_loop


class LatentStores:
    """Clients of one state, each with latency."""

    def __init__(self) -> None:
        self._state = MemoryState()
        self._clients = 0

    def open_client(self) -> Store:
        self._clients += 1
        store = MemoryStore(self._state, clock=LoopClock())
        return LatentStore(store, rng=random.Random(self._clients), faults=StoreFaults(latency_ms=(1, 90)))

    async def expire(self, client: Store) -> None:
        assert isinstance(client, LatentStore)
        assert isinstance(client.store, MemoryStore)
        client.store.expire()

    async def expire_session(self, session: Session) -> None:
        assert isinstance(session, LatentSession)
        await asyncio.sleep(session.timeout_ms / 1000)


class TestLatentStore(StoreContract):
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "asyncio", {"loop_factory": lambda: SimLoop(1)}

    @pytest.fixture
    def stores(self) -> Stores:
        return LatentStores()


def new_store(**faults: Any) -> LatentStore:
    return LatentStore(MemoryStore(clock=LoopClock()), rng=random.Random(1), faults=StoreFaults(**faults))


@pytest.mark.parametrize(("faults", "expected"), [({"lost_requests": 1.0}, []), ({"lost_answers": 1.0}, ["t"])])
def test_lost_call_has_its_effect_or_not(faults: dict[str, float], expected: list[str]) -> None:
    async def main() -> list[str]:
        async with new_store(**faults) as store:
            with pytest.raises(StoreUnavailable, match="create_topic"):
                await store.create_topic(TopicRef("t"), {}, {})
            store.faults = StoreFaults()
            topics: list[str] = await store.topics()
            return topics

    assert sim.run(main) == expected


def test_cut_call_fails_at_its_limit_or_goes_on() -> None:
    async def main() -> tuple[float, list[str], float]:
        async with new_store(timeout_ms=3_000) as store:
            store.cut()
            with pytest.raises(StoreUnavailable, match="within 3000 ms"):
                await store.topics()
            failed_s = this_loop().now_s
            this_loop().call_later(1, store.heal)
            topics = await store.topics()
            return failed_s, topics, this_loop().now_s

    assert sim.run(main) == (3.0, [], 4.0)


@pytest.mark.parametrize("seed", range(5))
def test_event_arrives_before_the_result_that_it_precedes(seed: int) -> None:
    async def main() -> list[list[Changed]]:
        shown, events = [], list[Changed]()
        inner = MemoryStore(clock=LoopClock())
        latent = LatentStore(inner, rng=random.Random(seed), faults=StoreFaults(latency_ms=(1, 100)))
        async with latent as store, inner.another() as other:
            store.subscribe(lambda event: events.append(event.what))
            await store.topics()
            for number in range(20):
                events.clear()
                await other.create_topic(TopicRef(f"t{number}"), {}, {})
                await store.topics()
                shown.append(list(events))
        return shown

    assert sim.run(main, seed=seed) == [[Changed.TOPICS]] * 20
