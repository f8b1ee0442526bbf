"""Decoding of responses; invalid bytes are rejected."""

import struct
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kactl.decide.messages.control import (
    KafkaRequest as Request,
)
from kactl.decide.messages.control import (
    KafkaResponse as Response,
)
from kactl.decide.messages.control import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    PartitionStates,
    UpdateMetadataResponse,
)
from kactl.decide.state.topics import AllTopics, Topics
from kactl.model import ZERO_ID, TopicRef
from kactl.model.errors import MalformedMessage
from kactl.transports.kafka.codec import Decoder
from tests.support import kio_codec as by_kio
from tests.support.message_strategies import exchanges

from .test_request import IBPS, LEAD, STOP, UPDATE, column, spoken

REQUESTS = {"LeaderAndIsr": LEAD, "UpdateMetadata": UPDATE, "StopReplica": STOP}


def content(response: Response) -> tuple[Any, ...]:
    if isinstance(response, UpdateMetadataResponse):
        return type(response), response.error
    errors = response.partitions
    names = [errors.topics[topic] for topic in errors.topic]
    rows = list(zip(names, errors.partition.tolist(), errors.error.tolist(), strict=True))
    return type(response), response.error, tuple(errors.topics), rows


@pytest.mark.parametrize("ibp", IBPS)
@given(exchange=exchanges())
def test_any_response_of_kio_is_read(ibp: str, exchange: tuple[Request, Response]) -> None:
    request, response = exchange
    versions = spoken(ibp)
    if isinstance(request, LeaderAndIsr):
        assume(len({topic.id for topic in request.states.topics}) == len(request.states.topics))
    data = by_kio.response_bytes(request, response, versions, correlation_id=9)

    read = Decoder(versions).response(request, 9, data)

    assert content(read) == content(response)


def header(correlation_id: int = 9, error: int = 0) -> bytes:
    return struct.pack(">i", correlation_id) + b"\0" + struct.pack(">h", error)


def row(partition: int, error: int, tags: bytes = b"\0") -> bytes:
    return struct.pack(">ih", partition, error) + tags


TAGGED = b"\x02" + b"\x07\x03abc" + b"\x81\x01\x00"  # tag 7 with three bytes, tag 129 with none


def test_tagged_fields_of_later_versions_are_skipped() -> None:
    by_name = b"\x03" + b"\x02t" + row(1, 56, TAGGED) + b"\x02t" + row(2, 0) + TAGGED
    by_id = b"\x02" + LEAD.states.topics[0].id + b"\x03" + row(1, 56, TAGGED) + row(2, 0) + TAGGED + TAGGED

    for ibp, request, body in (("2.6", LEAD, by_name), ("3.9", LEAD, by_id), ("3.9", STOP, by_name)):
        *_, rows = content(Decoder(spoken(ibp)).response(request, 9, header() + body))
        assert rows == [("t", 1, 56), ("t", 2, 0)]
    assert Decoder(spoken("3.9")).response(UPDATE, 9, header(error=11) + TAGGED).error == 11


def test_topics_that_share_the_zero_id_are_skipped() -> None:
    topics = (TopicRef("a"), TopicRef("b"), TopicRef("c", bytes(range(16))))
    one = column(0, 0, 0)
    no_lists = np.zeros((0, 3), np.int32)
    states = PartitionStates(topics, column(0, 1, 2), one, one, one, one, no_lists, one, no_lists)
    entries = [ref.id + b"\x02" + row(0, 56) + b"\0" for ref in topics]

    answer = header() + b"\x04" + b"".join(entries) + b"\0"
    read = Decoder(spoken("3.9")).response(LeaderAndIsr(1, 1, 1, states), 9, answer)

    assert content(read)[2:] == (("c",), [("c", 0, 56)])


def hosted(sizes: Sequence[int]) -> LeaderAndIsr:
    """Return a request that names topics, each with the given number of partitions."""
    refs = Topics.of(
        [TopicRef(f"topic-{number}", bytes(8) + number.to_bytes(8, "big")) for number in range(len(sizes))]
    )
    topic = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    partition = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
    zeros, lists = np.zeros(len(topic), np.int32), np.zeros((0, len(topic)), np.int32)
    return LeaderAndIsr(1, 1, 1, PartitionStates(refs, topic, partition, zeros, zeros, zeros, lists, zeros, lists))


# The size of a topic takes one, two or three bytes.
@pytest.mark.parametrize("sizes", [[2] * 500, [1, 126, 127, 128, 3], [200, 16_383, 1], [5, 16_384, 1]])
def test_response_is_read_in_any_order_of_topics(sizes: list[int]) -> None:
    """Brokers return their responses in hash-map order."""
    request = hosted(sizes)
    states = request.states
    random = np.random.default_rng(11)
    error = np.where(random.random(len(states)) < 0.01, 56, 0).astype(np.int16)
    order = np.concatenate(
        [random.permutation(np.flatnonzero(states.topic == topic)) for topic in random.permutation(len(sizes))]
    )
    names = tuple(ref.name for ref in states.topics)
    errors = PartitionErrors(names, states.topic[order], states.partition[order], error[order])
    data = by_kio.response_bytes(request, LeaderAndIsrResponse(0, errors), spoken("3.9"), correlation_id=9)

    read = Decoder(spoken("3.9")).response(request, 9, data)

    *_, rows = content(read)
    named = zip(errors.topic.tolist(), errors.partition.tolist(), errors.error.tolist(), strict=True)
    assert rows == [(names[topic], partition, code) for topic, partition, code in named]


def test_topics_that_receive_ids_later_are_found_by_id() -> None:
    """A table numbers topics permanently; cached names must not outlive their ids."""
    every = AllTopics()
    decoder = Decoder(spoken("3.9"))
    zeros, lists = column(0), np.zeros((0, 1), np.int32)

    def answered(number: int, topic_id: bytes) -> Any:
        topics = Topics(every, column(number))
        states = PartitionStates(topics, zeros, zeros, zeros, zeros, zeros, lists, zeros, lists)
        body = b"\x02" + topic_id + b"\x02" + row(0, 56) + b"\0\0"
        return content(decoder.response(LeaderAndIsr(1, 1, 1, states), 9, header() + body))[2:]

    first = every.add(TopicRef("first", bytes(range(16))))
    assert answered(first, bytes(range(16))) == (("first",), [("first", 0, 56)])
    second = every.add(TopicRef("second", bytes(range(1, 17))))
    assert answered(second, bytes(range(1, 17))) == (("second",), [("second", 0, 56)])
    every.replace(first, TopicRef("first", bytes(range(2, 18))))
    assert answered(first, bytes(range(2, 18))) == (("first",), [("first", 0, 56)])
    with pytest.raises(MalformedMessage, match="was not in the request"):
        answered(first, bytes(range(16)))


NOT_ANSWERS = {
    "nothing": (UPDATE, b""),
    "another request's": (UPDATE, header(8) + b"\0"),
    "too long": (UPDATE, header() + b"\0\0"),
    "an endless varint": (UPDATE, header() + b"\xff" * 9),
    "a million tags": (UPDATE, header() + b"\xc0\x84\x3d"),
    "a tag beyond the end": (UPDATE, header() + b"\x01\x00\x7f"),
    "four billion partitions": (STOP, header() + b"\xff\xff\xff\xff\x0f"),
    "no array": (STOP, header() + b"\0\0"),
    "a topic without a name": (STOP, header() + b"\x02\x00" + row(0, 0) + b"\0"),
    "a name beyond the end": (STOP, header() + b"\x02\xff\xff\xff\xff\x0ft" + row(0, 0) + b"\0"),
    "a name that is no text": (STOP, header() + b"\x02\x02\xff" + row(0, 0) + b"\0"),
    "four billion topics": (LEAD, header() + b"\xff\xff\xff\xff\x0f"),
    "four billion partitions of a topic": (
        LEAD,
        header() + b"\x02" + LEAD.states.topics[0].id + b"\xff\xff\xff\xff\x0f",
    ),
    "a topic that was not requested": (LEAD, header() + b"\x02" + ZERO_ID + b"\x02" + row(0, 0) + b"\0\0"),
}


@pytest.mark.parametrize(("request_", "data"), NOT_ANSWERS.values(), ids=NOT_ANSWERS.keys())
def test_invalid_response_is_rejected_without_cost(request_: Request, data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            Decoder(spoken("3.9")).response(request_, 9, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 100_000


@pytest.mark.parametrize("ibp", IBPS)
@given(exchange=exchanges(), data=st.data())
def test_truncated_response_is_rejected(ibp: str, exchange: tuple[Request, Response], data: st.DataObject) -> None:
    request, response = exchange
    encoded = by_kio.response_bytes(request, response, spoken(ibp), correlation_id=9)
    size = data.draw(st.integers(0, len(encoded) - 1))

    with pytest.raises(MalformedMessage):
        Decoder(spoken(ibp)).response(request, 9, encoded[:size])


@pytest.mark.parametrize("ibp", IBPS)
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
@given(garbage=st.binary(max_size=200), with_header=st.booleans())
def test_random_bytes_are_rejected_or_read_within_bounds(
    ibp: str, request_: Request, garbage: bytes, with_header: bool
) -> None:
    try:
        read = Decoder(spoken(ibp)).response(request_, 9, header() + garbage if with_header else garbage)
    except MalformedMessage:
        return

    if not isinstance(read, UpdateMetadataResponse):
        assert len(read.partitions) * 7 <= len(garbage)


def test_stop_replica_response_keeps_its_order_of_rows() -> None:
    body = b"".join([b"\x04", b"\x02b", row(1, 0), b"\x02a", row(7, 56), b"\x02b", row(0, 3), b"\0"])

    read = Decoder(spoken("3.9")).response(STOP, 9, header() + body)

    assert content(read)[2:] == (("b", "a"), [("b", 1, 0), ("a", 7, 56), ("b", 0, 3)])
