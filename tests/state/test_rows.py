"""The few words in which rows are reasoned about."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.model import NO_BROKER
from kactl.state.rows import BrokerSet, choose, first, members, preferred_slot, some

ids = st.integers(0, 200) | st.sampled_from([65_534, 65_535, 65_536, 65_537, 2**31 - 1])


@given(st.frozensets(ids), st.lists(ids | st.integers(-3, NO_BROKER)))
def test_a_set_of_brokers_answers_for_whole_columns(brokers: frozenset[int], asked: list[int]) -> None:
    live = BrokerSet(brokers)

    assert live[np.array(asked, np.int32)].tolist() == [broker in brokers for broker in asked]
    assert [broker in live for broker in asked] == [broker in brokers for broker in asked]
    assert len(live) == len(brokers)


@pytest.mark.parametrize("brokers", [(), (0,), (3,), (65_536,), (65_537,), (-1,), (-1, 3), (-2, 65_537)])
def test_nobody_is_never_in_a_set_of_brokers(brokers: tuple[int, ...]) -> None:
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
def test_first_is_the_first_in_slot_order(partitions: list[list[tuple[int, bool]]]) -> None:
    shape = (len(partitions[0]), len(partitions))
    replicas = np.array([[broker for broker, _ in each] for each in partitions], np.int32).T.reshape(shape)
    eligible = np.array([[may for _, may in each] for each in partitions], np.bool_).T.reshape(shape)

    expected = [[broker for broker, may in each if may] for each in partitions]
    assert first(eligible, replicas).tolist() == [each[0] if each else -1 for each in expected]
    assert members(eligible, replicas).T.reshape(shape[::-1]).tolist() == [
        [broker if may else NO_BROKER for broker, may in each] for each in partitions
    ]
    assert some(eligible).tolist() == [bool(each) for each in expected]
    heads = preferred_slot(eligible)
    assert [replicas[:, at][heads[:, at]].tolist() for at in range(len(partitions))] == [each[:1] for each in expected]


def test_choose_takes_the_first_condition_that_holds() -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])

    assert choose(a, 1, b, 2, 3).tolist() == [1, 1, 2, 3]
    assert choose(b, np.array([[1], [2]]), np.zeros((2, 4), int)).tolist() == [[1, 0, 1, 0], [2, 0, 2, 0]]
    assert choose(7) == 7
