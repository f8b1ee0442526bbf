"""Tests of the in-memory store beyond the contract: sessions end by a clock that the test advances."""

import pytest

from kactl.model import Assignment, TopicPartition
from kactl.model.errors import IllegalState, SessionExpired, TopicExists
from kactl.stores.base import Assignments, Changed, Store
from kactl.stores.memory import MemoryState, MemoryStore
from tests.support.clocks import ManualClock
from tests.support.store_clients import EventRecorder, broker_info

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kept_alive", [True, False])
async def test_renewed_broker_session_does_not_expire(kept_alive: bool) -> None:
    clock = ManualClock()
    async with MemoryStore(clock=clock) as store:
        recorder = EventRecorder(store)
        session = await store.new_session(1_000)
        await session.register(broker_info(1))
        await store.brokers()

        for _ in range(5):
            await clock.advance(900)
            if kept_alive:
                await session.keep_alive()

        assert [event.what for event in recorder.events] == ([] if kept_alive else [Changed.BROKERS])
        assert (1 in await store.brokers()) is kept_alive


async def test_session_lasts_until_its_last_millisecond() -> None:
    clock = ManualClock()
    async with MemoryStore(clock=clock) as store:
        session = await store.new_session(1_000)
        await session.register(broker_info(1))

        await clock.advance(999)
        alive = await store.brokers()
        await clock.advance(1)

        assert list(alive) == [1]
        assert await store.brokers() == {}
        with pytest.raises(SessionExpired):
            await session.keep_alive()


async def test_stored_state_outlives_its_clients() -> None:
    state = MemoryState()
    wanted = {TopicPartition("orders", at): Assignment((1, 2)) for at in range(3)}
    async with MemoryStore(state) as store:
        await store.create_topics(Assignments.of(wanted))
        await store.contest(1)

    async with MemoryStore(state) as store, store.another() as other:
        assert dict((await other.assignments(["orders"])).items()) == wanted
        assert (await other.contest(2)).epoch == 2
        assert await store.controller() is not None


async def test_existing_topic_rejects_the_creation_of_many() -> None:
    async with MemoryStore() as store:
        await store.create_topics(Assignments.of({TopicPartition("b", 0): Assignment((1,))}))

        with pytest.raises(TopicExists):
            await store.create_topics(Assignments.of({TopicPartition(name, 0): Assignment((1,)) for name in "abc"}))

        assert await store.topics() == ["b"]


async def test_changes_between_two_reads_are_one_event() -> None:
    async with MemoryStore() as store:
        recorder = EventRecorder(store)
        await store.topics()

        for name in "abc":
            await store.create_topics(Assignments.of({TopicPartition(name, 0): Assignment((1,))}))

        assert [event.what for event in recorder.events] == [Changed.TOPICS]


async def test_closing_the_store_ends_all_sessions() -> None:
    async with MemoryStore() as store:
        async with store.another() as leaving:
            session = await leaving.new_session(60_000)
            await session.register(broker_info(1))
            await leaving.contest(1)

        assert await store.brokers() == {}
        assert await store.controller() is None
        await session.close()


async def test_store_rejects_calls_outside_its_block() -> None:
    store: Store = MemoryStore()

    with pytest.raises(IllegalState):
        await store.topics()
    with pytest.raises(IllegalState):
        await store.__aexit__(None, None, None)


async def test_error_in_the_block_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        async with MemoryStore():
            raise ZeroDivisionError
