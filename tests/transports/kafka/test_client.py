"""Broker connection over a real socket: the requests sent, and recovery from failures."""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable

import anyio
import msgspec
import numpy as np
import pytest

from kactl.config.protocol_level import LATEST
from kactl.decide.messages.control import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    PartitionStates,
    Request,
    Response,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.model import Broker, Endpoint, TopicRef
from kactl.model.errors import BrokerUnreachable, IllegalState
from kactl.transports.kafka import KafkaTransport
from kactl.transports.kafka.client import ROWS_IN_LOOP_MAX, KafkaConnection
from kactl.transports.kafka.codec import Encoder
from tests.support.message_strategies import LISTENER

from .peer import Raw, listening
from .test_request import UPDATE

pytestmark = pytest.mark.anyio

OK = UpdateMetadataResponse(0)


def transport(**settings: float) -> KafkaTransport:
    return KafkaTransport(controller_id=1000, level=LATEST, listener_name=LISTENER, **settings)  # type: ignore[arg-type]


VERSIONS = transport().versions


async def agree(request: Request) -> Response:
    return OK


async def never(request: Request) -> Response:
    await anyio.sleep_forever()
    return OK


def then_agree(*first: Exception) -> Callable[[Request], Awaitable[Response]]:
    """Raise the given errors one after another, then return OK."""
    failures = list(first)

    async def respond(request: Request) -> Response:
        if failures:
            raise failures.pop(0)
        return OK

    return respond


async def test_one_connection_carries_all_requests() -> None:
    async with listening(agree, VERSIONS) as peer:
        connection = transport().connect(peer.broker)

        for _ in range(3):
            await connection.deliver(UPDATE)

        assert len(peer.connections) == 1
        assert peer.correlation_ids == [0, 1, 2]
        await connection.close()


async def test_correlation_ids_wrap_around() -> None:
    async with listening(agree, VERSIONS) as peer:
        connection = transport().connect(peer.broker)
        connection._correlation_id = 2**31 - 1

        for _ in range(2):
            assert await connection.deliver(UPDATE) == OK

        assert peer.correlation_ids == [2**31 - 1, 0]
        await connection.close()


NO_ANSWERS = {
    "closed before the answer": (ConnectionError(), "closed the connection"),
    "closed within the answer": (Raw(struct.pack(">ii", 7, 0), close=True), "closed the connection"),
    "closed within the length": (Raw(b"\0\0", close=True), "closed the connection"),
    "another protocol": (Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "malformed response: a length of 1213486160 bytes"),
    "a negative length": (Raw(struct.pack(">i", -1)), "malformed response: a length of -1 bytes"),
    "an empty frame": (Raw(struct.pack(">i", 0)), "malformed response: byte 0 of 0"),
    "another answer": (Raw(struct.pack(">iibhb", 8, 12345, 0, 0, 0)), "an answer to request 12345"),
    "garbage": (Raw(struct.pack(">iib", 6, 0, 1) + b"\xff"), "malformed response: byte 5 of 6"),
}


@pytest.mark.parametrize(("failure", "reason"), NO_ANSWERS.values(), ids=NO_ANSWERS.keys())
async def test_invalid_response_closes_the_connection_and_next_reconnects(failure: Exception, reason: str) -> None:
    async with listening(then_agree(failure), VERSIONS) as peer:
        connection = transport(request_timeout_ms=60_000).connect(peer.broker)

        with pytest.raises(BrokerUnreachable, match=reason) as unreachable:
            await connection.deliver(UPDATE)
        answer = await connection.deliver(UPDATE)

        assert answer == OK
        assert unreachable.value.broker == peer.broker.id
        assert len(peer.connections) == 2
        await connection.close()


async def test_response_timeout_closes_the_connection() -> None:
    async with listening(never, VERSIONS) as peer:
        connection = transport(request_timeout_ms=50).connect(peer.broker)

        with pytest.raises(BrokerUnreachable, match="no response within 50 ms"):
            await connection.deliver(UPDATE)

        with anyio.fail_after(60):
            await peer.gone.acquire()


async def test_cancelled_request_closes_the_connection() -> None:
    arrived = anyio.Event()

    async def respond(request: Request) -> Response:
        arrived.set()
        return await never(request)

    async with listening(respond, VERSIONS) as peer:
        connection = transport().connect(peer.broker)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.deliver, UPDATE)
            await arrived.wait()

            tasks.cancel_scope.cancel()

        with anyio.fail_after(60):
            await peer.gone.acquire()


async def test_closing_ends_a_request_in_flight() -> None:
    arrived = anyio.Event()

    async def respond(request: Request) -> Response:
        arrived.set()
        return await never(request)

    async with listening(respond, VERSIONS) as peer:
        connection = transport().connect(peer.broker)
        delivering = asyncio.ensure_future(connection.deliver(UPDATE))
        await arrived.wait()

        await connection.close()

        with anyio.fail_after(60), pytest.raises(BrokerUnreachable, match="given up"):
            await delivering


async def test_idle_connection_closed_by_the_broker_is_reopened() -> None:
    async with listening(agree, VERSIONS) as peer:
        connection = transport().connect(peer.broker)
        await connection.deliver(UPDATE)
        peer.connections[0].close()
        assert connection._streams is not None
        assert await connection._streams[0].read() == b""  # the broker's close has arrived

        assert await connection.deliver(UPDATE) == OK

        assert len(peer.connections) == 2
        await connection.close()


async def test_concurrent_requests_on_a_connection_are_a_bug() -> None:
    arrived = anyio.Event()

    async def respond(request: Request) -> Response:
        arrived.set()
        return await never(request)

    async with listening(respond, VERSIONS) as peer:
        connection = transport().connect(peer.broker)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.deliver, UPDATE)
            await arrived.wait()

            with pytest.raises(IllegalState, match="one is in flight"):
                await connection.deliver(UPDATE)

            tasks.cancel_scope.cancel()


def nobody(**endpoint: object) -> KafkaConnection:
    somewhere = msgspec.structs.replace(Endpoint(LISTENER, "127.0.0.1", 9), **endpoint)
    return transport().connect(Broker(4, 1, (somewhere,)))


async def test_broker_without_the_listener_is_reported_with_the_remedy() -> None:
    with pytest.raises(BrokerUnreachable, match=r"broker 4: .*no listener INTERNAL \(it has: CLIENT\).*listener-name"):
        await nobody(listener="CLIENT").deliver(UPDATE)


async def test_encrypted_listener_is_reported_with_the_remedy() -> None:
    with pytest.raises(BrokerUnreachable, match=r"broker 4: its listener INTERNAL speaks SASL_SSL: .*kafka\.client.ca"):
        await nobody(protocol="SASL_SSL").deliver(UPDATE)


async def test_unreachable_port_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        port = taken.getsockname()[1]

        with pytest.raises(BrokerUnreachable, match=rf"no connection to 127\.0\.0\.1:{port} \(INTERNAL\)"):
            await nobody(port=port).deliver(UPDATE)


@pytest.mark.parametrize("endpoint", [{"port": 70000}, {"port": -1}, {"host": "a..b"}, {"host": "x" * 300}])
async def test_invalid_address_is_reported(endpoint: dict[str, object]) -> None:
    with pytest.raises(BrokerUnreachable, match="no connection to"):
        await nobody(**endpoint).deliver(UPDATE)


async def test_request_above_the_broker_limit_is_not_sent() -> None:
    async with listening(agree, VERSIONS) as peer:
        connection = transport(request_size_max=100).connect(peer.broker)

        with pytest.raises(BrokerUnreachable, match=r"larger than the 100 .*socket\.request\.max\.bytes"):
            await connection.deliver(UPDATE)

        assert not peer.connections


def many(count: int) -> PartitionStates:
    zeros = np.zeros(count, np.int32)
    three = np.tile(np.array([[1], [2], [3]], np.int32), (1, count))
    topics = (TopicRef("many", bytes(range(16))),)
    return PartitionStates(topics, zeros, np.arange(count, dtype=np.int32), zeros, zeros, zeros, three, zeros, three)


async def test_many_partitions_are_sent_and_received() -> None:
    count = ROWS_IN_LOOP_MAX * 2  # encoded and decoded in worker threads
    every = np.arange(count, dtype=np.int32)
    errors = PartitionErrors(("many",), np.zeros(count, np.int32), every, np.full(count, 56, np.int16))

    async def respond(request: Request) -> Response:
        if isinstance(request, LeaderAndIsr):
            assert request.states.partition.tolist() == every.tolist()
            return LeaderAndIsrResponse(0, errors)
        assert isinstance(request, StopReplica)
        assert request.partition.tolist() == every.tolist()
        return StopReplicaResponse(0, errors)

    states = many(count)
    stop = StopReplica(1, 1, 1, states.topics, states.topic, every, states.leader, np.zeros(count, np.bool_))
    async with listening(respond, VERSIONS) as peer:
        connection = transport().connect(peer.broker)

        for request in (LeaderAndIsr(1, 1, 1, states), stop):
            answer = await connection.deliver(request)

            assert isinstance(answer, LeaderAndIsrResponse | StopReplicaResponse)
            assert answer.partitions.topics == ("many",)
            assert answer.partitions.partition.tolist() == every.tolist()
            assert (answer.partitions.error == 56).all()
        await connection.close()


async def test_request_to_many_brokers_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = []
    may_go_on = threading.Event()
    original = Encoder._update_metadata

    def counted(encoder: Encoder, states: PartitionStates) -> memoryview:
        encoded.append(states)
        assert may_go_on.wait(timeout=60)
        return original(encoder, states)

    monkeypatch.setattr(Encoder, "_update_metadata", counted)
    shared = transport()
    states = many(ROWS_IN_LOOP_MAX + 1)
    async with listening(agree, VERSIONS) as peer:
        connections = [shared.connect(peer.broker) for _ in range(5)]

        delivering = [
            asyncio.ensure_future(connection.deliver(UpdateMetadata(1, 1, 1, states))) for connection in connections
        ]
        await anyio.wait_all_tasks_blocked()  # each encodes, or waits for the encoding task
        may_go_on.set()
        answers = await asyncio.gather(*delivering)

        for connection in connections:
            await connection.close()
    assert answers == [OK] * 5
    assert len(encoded) == 1
