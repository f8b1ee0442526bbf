"""Encoding of requests: byte for byte equal to Kafka's classes and to kio."""

import gc
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given

from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.messages.control import KafkaRequest as Request
from kactl.decide.messages.control import LeaderAndIsr, PartitionStates, StopReplica, UpdateMetadata
from kactl.model import Broker, Endpoint, TopicRef
from kactl.model.errors import IllegalState
from kactl.transports.kafka.codec import Encoder, Frame, Versions, versions_for
from tests.support import kio_codec as by_kio
from tests.support.marks import fast_and_slow
from tests.support.message_strategies import LISTENER, requests

# One for each set of versions; the fast tests have the oldest and the newest.
IBPS = fast_and_slow(["3.9", "2.6", "3.2", "2.8"], fast=2)

TOPIC = TopicRef("t", bytes(range(1, 17)))


def column(*members: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(members, np.int32)


def spoken(ibp: str) -> Versions:
    return versions_for(ProtocolLevel.parse(ibp))


def encoder(ibp: str) -> Encoder:
    return Encoder(spoken(ibp), client_id="1000", listener_name=LISTENER)


def whole(frame: Frame) -> bytes:
    data = b"".join(frame.buffers)
    assert frame.size == len(data)
    return data


def one_partition(*, is_new: bool | None = None) -> PartitionStates:
    both = np.array([[1], [2]], np.int32)
    return PartitionStates(
        topics=(TOPIC,),
        topic=column(0),
        partition=column(0),
        controller_epoch=column(5),
        leader=column(1),
        leader_epoch=column(0),
        isr=both,
        partition_epoch=column(0),
        replicas=both,
        is_new=None if is_new is None else np.array([is_new]),
    )


BROKER = Broker(1, 1, (Endpoint(LISTENER, "h", 9),))
LEAD = LeaderAndIsr(1000, 5, 77, one_partition(is_new=True), (BROKER,))
UPDATE = UpdateMetadata(1000, 5, 77, one_partition(), (BROKER,))
STOP = StopReplica(1000, 5, 77, (TOPIC,), column(0), column(0), column(3), np.array([True]))

# Frames read and rewritten by Kafka's own classes.
GOLDEN: dict[tuple[str, int], tuple[Request, str]] = {
    ("3.9", 1): (
        LEAD,
        "0000006e000400070000000100043130303000000003e80000000005000000000000004d000202740102030405060708"
        "090a0b0c0d0e0f1002000000000000000500000001000000000300000001000000020000000003000000010000000201"
        "010100000002000000010268000000090000",
    ),
    ("2.6", 1): (
        LEAD,
        "0000005b000400040000000100043130303000000003e800000005000000000000004d02027402000000000000000500"
        "0000010000000003000000010000000200000000030000000100000002010101000002000000010268000000090000",
    ),
    ("3.9", 2): (
        UPDATE,
        "00000078000600080000000200043130303000000003e80000000005000000000000004d020274010203040506070809"
        "0a0b0c0d0e0f100200000000000000050000000100000000030000000100000002000000000300000001000000020100"
        "0002000000010200000009026809494e5445524e414c000000000000",
    ),
    ("2.6", 2): (
        UPDATE,
        "00000067000600060000000200043130303000000003e800000005000000000000004d02027402000000000000000500"
        "0000010000000003000000010000000200000000030000000100000002010000020000000102000000090268"
        "09494e5445524e414c000000000000",
    ),
    ("3.9", 3): (
        STOP,
        "00000030000500040000000300043130303000000003e80000000005000000000000004d02027402000000000000000301000000",
    ),
    ("2.6", 3): (
        STOP,
        "0000002f000500030000000300043130303000000003e800000005000000000000004d02027402000000000000000301000000",
    ),
}


def test_each_request_to_brokers_has_bytes_of_kafka() -> None:
    assert {type(request) for request, _ in GOLDEN.values()} == set(get_args(Request))


@pytest.mark.parametrize(("ibp", "correlation_id"), GOLDEN)
def test_request_equals_the_bytes_of_kafka(ibp: str, correlation_id: int) -> None:
    request, expected = GOLDEN[ibp, correlation_id]

    frame = encoder(ibp).frame(request, correlation_id)

    assert whole(frame).hex() == expected


@pytest.mark.parametrize("ibp", IBPS)
@given(request=requests())
def test_any_request_equals_the_bytes_of_kio(ibp: str, request: Request) -> None:
    frame = encoder(ibp).frame(request, 2**31 - 1)

    expected = by_kio.request_bytes(
        request, spoken(ibp), correlation_id=2**31 - 1, client_id="1000", listener_name=LISTENER
    )
    assert whole(frame) == expected


def test_rows_of_any_shape_keep_their_order() -> None:
    """More rows than are encoded at a time, and more shapes than 16 bits can distinguish."""
    random = np.random.default_rng(7)
    count = 10_000
    lists: Any = {
        name: np.where(random.random((20, count)) < 0.5, random.integers(0, 99, (20, count)), -1).astype(np.int32)
        for name in ("isr", "replicas", "adding", "removing")
    }
    numbers: Any = {
        name: random.integers(0, 2**31 - 1, count, dtype=np.int32)
        for name in ("partition", "controller_epoch", "leader", "leader_epoch", "partition_epoch")
    }
    topics = tuple(TopicRef(f"topic-{number}") for number in range(3))
    states = PartitionStates(topics, np.sort(random.integers(0, 3, count).astype(np.int32)), **numbers, **lists)
    request = LeaderAndIsr(1, 2, 3, states)

    frame = encoder("3.9").frame(request, 0)

    assert whole(frame) == by_kio.request_bytes(
        request, spoken("3.9"), correlation_id=0, client_id="1000", listener_name=LISTENER
    )


def test_topics_are_in_the_order_of_the_rows() -> None:
    topics = (TopicRef("a"), TopicRef("silent"), TopicRef("c"))
    rows = column(2, 2, 0)
    request = StopReplica(1, 2, 3, topics, rows, column(0, 1, 0), column(0, 0, 0), np.zeros(3, np.bool_))

    _, read = by_kio.read_request(whole(encoder("3.9").frame(request, 0))[4:])

    assert isinstance(read, StopReplica)
    assert [read.topics[index].name for index in read.topic] == ["c", "c", "a"]
    assert read.partition.tolist() == [0, 1, 0]
    assert [topic.name for topic in read.topics] == ["c", "a"]


def test_request_to_many_brokers_is_encoded_once() -> None:
    states, brokers = one_partition(), (BROKER,)
    shared = encoder("3.9")

    frames = [shared.frame(UpdateMetadata(1000, 5, epoch, states, brokers), epoch) for epoch in (1, 2)]

    assert frames[0].buffers[1] is frames[1].buffers[1]
    assert shared.is_encoded(states)
    assert whole(frames[0]) != whole(frames[1])


def test_live_brokers_are_those_of_the_request() -> None:
    states = one_partition()
    shared = encoder("3.9")

    for brokers in ((BROKER,), (), (BROKER, Broker(2, 1))):
        request = UpdateMetadata(1000, 5, 77, states, brokers)
        assert whole(shared.frame(request, 1)) == whole(encoder("3.9").frame(request, 1))


def test_same_partitions_in_another_request_are_encoded_again() -> None:
    states = one_partition()
    shared = encoder("3.9")

    for request in (UpdateMetadata(1000, 5, 77, states), LeaderAndIsr(1000, 5, 77, states)):
        assert whole(shared.frame(request, 1)) == whole(encoder("3.9").frame(request, 1))


def test_bytes_belong_to_the_partitions_they_were_encoded_from() -> None:
    states = one_partition()
    shared = encoder("3.9")
    shared.frame(UpdateMetadata(1000, 5, 77, states), 1)

    del states
    gc.collect()

    assert not shared._bodies._kept


def test_only_the_latest_bodies_are_stored() -> None:
    many = [one_partition() for _ in range(40)]
    shared = encoder("3.9")

    for states in many:
        shared.frame(UpdateMetadata(1000, 5, 77, states), 1)
        shared.frame(UpdateMetadata(1000, 5, 78, many[0]), 1)  # used continuously

    assert [shared.is_encoded(states) for states in many] == [True] + [False] * 24 + [True] * 15


def test_unknown_protocol_level_is_reported() -> None:
    strange = Broker(4, 1, (Endpoint("IN", "h", 1, protocol="CARRIER_PIGEON"),))

    with pytest.raises(IllegalState, match=r"broker 4: listener IN .* CARRIER_PIGEON"):
        encoder("3.9").frame(UpdateMetadata(1, 1, 1, one_partition(), (strange,)), 1)


@pytest.mark.parametrize(
    ("ibp", "versions"),
    [
        ("2.6", (4, 6, 3)),
        ("2.6-IV0", (4, 6, 3)),
        ("2.7", (4, 6, 3)),
        ("2.8-IV0", (4, 6, 3)),
        ("2.8", (5, 7, 3)),
        ("3.1.2", (5, 7, 3)),
        ("3.2-IV0", (6, 7, 3)),
        ("3.3-IV3", (6, 7, 3)),
        ("3.4", (7, 8, 4)),
        ("3.9", (7, 8, 4)),
        ("3.9.1", (7, 8, 4)),
    ],
)
def test_protocol_level_selects_the_versions(ibp: str, versions: tuple[int, int, int]) -> None:
    leader_and_isr, update_metadata, stop_replica = versions

    assert spoken(ibp) == Versions(
        leader_and_isr=leader_and_isr, update_metadata=update_metadata, stop_replica=stop_replica
    )
