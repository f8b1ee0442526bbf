"""An index says what a dictionary would say."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kactl.model import TopicPartition
from kactl.participant.row_index import ABSENT, Index
from kactl.stores.base import Names

names = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 4) | st.just(2**31 - 1))
steps = st.lists(st.tuples(st.booleans(), st.lists(names, unique=True, max_size=6)), max_size=12)


def find(index: Index, wanted: list[TopicPartition]) -> list[int]:
    columns = Names.of(wanted)
    found: list[int] = index.find([ref.name for ref in columns.topics], columns.topic, columns.partition).tolist()
    return found


@given(steps)
def test_rows_are_those_of_a_dictionary(story: list[tuple[bool, list[TopicPartition]]]) -> None:
    index = Index()
    kept: dict[TopicPartition, int] = {}

    for adds, partitions in story:
        if adds:
            fresh = [name for name in partitions if name not in kept]
            columns = Names.of(fresh)
            rows = index.add([ref.name for ref in columns.topics], columns.topic, columns.partition).tolist()
            assert not set(rows) & set(kept.values())
            kept.update(zip(fresh, rows, strict=True))
        else:
            gone = [name for name in partitions if name in kept]
            before = {name.topic for name in kept}
            emptied = index.remove(np.array([kept.pop(name) for name in gone], np.intp))
            assert set(emptied) == before - {name.topic for name in kept}

        assert len(index) == len(kept)
        assert find(index, partitions) == [kept.get(name, ABSENT) for name in partitions]
        assert [index.find_one(name) for name in partitions] == find(index, partitions)
        assert set(index.topics) == {name.topic for name in kept}
        assert list(index.names(index.rows)) == sorted(kept, key=lambda name: (index.topics.index(name.topic), name))
        assert all(row < index.capacity for row in kept.values())


def test_rows_of_removed_partitions_are_used_again() -> None:
    index = Index()
    for _ in range(1_000):
        columns = Names.of([TopicPartition("t", 0), TopicPartition("t", 1)])
        index.remove(index.add(["t"], columns.topic, columns.partition))

    assert index.capacity == 2
    assert index.topics == []
