"""Partition expansion: by request, and by other tools."""

import pytest

from kactl.decide.messages.log import TopicEvent
from kactl.model import PARTITIONS_OF_A_TOPIC_MAX, Assignment, PartitionState, TopicRef
from kactl.model.errors import (
    BeingDeleted,
    ErrorCode,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    KactlError,
    NotController,
    NotFound,
    ReassignmentRunning,
)
from tests.actors.reassignment_helpers import reassign
from tests.support.clocks import settle
from tests.support.controller_harness import World, open_standby, world
from tests.support.store_clients import watches_of

pytestmark = pytest.mark.anyio


async def stored_replicas(w: World, topic: str) -> dict[int, tuple[int, ...]]:
    """Returns the stored replicas of each partition."""
    return {name.partition: held.replicas for name, held in (await w.store.assignments([topic])).items()}


async def test_added_partitions_continue_round_robin_and_go_online() -> None:
    async with world(1, 2, 3) as w:
        ref = await w.controller.create_topic("t", partitions=3, replication_factor=2)
        before = await stored_replicas(w, "t")
        w.brokers.forget()

        await w.controller.grow_topic("t", 6)

        after = await stored_replicas(w, "t")
        assert {at: after[at] for at in before} == before
        assert sorted(after) == [0, 1, 2, 3, 4, 5]
        assert all(len(set(held)) == 2 for held in after.values())
        assert sorted(after[at][0] for at in (3, 4, 5)) == [1, 2, 3]
        assert [after[at][0] for at in (3, 4, 5)] == [before[at][0] for at in (0, 1, 2)]
        for at in (3, 4, 5):
            assert w.known(f"t-{at}").state is PartitionState.ONLINE
            assert await w.stored(f"t-{at}") == (after[at][0], 0, tuple(sorted(after[at])))
        assert w.controller.topics() == [ref]
        assert set(w.brokers.told(1)) <= {"t-3", "t-4", "t-5"}
        assert [event.what for event in w.events("topic") if isinstance(event, TopicEvent)] == ["created", "grown"]
        await w.check()


async def test_added_partitions_use_the_requested_replicas() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2]])

        await w.controller.grow_topic("t", 3, assignment=[(3, 1), (2, 3)])

        assert await stored_replicas(w, "t") == {0: (1, 2), 1: (3, 1), 2: (2, 3)}
        assert [w.known(f"t-{at}").leader for at in range(3)] == [1, 3, 2]


async def test_existing_partitions_are_read_and_not_overwritten() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        # Another client was faster, and the controller has not read it.
        held = {0: Assignment((1, 2)), 1: Assignment((2, 1)), 2: Assignment((2,))}
        w.store.state.topics["t"].assignment = type(w.store.state.topics["t"].assignment).of(held)

        with pytest.raises(InvalidPartitions, match="2 partitions, and the topic has 3"):
            await w.controller.grow_topic("t", 2)
        await w.controller.grow_topic("t", 4)

        assert (await stored_replicas(w, "t"))[2] == (2,)
        assert len((await stored_replicas(w, "t"))[3]) == 2
        assert w.known("t-2").replicas == (2,)


@pytest.mark.parametrize(
    ("topic", "count", "assignment", "refusal", "code"),
    [
        ("gone", 9, None, NotFound, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 2, None, InvalidPartitions, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, InvalidPartitions, ErrorCode.INVALID_PARTITIONS),
        ("t", PARTITIONS_OF_A_TOPIC_MAX + 1, None, InvalidPartitions, ErrorCode.INVALID_PARTITIONS),
        ("t", 4, [(1, 2)], InvalidReplicaAssignment, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [(1, 9)], InvalidReplicaAssignment, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [(1, 1)], InvalidReplicaAssignment, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [(1,)], InvalidReplicaAssignment, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [()], InvalidReplicaAssignment, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("wide", 2, None, InvalidReplicationFactor, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
async def test_invalid_expansion_is_rejected_without_effect(
    topic: str, count: int, assignment: list[tuple[int, ...]] | None, refusal: type[KactlError], code: ErrorCode
) -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2], [2, 1]])
        await w.create("wide", [[1, 2, 3]])
        await w.stop(3)

        with pytest.raises(refusal) as refused:
            await w.controller.grow_topic(topic, count, assignment=assignment)

        assert refused.value.code == code
        assert await stored_replicas(w, "t") == {0: (1, 2), 1: (2, 1)}
        assert await stored_replicas(w, "wide") == {0: (1, 2, 3)}


async def test_topic_in_deletion_or_reassignment_is_not_expanded() -> None:
    async with world(1, 2, 3) as w:
        await w.create("moving", [[1, 2]])
        await w.create("going", [[1, 2]])
        assert await reassign(w, {"moving-0": (1, 3)}) == [ErrorCode.NONE]
        w.brokers.silent.add(2)
        await w.delete("going")

        with pytest.raises(ReassignmentRunning):
            await w.controller.grow_topic("moving", 2)
        with pytest.raises(BeingDeleted):
            await w.controller.grow_topic("going", 2)

        assert sorted(await stored_replicas(w, "moving")) == sorted(await stored_replicas(w, "going")) == [0]


async def test_dry_run_of_an_expansion_changes_nothing() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])

        await w.controller.grow_topic("t", 5, dry_run=True)
        with pytest.raises(InvalidPartitions):
            await w.controller.grow_topic("t", 1, dry_run=True)

        assert await stored_replicas(w, "t") == {0: (1, 2)}


async def test_deposed_controller_overwrites_nothing() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        second, _ = open_standby(w, 200, take_over=True)
        w.store.state.watches.remove(watches_of(w.controller.store))
        async with second:
            await settle()
            assert w.controller.is_active  # by its own state

            with pytest.raises(NotController):
                await w.controller.grow_topic("t", 2)

            assert await stored_replicas(w, "t") == {0: (1, 2)}
        w.store.state.watches.append(watches_of(w.controller.store))


async def test_partitions_added_by_a_tool_go_online() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])

        await w.grow("t", (2, 1), (1,))

        assert [w.known(f"t-{at}").leader for at in range(3)] == [1, 2, 1]
        await w.check()


async def test_assignment_changed_by_a_tool_is_ignored() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2]])
        w.brokers.forget()

        await w.store.write_assignment(TopicRef("t", w.controller.topics()[0].id), {0: Assignment((3, 2))}, None)
        await settle()

        assert w.known("t-0").replicas == (1, 2)
        assert w.brokers.sent == []
