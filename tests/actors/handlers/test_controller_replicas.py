"""No controller hosts a replica; and those who look for the controller find it in the list of brokers, or do not.

Brokers place the replicas of topics that they create on whoever stands in that list. Kafka's own controller, whose id
is a broker's, is a replica like any other; ours would never answer, and partitions would wait for it for ever.
"""

import logging

import numpy as np
import pytest

from kactl.errors import InvalidReplicaAssignment, InvalidReplicationFactor, StoreUnavailable
from kactl.messages.control import LeaderAndIsr, UpdateMetadata
from kactl.model import NO_EPOCH, NO_VERSION, Broker, Endpoint, PartitionState, ReplicaState, TopicPartition
from kactl.stores.base import Names, Write
from tests.support.clocks import settle
from tests.support.controller_harness import CONTROLLER, World, open_standby, partitions_of, world
from tests.support.scripted_store import fails

pytestmark = pytest.mark.anyio

OTHER = 101
ENTRY = Broker(CONTROLLER, NO_EPOCH, (Endpoint("INTERNAL", "here", 9190),))


async def assigned(w: World, topic: str) -> list[tuple[int, ...]]:
    """What is stored, by partition."""
    return [each.replicas for _, each in (await w.store.assignments([topic])).items()]


# -- rewriting ---------------------------------------------------------------------------------------------------------


async def test_a_new_topic_that_names_the_controller_is_placed_on_brokers_before_anything_else_is_written() -> None:
    async with world(1, 2, 3) as w:
        seen: list[list[tuple[int, ...]]] = []
        commit = w.controller.store.commit

        async def watched(*arguments: object) -> object:
            seen.append(await assigned(w, "orders"))
            return await commit(*arguments)  # type: ignore[arg-type]

        w.controller.store.commit = watched  # type: ignore[method-assign,assignment]
        await w.create("orders", [[CONTROLLER, 1], [2, CONTROLLER, 3], [1, 2]])

        after = [(2, 1), (2, 1, 3), (1, 2)]
        assert [sorted(each) for each in await assigned(w, "orders")] == [[1, 3], [1, 2, 3], [1, 2]]
        assert seen
        assert all(CONTROLLER not in replicas for each in seen for replicas in each)
        assert all(len(w.known(f"orders-{at}").isr) == len(after[at]) for at in range(3))
        assert w.controller.loop.hosting.rewritten == 2
        for broker in (1, 2, 3):
            for request in w.brokers.of(broker, LeaderAndIsr):
                assert isinstance(request, LeaderAndIsr)
                assert not (request.states.replicas == CONTROLLER).any()
        await w.check()


async def test_what_the_rewriting_tells_of_changes_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with world(1, 2) as w:
        await w.create("orders", [[CONTROLLER]])
        w.brokers.forget()

        await w.grow("orders")

        assert w.brokers.sent == []
        assert "a controller was replaced among the replicas of 1 partitions" in caplog.text


async def test_partitions_that_are_added_are_placed_on_the_broker_that_holds_least() -> None:
    async with world(1, 2, 3) as w:
        await w.create("orders", [[1, 2], [1, 2]])

        await w.grow("orders", [1, CONTROLLER])

        assert await assigned(w, "orders") == [(1, 2), (1, 2), (1, 3)]
        assert await w.stored("orders-2") == (1, 0, (1, 3))
        await w.check()


async def test_where_every_broker_is_in_the_list_the_list_becomes_shorter() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[CONTROLLER, 2, 1]])

        assert await assigned(w, "orders") == [(2, 1)]
        assert await w.stored("orders-0") == (2, 0, (1, 2))


async def test_other_instances_host_nothing_either() -> None:
    async with world(1, 2, 3, controller_ids=(OTHER,)) as w:
        await w.create("orders", [[OTHER, CONTROLLER, 1]])

        assert [set(each) for each in await assigned(w, "orders")] == [{1, 2, 3}]
    async with world(1, 2, 3) as w:
        await w.create("orders", [[OTHER, 1]])

        assert await assigned(w, "orders") == [(OTHER, 1)]  # an id like any other, whose broker is down


async def test_a_broker_of_the_same_id_is_a_broker() -> None:
    async with world(1, CONTROLLER, 2) as w:
        await w.create("orders", [[CONTROLLER, 1]])

        assert await assigned(w, "orders") == [(CONTROLLER, 1)]
        assert await w.stored("orders-0") == (CONTROLLER, 0, (1, CONTROLLER))


async def test_a_broker_that_shuts_down_is_given_nothing() -> None:
    async with world(1, 2, 3) as w:
        await w.shut_down(2)

        await w.create("orders", [[1, CONTROLLER]])

        assert await assigned(w, "orders") == [(1, 3)]


async def test_a_topic_that_came_while_nobody_ruled_is_rewritten_by_who_takes_over() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        second, _ = open_standby(w, OTHER, take_over=True)
        w.script("topics", fails(StoreUnavailable("slow")))
        await w.create("late", [[OTHER, 1], [CONTROLLER, 2]])

        async with second:
            await settle()

            assert await assigned(w, "late") == [(2, 1), (CONTROLLER, 2)]
            assert second.partition("late-0").isr == (2, 1)  # type: ignore[union-attr]
            await w.wait(1000)


async def test_what_has_begun_its_life_stays_as_it_is() -> None:
    """A partition with leadership that names the id of a controller is a replica down: somebody may have its data."""
    async with world(1, 2) as w:
        second, _ = open_standby(w, OTHER, take_over=True)
        await w.create("orders", [[OTHER, 1]])

        async with second:
            await settle()

            assert await assigned(w, "orders") == [(OTHER, 1)]
            assert second.partition("orders-0").leader == 1  # type: ignore[union-attr]
            assert second.loop.hosting.rewritten == 0
            await w.wait(1000)


async def test_what_is_in_the_store_counts_where_the_controller_knows_nothing_of_it() -> None:
    """Leadership that somebody wrote for a partition before it appeared in its topic's entry."""
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        early = Names.of([TopicPartition("orders", 1)])
        ints = (np.array([each], np.int32) for each in (1, 5, NO_VERSION))
        leader, epoch, expected = ints
        isr = np.array([[1]], np.int32)
        write = Write(early, leader, epoch, isr, np.zeros(1, np.bool_), expected)
        await w.store.commit(write, w.controller.cluster.fence)

        await w.grow("orders", [1, CONTROLLER])

        assert await assigned(w, "orders") == [(1, 2), (1, CONTROLLER)]
        assert w.controller.loop.hosting.rewritten == 0


async def test_what_could_only_live_on_a_controller_waits_for_a_broker() -> None:
    async with world() as w:
        await w.create("orders", [[CONTROLLER]])

        assert await assigned(w, "orders") == [(CONTROLLER,)]
        assert (await w.store.leaderships(Names.of([TopicPartition("orders", 0)]))).one(0) is None

        await w.start(7)

        assert await assigned(w, "orders") == [(7,)]
        assert await w.stored("orders-0") == (7, 0, (7,))
        assert w.known("orders-0").state == PartitionState.ONLINE
        assert w.known("orders-0").replica_states == {7: ReplicaState.ONLINE}
        await w.check()


async def test_a_store_that_fails_is_asked_again_and_nothing_is_begun_meanwhile() -> None:
    async with world(1, 2) as w:
        left = w.script("write_assignment", fails(StoreUnavailable("slow")))
        await w.create("orders", [[CONTROLLER, 1]])
        await w.wait(1000)

        assert left == []
        assert await assigned(w, "orders") == [(2, 1)]
        assert await w.stored("orders-0") == (2, 0, (1, 2))
        await w.check()


async def test_our_own_placement_never_chooses_a_controller_and_refuses_who_does() -> None:
    async with world(1, 2, listed_as=ENTRY) as w:
        for at in range(5):
            await w.controller.create_topic(f"t{at}", partitions=6, replication_factor=2, timeout_ms=0)
        await settle()
        with pytest.raises(InvalidReplicationFactor):
            await w.controller.create_topic("wide", partitions=1, replication_factor=3)
        with pytest.raises(InvalidReplicaAssignment):
            await w.controller.create_topic("mine", assignment={0: (1, CONTROLLER)})
        with pytest.raises(InvalidReplicaAssignment):
            await w.controller.grow_topic("t0", 7, assignment=[(1, CONTROLLER)])

        assert {each for at in range(5) for each in await assigned(w, f"t{at}")} == {(1, 2), (2, 1)}
        assert w.controller.loop.hosting.rewritten == 0


# -- the list of brokers -----------------------------------------------------------------------------------------------


async def test_who_is_to_be_found_stands_among_the_brokers_by_id_and_is_none() -> None:
    async with world(1, 2, 300, listed_as=ENTRY) as w:
        await w.create("orders", [[1, 2]])

        last = w.brokers.of(1, UpdateMetadata)[-1]
        assert isinstance(last, UpdateMetadata)
        assert partitions_of(last) == ["orders-0"]
        assert [each.id for each in last.live_brokers] == [1, 2, CONTROLLER, 300]
        assert last.live_brokers[2] == ENTRY
        assert last.controller_id == CONTROLLER
        for request in w.brokers.of(1, LeaderAndIsr):
            assert isinstance(request, LeaderAndIsr)
            assert CONTROLLER not in [each.id for each in request.live_leaders]
        assert [each.id for each in w.controller.brokers()] == [1, 2, 300]
        assert w.controller.snapshot().brokers == 3
        assert w.brokers.of(CONTROLLER) == []


async def test_who_is_not_to_be_found_is_known_by_its_id_alone() -> None:
    async with world(1, 2) as w:
        last = w.brokers.of(1, UpdateMetadata)[-1]

        assert isinstance(last, UpdateMetadata)
        assert (last.controller_id, [each.id for each in last.live_brokers]) == (CONTROLLER, [1, 2])


async def test_the_entry_stays_over_a_resignation() -> None:
    async with world(1, listed_as=ENTRY) as w:
        await w.controller.resign()
        await settle()

        last = w.brokers.of(1, UpdateMetadata)[-1]
        assert isinstance(last, UpdateMetadata)
        assert last.controller_epoch == 2
        assert [each.id for each in last.live_brokers] == [1, CONTROLLER]


async def test_a_broker_of_the_same_id_is_not_listed_twice() -> None:
    async with world(1, CONTROLLER, listed_as=ENTRY) as w:
        last = w.brokers.of(1, UpdateMetadata)[-1]

        assert isinstance(last, UpdateMetadata)
        assert [(each.id, each.endpoints[0].listener) for each in last.live_brokers] == [(1, "I"), (CONTROLLER, "I")]
