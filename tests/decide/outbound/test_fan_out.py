"""Fan-out of partition states: each recipient has its own rows, and columns are gathered at the first access."""

import dataclasses

import numpy as np
import pytest

from kactl.decide.messages.control import PartitionStates
from kactl.decide.outbound.request_columns import FanOut, PartitionStatesView
from kactl.decide.state.topics import Topics
from kactl.model import TopicRef

REFS = [TopicRef(name, bytes([number]) * 16) for number, name in enumerate("abc", 1)]


def fan_out(*, numbered: bool) -> FanOut:
    """Partitions a-0 a-1 b-0 c-0 c-1. The first recipient receives all but c-1, the second the first and the last."""
    numbers = np.arange(5, dtype=np.int32)
    replicas = np.array([numbers, numbers + 10], np.int32)
    states = PartitionStates(
        topics=Topics.of(REFS) if numbered else REFS,
        topic=np.array([0, 0, 1, 2, 2], np.int32),
        partition=np.array([0, 1, 0, 0, 1], np.int32),
        controller_epoch=numbers,
        leader=numbers,
        leader_epoch=numbers,
        isr=replicas,
        partition_epoch=numbers + np.int32(20),
        replicas=replicas,
        is_new=numbers == 4,
        recovering=numbers == 3,
    )
    return FanOut(states, np.array([0, 1, 2, 3, 0, 4]), [0, 4, 6])


@pytest.mark.parametrize("numbered", [True, False])
def test_each_recipient_has_its_own_rows(numbered: bool) -> None:
    most, ends = fan_out(numbered=numbered).parts()

    assert (len(most), len(ends)) == (4, 2)
    assert [ref.name for ref in most.topics] == ["a", "b", "c"]
    assert most.topic.tolist() == [0, 0, 1, 2]
    assert [ref.name for ref in ends.topics] == ["a", "c"]
    assert ends.topic.tolist() == [0, 1]
    assert ends.partition.tolist() == [0, 1]
    assert ends.replicas.tolist() == [[0, 4], [10, 14]]
    assert ends.partition_epoch.tolist() == [20, 24]
    assert ends.is_new is not None
    assert ends.is_new.tolist() == [False, True]
    assert ends.adding is None


def test_copy_of_a_view_is_independent() -> None:
    _, ends = fan_out(numbered=True).parts()

    copy = dataclasses.replace(ends, leader=np.array([7, 8], np.int32))

    assert isinstance(copy, PartitionStatesView)
    assert copy.fan_out is None
    assert len(copy) == 2
    assert copy.leader.tolist() == [7, 8]
    assert copy.replicas.tolist() == [[0, 4], [10, 14]]
    assert ends.leader.tolist() == [0, 4]


def test_unknown_column_raises_attribute_error() -> None:
    _, ends = fan_out(numbered=True).parts()

    with pytest.raises(AttributeError, match="mood"):
        ends.mood  # noqa: B018
