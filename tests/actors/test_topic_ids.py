"""Topic ids: assigned from their protocol level on, and kept."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from kactl.actors.system import Controller
from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.messages.admin import AddPartitions, DeleteTopic
from kactl.decide.messages.control import LeaderAndIsr, StopReplica
from kactl.decide.messages.events import PartitionModifications
from kactl.model import ZERO_ID, Assignment, Fence, TopicPartition, TopicRef
from kactl.model.errors import ControllerMoved, StoreUnavailable
from tests.support.clocks import settle
from tests.support.controller_harness import RecordingBrokers, World, open_standby, world
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

        await send_request(made, AddPartitions("t", 2, ((1,),)))
        assert made.known("t-1").leader == 1
        assert ids_in_memory(made) == await stored_ids(made, "t") == {"t": topic_id}
        (told,) = {ref.id for ref in made.brokers.of(1, LeaderAndIsr)[-1].states.topics}  # type: ignore[union-attr]
        assert told == topic_id

        await send_request(made, DeleteTopic("t"))
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
        made.controller.loop.inbox.put_once(PartitionModifications("t"))
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
        made.controller.loop.inbox.put_once(PartitionModifications("t"))
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


# -- ids that a tool has removed ---------------------------------------------------------------------------------------


def remove_id(made: World, topic: str, topic_id: bytes = ZERO_ID) -> None:
    """Rewrite a topic's entry as a tool does that does not know ids, or knows another one."""
    state = made.store.state
    state.topics[topic].ref = TopicRef(topic, topic_id)
    state.topic_written(topic)


async def restart(made: World, **settings: Any) -> tuple[Controller, RecordingBrokers]:
    """Stop the controller, and return the next one, which was no standby."""
    await made.controller.__aexit__(None, None, None)
    return open_standby(made, 7, **settings)


@pytest.mark.parametrize("found", [ZERO_ID, b"another id 16 by"], ids=["no id", "another id"])
@pytest.mark.parametrize("partitions", [1, 2])
async def test_id_that_a_tool_removes_is_written_back(found: bytes, partitions: int) -> None:
    async with world(1) as made:
        await made.create("t", [[1]])
        before = ids_in_memory(made)
        held = dict.fromkeys(range(partitions), Assignment((1,)))
        await made.store.write_assignment(TopicRef("t"), held, None)
        remove_id(made, "t", found)
        made.brokers.forget()
        made.controller.loop.inbox.put_once(PartitionModifications("t"))
        await settle()

        assert await stored_ids(made, "t") == ids_in_memory(made) == before
        assert len(await made.store.assignments(["t"])) == partitions == len(made.controller.partitions_of("t"))
        requests = [request for _, request in made.brokers.sent if isinstance(request, LeaderAndIsr)]
        assert {ref.id for request in requests for ref in request.states.topics} <= {before["t"]}


@pytest.mark.parametrize("others", [0, 1])
async def test_id_that_was_removed_without_a_controller_is_read_from_its_copy(others: int) -> None:
    async with world(1) as made:
        for name in ("t", *(f"other-{number}" for number in range(others))):
            await made.create(name, [[1]])
        before = ids_in_memory(made)
        remove_id(made, "t")
        next_one, brokers = await restart(made)
        async with next_one:
            await settle()

            assert {topic.name: topic.id for topic in next_one.topics()} == before
            assert await stored_ids(made, *before) == before
            told = brokers.of(1, LeaderAndIsr)[-1]
            assert isinstance(told, LeaderAndIsr)
            assert {ref.id for ref in told.states.topics} == set(before.values())
            assert not brokers.of(1, StopReplica)


async def lost(made: World) -> dict[str, bytes]:
    """Create two topics; one loses its id and the copy of it. Returns the ids."""
    await made.create("t", [[1]])
    await made.create("other", [[1]])
    before = ids_in_memory(made)
    remove_id(made, "t")
    made.store.state.topics["t"].id_copy = None
    return before


async def test_no_id_is_made_up_for_a_topic_that_has_lost_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async with world(1) as made:
        before = await lost(made)
        next_one, brokers = await restart(made)
        async with next_one:
            await settle()

            assert {topic.name: topic.id for topic in next_one.topics()} == before | {"t": ZERO_ID}
            assert await stored_ids(made, "t") == {"t": ZERO_ID}
            assert next_one.partition(TopicPartition("t", 0)).leader == 1  # type: ignore[union-attr]
            assert next_one.cluster.without_id == {"t"}
            assert "topic t has lost its id" in caplog.text

            # An operator writes it.
            remove_id(made, "t", before["t"])
            brokers.forget()
            next_one.loop.inbox.put_once(PartitionModifications("t"))
            await made.wait(15_000)

            assert {topic.name: topic.id for topic in next_one.topics()} == before
            assert next_one.cluster.without_id == set()
            assert await made.store.topic_id_copies(["t"]) == {"t": before["t"]}
            told = brokers.of(1, LeaderAndIsr)[-1]
            assert isinstance(told, LeaderAndIsr)
            assert [ref.id for ref in told.states.topics] == [before["t"]]


async def test_operator_can_order_a_new_id_for_a_topic_that_has_lost_its_own() -> None:
    async with world(1) as made:
        before = await lost(made)
        next_one, _ = await restart(made, new_topic_ids=["t"])
        async with next_one:
            await settle()

            after = {topic.name: topic.id for topic in next_one.topics()}
            assert after["t"] not in (ZERO_ID, before["t"])
            assert after == await stored_ids(made, *before) == await made.store.topic_id_copies([*before])


@pytest.mark.parametrize("failing", [1, 2])
async def test_giving_ids_to_all_topics_is_completed_after_a_crash(failing: int) -> None:
    """At the first takeover with ids: a topic with an id must not make others look as if they had lost theirs."""
    async with world(1, level=ProtocolLevel(2, 7, 2)) as made:
        await made.create("t1", [[1]])
        await made.create("t2", [[1]])
        upgraded, _ = await restart(made)
        real, calls = upgraded.store.write_topic_ids, 0

        async def half_written(topics: Sequence[TopicRef], fence: Fence, *, copies_only: bool = False) -> None:
            nonlocal calls
            calls += 1
            await real(topics[:1] if calls == failing else topics, fence, copies_only=copies_only)
            if calls == failing:
                raise StoreUnavailable("gone")

        upgraded.store.write_topic_ids = half_written  # type: ignore[method-assign]
        async with upgraded:
            await made.clock.advance(30_000)

            after = {topic.name: topic.id for topic in upgraded.topics()}
            assert calls > failing
            assert ZERO_ID not in after.values()
            assert after == await stored_ids(made, "t1", "t2")
            assert upgraded.cluster.without_id == set()


async def test_new_topic_without_an_id_gets_one() -> None:
    async with world(1) as made:
        await made.create("other", [[1]])
        await made.store.create_topic(TopicRef("t"), {0: Assignment((1,))}, {})
        await settle()

        assert ids_in_memory(made)["t"] != ZERO_ID
        assert await stored_ids(made, "t", "other") == ids_in_memory(made)
        assert await made.store.topic_id_copies(["t", "other"]) == ids_in_memory(made)
