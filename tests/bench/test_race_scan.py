"""What the race's stub brokers make of requests, and answer, is what kio makes of the same bytes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader

from bench.race.answers import answer, uvarint
from bench.race.scan import BEING_DELETED, Header, NotServed, Scan, header, scan
from kactl.config.protocol_level import ProtocolLevel
from kactl.messages.control import LeaderAndIsr, PartitionStates, Request, StopReplica, UpdateMetadata
from kactl.model import TopicRef
from kactl.transports.kafka.codec import versions_for
from tests.support import kio_codec as by_kio
from tests.support.message_strategies import LISTENER, requests

LEVELS = [versions_for(ProtocolLevel.parse(level)) for level in ("2.6", "2.8", "3.2", "3.9")]
NEWEST = LEVELS[-1]


def framed(request: Request, versions: Any = NEWEST) -> bytearray:
    """By kio, without the length."""
    whole = by_kio.request_bytes(request, versions, correlation_id=39, client_id="9001", listener_name=LISTENER)
    return bytearray(whole[4:])


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
    """A request as the race sees most: names of one length but for an odd one, records of one shape."""
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
    made: Request = kind(9001, 5, 77, states, ())
    return made


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
    """Of two topics."""
    numbers = np.arange(count, dtype=np.int32)
    refs = (TopicRef("topic-000", bytes(16)), TopicRef("topic-001", bytes(16)))
    return StopReplica(9001, 5, 77, refs, np.sort(numbers % 2).astype(np.int32), numbers, numbers, numbers < 0)


def without_topics(request: Request) -> Request:
    """The same sender, brokers and leaders."""
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
def test_a_request_is_read_as_it_was_meant(request: Request, versions: Any) -> None:
    frame = framed(request, versions)

    head, found = scanned(frame)

    told = request if isinstance(request, StopReplica) else request.states
    which = np.unique(told.topic)  # those without partitions are not sent
    assert (head.correlation_id, head.broker_epoch) == (39, request.broker_epoch)
    assert found.names() == [told.topics[at].name.encode() for at in which]
    assert found.counts.tolist() == [int(np.count_nonzero(told.topic == at)) for at in which]
    assert found.partition().tolist() == told.partition.tolist()
    assert found.leader_epoch().tolist() == told.leader_epoch.tolist()
    if isinstance(request, StopReplica):
        assert found.gone().tolist() == request.delete.tolist()
    else:
        assert found.leader().tolist() == request.states.leader.tolist()
        assert found.gone().tolist() == (request.states.leader == BEING_DELETED).tolist()


@given(requests(), st.sampled_from(LEVELS))
def test_it_is_known_where_the_topics_end_and_what_all_brokers_are_told_alike(request: Request, versions: Any) -> None:
    frame, bare = framed(request, versions), framed(without_topics(request), versions)

    head, found = scanned(frame)
    _, nothing = scanned(bare)

    assert frame[found.end :] == bare[nothing.end :]
    assert frame[head.body - 8 : head.body] == request.broker_epoch.to_bytes(8, signed=True)


@given(requests(), st.sampled_from(LEVELS))
def test_the_answer_is_success_for_every_partition(request: Request, versions: Any) -> None:
    frame = framed(request, versions)
    head, found = scanned(frame)

    said = answer(head, None if isinstance(request, UpdateMetadata) else found)

    kind = f"{type(request).__name__}Response"
    entity_type = getattr(by_kio.schema(request, versions, "response"), kind)
    heading, used = entity_reader(entity_type.__header_schema__)(said, 4)
    entity, rest = entity_reader(entity_type)(said, 4 + used)
    assert int.from_bytes(said[:4]) == len(said) - 4 == used + rest
    assert heading.correlation_id == 39
    assert entity.error_code == 0
    if isinstance(request, UpdateMetadata):
        return
    told = request if isinstance(request, StopReplica) else request.states
    if isinstance(request, LeaderAndIsr) and versions.leader_and_isr >= 5:
        named = [
            ((topic.topic_id.bytes if topic.topic_id else bytes(16)), each.partition_index, each.error_code)
            for topic in entity.topics
            for each in topic.partition_errors
        ]
        expected: list[Any] = [
            (told.topics[at].id, partition, 0)
            for at, partition in zip(told.topic.tolist(), told.partition.tolist(), strict=True)
        ]
    else:
        named = [(each.topic_name, each.partition_index, each.error_code) for each in entity.partition_errors]
        expected = [
            (told.topics[at].name, partition, 0)
            for at, partition in zip(told.topic.tolist(), told.partition.tolist(), strict=True)
        ]
    assert named == expected


@pytest.mark.parametrize("kind", [LeaderAndIsr, UpdateMetadata])
@pytest.mark.parametrize("versions", LEVELS, ids=str)
def test_what_is_regular_is_not_walked_through(kind: type[LeaderAndIsr] | type[UpdateMetadata], versions: Any) -> None:
    request = regular(40, kind=kind)

    _, found = scanned(framed(request, versions))

    assert found.is_regular
    assert found.partition().tolist() == list(range(40))


@given(st.integers(0, 39), st.sampled_from(["isr", "replicas"]), st.sampled_from([LeaderAndIsr, UpdateMetadata]))
def test_one_record_of_another_shape_is_seen(
    odd: int, column: str, kind: type[LeaderAndIsr] | type[UpdateMetadata]
) -> None:
    request: Any = regular(40, kind=kind)
    getattr(request.states, column)[0 if odd % 2 else 2, odd] = -1  # one member less

    _, found = scanned(framed(request))

    assert not found.is_regular
    assert found.partition().tolist() == list(range(40))
    assert found.leader_epoch().tolist() == [number * 3 for number in range(40)]


@given(st.integers(0, 4), st.sampled_from(["a-topic", "a-longer-topic", "n" * 200]))
def test_one_name_of_another_length_is_seen(odd: int, name: str) -> None:
    request = regular(40, kind=LeaderAndIsr, odd_name=(odd, name))

    _, found = scanned(framed(request))

    assert found.names()[odd] == name.encode()
    assert found.partition().tolist() == list(range(40))


TAGS = bytes([1, 7, 3]) + b"abc"  # one field, numbered 7, of three bytes


@pytest.mark.parametrize("at", range(8))
@pytest.mark.parametrize("kind", [LeaderAndIsr, UpdateMetadata, StopReplica])
def test_tagged_fields_of_any_record_are_skipped(kind: type[Request], at: int) -> None:
    frame = framed(stopping(8) if kind is StopReplica else regular(8, kind=kind, topics=2))
    _, plain = scanned(bytearray(frame))
    ends = [*(plain.record[1:4] - 1), plain.topic[1] - 2, *(plain.record[5:] - 1), plain.end - 2]
    end = int(ends[at])  # where the tags of that record stand
    assert frame[end] == 0
    frame[end : end + 1] = TAGS

    _, found = scanned(frame)

    assert found.partition().tolist() == list(range(8))
    assert found.leader_epoch().tolist() == plain.leader_epoch().tolist()
    assert found.end == plain.end + len(TAGS) - 1


@pytest.mark.parametrize("topic", [0, 1])
@pytest.mark.parametrize("kind", [LeaderAndIsr, UpdateMetadata, StopReplica])
def test_tagged_fields_of_a_topic_are_skipped(kind: type[Request], topic: int) -> None:
    frame = framed(stopping(8) if kind is StopReplica else regular(8, kind=kind, topics=2))
    _, plain = scanned(bytearray(frame))
    end = [int(plain.topic[1]), plain.end][topic] - 1
    frame[end : end + 1] = TAGS

    _, found = scanned(frame)

    assert not found.is_regular
    assert found.names() == plain.names()
    assert found.partition().tolist() == list(range(8))
    assert found.end == plain.end + len(TAGS) - 1


def test_tagged_fields_that_reach_beyond_the_end_are_refused() -> None:
    frame = framed(regular(8, kind=LeaderAndIsr, topics=2))
    _, plain = scanned(bytearray(frame))
    frame[plain.end - 1 :] = bytes([1, 7, 100])

    with pytest.raises(NotServed):
        scanned(frame)


def test_records_of_which_one_lacks_what_the_next_has_too_much_are_told_apart() -> None:
    request: Any = regular(8, kind=LeaderAndIsr, topics=1, times=256)
    request.states.isr[2, 4] = -1  # four bytes less, so that the next record's number stands where its tags are guessed
    wider = np.full((1, 8), -1, np.int32)
    wider[0, 5] = 6
    states: Any = {name: getattr(request.states, name) for name in COLUMNS}
    changed = PartitionStates(**states | {"isr": np.concatenate([request.states.isr, wider])})

    _, found = scanned(framed(LeaderAndIsr(9001, 5, 77, changed, ())))

    assert not found.is_regular
    assert found.partition().tolist() == [number * 256 for number in range(8)]


@pytest.mark.parametrize("count", [1, 125, 126, 127, 128, 130])
def test_many_partitions_of_a_topic_take_a_longer_length(count: int) -> None:
    request: Any = regular(count + 1, kind=LeaderAndIsr, topics=2)
    request.states.topic[:] = 1
    request.states.topic[0] = 0
    frame = framed(request)

    head, found = scanned(frame)

    assert found.counts.tolist() == [1, count]
    assert found.partition().tolist() == list(range(count + 1))
    kio = by_kio.schema(request, NEWEST, "response").LeaderAndIsrResponse
    said = answer(head, found)
    _, used = entity_reader(kio.__header_schema__)(said, 4)
    entity, rest = entity_reader(kio)(said, 4 + used)
    assert 4 + used + rest == len(said)
    assert [len(topic.partition_errors) for topic in entity.topics] == [1, count]


@pytest.mark.parametrize("odd", [True, False])
@pytest.mark.parametrize("kind", [LeaderAndIsr, UpdateMetadata])
def test_a_request_that_is_broken_off_is_refused(kind: type[LeaderAndIsr] | type[UpdateMetadata], odd: bool) -> None:
    request: Any = regular(6, kind=kind, topics=2)
    if odd:
        request.states.isr[1, 4] = -1
    frame = framed(request)
    _, whole = scanned(frame)

    for cut in range(whole.end):
        with pytest.raises(NotServed):
            scanned(frame[:cut])


@pytest.mark.parametrize(("api", "version"), [(18, 3), (4, 3), (4, 8), (5, 2), (6, 5), (6, 9), (56, 3)])
def test_other_requests_and_versions_are_refused(api: int, version: int) -> None:
    frame = framed(regular(4, kind=LeaderAndIsr))
    frame[0:4] = api.to_bytes(2) + version.to_bytes(2)

    with pytest.raises(NotServed, match=f"request {api} of version {version}"):
        header(frame)


@pytest.mark.parametrize(("value", "written"), [(0, "00"), (127, "7f"), (128, "8001"), (16_384, "808001")])
def test_compact_lengths(value: int, written: str) -> None:
    assert uvarint(value).hex() == written
