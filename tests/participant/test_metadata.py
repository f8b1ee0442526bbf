"""Metadata cache of a broker."""

from hypothesis import given
from hypothesis import strategies as st

from kactl.model import ZERO_ID, TopicPartition
from kactl.participant.metadata import MetadataCache
from tests.support.control_requests import (
    BILLS_0,
    CONTROLLER,
    ID_A,
    ORDERS_0,
    ORDERS_1,
    StateRow,
    deleted_row,
    update_metadata,
)


def test_update_merges_partitions_and_replaces_brokers() -> None:
    cache = MetadataCache()

    cache.update(update_metadata(StateRow(ORDERS_0, leader=1), StateRow(ORDERS_1, leader=2), live=(1, 2, 3)))
    cache.update(
        update_metadata(StateRow(ORDERS_1, leader=3, leader_epoch=4, isr=(3,)), StateRow(BILLS_0), live=(3, 4))
    )

    assert [cache.leader(name) for name in (ORDERS_0, ORDERS_1, BILLS_0)] == [1, 3, 1]
    assert sorted(cache.live_brokers) == [3, 4]
    assert cache.live.ids == {3, 4}
    assert cache.controller_id == CONTROLLER
    known = cache.partition(ORDERS_1)
    assert known is not None
    assert (known.leader_epoch, known.isr, known.replicas) == (4, (3,), (1, 2, 3))


def test_update_without_partitions_keeps_all() -> None:
    cache = MetadataCache()

    cache.update(update_metadata(StateRow(ORDERS_0)))
    cache.update(update_metadata(live=()))

    assert len(cache) == 1
    assert cache.live_brokers == {}


def test_copy_that_arrives_after_a_later_request_is_skipped() -> None:
    cache = MetadataCache()
    first = update_metadata(StateRow(ORDERS_0, leader=1), live=(1, 2), number=7)
    cache.update(first)
    cache.update(update_metadata(StateRow(ORDERS_0, leader=2, leader_epoch=1), live=(2,), number=8))

    assert not cache.update(first)

    assert (cache.leader(ORDERS_0), sorted(cache.live_brokers)) == (2, [2])


def test_repeated_request_and_those_of_a_later_controller_are_applied() -> None:
    cache = MetadataCache()
    cache.update(update_metadata(StateRow(ORDERS_0, leader=1), number=7))

    cache.update(update_metadata(StateRow(ORDERS_0, leader=2), number=7))
    assert cache.leader(ORDERS_0) == 2
    cache.update(update_metadata(StateRow(ORDERS_0, leader=3), number=1, epoch=2))
    assert cache.leader(ORDERS_0) == 3
    cache.update(update_metadata(StateRow(ORDERS_0, leader=1)))  # without a number, as Kafka's
    assert cache.leader(ORDERS_0) == 1
    cache.update(update_metadata(StateRow(ORDERS_0, leader=2), number=8))
    assert cache.leader(ORDERS_0) == 1


def test_deleted_partition_is_removed() -> None:
    cache = MetadataCache()

    cache.update(update_metadata(StateRow(ORDERS_0, topic_id=ID_A), StateRow(ORDERS_1, topic_id=ID_A)))
    cache.update(update_metadata(deleted_row(ORDERS_0), deleted_row(BILLS_0)))
    assert cache.leader(ORDERS_0) is None
    assert cache.partition(ORDERS_0) is None
    assert cache.topics == ["orders"]

    cache.update(update_metadata(deleted_row(ORDERS_1).but(topic_id=ID_A)))
    assert cache.topics == []
    assert cache.topic_id("orders") == ZERO_ID


def test_topic_without_an_id_loses_its_earlier_id() -> None:
    cache = MetadataCache()

    cache.update(update_metadata(StateRow(ORDERS_0, topic_id=ID_A)))
    assert cache.topic_id("orders") == ID_A

    cache.update(update_metadata(StateRow(ORDERS_1)))
    assert cache.topic_id("orders") == ZERO_ID


names = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3))
brokers = st.lists(st.integers(1, 6), unique=True, max_size=5).map(tuple)
received = st.builds(StateRow, names, st.integers(-2, 3), st.integers(0, 5), brokers, brokers)


@given(st.lists(st.lists(received, unique_by=lambda row: row.name, max_size=5), max_size=6))
def test_cache_contains_the_last_update_of_each_partition(story: list[list[StateRow]]) -> None:
    cache = MetadataCache()
    last: dict[TopicPartition, StateRow] = {}

    for rows in story:
        cache.update(update_metadata(*rows))
        for row in rows:
            last.pop(row.name, None)
            if row.leader != -2:
                last[row.name] = row

    for name in {row.name for rows in story for row in rows}:
        cached, expected = cache.partition(name), last.get(name)
        assert (cached is None) == (expected is None)
        if cached is not None and expected is not None:
            assert (cached.leader, cached.leader_epoch) == (expected.leader, expected.leader_epoch)
            assert (cached.isr, cached.replicas) == (expected.isr, expected.replicas)
