"""The row index agrees with a dictionary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kactl.model import TopicPartition
from kactl.participant.row_index import ABSENT, RowIndex
from kactl.stores.base import Names

names = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 4) | st.just(2**31 - 1))
steps = st.lists(st.tuples(st.booleans(), st.lists(names, unique=True, max_size=6)), max_size=12)


def find(index: RowIndex, partitions: list[TopicPartition]) -> list[int]:
    columns = Names.of(partitions)
    rows: list[int] = index.find([ref.name for ref in columns.topics], columns.topic, columns.partition).tolist()
    return rows


@given(steps)
def test_index_agrees_with_a_dictionary(story: list[tuple[bool, list[TopicPartition]]]) -> None:
    index = RowIndex()
    expected: dict[TopicPartition, int] = {}

    for is_addition, partitions in story:
        if is_addition:
            added = [name for name in partitions if name not in expected]
            columns = Names.of(added)
            rows = index.add([ref.name for ref in columns.topics], columns.topic, columns.partition).tolist()
            assert not set(rows) & set(expected.values())
            expected.update(zip(added, rows, strict=True))
        else:
            removed = [name for name in partitions if name in expected]
            before = {name.topic for name in expected}
            emptied = index.remove(np.array([expected.pop(name) for name in removed], np.intp))
            assert set(emptied) == before - {name.topic for name in expected}

        assert len(index) == len(expected)
        assert find(index, partitions) == [expected.get(name, ABSENT) for name in partitions]
        assert [index.find_one(name) for name in partitions] == find(index, partitions)
        assert set(index.topics) == {name.topic for name in expected}
        assert list(index.names(index.rows)) == sorted(
            expected, key=lambda name: (index.topics.index(name.topic), name)
        )
        assert all(row < index.capacity for row in expected.values())


def test_rows_of_removed_partitions_are_reused() -> None:
    index = RowIndex()
    for _ in range(1_000):
        columns = Names.of([TopicPartition("t", 0), TopicPartition("t", 1)])
        index.remove(index.add(["t"], columns.topic, columns.partition))

    assert index.capacity == 2
    assert index.topics == []
