"""Topics as columns, compared with objects."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.exceptions import NoAuthError, NoNodeError

from kactl.model import ZERO_ID, Assignment, TopicPartition, TopicRef
from kactl.stores.base import Assignments
from kactl.stores.formats import records, topic_columns
from kactl.stores.zookeeper.topic_node import columns as topic_node_columns

BROKERS = st.lists(st.integers(0, 6), max_size=5)
# Kafka's format: a larger topic's partitions are in the order of a hash.
TOPICS = st.dictionaries(
    st.text("abc", min_size=1, max_size=3),
    st.tuples(
        st.sampled_from([ZERO_ID, b"0123456789abcdef"]),
        st.lists(
            st.tuples(st.integers(0, 30), BROKERS, BROKERS, BROKERS),
            max_size=6,
            unique_by=lambda partition: partition[0],
        ),
    ),
    max_size=7,
)


def topic_node(topic_id: bytes, partitions: list[tuple[int, list[int], list[int], list[int]]]) -> bytes:
    held: dict[str, object] = {
        "version": 3,
        "partitions": {str(number): replicas for number, replicas, _, _ in partitions},
        "adding_replicas": {str(number): adding for number, _, adding, _ in partitions if adding},
        "removing_replicas": {str(number): removing for number, _, _, removing in partitions if removing},
    }
    if topic_id != ZERO_ID:
        held["topic_id"] = records.encode_id(topic_id)
    return msgspec.json.encode(held)


@given(TOPICS, st.sampled_from([1, 2, 500]))
def test_columns_equal_the_objects(
    topics: dict[str, tuple[bytes, list[tuple[int, list[int], list[int], list[int]]]]], at_once: int
) -> None:
    nodes = [(topic_node(*topic), None) for topic in topics.values()]
    expected = Assignments.of(
        {
            TopicPartition(name, number): assignment
            for name, (data, _) in zip(topics, nodes, strict=True)
            for number, assignment in records.decode_topic(data)[1].items()
        }
    )

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(topic_columns, "TOPICS_AT_ONCE", at_once)
        columns = topic_node_columns(list(topics), nodes)

    assert list(columns.topics) == [TopicRef(name, topic_id) for name, (topic_id, _) in topics.items()]
    assert list(columns.items()) == list(expected.items())
    for column in (columns.topic, columns.partition, columns.replicas):
        assert column.dtype == np.int32


def test_malformed_topics_are_skipped_and_named(caplog: pytest.LogCaptureFixture) -> None:
    fine = records.encode_topic(ZERO_ID, {0: Assignment((1, 2)), 1: Assignment((2, 3))})
    nodes = [(fine, None), NoNodeError(), NoAuthError(), (b"{", None), (None, None), (fine, None)]

    columns = topic_node_columns(["a", "gone", "secret", "broken", "empty", "b"], nodes)

    assert [topic.name for topic in columns.topics] == ["a", "b"]
    assert columns.topic.tolist() == [0, 0, 1, 1]
    named = [record.getMessage().split(" ")[0] for record in caplog.records]
    assert named == ["/brokers/topics/secret", "/brokers/topics/broken", "/brokers/topics/empty"]
