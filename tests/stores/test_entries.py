"""Tests of entries as columns, compared with a dictionary of objects."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.model import NO_VERSION, Leadership, TopicPartition
from kactl.stores.base import Found, Names, Outcome
from kactl.stores.entries import NO_TOPIC, PARTITION_LIMIT, EntryTable, topic_numbers
from tests.support.store_clients import new_write

Key = tuple[int, int]
KNOWN = {f"t{number}": number for number in range(5)}

rows = st.fixed_dictionaries(
    {
        "leader": st.integers(-1, 2**31 - 1),
        "leader_epoch": st.integers(0, 2**31 - 1),
        "isr": st.lists(st.integers(0, 50), max_size=5, unique=True),
        "recovering": st.booleans(),
        "off_by": st.sampled_from([0, 0, 0, 1, -1]),
    }
)
keys = st.tuples(st.integers(0, 6), st.sampled_from([0, 1, 2, 3, 9, 400]))
changes = st.one_of(st.dictionaries(keys, rows, max_size=12), st.integers(-1, 6))  # a write, or a topic's removal


@given(st.lists(changes, max_size=12))
def test_columns_agree_with_objects(changes: list[dict[Key, dict[str, Any]] | int]) -> None:
    table, objects = EntryTable(), dict[Key, Leadership]()
    for epoch, change in enumerate(changes):
        if isinstance(change, int):
            table.remove(change)
            objects = {key: held for key, held in objects.items() if key[0] != change}
        else:
            keep_both(table, objects, change, epoch)

        asked = [(topic, partition) for topic in range(-1, 8) for partition in (0, 1, 2, 3, 9, 10, 400, 401)]
        topics, partitions = (np.array(column, np.int32) for column in zip(*asked, strict=True))
        found = table.read(topics, partitions)
        for at, key in enumerate(asked):
            assert found.one(at) == objects.get(key)
        assert len(table) == len(objects)
        for topic in range(-1, 8):
            assert table.partitions_of(topic) == sorted(at for number, at in objects if number == topic)


def keep_both(
    table: EntryTable, objects: dict[Key, Leadership], change: dict[Key, dict[str, Any]], controller_epoch: int
) -> None:
    """Writes a change to both, and compares the results."""
    names = [TopicPartition(f"t{topic}", partition) for topic, partition in change]
    standing = [objects[key].partition_epoch if key in objects else NO_VERSION for key in change]
    expected = [
        max(version + row["off_by"], NO_VERSION) for version, row in zip(standing, change.values(), strict=True)
    ]
    asked = new_write(
        names,
        leader=[row["leader"] for row in change.values()],
        leader_epoch=[row["leader_epoch"] for row in change.values()],
        isr=[row["isr"] for row in change.values()],
        recovering=[row["recovering"] for row in change.values()],
        expected=expected,
    )

    committed, made, where = table.plan_write(asked, topic_numbers(asked.names, KNOWN), controller_epoch)
    table.put(made, where)

    for at, (key, row) in enumerate(change.items()):
        if expected[at] != standing[at]:
            assert committed.outcome[at] == Outcome.CONFLICT
        elif key[0] >= len(KNOWN):
            assert committed.outcome[at] == Outcome.FAILED
        else:
            assert (committed.outcome[at], committed.version[at]) == (Outcome.COMMITTED, standing[at] + 1)
            isr, version = tuple(row["isr"]), standing[at] + 1
            objects[key] = Leadership(
                row["leader"], row["leader_epoch"], isr, version, controller_epoch, row["recovering"]
            )


def test_checking_writes_changes_nothing() -> None:
    table = EntryTable()
    asked = new_write([TopicPartition("t0", 0)])

    table.plan_write(asked, np.zeros(1, np.int32), 1)

    assert len(table) == 0
    assert table.read(np.zeros(1, np.int32), np.zeros(1, np.int32)).status.tolist() == [Found.MISSING]


@pytest.mark.parametrize("partition", [PARTITION_LIMIT, 2**31 - 1])
def test_out_of_range_partition_fails_alone(partition: int) -> None:
    table = EntryTable()
    asked = new_write([TopicPartition("t0", 0), TopicPartition("t0", partition)])

    committed, made, where = table.plan_write(asked, np.zeros(2, np.int32), 1)
    table.put(made, where)

    assert committed.outcome.tolist() == [Outcome.COMMITTED, Outcome.FAILED]
    assert len(table) == 1


def test_part_contains_the_written_rows() -> None:
    table = EntryTable()
    names = [TopicPartition(f"t{at % 5}", at) for at in range(1000)]
    asked = new_write(names, leader=list(range(1000)))
    committed, made, _ = table.plan_write(asked, topic_numbers(asked.names, KNOWN), 3)
    table.put(made)
    copy = EntryTable()

    for begin in range(0, 1200, 300):
        copy.put(table.part(begin, begin + 300))

    topic = topic_numbers(asked.names, KNOWN)
    assert committed.committed.all()
    assert (copy.read(topic, asked.names.partition).leader == np.arange(1000)).all()
    assert len(copy) == 1000


def test_duplicate_partition_in_a_write_is_a_bug() -> None:
    table = EntryTable()
    asked = new_write([TopicPartition("t0", 0)] * 2)
    _, made, where = table.plan_write(asked, np.zeros(2, np.int32), 1)

    with pytest.raises(AssertionError, match="twice"):
        table.put(made, where)


@pytest.mark.parametrize("count", [1, 100])
def test_topics_are_numbered_for_few_and_many_rows(count: int) -> None:
    topics = Names.of([TopicPartition(f"t{at}", 0) for at in range(20)])
    names = Names(topics.topics, np.full(count, 3, np.int32), np.arange(count, dtype=np.int32))

    assert topic_numbers(names, KNOWN).tolist() == [3] * count
    assert topic_numbers(names, {}).tolist() == [NO_TOPIC] * count


def test_recreated_topics_take_no_more_memory() -> None:
    table = EntryTable()
    for topic in range(500):
        names = [TopicPartition(f"t{topic}", at) for at in range(1_000)]
        asked = new_write(names)
        _, made, where = table.plan_write(asked, np.full(1_000, topic, np.int32), 1)
        table.put(made, where)
        if topic > 2:
            table.remove(topic - 3)

    assert len(table) == 3_000
    assert len(table._row_of) < 20_000
    assert table.partitions_of(499) == list(range(1_000))
