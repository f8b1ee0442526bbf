"""INV-40, INV-42, INV-43 and INV-45 over hand-written histories."""

from typing import Any

import pytest

from tests.sim.engine.checkers import Topics

from .stories import NO_ID, T1, T2, A, Story


def story() -> Story:
    """A topic with one partition on 1, 2, led by 1."""
    one = Story(Topics())
    one.topic({0: [1, 2]}, operation="create_topic")
    one.lead(1, 0, [1, 2])
    return one


def say(one: Story, what: str) -> None:
    one.record("fsm.topic", A, controller_epoch=1, topic="t1", what=what)


def ask(one: Story, targets: dict[str, Any], *, answer: str = "") -> None:
    """Request reassignments.

    Args:
        answer: error code of all partitions; empty for no answer.
    """
    number = len(one.history.events)
    one.record("reassign.asked", request=number, targets=targets)
    if answer:
        one.record("reassign.answered", request=number, errors=dict.fromkeys(targets, answer))


def at_end(one: Story) -> str:
    """Returns the number of the violation that only the end shows; empty if there is none."""
    found = one.checker.at_end()
    return "" if found is None else found.invariant


def delete(one: Story, *left: str) -> None:
    """Delete the topic from the store, except for some keys."""
    keys = {"topics/t1", "leadership/t1/0", "configs/t1", "deletions/t1"} - set(left)
    one.commit(dict.fromkeys(sorted(keys)), operation="delete_topics", fence=1)


def test_a_life_of_a_topic_is_legal() -> None:
    one = story()
    one.topic({0: [1, 2], 1: [2, 1]}, fence=1)
    ask(one, {"t1-0": [3, 4], "t1-1": None})
    ask(one, {"t1-0": [3]})
    ask(one, {"t1-0": [4]})
    one.topic({0: ([3, 4, 1, 2], [3, 4], [1, 2]), 1: [2, 1]}, fence=1)
    one.topic({0: ([3, 1, 2], [3], [1, 2]), 1: [2, 1]}, fence=1)
    one.lead(1, 1, [1, 2, 3])
    one.topic({0: [3], 1: [2, 1]}, fence=1)
    one.topic({0: ([4, 3], [4], [3]), 1: [2, 1]}, fence=1)
    one.topic({0: [3], 1: [1, 2]}, fence=1)
    one.commit({"deletions/t1": {}}, operation="mark_deletion")
    say(one, "deletion started")
    one.lead(-1, 2, [3])
    delete(one)
    one.topic({0: [1, 2]}, topic_id=T2, operation="create_topic")
    say(one, "deleted")
    one.lead(1, 0, [1, 2])

    assert one.found == []


def test_a_changed_id_breaks_inv_40() -> None:
    one = story()
    one.topic({0: [1, 2]}, topic_id=T2)

    assert one.found == ["INV-40"]


def test_a_topic_without_an_id_may_be_given_one() -> None:
    one = Story(Topics())
    one.topic({0: [1, 2]}, topic_id="00", operation="create_topic")
    one.topic({0: [1, 2]}, fence=1)

    assert one.found == []


@pytest.mark.parametrize("name", ["t1", "t2"])
def test_an_id_that_is_given_twice_breaks_inv_40(name: str) -> None:
    one = story()
    delete(one)
    one.topic({0: [1, 2]}, name=name, topic_id=T1, operation="create_topic")

    assert one.found == ["INV-40"]


@pytest.mark.parametrize(("name", "sent", "found"), [("t1", 1, []), ("t2", 1, ["INV-40"]), ("t1", 2, ["INV-40"])])
def test_creation_that_a_client_repeats_after_the_deletion_is_legal(name: str, sent: int, found: list[str]) -> None:
    """Its first outcome was unknown to the client."""
    one = Story(Topics())
    value = {"id": T1, "partitions": {"0": [[1, 2], [], []]}}
    one.commit({"topics/t1": value}, operation="create_topic", sent=1)
    delete(one)
    one.commit({f"topics/{name}": value}, operation="create_topic", sent=sent)

    assert one.found == found


@pytest.mark.parametrize("left", ["topics/t1", "leadership/t1/0", "configs/t1"])
def test_data_left_of_a_deleted_topic_breaks_inv_42(left: str) -> None:
    one = story()
    one.commit({"configs/t1": {"retention.ms": "1"}})
    one.commit({"deletions/t1": {}}, operation="mark_deletion")
    say(one, "deletion started")
    delete(one, left)
    say(one, "deleted")

    assert one.found == ["INV-42"]


@pytest.mark.parametrize(
    ("is_removed", "by_hand", "found"), [(True, False, []), (True, True, ["INV-42"]), (False, False, ["INV-42"])]
)
def test_topic_created_and_marked_before_the_response_to_the_removal_is_legal(
    is_removed: bool, by_hand: bool, found: list[str]
) -> None:
    one = story()
    one.commit({"deletions/t1": {}}, operation="mark_deletion")
    if not is_removed:
        delete(one)
        one.topic({0: [1, 2]}, topic_id=T2, operation="create_topic")
    say(one, "deletion started")
    if is_removed:
        one.commit(dict.fromkeys(["topics/t1", "leadership/t1/0", "deletions/t1"]), fence=None if by_hand else 1)
        one.topic({0: [1, 2]}, topic_id=T2, operation="create_topic")
    one.commit({"deletions/t1": {}}, operation="mark_deletion")
    say(one, "deleted")

    assert one.found == found


def test_a_configuration_written_after_the_removal_is_legal() -> None:
    one = story()
    one.commit({"deletions/t1": {}}, operation="mark_deletion")
    say(one, "deletion started")
    delete(one)
    one.commit({"configs/t1": {"retention.ms": "1"}})
    say(one, "deleted")

    assert one.found == []


def test_an_election_in_a_dying_topic_breaks_inv_43() -> None:
    one = story()
    sent = len(one.history.events)
    say(one, "deletion started")
    one.lead(2, 1, [1, 2], sent=sent)
    assert one.found == []
    one.lead(1, 2, [1, 2])

    assert one.found == ["INV-43"]


def test_a_dying_topic_that_grows_breaks_inv_43() -> None:
    one = story()
    say(one, "deletion started")
    one.topic({0: [1, 2], 1: [1]}, fence=1)

    assert one.found == ["INV-43"]


@pytest.mark.parametrize(("restored", "found"), [([3, 4], []), ([3, 5], ["INV-43"])])
def test_dying_topic_may_be_restored_over_an_older_assignment(restored: list[int], found: list[str]) -> None:
    """A tool has read the topic before a reassignment from 1, 2 to 3, 4, and adds a partition during the deletion."""
    one = story()
    ask(one, {"t1-0": [3, 4]})
    one.topic({0: ([3, 4, 1, 2], [3, 4], [1, 2])}, fence=1)
    one.lead(3, 1, [3, 4])
    one.topic({0: [3, 4]}, fence=1)
    say(one, "deletion started")
    one.topic({0: [1, 2], 1: [1]})
    one.topic({0: restored}, fence=1)

    assert one.found == found


@pytest.mark.parametrize(("acts", "found"), [(False, []), (True, ["INV-43"])])
def test_dying_topic_may_be_restored_over_a_write_that_the_controller_has_not_acted_upon(
    *, acts: bool, found: list[str]
) -> None:
    """An error ends the call that replaces a reassignment to 3 by one to 4, after its write."""

    def move(broker: int) -> None:
        one.record(
            "fsm.replica", A, controller_epoch=1, topic="t1", partition=0, broker=broker, from_state="absent",
            to_state="new",
        )  # fmt: skip

    one = story()
    ask(one, {"t1-0": [3]})
    ask(one, {"t1-0": [4]})
    one.topic({0: ([3, 1, 2], [3], [1, 2])}, fence=1)
    move(3)
    one.topic({0: ([4, 1, 2], [4], [1, 2])}, fence=1)
    if acts:
        move(4)
    say(one, "deletion started")
    one.topic({0: ([3, 1, 2], [3], [1, 2])}, fence=1)

    assert one.found == found


def test_added_partition_of_a_dying_topic_on_other_replicas_breaks_inv_43() -> None:
    one = story()
    say(one, "deletion started")
    one.topic({0: [1, 2], 1: [1]})
    one.topic({0: [1, 2], 1: [2]}, fence=1)

    assert one.found == ["INV-43"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_next_controller_starts_the_deletion_again(is_killed: bool) -> None:
    one = story()
    say(one, "deletion started")
    if is_killed:
        one.knows(2, incarnation=2)
    else:
        one.resigned(1)
    one.lead(2, 1, [1, 2])

    assert one.found == []


def test_a_target_that_nobody_requested_breaks_inv_45() -> None:
    one = story()
    ask(one, {"t1-0": [1, 3]})
    one.topic({0: ([4, 1, 2], [4], [1, 2])}, fence=1)

    assert one.found == ["INV-45"]


def test_a_target_that_was_replaced_and_returns_breaks_inv_45() -> None:
    one = story()
    ask(one, {"t1-0": [3]}, answer="NONE")
    ask(one, {"t1-0": [4]}, answer="NONE")
    one.topic({0: ([3, 1, 2], [3], [1, 2])}, fence=1)
    assert one.found == []
    one.lead(1, 1, [1, 2, 3])
    one.topic({0: [3]}, fence=1)

    assert (one.found, at_end(one)) == ([], "INV-45")


@pytest.mark.parametrize(
    "targets",
    [
        [([3], "NONE")],
        [([4], "NONE"), ([3], "NONE")],
        [([3], ""), ([4], "NONE")],
        [([4], "NONE"), ([3], "UNKNOWN_SERVER_ERROR")],
        [([3], "NONE"), (None, "NONE")],
    ],
    ids=["accepted", "replaced", "unanswered", "refused", "cancelled too late"],
)
def test_a_reassignment_ends_with_what_was_requested(targets: list[Any]) -> None:
    one = story()
    for target, answer in targets:
        ask(one, {"t1-0": target}, answer=answer)
    one.topic({0: ([3, 1, 2], [3], [1, 2])}, fence=1)
    one.lead(1, 1, [1, 2, 3])
    one.topic({0: [3]}, fence=1)

    assert (one.found, at_end(one)) == ([], "")


def test_a_partition_that_keeps_its_replicas_after_its_request_was_accepted_breaks_inv_45() -> None:
    one = story()
    ask(one, {"t1-0": [3]}, answer="NONE")

    assert at_end(one) == "INV-45"


def test_replicas_that_a_tool_wrote_are_not_judged() -> None:
    one = story()
    ask(one, {"t1-0": [3]}, answer="NONE")
    one.topic({0: [5]})

    assert at_end(one) == ""


BEGUN: Any = ([3, 4, 1, 2], [3, 4], [1, 2])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([1, 2], ([3, 2], [3], [])),
        ([1, 2], [3, 4]),
        (BEGUN, ([5, 1], [5], [1])),
        (BEGUN, ([5, 3, 1, 2], [5], [1, 2])),
        (BEGUN, [4, 3]),
        (BEGUN, [1]),
        (BEGUN, [3, 4]),
    ],
    ids=["origin lost", "no reassignment", "origin lost again", "merged", "order", "half cancelled", "not in sync"],
)
def test_a_reassignment_that_weakens_a_partition_breaks_inv_45(before: Any, after: Any) -> None:
    one = story()
    one.topic({0: before})
    one.topic({0: after}, fence=1)

    assert one.found == ["INV-45"]


@pytest.mark.parametrize(
    ("ids", "is_noticed", "after", "is_legal"),
    [
        ((NO_ID, NO_ID), False, ([3, 1, 2], [3], [1, 2]), True),
        ((NO_ID, NO_ID), True, ([3, 1, 2], [3], [1, 2]), False),
        ((NO_ID, NO_ID), False, ([3, 2], [3], [2]), False),
        ((T1, NO_ID), False, ([3, 1, 2], [3], [1, 2]), False),
        ((NO_ID, T2), False, ([3, 1, 2], [3], [1, 2]), False),
    ],
    ids=["of the earlier one", "noticed", "of neither", "the earlier one has an id", "the later one has an id"],
)
def test_a_controller_may_go_on_with_a_topic_that_was_replaced_by_hand(
    ids: tuple[str, str], is_noticed: bool, after: Any, is_legal: bool
) -> None:
    """Without ids the second topic cannot be distinguished from a tool's write to the first."""
    one = Story(Topics())
    one.topic({0: [1, 2]}, topic_id=ids[0], operation="create_topic")
    ask(one, {"t1-0": [3]})
    one.commit({"topics/t1": None})
    if is_noticed:
        say(one, "vanished")
    one.topic({0: [4, 5]}, topic_id=ids[1], operation="create_topic")
    one.topic({0: after}, topic_id=ids[1], fence=1)

    assert one.found == ([] if is_legal else ["INV-45"])


def test_a_controller_writes_a_topic_that_was_replaced_by_hand_once() -> None:
    one = Story(Topics())
    one.topic({0: [1, 2]}, topic_id=NO_ID, operation="create_topic")
    ask(one, {"t1-0": [3]})
    one.commit({"topics/t1": None})
    one.topic({0: [4, 5]}, topic_id=NO_ID, operation="create_topic")
    one.topic({0: [4, 5]}, topic_id=NO_ID, fence=1)
    one.topic({0: ([3, 1, 2], [3], [1, 2])}, topic_id=NO_ID, fence=1)

    assert one.found == ["INV-45"]


@pytest.mark.parametrize(("isr", "found"), [([3], []), ([1, 3], []), ([1, 2], ["INV-45"])])
def test_a_reassignment_that_leaves_no_replica_in_sync_breaks_inv_45(isr: list[int], found: list[str]) -> None:
    one = story()
    ask(one, {"t1-0": [3]})
    one.topic({0: ([3, 1, 2], [3], [1, 2])}, fence=1)
    one.lead(1, 1, [1, 2, 3])
    one.lead(1, 1, isr)
    one.topic({0: [3]}, fence=1)

    assert one.found == found


@pytest.mark.parametrize(
    ("isr", "after", "found"),
    [
        ([1], ([3, 1], [], [1]), []),
        ([1], ([5, 3, 1], [5], [3, 1]), []),
        ([1], ([3, 1, 2], [], [1, 2]), ["INV-45"]),  # 2 is not in sync
        ([1, 3], ([3, 2], [], [2]), ["INV-45"]),
    ],
)
def test_in_sync_replicas_that_a_tool_has_left_out_become_part_of_the_origin(
    isr: list[int], after: Any, found: list[str]
) -> None:
    one = story()
    ask(one, {"t1-0": [5]})
    one.lead(1, 1, isr)
    one.topic({0: [3]})
    one.topic({0: after}, fence=1)

    assert one.found == found


def test_administrators_may_write_any_assignment() -> None:
    one = story()
    one.topic({0: [3, 4]})

    assert one.found == []


@pytest.mark.parametrize("in_sync", [True, False], ids=["in sync", "not in sync"])
def test_a_reassignment_may_follow_one_that_only_had_to_be_stored(in_sync: bool) -> None:
    """The replicas of the first origin are stopped; the write that removes them failed."""
    one = story()
    ask(one, {"t1-0": [3, 4]})
    ask(one, {"t1-0": [5, 3]})
    one.topic({0: BEGUN}, fence=1)
    one.lead(3, 1, [1, 2, 3, 4] if in_sync else [1, 2, 3])
    one.lead(3, 2, [3])
    one.topic({0: ([5, 3, 4], [5], [4])}, fence=1)

    assert one.found == ([] if in_sync else ["INV-45"])


@pytest.mark.parametrize(
    ("in_sync", "stopped", "epoch", "is_legal"),
    [(True, 2, 1, True), (True, 1, 1, False), (True, 2, 2, False), (False, 2, 1, False)],
    ids=["stopped", "another one stopped", "by another controller", "before the target was in sync"],
)
def test_stopped_replicas_may_leave_before_the_end_of_their_reassignment(
    in_sync: bool, stopped: int, epoch: int, is_legal: bool
) -> None:
    """Another replica could not be stopped; an assignment of the topic was written meanwhile."""
    one = story()
    ask(one, {"t1-0": [3, 4]})
    one.topic({0: BEGUN}, fence=1)
    one.lead(3, 1, [1, 2, 3, 4] if in_sync else [1, 2, 3])
    moved = {"from_state": "offline", "to_state": "deletion_started"}
    one.record("fsm.replica", A, controller_epoch=epoch, topic="t1", partition=0, broker=stopped, **moved)
    one.topic({0: ([3, 4, 1], [3, 4], [1])}, fence=1)

    assert one.found == ([] if is_legal else ["INV-45"])


@pytest.mark.parametrize(("stopped", "is_legal"), [(2, True), (1, False)], ids=["stopped", "another one stopped"])
def test_stopped_replica_may_be_added_by_the_next_reassignment(stopped: int, is_legal: bool) -> None:
    """Its log is deleted: it is no original replica any more, and a cancellation would not keep it."""
    one = story()
    ask(one, {"t1-0": [3, 4]})
    ask(one, {"t1-0": [5, 2]})
    one.topic({0: BEGUN}, fence=1)
    one.lead(3, 1, [1, 2, 3, 4])
    moved = {"from_state": "offline", "to_state": "deletion_started"}
    one.record("fsm.replica", A, controller_epoch=1, topic="t1", partition=0, broker=stopped, **moved)
    one.topic({0: ([5, 2, 1], [5, 2], [1])}, fence=1)

    assert one.found == ([] if is_legal else ["INV-45"])


def test_removed_topic_that_left_nothing_is_legal() -> None:
    one = story()
    one.commit({"topics/t1": None, "leadership/t1/0": None}, fence=1)

    assert at_end(one) == ""


@pytest.mark.parametrize(("fence", "found"), [(1, "INV-42"), (None, "")])
def test_leadership_without_a_partition_breaks_inv_42(fence: int | None, found: str) -> None:
    """A topic that was removed by hand may leave a first leader that was elected before the controller knew."""
    one = story()
    one.commit({"topics/t1": None, "leadership/t1/0": None}, fence=fence)
    one.lead(1, 0, [1])

    assert at_end(one) == found


@pytest.mark.parametrize(("fence", "found"), [(1, "INV-45"), (None, "")])
def test_lost_partition_breaks_inv_45(fence: int | None, found: str) -> None:
    """Writes of tools are not judged: a tool may write a topic as it was before."""
    one = Story(Topics())
    one.topic({0: [1, 2], 1: [2, 1]}, operation="create_topic")
    one.topic({0: [1, 2]}, fence=fence)

    assert at_end(one) == found


def test_partitions_of_an_earlier_topic_are_not_lost() -> None:
    one = Story(Topics())
    one.topic({0: [1, 2], 1: [2, 1]}, operation="create_topic")
    one.commit({"topics/t1": None})
    one.topic({0: [1, 2]}, topic_id=T2, operation="create_topic")

    assert at_end(one) == ""


@pytest.mark.parametrize(("end", "found"), [([3, 4], []), ([3, 5], ["INV-45"])])
def test_a_reassignment_goes_on_that_a_tool_has_overwritten(end: list[int], found: list[str]) -> None:
    """The tool had read the topic before the reassignment began."""
    one = story()
    ask(one, {"t1-0": [3, 4]})
    one.topic({0: BEGUN}, fence=1)
    one.lead(3, 1, [1, 2, 3, 4])
    one.topic({0: [1, 2], 1: [1]})
    one.topic({0: end, 1: [1]}, fence=1)

    assert one.found == found


@pytest.mark.parametrize(("end", "found"), [([2], []), ([1, 2], ["INV-45"])])
def test_an_overwritten_assignment_is_known_after_partitions_were_added(end: list[int], found: list[str]) -> None:
    """A request for partitions adds them to the stored assignment. The next write is of the one that is known."""
    one = Story(Topics())
    one.topic({0: [2]}, operation="create_topic")
    one.lead(2, 0, [2])
    one.topic({0: [3, 2]})
    one.topic({0: [3, 2], 1: [3]}, fence=1)
    one.topic({0: end, 1: [3]}, fence=1)

    assert one.found == found
