"""Topic ids: assigned from their protocol level on, and kept."""

from contextlib import suppress

import pytest

from kactl.config.protocol_level import ProtocolLevel
from kactl.errors import ControllerMoved
from kactl.messages.admin import PartitionsRequested, TopicDeletionRequested
from kactl.messages.control import LeaderAndIsr, StopReplica
from kactl.messages.events import TopicModified
from kactl.model import ZERO_ID, Assignment, TopicPartition, TopicRef
from tests.support.clocks import settle
from tests.support.controller_harness import World, open_standby, world
from tests.support.scripted_store import after

from .one_partition import send_request

pytestmark = pytest.mark.anyio


def ids_in_memory(made: World) -> dict[str, bytes]:
    """Returns the id of each topic in the cluster state; both directions must agree."""
    table = made.controller.cluster.table
    found = {topic.name: topic.ref.id for topic in table.topics()}
    for name, topic_id in found.items():
        by_id = table.topic_with_id(topic_id)
        assert (by_id.name if by_id else None) == (None if topic_id == ZERO_ID else name)
    return found


async def stored_ids(made: World, *names: str) -> dict[str, bytes]:
    return {ref.name: ref.id for ref in (await made.store.assignments(names)).topics}


@pytest.mark.scenario(395)
async def test_each_topic_gets_its_own_id() -> None:
    async with world(1) as made:
        await made.create("t1", [[1]])
        first = ids_in_memory(made)
        await made.create("t2", [[1]])

        both = ids_in_memory(made)
        assert both["t1"] == first["t1"] != ZERO_ID
        assert both["t2"] not in (first["t1"], ZERO_ID)
        assert await stored_ids(made, "t1", "t2") == both


@pytest.mark.scenario(396)
async def test_topics_have_no_ids_below_the_protocol_level() -> None:
    async with world(1, level=ProtocolLevel(2, 7, 2)) as made:
        await made.create("t1", [[1]])
        await made.create("t2", [[1]])

        assert ids_in_memory(made) == await stored_ids(made, "t1", "t2") == {"t1": ZERO_ID, "t2": ZERO_ID}


@pytest.mark.scenario(397)
async def test_id_survives_expansion_and_ends_with_deletion() -> None:
    async with world(1) as made:
        await made.create("t", [[1]])
        (topic_id,) = ids_in_memory(made).values()

        await send_request(made, PartitionsRequested("t", 2, ((1,),)))
        assert made.known("t-1").leader == 1
        assert ids_in_memory(made) == await stored_ids(made, "t") == {"t": topic_id}
        (told,) = {ref.id for ref in made.brokers.of(1, LeaderAndIsr)[-1].states.topics}  # type: ignore[union-attr]
        assert told == topic_id

        await send_request(made, TopicDeletionRequested("t"))
        await made.clock.advance(1000)
        assert made.brokers.of(1, StopReplica)
        assert ids_in_memory(made) == await stored_ids(made, "t") == {}
        assert made.controller.cluster.table.topic_with_id(topic_id) is None

        await made.create("t", [[1]])
        assert ids_in_memory(made)["t"] not in (topic_id, ZERO_ID)  # another topic of the same name


async def test_topic_expanded_by_a_tool_keeps_its_id() -> None:
    async with world(1) as made:
        await made.create("t", [[1]])
        before = ids_in_memory(made)
        held = {0: Assignment((1,)), 1: Assignment((1,))}
        await made.store.write_assignment(TopicRef("t", before["t"]), held, None)
        made.controller.loop.inbox.put_once(TopicModified("t"))
        await settle()

        assert made.controller.partition(TopicPartition("t", 1)) is not None
        assert ids_in_memory(made) == await stored_ids(made, "t") == before


async def test_topic_that_replaced_another_is_not_taken_for_the_expanded_one() -> None:
    """Otherwise brokers start the added partitions under the id of the deleted topic, and reject the stored one."""
    async with world(1) as made:
        await made.create("t", [[1]])
        (before,) = ids_in_memory(made).values()

        async def replace() -> None:
            made.store.state.delete_topic("t")
            await made.store.create_topic(TopicRef("t", ZERO_ID), dict.fromkeys((0, 1), Assignment((1,))), {})

        made.script("assignments", after(replace))
        made.brokers.forget()
        made.controller.loop.inbox.put_once(TopicModified("t"))
        await settle()

        assert made.known("t-1").leader == 1
        requests = [request for _, request in made.brokers.sent if isinstance(request, LeaderAndIsr)]
        assert {ref.id for request in requests for ref in request.states.topics} == {*ids_in_memory(made).values()}
        assert ids_in_memory(made) == await stored_ids(made, "t") != {"t": before}


@pytest.mark.scenario(398)
async def test_ids_survive_a_controller_failover() -> None:
    async with world(1) as made:
        await made.create("t", [[1]])
        before = ids_in_memory(made)
        other, _ = open_standby(made, 7)
        async with other:
            await settle()
            await made.controller.resign()
            with suppress(ControllerMoved):
                await made.store.resign(await made.store.contest(98, take_over=True))
            await settle()

            active = made.controller if made.controller.is_active else other
            assert {topic.name: topic.id for topic in active.topics()} == before
            assert await stored_ids(made, "t") == before


@pytest.mark.scenario(399)
async def test_older_topic_gets_an_id_from_the_first_controller_with_ids() -> None:
    async with world(1, level=ProtocolLevel(2, 7, 2)) as made:
        await made.create("old", [[1]])
        assert await stored_ids(made, "old") == {"old": ZERO_ID}
        upgraded, brokers = open_standby(made, 7)
        await made.controller.__aexit__(None, None, None)
        async with upgraded:
            await settle()
            assert upgraded.is_active

            (topic,) = upgraded.topics()
            assert topic.id != ZERO_ID
            assert await stored_ids(made, "old") == {"old": topic.id}
            found = upgraded.cluster.table.topic_with_id(topic.id)
            assert found is not None
            assert found.name == "old"
            told = brokers.of(1, LeaderAndIsr)[-1]
            assert isinstance(told, LeaderAndIsr)
            assert [ref.id for ref in told.states.topics] == [topic.id]
