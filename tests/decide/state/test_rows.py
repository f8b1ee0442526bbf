"""Column operations, and row-number sets compared with NumPy's set functions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.state.rows import BrokerSet, choose, common, first, members, preferred_slot, some, without
from kactl.model import NO_BROKER

ids = st.integers(0, 200) | st.sampled_from([65_534, 65_535, 65_536, 65_537, 2**31 - 1])


@given(st.frozensets(ids), st.lists(ids | st.integers(-3, NO_BROKER)))
def test_broker_set_tests_membership_of_whole_columns(brokers: frozenset[int], ids_: list[int]) -> None:
    live = BrokerSet(brokers)

    assert live[np.array(ids_, np.int32)].tolist() == [broker in brokers for broker in ids_]
    assert [broker in live for broker in ids_] == [broker in brokers for broker in ids_]
    assert len(live) == len(brokers)


@pytest.mark.parametrize("brokers", [(), (0,), (3,), (65_536,), (65_537,), (-1,), (-1, 3), (-2, 65_537)])
def test_no_broker_is_never_a_member_of_a_broker_set(brokers: tuple[int, ...]) -> None:
    live = BrokerSet(brokers)

    assert not live[np.array([[NO_BROKER, -2], [-3, NO_BROKER]], np.int32)].any()
    assert not live[np.array([70_000], np.int32)].any()
    assert NO_BROKER not in live


columns = st.integers(0, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=width, max_size=width), min_size=1, max_size=6
    )
)


@given(columns)
def test_first_returns_the_first_eligible_broker_in_slot_order(partitions: list[list[tuple[int, bool]]]) -> None:
    shape = (len(partitions[0]), len(partitions))
    replicas = np.array([[broker for broker, _ in slots] for slots in partitions], np.int32).T.reshape(shape)
    eligible = np.array([[may for _, may in slots] for slots in partitions], np.bool_).T.reshape(shape)

    expected = [[broker for broker, may in slots if may] for slots in partitions]
    assert first(eligible, replicas).tolist() == [brokers[0] if brokers else -1 for brokers in expected]
    assert members(eligible, replicas).T.reshape(shape[::-1]).tolist() == [
        [broker if may else NO_BROKER for broker, may in slots] for slots in partitions
    ]
    assert some(eligible).tolist() == [bool(brokers) for brokers in expected]
    heads = preferred_slot(eligible)
    assert [replicas[:, row][heads[:, row]].tolist() for row in range(len(partitions))] == [
        brokers[:1] for brokers in expected
    ]


def test_choose_takes_the_value_of_the_first_true_condition() -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])

    assert choose(a, 1, b, 2, 3).tolist() == [1, 1, 2, 3]
    assert choose(b, np.array([[1], [2]]), np.zeros((2, 4), int)).tolist() == [[1, 0, 1, 0], [2, 0, 2, 0]]
    assert choose(7) == 7


ROW_NUMBERS = st.sets(st.integers(0, 60)).map(lambda rows: np.array(sorted(rows), np.intp))


@given(ROW_NUMBERS, ROW_NUMBERS)
def test_common_is_the_intersection(rows: np.ndarray, others: np.ndarray) -> None:
    assert common(rows, others).tolist() == np.intersect1d(rows, others).tolist()


@given(ROW_NUMBERS, ROW_NUMBERS)
def test_without_is_the_difference(rows: np.ndarray, others: np.ndarray) -> None:
    assert without(rows, others).tolist() == np.setdiff1d(rows, others).tolist()


def test_row_sets_keep_the_order_of_the_first_argument() -> None:
    rows, others = np.array([9, 2, 5, 0], np.intp), np.array([5, 7, 9], np.intp)

    assert common(rows, others).tolist() == [9, 5]
    assert without(rows, others).tolist() == [2, 0]
