"""INV-09 to INV-14 over hand-written histories."""

from typing import Any

import pytest

from tests.sim.engine.checkers import Memories, Memory
from tests.sim.engine.checkers.memory import PartitionMemory

from .stories import T1, T2, A, B, Story

PARTITION = PartitionMemory(
    topic="t1",
    topic_id=T1,
    partition=0,
    state="online",
    leader=1,
    leader_epoch=0,
    isr=(1, 2),
    partition_epoch=0,
    recovering=False,
    replicas=(1, 2),
    adding=(),
    removing=(),
    replica_states={1: "online", 2: "online"},
)


def memory(partition: PartitionMemory = PARTITION, **fields: Any) -> Memory:
    known: dict[str, Any] = {
        "node": A,
        "controller_epoch": 1,
        "settled": True,
        "partitions": [partition],
        "brokers": {1: 11, 2: 12},
        "deleting": frozenset(),
        "queued": frozenset(),
        "offline": 0,
        "imbalanced": 0,
        "live": 2,
    }
    return Memory(**(known | fields))


def story(*memories: Memory) -> Story:
    """A partition that comes online on 1 and 2."""
    one = Story(Memories(lambda: memories))
    one.contest(1)
    one.brokers({1: 11, 2: 12})
    one.topic({0: [1, 2]}, operation="create_topic")
    move(one, "absent", "new", leader=-1, leader_epoch=-1, isr=[], partition_epoch=-1)
    for broker in (1, 2):
        move_replica(one, broker, "absent", "new")
    one.lead(1, 0, [1, 2])
    move(one, "new", "online")
    for broker in (1, 2):
        move_replica(one, broker, "new", "online")
    return one


def move(one: Story, before: str, after: str, **fields: Any) -> None:
    known: dict[str, Any] = {
        "controller_epoch": 1,
        "topic": "t1",
        "partition": 0,
        "from_state": before,
        "to_state": after,
        "leader": 1,
        "leader_epoch": 0,
        "isr": [1, 2],
        "partition_epoch": 0,
        "refused": "",
    }
    one.record("fsm.partition", A, **(known | fields))


def move_replica(one: Story, broker: int, before: str, after: str, *, client: str = A, epoch: int = 1) -> None:
    name = {"topic": "t1", "partition": 0, "broker": broker}
    one.record("fsm.replica", client, controller_epoch=epoch, from_state=before, to_state=after, **name)


def gone(one: Story, client: str = A, epoch: int = 1) -> None:
    """A controller notices that the topic was removed."""
    one.record("fsm.topic", client, controller_epoch=epoch, topic="t1", what="vanished")


def compared(one: Story) -> list[str]:
    """Let time pass until memories are compared with the store."""
    one.now_ms = 60_000
    one.commit({"config": {}})
    return one.found


def test_a_life_of_a_partition_is_legal() -> None:
    one = story(memory())
    move(one, "online", "online")
    move(one, "online", "new", refused="not a legal transition from its state")
    assert compared(one) == []
    move(one, "online", "offline")
    one.commit({"deletions/t1": {}})
    for broker in (1, 2):
        for before, after in (("online", "offline"), ("offline", "deletion_started")):
            move_replica(one, broker, before, after)
        move_replica(one, broker, "deletion_started", "deletion_successful")
        move_replica(one, broker, "deletion_successful", "absent")
    move(one, "offline", "absent")
    one.record("fsm.topic", A, controller_epoch=1, topic="t1", what="deleted")
    move(one, "absent", "new", leader=-1, leader_epoch=-1, isr=[], partition_epoch=-1)

    assert one.found == []


@pytest.mark.parametrize(
    "fields",
    [{"partition_epoch": 1}, {"leader": 2}, {"leader_epoch": 1}, {"isr": [1]}, {"partition_epoch": -1}],
    ids=["ahead", "leader", "leader epoch", "isr", "never stored"],
)
def test_memory_that_does_not_follow_the_store_breaks_inv_09(fields: dict[str, Any]) -> None:
    one = story()
    move(one, "online", "online", **fields)

    assert one.found == ["INV-09"]


@pytest.mark.parametrize(
    "fields",
    [
        {"partition_epoch": 1},
        {"leader": 2},
        {"leader_epoch": 1},
        {"isr": (1,)},
        {"recovering": True},
        {"partition_epoch": -1},
    ],
    ids=["ahead", "leader", "leader epoch", "isr", "recovering", "never stored"],
)
def test_a_whole_memory_that_does_not_follow_the_store_breaks_inv_09(fields: dict[str, Any]) -> None:
    assert compared(story(memory(PARTITION._replace(**fields)))) == ["INV-09"]


@pytest.mark.parametrize(
    "fields", [{"topic_id": "0b", "leader": 2}, {"partition_epoch": -1, "leader_epoch": -1, "leader": -1}]
)
def test_memory_of_another_life_is_not_compared(fields: dict[str, Any]) -> None:
    one = story(memory(PARTITION._replace(**fields), imbalanced=int(fields["leader"] != -1)))

    assert compared(one) == []


@pytest.mark.parametrize("fields", [{}, {"leader": 2}, {"partition_epoch": 1}, {"partition_epoch": 2}])
@pytest.mark.parametrize("topic_id", [T1, "0" * 32], ids=["id", "no id"])
def test_memory_of_an_earlier_topic_without_an_id_is_legal(topic_id: str, fields: dict[str, Any]) -> None:
    """Both topics have a version 0 with different leadership."""
    one = Story(Memories(lambda: [memory(PARTITION._replace(topic_id=topic_id, **fields), node=B)]))
    one.topic({0: [1, 2]}, topic_id=topic_id, operation="create_topic")
    one.lead(1, 0, [1, 2])
    one.lead(1, 0, [1])
    one.commit({"topics/t1": None, "leadership/t1/0": None})
    one.topic({0: [2, 3]}, topic_id=topic_id, operation="create_topic")
    one.lead(3, 0, [2, 3])

    assert compared(one) == ([] if topic_id != T1 and not fields else ["INV-09"])


def test_an_illegal_transition_breaks_inv_10() -> None:
    one = story()
    move(one, "online", "absent")

    assert one.found == ["INV-10"]


def test_a_transition_from_another_state_breaks_inv_10() -> None:
    one = story()
    move(one, "offline", "online")

    assert one.found == ["INV-10"]
    assert one.violations[0].signature == "INV-10 fsm.partition fsm.partition"


@pytest.mark.parametrize(("before", "after"), [("online", "deletion_started"), ("offline", "online")])
def test_an_illegal_replica_transition_breaks_inv_11(before: str, after: str) -> None:
    one = story()
    one.commit({"deletions/t1": {}})
    move_replica(one, 2, before, after)

    assert one.found == ["INV-11"]


@pytest.mark.parametrize("fields", [{"leader": -1}, {"leader": 3, "isr": [3]}], ids=["no leader", "not registered"])
def test_online_without_a_live_leader_breaks_inv_12(fields: dict[str, Any]) -> None:
    one = story()
    move(one, "online", "offline")
    move(one, "offline", "online", **fields)

    assert one.found == ["INV-12"]


def test_deleting_a_replica_that_is_wanted_breaks_inv_12() -> None:
    one = story()
    move_replica(one, 2, "online", "offline")
    move_replica(one, 2, "offline", "deletion_started")

    assert one.found == ["INV-12"]


@pytest.mark.parametrize(("fence", "found"), [(None, []), (1, ["INV-12"])])
def test_deleting_a_replica_is_legal_after_a_tool_has_overwritten_its_removal(
    fence: int | None, found: list[str]
) -> None:
    """The controller takes only added partitions from such a write; its own cancellation counts."""
    one = story()
    one.topic({0: ([1, 2], [], [2])}, fence=1)
    one.topic({0: [1, 2], 1: [1]}, fence=fence)
    move_replica(one, 2, "online", "offline")
    move_replica(one, 2, "offline", "deletion_started")

    assert one.found == found


def test_deleting_a_replica_is_legal_after_partitions_were_added_to_an_overwritten_removal() -> None:
    one = story()
    one.topic({0: ([1, 2], [], [2])}, fence=1)
    one.topic({0: [1, 2]})
    one.topic({0: [1, 2], 1: [1]}, fence=1)
    move_replica(one, 2, "online", "offline")
    move_replica(one, 2, "offline", "deletion_started")

    assert one.found == []


def test_deleting_a_replica_breaks_inv_12_if_its_removal_was_overwritten_before_the_election() -> None:
    one = story()
    one.topic({0: ([1, 2], [], [2])}, fence=1)
    one.topic({0: [1, 2]})
    one.contest(2, B)
    move_replica(one, 2, "offline", "deletion_started", client=B, epoch=2)

    assert one.found == ["INV-12"]


@pytest.mark.parametrize("topic_id", [T1, T2], ids=["same id", "other id"])
def test_deleting_a_replica_of_a_topic_that_was_removed_by_hand_is_legal(topic_id: str) -> None:
    """The controller has not noticed that the topic was created again."""
    one = removed_by_hand()
    one.topic({0: [1, 2]}, topic_id=topic_id, operation="create_topic")
    gone(one, B, 2)
    move_replica(one, 2, "online", "offline")
    move_replica(one, 2, "offline", "deletion_started")

    assert one.found == []


def test_deleting_a_replica_breaks_inv_12_once_the_removal_by_hand_was_noticed() -> None:
    one = removed_by_hand()
    one.topic({0: [1, 2]}, topic_id=T2, operation="create_topic")
    gone(one)
    move_replica(one, 2, "offline", "deletion_started")

    assert one.found == ["INV-12"]


def test_deleting_a_replica_breaks_inv_12_if_the_topic_was_removed_before_the_election() -> None:
    one = removed_by_hand()
    one.topic({0: [1, 2]}, topic_id=T2, operation="create_topic")
    one.contest(2, B)
    move_replica(one, 2, "offline", "deletion_started", client=B, epoch=2)

    assert one.found == ["INV-12"]


@pytest.mark.parametrize("fence", [None, 1], ids=["by hand", "by the controller"])
def test_deleting_another_replica_of_a_removed_topic_breaks_inv_12(fence: int | None) -> None:
    """Only replicas are deleted that the earlier topic was removing; and none after a removal by the controller."""
    one = removed_by_hand(fence)
    one.topic({0: [1, 2]}, topic_id=T2, operation="create_topic")
    broker = 1 if fence is None else 2
    move_replica(one, broker, "online", "offline")
    move_replica(one, broker, "offline", "deletion_started")

    assert one.found == ["INV-12"]


def test_deleting_a_replica_breaks_inv_12_once_the_next_topic_was_written() -> None:
    one = removed_by_hand()
    one.topic({0: [1, 2]}, topic_id=T2, operation="create_topic")
    one.topic({0: ([1, 2, 3], [3], [])}, topic_id=T2, fence=1)
    move_replica(one, 2, "online", "offline")
    move_replica(one, 2, "offline", "deletion_started")

    assert one.found == ["INV-12"]


def removed_by_hand(fence: int | None = None) -> Story:
    """A topic that is removed while a reassignment removes replica 2."""
    one = story()
    one.topic({0: ([1, 2], [], [2])}, fence=1)
    one.commit({"topics/t1": None, "leadership/t1/0": None}, fence=fence)
    return one


@pytest.mark.parametrize("assignment", [([1, 2], [], [2]), [1]], ids=["being removed", "removed"])
def test_deleting_a_replica_that_is_removed_is_legal(assignment: Any) -> None:
    one = story()
    one.topic({0: assignment})
    move_replica(one, 2, "online", "offline")
    move_replica(one, 2, "offline", "deletion_started")

    assert one.found == []


@pytest.mark.parametrize("fields", [{"offline": 1}, {"imbalanced": -1}, {"imbalanced": 1}, {"live": 3}])
def test_a_count_that_is_wrong_breaks_inv_13(fields: dict[str, Any]) -> None:
    assert compared(story(memory(**fields))) == ["INV-13"]


def test_counts_leave_out_topics_that_are_deleted() -> None:
    away = PARTITION._replace(topic="t2", state="offline", leader=-1)
    gone = {"queued": frozenset({"t2"}), "deleting": frozenset({"t2"})}
    one = story(memory(away, **gone), memory(away, queued=gone["queued"], offline=1))

    assert compared(one) == []


def test_a_preferred_replica_that_is_being_added_counts_once_it_is_in_sync() -> None:
    added = PARTITION._replace(replicas=(2, 1), adding=(2,), isr=(1, 2))

    assert compared(story(memory(added, imbalanced=1))) == []


def test_counts_are_not_compared_while_an_event_is_handled() -> None:
    assert compared(story(memory(offline=1, settled=False))) == []


@pytest.mark.parametrize("fields", [{"state": "offline"}, {"replica_states": {1: "offline", 2: "online"}}])
def test_a_state_without_its_event_breaks_inv_14(fields: dict[str, Any]) -> None:
    assert compared(story(memory(PARTITION._replace(**fields), offline=int("state" in fields)))) == ["INV-14"]


def test_a_refused_move_from_another_state_breaks_inv_10() -> None:
    one = story()
    move(one, "new", "online", refused="no replica may lead")

    assert one.found == ["INV-10"]


@pytest.mark.parametrize(
    "fields",
    [
        {"shutting_down": frozenset({3})},
        {"blocked": frozenset({"t1"})},
        {"deleting": frozenset({"t1"})},
    ],
    ids=["broker", "blocked topic", "started topic"],
)
def test_a_mark_of_something_unknown_breaks_inv_12(fields: dict[str, Any]) -> None:
    assert compared(story(memory(**fields))) == ["INV-12"]


def test_a_mark_of_a_broker_that_a_handler_is_removing_is_legal() -> None:
    assert compared(story(memory(shutting_down=frozenset({3}), settled=False))) == []


@pytest.mark.parametrize("mark", ["blocked", "deleting"])
def test_marks_of_topics_are_compared_while_a_handler_runs(mark: str) -> None:
    fields: dict[str, Any] = {mark: frozenset({"t1"}), "settled": False}

    assert compared(story(memory(**fields))) == ["INV-12"]


def test_marks_of_what_is_known_are_legal() -> None:
    topics = frozenset({"t1"})
    one = memory(shutting_down=frozenset({2}), blocked=topics, deleting=topics, queued=topics)

    assert compared(story(one)) == []
