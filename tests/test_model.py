"""Assignments under reassignment, and names of partitions and topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.model import Assignment, TopicPartition, check_topic_name

PLAIN = Assignment((1, 2, 3))


@pytest.mark.parametrize(
    ("assignment", "target"),
    [
        pytest.param(
            Assignment((1, 2, 3, 4, 5, 6), adding=(2, 3, 4), removing=(1, 5, 6)),
            (2, 3, 4),
            marks=pytest.mark.scenario(7),
        ),
        pytest.param(Assignment((1, 2, 3, 4), removing=(1, 4)), (2, 3), marks=pytest.mark.scenario(8)),
        pytest.param(Assignment((1, 2, 3, 4), adding=(4,), removing=(2,)), (1, 3, 4), marks=pytest.mark.scenario(9)),
    ],
)
def test_assignment_in_reassignment_has_a_target(assignment: Assignment, target: tuple[int, ...]) -> None:
    assert assignment.is_being_reassigned
    assert assignment.target == target


@pytest.mark.scenario(10)
def test_assignment_without_reassignment_is_its_own_target() -> None:
    assignment = Assignment((1, 2, 3, 4, 5, 6))

    assert not assignment.is_being_reassigned
    assert assignment.target == (1, 2, 3, 4, 5, 6)


@pytest.mark.scenario(11)
def test_reassignment_keeps_common_replicas() -> None:
    moving = Assignment((1, 2, 3, 4)).reassign_to((4, 2, 5, 3))

    assert moving == Assignment((4, 2, 5, 3, 1), adding=(5,), removing=(1,))
    assert moving.target == (4, 2, 5, 3)


@pytest.mark.scenario(12)
def test_reassignment_to_other_brokers_has_both_lists() -> None:
    assert PLAIN.reassign_to((4, 5, 6)) == Assignment((4, 5, 6, 1, 2, 3), adding=(4, 5, 6), removing=(1, 2, 3))


@pytest.mark.scenario(13)
def test_another_order_needs_no_move() -> None:
    moving = PLAIN.reassign_to((3, 1, 2))

    assert moving == Assignment((3, 1, 2))
    assert not moving.is_being_reassigned


@pytest.mark.scenario(14)
@pytest.mark.parametrize(
    "assignment",
    [
        PLAIN,
        Assignment((4, 5, 6, 1, 2, 3), adding=(4, 5, 6), removing=(1, 2, 3)),
        Assignment((4, 2, 3, 1), adding=(4,), removing=(1,)),
    ],
)
def test_repeated_target_changes_nothing(assignment: Assignment) -> None:
    assert assignment.reassign_to(assignment.target) == assignment


@pytest.mark.scenario(15)
def test_second_reassignment_replaces_the_first() -> None:
    second = PLAIN.reassign_to((4, 5, 6)).reassign_to((7, 8, 9))

    assert second == Assignment((7, 8, 9, 1, 2, 3), adding=(7, 8, 9), removing=(1, 2, 3))
    assert second == PLAIN.reassign_to((7, 8, 9))


@pytest.mark.scenario(16)
def test_reassignment_to_the_origin_ends_it() -> None:
    assert PLAIN.reassign_to((4, 5, 6)).reassign_to((1, 2, 3)) == PLAIN


@pytest.mark.scenario(17)
def test_origin_has_the_order_of_the_target() -> None:
    moving = PLAIN.reassign_to((3, 4, 2))

    assert moving.origin == (3, 2, 1)
    assert moving.reassign_to(moving.origin) == Assignment((3, 2, 1))


def test_replica_is_removed_from_all_lists() -> None:
    moving = Assignment((4, 2, 3, 1), adding=(4,), removing=(1,))

    assert moving.remove_replica(4) == Assignment((2, 3, 1), removing=(1,))
    assert moving.remove_replica(1) == Assignment((4, 2, 3), adding=(4,))


replicas = st.lists(st.integers(0, 8), max_size=5, unique=True).map(tuple)


@given(replicas, replicas, replicas)
def test_only_origin_and_target_matter(origin: tuple[int, ...], first: tuple[int, ...], then: tuple[int, ...]) -> None:
    moving = Assignment(origin).reassign_to(first)

    assert moving.target == first
    assert set(moving.origin) == set(origin)
    assert set(moving.adding) == set(first) - set(origin)
    assert set(moving.removing) == set(origin) - set(first)
    again = moving.reassign_to(then)
    assert again.target == then
    assert set(again.origin) == set(origin)


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"), [("t-0", ("t", 0)), ("a-b-12", ("a-b", 12)), ("a.b_c-3", ("a.b_c", 3)), ("--1", ("-", 1))]
)
def test_partition_name_is_split_at_the_last_dash(text: str, name: tuple[str, int]) -> None:
    assert TopicPartition.parse(text) == TopicPartition(*name)
    assert str(TopicPartition(*name)) == text


@pytest.mark.parametrize("text", ["", "t", "t-", "-1", "t-x", "t-²", "t-1 "])
def test_invalid_partition_name_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a partition: write it as topic-0"):
        TopicPartition.parse(text)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "..."])
def test_legal_topic_name_is_accepted(name: str) -> None:
    assert check_topic_name(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "needs a name"),
        (".", "cannot name"),
        ("..", "cannot name"),
        ("x" * 250, "at most 249"),
        ("a b", "'a b' contains ' ': only ASCII"),
        ("na\u00efve", "contains '\u00ef'"),
    ],
)
def test_illegal_topic_name_is_rejected_with_the_reason(name: str, reason: str) -> None:
    assert reason in (check_topic_name(name) or "")
