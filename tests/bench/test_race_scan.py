"""Parsing of requests and encoding of responses by the race's stub brokers, compared with kio."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader

from bench.race.scan import BEING_DELETED, Header, NotServed, Scan, header, scan
from bench.race.stub_responses import answer, uvarint
from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.messages.control import KafkaRequest as Request
from kactl.decide.messages.control import LeaderAndIsr, PartitionStates, StopReplica, UpdateMetadata
from kactl.model import TopicRef
from kactl.transports.kafka.codec import versions_for
from tests.support import kio_codec as by_kio
from tests.support.message_strategies import LISTENER, requests

LEVELS = [versions_for(ProtocolLevel.parse(level)) for level in ("2.6", "2.8", "3.2", "3.9")]
NEWEST = LEVELS[-1]


def encoded_request(request: Request, versions: Any = NEWEST) -> bytearray:
    """Return the frame encoded by kio, without its length."""
    request_bytes = by_kio.request_bytes(request, versions, correlation_id=39, client_id="9001", listener_name=LISTENER)
    return bytearray(request_bytes[4:])


def scanned(frame: bytearray) -> tuple[Header, Scan]:
    head = header(frame)
    return head, scan(frame, head)


def regular(
    count: int,
    *,
    kind: Any,
    topics: int = 5,
    times: int = 1,
    odd_name: tuple[int, str] | None = None,
) -> Request:
    """Return a typical request of the race: names of one length except an odd one, records of one shape."""
    names = [f"topic-{number:03}" for number in range(topics)]
    if odd_name is not None:
        names[odd_name[0]] = odd_name[1]
    numbers = np.arange(count, dtype=np.int32)
    replicas = np.stack([numbers % 7, numbers % 7 + 1, numbers % 7 + 2])
    states = PartitionStates(
        topics=tuple(TopicRef(name, bytes([number + 1]) * 16) for number, name in enumerate(names)),
        topic=np.sort(numbers % topics).astype(np.int32),
        partition=numbers * np.int32(times),
        controller_epoch=numbers + 1000,
        leader=replicas[0],
        leader_epoch=numbers * 3,
        isr=replicas.copy(),
        partition_epoch=numbers,
        replicas=replicas,
    )
    request: Request = kind(9001, 5, 77, states, ())
    return request


COLUMNS = (
    "topics",
    "topic",
    "partition",
    "controller_epoch",
    "leader",
    "leader_epoch",
    "isr",
    "partition_epoch",
    "replicas",
)


def stopping(count: int) -> StopReplica:
    """Return a StopReplica request for two topics."""
    numbers = np.arange(count, dtype=np.int32)
    refs = (TopicRef("topic-000", bytes(16)), TopicRef("topic-001", bytes(16)))
    return StopReplica(9001, 5, 77, refs, np.sort(numbers % 2).astype(np.int32), numbers, numbers, numbers < 0)


def without_topics(request: Request) -> Request:
    """Return the request without topics: the same sender, brokers and leaders."""
    sender = (request.controller_id, request.controller_epoch, request.broker_epoch)
    nothing = np.zeros(0, np.int32)
    if isinstance(request, StopReplica):
        return StopReplica(*sender, (), nothing, nothing, nothing, nothing.astype(np.bool_))
    nobody = np.zeros((0, 0), np.int32)
    states = PartitionStates(
        topics=(),
        topic=nothing,
        partition=nothing,
        controller_epoch=nothing,
        leader=nothing,
        leader_epoch=nothing,
        isr=nobody,
        partition_epoch=nothing,
        replicas=nobody,
    )
    if isinstance(request, LeaderAndIsr):
        return LeaderAndIsr(*sender, states, request.live_leaders)
    return UpdateMetadata(*sender, states, request.live_brokers)


@given(requests(), st.sampled_from(LEVELS))
def test_request_is_parsed_as_encoded(request: Request, versions: Any) -> None:
    frame = encoded_request(request, versions)

    head, parsed = scanned(frame)

    states = request if isinstance(request, StopReplica) else request.states
    which = np.unique(states.topic)  # topics without partitions are not sent
    assert (head.correlation_id, head.broker_epoch) == (39, request.broker_epoch)
    assert parsed.names() == [states.topics[topic].name.encode() for topic in which]
    assert parsed.counts.tolist() == [int(np.count_nonzero(states.topic == topic)) for topic in which]
    assert parsed.partition().tolist() == states.partition.tolist()
    assert parsed.leader_epoch().tolist() == states.leader_epoch.tolist()
    if isinstance(request, StopReplica):
        assert parsed.gone().tolist() == request.delete.tolist()
    else:
        assert parsed.leader().tolist() == request.states.leader.tolist()
        assert parsed.gone().tolist() == (request.states.leader == BEING_DELETED).tolist()


@given(requests(), st.sampled_from(LEVELS))
def test_end_of_topics_and_common_part_are_located(request: Request, versions: Any) -> None:
    frame, bare = encoded_request(request, versions), encoded_request(without_topics(request), versions)

    head, parsed = scanned(frame)
    _, nothing = scanned(bare)

    assert frame[parsed.end :] == bare[nothing.end :]
    assert frame[head.body - 8 : head.body] == request.broker_epoch.to_bytes(8, signed=True)


@given(requests(), st.sampled_from(LEVELS))
def test_response_is_success_for_every_partition(request: Request, versions: Any) -> None:
    frame = encoded_request(request, versions)
    head, parsed = scanned(frame)

    response = answer(head, None if isinstance(request, UpdateMetadata) else parsed)

    kind = f"{type(request).__name__}Response"
    entity_type = getattr(by_kio.schema(request, versions, "response"), kind)
    heading, used = entity_reader(entity_type.__header_schema__)(response, 4)
    entity, rest = entity_reader(entity_type)(response, 4 + used)
    assert int.from_bytes(response[:4]) == len(response) - 4 == used + rest
    assert heading.correlation_id == 39
    assert entity.error_code == 0
    if isinstance(request, UpdateMetadata):
        return
    states = request if isinstance(request, StopReplica) else request.states
    if isinstance(request, LeaderAndIsr) and versions.leader_and_isr >= 5:
        named = [
            ((topic.topic_id.bytes if topic.topic_id else bytes(16)), entry.partition_index, entry.error_code)
            for topic in entity.topics
            for entry in topic.partition_errors
        ]
        expected: list[Any] = [
            (states.topics[topic_index].id, partition, 0)
            for topic_index, partition in zip(states.topic.tolist(), states.partition.tolist(), strict=True)
        ]
    else:
        named = [(entry.topic_name, entry.partition_index, entry.error_code) for entry in entity.partition_errors]
        expected = [
            (states.topics[topic_index].name, partition, 0)
            for topic_index, partition in zip(states.topic.tolist(), states.partition.tolist(), strict=True)
        ]
    assert named == expected


@pytest.mark.parametrize("kind", [LeaderAndIsr, UpdateMetadata])
@pytest.mark.parametrize("versions", LEVELS, ids=str)
def test_regular_request_is_not_walked(kind: type[LeaderAndIsr] | type[UpdateMetadata], versions: Any) -> None:
    request = regular(40, kind=kind)

    _, parsed = scanned(encoded_request(request, versions))

    assert parsed.is_regular
    assert parsed.partition().tolist() == list(range(40))


@given(st.integers(0, 39), st.sampled_from(["isr", "replicas"]), st.sampled_from([LeaderAndIsr, UpdateMetadata]))
def test_record_of_another_shape_is_detected(
    odd: int, column: str, kind: type[LeaderAndIsr] | type[UpdateMetadata]
) -> None:
    request: Any = regular(40, kind=kind)
    getattr(request.states, column)[0 if odd % 2 else 2, odd] = -1  # one member less

    _, parsed = scanned(encoded_request(request))

    assert not parsed.is_regular
    assert parsed.partition().tolist() == list(range(40))
    assert parsed.leader_epoch().tolist() == [number * 3 for number in range(40)]


@given(st.integers(0, 4), st.sampled_from(["a-topic", "a-longer-topic", "n" * 200]))
def test_name_of_another_length_is_detected(odd: int, name: str) -> None:
    request = regular(40, kind=LeaderAndIsr, odd_name=(odd, name))

    _, parsed = scanned(encoded_request(request))

    assert parsed.names()[odd] == name.encode()
    assert parsed.partition().tolist() == list(range(40))


TAGS = bytes([1, 7, 3]) + b"abc"  # one field, numbered 7, of three bytes


@pytest.mark.parametrize("record", range(8))
@pytest.mark.parametrize("kind", [LeaderAndIsr, UpdateMetadata, StopReplica])
def test_tagged_fields_of_any_record_are_skipped(kind: type[Request], record: int) -> None:
    frame = encoded_request(stopping(8) if kind is StopReplica else regular(8, kind=kind, topics=2))
    _, plain = scanned(bytearray(frame))
    ends = [*(plain.record[1:4] - 1), plain.topic[1] - 2, *(plain.record[5:] - 1), plain.end - 2]
    end = int(ends[record])  # position of the tags of that record
    assert frame[end] == 0
    frame[end : end + 1] = TAGS

    _, parsed = scanned(frame)

    assert parsed.partition().tolist() == list(range(8))
    assert parsed.leader_epoch().tolist() == plain.leader_epoch().tolist()
    assert parsed.end == plain.end + len(TAGS) - 1


@pytest.mark.parametrize("topic", [0, 1])
@pytest.mark.parametrize("kind", [LeaderAndIsr, UpdateMetadata, StopReplica])
def test_tagged_fields_of_a_topic_are_skipped(kind: type[Request], topic: int) -> None:
    frame = encoded_request(stopping(8) if kind is StopReplica else regular(8, kind=kind, topics=2))
    _, plain = scanned(bytearray(frame))
    end = [int(plain.topic[1]), plain.end][topic] - 1
    frame[end : end + 1] = TAGS

    _, parsed = scanned(frame)

    assert not parsed.is_regular
    assert parsed.names() == plain.names()
    assert parsed.partition().tolist() == list(range(8))
    assert parsed.end == plain.end + len(TAGS) - 1


def test_tagged_fields_beyond_the_end_are_rejected() -> None:
    frame = encoded_request(regular(8, kind=LeaderAndIsr, topics=2))
    _, plain = scanned(bytearray(frame))
    frame[plain.end - 1 :] = bytes([1, 7, 100])

    with pytest.raises(NotServed):
        scanned(frame)


def test_short_record_before_a_long_one_is_detected() -> None:
    request: Any = regular(8, kind=LeaderAndIsr, topics=1, times=256)
    # four bytes less, so that the next record's number is at the guessed position of its tags
    request.states.isr[2, 4] = -1
    wider = np.full((1, 8), -1, np.int32)
    wider[0, 5] = 6
    states: Any = {name: getattr(request.states, name) for name in COLUMNS}
    changed = PartitionStates(**states | {"isr": np.concatenate([request.states.isr, wider])})

    _, parsed = scanned(encoded_request(LeaderAndIsr(9001, 5, 77, changed, ())))

    assert not parsed.is_regular
    assert parsed.partition().tolist() == [number * 256 for number in range(8)]


@pytest.mark.parametrize("count", [1, 125, 126, 127, 128, 130])
def test_many_partitions_of_a_topic_use_a_longer_length(count: int) -> None:
    request: Any = regular(count + 1, kind=LeaderAndIsr, topics=2)
    request.states.topic[:] = 1
    request.states.topic[0] = 0
    frame = encoded_request(request)

    head, parsed = scanned(frame)

    assert parsed.counts.tolist() == [1, count]
    assert parsed.partition().tolist() == list(range(count + 1))
    kio = by_kio.schema(request, NEWEST, "response").LeaderAndIsrResponse
    response = answer(head, parsed)
    _, used = entity_reader(kio.__header_schema__)(response, 4)
    entity, rest = entity_reader(kio)(response, 4 + used)
    assert 4 + used + rest == len(response)
    assert [len(topic.partition_errors) for topic in entity.topics] == [1, count]


@pytest.mark.parametrize("odd", [True, False])
@pytest.mark.parametrize("kind", [LeaderAndIsr, UpdateMetadata])
def test_truncated_request_is_rejected(kind: type[LeaderAndIsr] | type[UpdateMetadata], odd: bool) -> None:
    request: Any = regular(6, kind=kind, topics=2)
    if odd:
        request.states.isr[1, 4] = -1
    frame = encoded_request(request)
    _, parsed = scanned(frame)

    for cut in range(parsed.end):
        with pytest.raises(NotServed):
            scanned(frame[:cut])


@pytest.mark.parametrize(("api", "version"), [(18, 3), (4, 3), (4, 8), (5, 2), (6, 5), (6, 9), (56, 3)])
def test_other_requests_and_versions_are_rejected(api: int, version: int) -> None:
    frame = encoded_request(regular(4, kind=LeaderAndIsr))
    frame[0:4] = api.to_bytes(2) + version.to_bytes(2)

    with pytest.raises(NotServed, match=f"request {api} of version {version}"):
        header(frame)


@pytest.mark.parametrize(("value", "written"), [(0, "00"), (127, "7f"), (128, "8001"), (16_384, "808001")])
def test_compact_lengths(value: int, written: str) -> None:
    assert uvarint(value).hex() == written
