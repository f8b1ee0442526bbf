"""Ids of new topics: random, from the source that the controller was given."""

import random

import pytest

from kactl.actors.system import Controller
from kactl.model import Broker
from kactl.stores.memory import MemoryStore
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio


async def created_id(rng: random.Random | None) -> bytes:
    """Returns the id of a topic that a new controller creates."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with Controller(100, store=store, clock=clock, rng=rng) as controller:
        session = await store.new_session(10_000)
        await session.register(Broker(1, 0))
        await settle()
        await controller.create_topic("t", assignment={0: [1]}, timeout_ms=0)
        return store.state.topics["t"].ref.id


async def test_equal_sources_create_equal_ids() -> None:
    ids = [await created_id(random.Random(seed)) for seed in (1, 1, 2)]

    assert ids[0] == ids[1] != ids[2]


async def test_ids_of_the_operating_system_differ() -> None:
    ids = {await created_id(None) for _ in range(3)}

    assert len(ids) == 3
    assert all(topic_id[6] >> 4 == 4 for topic_id in ids)  # random ids have version 4
