"""Stub brokers: requests over real connections, their responses, and the completion of expected changes."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest

from bench.clusters import Shape
from bench.race.control import Answer, Count, Mark, Sums
from bench.race.expectations import Arrival, Body, Expectation, Progress, Tracker
from bench.race.scan import header, scan
from bench.race.stubs import Inbox, Requests, StubBroker, StubControl
from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.messages.control import (
    KafkaRequest as Request,
)
from kactl.decide.messages.control import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionStates,
    StopReplica,
    UpdateMetadata,
)
from kactl.model import Broker, Endpoint, TopicRef
from kactl.transports.kafka.client import KafkaTransport
from kactl.transports.kafka.codec import versions_for
from tests.support import kio_codec as by_kio

pytestmark = pytest.mark.anyio

LEVEL = ProtocolLevel.parse("3.9")
# Topics of two partitions on three brokers; partition 3 is the second one of the second topic.
SHAPE = Shape(partitions=12, topics=6, brokers=3)


def states(
    numbers: Sequence[int], *, leader: int = 1, leader_epoch: int = 0, topics: tuple[TopicRef, ...] | None = None
) -> PartitionStates:
    """Return the states of partitions, by their numbers in the cluster."""
    number = np.array(numbers, np.int32)
    same = np.ones(len(number), np.int32)
    return PartitionStates(
        topics=SHAPE.refs() if topics is None else topics,
        topic=number // np.int32(2),
        partition=number % np.int32(2),
        controller_epoch=same,
        leader=same * np.int32(leader),
        leader_epoch=same * np.int32(leader_epoch),
        isr=np.stack([same, same]),
        partition_epoch=same,
        replicas=np.stack([same, same]),
    )


def lead(numbers: Sequence[int], *, leader_epoch: int = 0, broker_epoch: int = -1) -> LeaderAndIsr:
    return LeaderAndIsr(9001, 2, broker_epoch, states(numbers, leader_epoch=leader_epoch), ())


def update(numbers: Sequence[int], *, leader: int = 1, leader_epoch: int = 0, broker_epoch: int = -1) -> UpdateMetadata:
    return UpdateMetadata(9001, 2, broker_epoch, states(numbers, leader=leader, leader_epoch=leader_epoch), ())


def stop(numbers: Sequence[int], *, delete: bool) -> StopReplica:
    number = np.array(numbers, np.int32)
    zeros = np.zeros(len(number), np.int32)
    deletes = np.full(len(number), delete)
    return StopReplica(9001, 2, -1, SHAPE.refs(), number // np.int32(2), number % np.int32(2), zeros, deletes)


def encoded_request(request: Request) -> bytearray:
    versions = versions_for(LEVEL)
    request_bytes = by_kio.request_bytes(
        request, versions, correlation_id=1, client_id="9001", listener_name="PLAINTEXT"
    )
    return bytearray(request_bytes[4:])


def arrival(broker: int, time_s: float, request: Request) -> Arrival:
    frame = encoded_request(request)
    head = header(frame)
    return Arrival(broker, time_s, 4 + len(frame), Body(frame, head, scan(frame, head)))


# -- over a connection -------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def listening(broker: StubBroker, inbox: Inbox) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Requests(broker, inbox), "127.0.0.1", broker.port)
    async with server:
        yield
        for connection in tuple(broker.connections):
            connection.abort()


def stub(id_: int, inbox: Inbox) -> StubBroker:
    """Stub without a session; not registered with ZooKeeper."""
    broker = StubBroker(id_, inbox, zookeeper_port=1, session_timeout_ms=1)
    broker.epoch = 100 + id_
    return broker


async def test_controller_gets_a_result_for_every_partition() -> None:
    inbox = Inbox()
    broker = stub(1, inbox)
    transport = KafkaTransport(controller_id=9001, level=LEVEL, listener_name="PLAINTEXT")
    request = lead(range(12), broker_epoch=101)
    async with listening(broker, inbox):
        connection = transport.connect(Broker(1, 101, (Endpoint("PLAINTEXT", "127.0.0.1", broker.port),)))
        answer = await connection.deliver(request)
        await connection.deliver(update(range(12)))
        await connection.deliver(stop([3], delete=True))
        await connection.close()

    assert isinstance(answer, LeaderAndIsrResponse)
    assert answer.error == 0
    assert answer.partitions.error.tolist() == [0] * 12
    assert [arrival.body.header.api for arrival in inbox.arrivals] == [4, 6, 5]
    assert all(arrival.broker == 1 and arrival.is_current for arrival in inbox.arrivals)
    assert [arrival.at for arrival in inbox.arrivals] == sorted(arrival.at for arrival in inbox.arrivals)


async def test_split_and_pipelined_requests_are_served_in_order() -> None:
    inbox = Inbox()
    broker = stub(1, inbox)
    frames = [encoded_request(lead([3])), encoded_request(update(range(12)))]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    async with listening(broker, inbox):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        for byte in stream:
            writer.write(bytes([byte]))
            await writer.drain()
        writer.write(stream)
        answers = []
        async with asyncio.timeout(60):
            for _ in range(4):
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                answers.append(len(await reader.readexactly(size)))
        writer.close()

    assert answers[0] == answers[2] > answers[1] == answers[3]
    assert [arrival.body.header.api for arrival in inbox.arrivals] == [4, 6, 4, 6]
    assert [arrival.size for arrival in inbox.arrivals[:2]] == [4 + len(frame) for frame in frames]


async def test_body_sent_to_several_brokers_is_stored_once() -> None:
    inbox = Inbox()
    first, second = stub(1, inbox), stub(2, inbox)

    inbox.take(first, encoded_request(update(range(12), broker_epoch=101)), 1.0)
    inbox.take(second, encoded_request(update(range(12), broker_epoch=102)), 2.0)
    inbox.take(second, encoded_request(update(range(12), broker_epoch=102, leader_epoch=1)), 3.0)

    bodies = [arrival.body for arrival in inbox.arrivals]
    assert bodies[0] is bodies[1]
    assert bodies[1] is not bodies[2]
    assert all(arrival.is_current for arrival in inbox.arrivals)


async def test_epoch_of_another_registration_is_detected() -> None:
    inbox = Inbox()

    inbox.take(stub(1, inbox), encoded_request(update([0], broker_epoch=7)), 1.0)
    inbox.take(stub(1, inbox), encoded_request(lead([0], broker_epoch=101)), 2.0)
    answer = await StubControl(SHAPE, {}, inbox).answer(Sums())

    assert [arrival.is_current for arrival in inbox.arrivals] == [False, True]
    assert answer.traffic.strange == 1


@pytest.mark.parametrize(
    "sent", [struct.pack(">ihhih", 10, 18, 3, 1, -1), struct.pack(">i", -5), struct.pack(">i", 2**31 - 1)]
)
async def test_invalid_request_closes_the_connection_and_fails_the_phase(sent: bytes) -> None:
    inbox = Inbox()
    broker = stub(1, inbox)
    control = StubControl(SHAPE, {1: broker}, inbox)
    async with listening(broker, inbox):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(60):
                assert await reader.read() == b""
        writer.close()
        answer = await control.answer(Sums())

    assert answer.failed is not None
    assert answer.failed.startswith("broker 1 was sent ")


# -- sums --------------------------------------------------------------------------------------------------------------


async def test_sums_start_at_the_mark() -> None:
    inbox = Inbox()
    broker = stub(1, inbox)
    control = StubControl(SHAPE, {1: broker}, inbox)
    expectation = Expectation(request="leader_and_isr", when="received", brokers=[1])
    inbox.take(broker, encoded_request(lead(range(12))), 1.0)

    await control.answer(Mark({"isr": expectation}))
    before = await control.answer(Sums())
    inbox.take(broker, encoded_request(lead(range(12))), 2.0)
    counted = await control.answer(Count())
    after = await control.answer(Sums())
    again = await control.answer(Sums())

    assert before.expectations == {"isr": Progress(12, None)}
    assert counted == Answer(requests=1)
    assert after.expectations == again.expectations == {"isr": Progress(0, 2.0)}
    assert after.traffic.requests == {"leader_and_isr": 1, "update_metadata": 0, "stop_replica": 0}
    assert (after.traffic.first_at, after.traffic.strange) == (2.0, 0)


def test_goal_is_reached_when_the_last_partition_is_announced() -> None:
    tracker = Tracker(SHAPE)
    tracker.mark({"metadata": Expectation(request="update_metadata", when="received", brokers=[1, 3])})

    for number, (broker, partitions) in enumerate([(1, range(12)), (3, range(6)), (2, range(12))]):
        tracker.add(arrival(broker, float(number), update(partitions)))
    partly = tracker.progress()["metadata"]
    tracker.add(arrival(3, 3.0, update(range(6, 12))))
    tracker.add(arrival(3, 4.0, update(range(12))))

    assert partly == Progress(6, 1.0)
    assert tracker.progress()["metadata"] == Progress(0, 3.0)


def test_only_hosts_of_a_partition_must_receive_it() -> None:
    shape = Shape(partitions=12, topics=6, brokers=4)
    replicas = shape.assignments().replicas
    tracker = Tracker(shape)
    tracker.mark({"isr": Expectation(request="leader_and_isr", when="received", brokers=[1, 2, 3, 4], hosted=True)})

    for broker in (1, 2, 3, 4):
        hosted = np.flatnonzero((replicas == broker).any(axis=0)).tolist()
        before = tracker.progress()["isr"].missing
        tracker.add(arrival(broker, float(broker), lead(hosted)))
        assert before - tracker.progress()["isr"].missing == len(hosted) < 12

    assert tracker.progress()["isr"] == Progress(0, 4.0)


def test_epoch_must_exceed_all_epochs_before_the_mark() -> None:
    tracker = Tracker(SHAPE)
    tracker.add(arrival(1, 0.0, lead([3, 4], leader_epoch=5)))
    tracker.mark({"isr": Expectation(request="leader_and_isr", when="raised", partitions=[3, 4], brokers=[2])})

    tracker.add(arrival(2, 1.0, lead([3], leader_epoch=5)))
    not_yet = tracker.progress()["isr"]
    tracker.add(arrival(2, 2.0, update([3, 4], leader_epoch=6)))
    other_request = tracker.progress()["isr"]
    tracker.add(arrival(2, 3.0, lead([3, 4], leader_epoch=6)))

    assert not_yet == other_request == Progress(2, None)
    assert tracker.progress()["isr"] == Progress(0, 3.0)


def test_stopped_or_led_partition_is_not_deleted() -> None:
    tracker = Tracker(SHAPE)
    tracker.mark(
        {
            "stop": Expectation(request="stop_replica", when="gone", partitions=[0, 1], brokers=[1]),
            "metadata": Expectation(request="update_metadata", when="gone", partitions=[0, 1], brokers=[1]),
        }
    )

    tracker.add(arrival(1, 1.0, stop([0, 1], delete=False)))
    tracker.add(arrival(1, 2.0, update([0, 1], leader=-1)))
    not_yet = tracker.progress()
    tracker.add(arrival(1, 3.0, update([0, 1], leader=-2)))
    tracker.add(arrival(1, 4.0, stop([0, 1], delete=True)))

    assert not_yet == {"stop": Progress(2, None), "metadata": Progress(2, None)}
    assert tracker.progress() == {"stop": Progress(0, 4.0), "metadata": Progress(0, 3.0)}


def test_unknown_topics_are_counted_as_strange() -> None:
    tracker = Tracker(SHAPE)
    tracker.mark({"metadata": Expectation(request="update_metadata", when="received", brokers=[1])})
    elsewhere = UpdateMetadata(9001, 2, -1, states([0, 1], topics=(TopicRef("topic-elsewhere", bytes(16)),)), ())

    tracker.add(arrival(1, 1.0, elsewhere))

    assert tracker.traffic.strange == 1
    assert tracker.progress()["metadata"] == Progress(12, None)
