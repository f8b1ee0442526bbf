"""Controllers host no replicas; they are optionally listed among the brokers so that clients find them.

Brokers place the replicas of topics that they create on any listed broker. Kafka's own controller is a broker and can
host them. kactl's controller never responds as a broker, so that such partitions would wait forever.
"""

import logging
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from kactl.decide.messages.control import LeaderAndIsr, UpdateMetadata
from kactl.decide.state.rows import RowNumbers
from kactl.model import NO_EPOCH, NO_VERSION, Broker, Endpoint, PartitionState, ReplicaState, TopicPartition
from kactl.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor, StoreUnavailable
from kactl.stores.base import Names, Write
from tests.support.clocks import settle
from tests.support.controller_harness import CONTROLLER, World, open_standby, partitions_of, world
from tests.support.scripted_store import Step, fails, fails_after

pytestmark = pytest.mark.anyio

OTHER = 101
ENTRY = Broker(CONTROLLER, NO_EPOCH, (Endpoint("INTERNAL", "here", 9190),))


async def assigned(w: World, topic: str) -> list[tuple[int, ...]]:
    """Returns the stored replicas by partition."""
    return [each.replicas for _, each in (await w.store.assignments([topic])).items()]


# -- assignment of brokers instead of controllers ----------------------------------------------------------------------


async def test_controller_in_a_new_topic_is_replaced_before_other_writes() -> None:
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


async def test_notification_of_the_own_rewrite_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with world(1, 2) as w:
        await w.create("orders", [[CONTROLLER]])
        w.brokers.forget()

        await w.grow("orders")

        assert w.brokers.sent == []
        assert "a controller was replaced among the replicas of 1 partitions" in caplog.text


async def test_added_partitions_go_to_the_broker_with_fewest_replicas() -> None:
    async with world(1, 2, 3) as w:
        await w.create("orders", [[1, 2], [1, 2]])

        await w.grow("orders", [1, CONTROLLER])

        assert await assigned(w, "orders") == [(1, 2), (1, 2), (1, 3)]
        assert await w.stored("orders-2") == (1, 0, (1, 3))
        await w.check()


async def test_assignment_shrinks_if_it_contains_every_broker() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[CONTROLLER, 2, 1]])

        assert await assigned(w, "orders") == [(2, 1)]
        assert await w.stored("orders-0") == (2, 0, (1, 2))


async def test_standby_instances_host_no_replicas() -> None:
    async with world(1, 2, 3, controller_ids=(OTHER,)) as w:
        await w.create("orders", [[OTHER, CONTROLLER, 1]])

        assert [set(each) for each in await assigned(w, "orders")] == [{1, 2, 3}]
    async with world(1, 2, 3) as w:
        await w.create("orders", [[OTHER, 1]])

        assert await assigned(w, "orders") == [(OTHER, 1)]  # the id of an offline broker


async def test_broker_with_the_same_id_hosts_replicas() -> None:
    async with world(1, CONTROLLER, 2) as w:
        await w.create("orders", [[CONTROLLER, 1]])

        assert await assigned(w, "orders") == [(CONTROLLER, 1)]
        assert await w.stored("orders-0") == (CONTROLLER, 0, (1, CONTROLLER))


async def test_broker_in_shutdown_gets_no_replicas() -> None:
    async with world(1, 2, 3) as w:
        await w.shut_down(2)

        await w.create("orders", [[1, CONTROLLER]])

        assert await assigned(w, "orders") == [(1, 3)]


async def test_takeover_rewrites_topics_created_before_it() -> None:
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


async def test_partition_with_leadership_is_not_rewritten() -> None:
    """A replica with the id of a controller in a partition with leadership is an offline replica: a broker may have
    its data."""
    async with world(1, 2) as w:
        second, _ = open_standby(w, OTHER, take_over=True)
        await w.create("orders", [[OTHER, 1]])

        async with second:
            await settle()

            assert await assigned(w, "orders") == [(OTHER, 1)]
            assert second.partition("orders-0").leader == 1  # type: ignore[union-attr]
            assert second.loop.hosting.rewritten == 0
            await w.wait(1000)


async def test_stored_unknown_leadership_prevents_a_rewrite() -> None:
    """A leadership written for a partition before it appeared in its topic's assignment."""
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


async def test_partition_assigned_only_to_controllers_waits_for_a_broker() -> None:
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


@pytest.mark.parametrize("call", ["assignments", "leaderships", "write_assignment"])
@pytest.mark.parametrize(("step", "times"), [(fails, 1), (fails_after, 1), (fails, 5)])
@pytest.mark.parametrize("is_added", [False, True])
async def test_failed_rewrite_is_retried_before_other_steps(
    call: str, step: Callable[[Exception], Step], times: int, is_added: bool
) -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        rewrite = w.controller.loop.hosting.rewrite
        left: list[list[Step]] = []

        async def failing(row_numbers: RowNumbers) -> None:
            w.controller.loop.hosting.rewrite = rewrite  # type: ignore[method-assign]
            left.append(w.script(call, *[step(StoreUnavailable("slow"))] * times))
            await rewrite(row_numbers)

        w.controller.loop.hosting.rewrite = failing  # type: ignore[method-assign]
        if is_added:
            await w.grow("orders", [CONTROLLER, 1])
        else:
            await w.create("payments", [[1, 2], [CONTROLLER, 1]])
        await w.wait(30_000)

        name = "orders" if is_added else "payments"
        assert left == [[]]
        assert await assigned(w, name) == [(1, 2), (2, 1)]
        assert await w.stored(f"{name}-1") == (2, 0, (1, 2))
        await w.check()


async def test_placement_excludes_and_rejects_controllers() -> None:
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


# -- registered broker ids ---------------------------------------------------------------------------------------------


async def test_listed_controller_is_found_by_its_broker_id() -> None:
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


async def test_unlisted_controller_is_known_by_its_id_only() -> None:
    async with world(1, 2) as w:
        last = w.brokers.of(1, UpdateMetadata)[-1]

        assert isinstance(last, UpdateMetadata)
        assert (last.controller_id, [each.id for each in last.live_brokers]) == (CONTROLLER, [1, 2])


async def test_listed_entry_survives_a_resignation() -> None:
    async with world(1, listed_as=ENTRY) as w:
        await w.controller.resign()
        await settle()

        last = w.brokers.of(1, UpdateMetadata)[-1]
        assert isinstance(last, UpdateMetadata)
        assert last.controller_epoch == 2
        assert [each.id for each in last.live_brokers] == [1, CONTROLLER]


async def test_broker_with_the_same_id_is_not_listed_twice() -> None:
    async with world(1, CONTROLLER, listed_as=ENTRY) as w:
        last = w.brokers.of(1, UpdateMetadata)[-1]

        assert isinstance(last, UpdateMetadata)
        assert [(each.id, each.endpoints[0].listener) for each in last.live_brokers] == [(1, "I"), (CONTROLLER, "I")]


# -- racks -------------------------------------------------------------------------------------------------------------


def rack_at(w: World, broker: int) -> str | None:
    """Returns the rack of the controller's entry in the last list of brokers that a broker has received."""
    last = w.brokers.of(broker, UpdateMetadata)[-1]
    assert isinstance(last, UpdateMetadata)
    (entry,) = [each for each in last.live_brokers if each.id == CONTROLLER]
    return entry.rack


async def test_listed_controller_has_a_rack_while_all_brokers_have_one() -> None:
    async with world(listed_as=ENTRY) as w:
        seen = []
        for number, rack in enumerate(["b", "a", "a", None], start=1):
            await w.start(number, racks={number: rack} if rack else None)
            seen.append({rack_at(w, each) for each in range(1, number + 1)})
        await w.stop(4)
        seen.append({rack_at(w, each) for each in (1, 2, 3)})

        assert seen == [{"b"}, {"a"}, {"a"}, {None}, {"a"}]


async def test_configured_rack_replaces_the_chosen_one() -> None:
    async with world(listed_as=msgspec.structs.replace(ENTRY, rack="x")) as w:
        await w.start(1, racks={1: "a"})
        with_racks = rack_at(w, 1)
        await w.start(2)

        assert (with_racks, rack_at(w, 1), rack_at(w, 2)) == ("x", None, None)


async def test_controller_is_replaced_by_a_broker_of_a_missing_rack() -> None:
    async with world(listed_as=ENTRY) as w:
        for number, rack in enumerate("aab", start=1):
            await w.start(number, racks={number: rack} if rack else None)
        await w.create("ballast", [[3]] * 5)
        await w.create("orders", [[CONTROLLER, 1]])

        assert await assigned(w, "orders") == [(3, 1)]
