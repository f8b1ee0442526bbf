"""Contract suite of networks: of the transports that deliver requests to brokers. A transport runs it by a test class
with a fixture `reached`:

    from kactl.testing.contracts.network import ConnectBroker, NetworkContract

    class TestMyTransport(NetworkContract):
        @pytest.fixture
        async def reached(self) -> AsyncIterator[ConnectBroker]: ...

`await reached(respond)` returns a transport, and a broker that answers each request with the result of `respond`. If
`respond` raises, the broker disconnects without a response. The transport waits for a response only for a short time,
such as 200 ms, and supports topic ids and all other fields of the newest messages.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import numpy as np
import pytest

from kactl.decide.messages.control import (
    Acknowledged,
    LeaderAndIsr,
    LeaderAndIsrResponse,
    LeaseRelease,
    PartitionErrors,
    PartitionStates,
    ReplicaReset,
    Request,
    Response,
    StateSent,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.decide.state.rows import Ints
from kactl.model import NO_BROKER, Broker, Endpoint, TopicRef
from kactl.model.errors import BrokerUnreachable, ErrorCode
from kactl.transports.base import Transport

Respond = Callable[[Request], Awaitable[Response]]
ConnectBroker = Callable[[Respond], Awaitable[tuple[Transport, Broker]]]

# Longer than the timeout of any transport: a test that waits for so long fails.
PATIENCE_S = 20


def int32s(*members: int) -> Ints:
    return np.array(members, np.int32)


ORDERS = TopicRef("orders", bytes(range(16)))
PAYMENTS = TopicRef("payments", bytes(range(16, 32)))
BROKERS = (
    Broker(1, 77, (Endpoint("INTERNAL", "one", 9092),), rack="a"),
    Broker(2, 78, (Endpoint("INTERNAL", "two", 9092), Endpoint("CLIENT", "two", 9093, "SSL"))),
)


def two_topics_states(**columns: Any) -> PartitionStates:
    """Three partitions of two topics; gaps, an empty ISR, no leader."""
    common: Any = {
        "topics": (ORDERS, PAYMENTS),
        "topic": int32s(0, 0, 1),
        "partition": int32s(0, 1, 0),
        "controller_epoch": int32s(5, 5, 4),
        "leader": int32s(2, -1, 1),
        "leader_epoch": int32s(3, 4, 0),
        "isr": np.array([[-1, -1, 1], [2, -1, 3]], np.int32),
        "partition_epoch": int32s(7, 8, 0),
        "replicas": np.array([[1, 1, 1], [2, 2, 3]], np.int32),
    }
    return PartitionStates(**common, **columns)


LEAD = LeaderAndIsr(
    1000,
    5,
    77,
    two_topics_states(
        adding=np.array([[-1, 2, -1]], np.int32),
        removing=np.array([[1, -1, -1]], np.int32),
        is_new=np.array([True, False, False]),
        recovering=np.array([False, True, False]),
    ),
    BROKERS,
)
UPDATE = UpdateMetadata(1000, 5, 77, two_topics_states(offline_replicas=np.array([[1, -1, -1]], np.int32)), BROKERS)
STOP = StopReplica(
    1000, 5, 77, (ORDERS, PAYMENTS), int32s(0, 0, 1), int32s(0, 1, 0), int32s(3, -1, -2), np.array([True, False, True])
)
ERRORS = PartitionErrors(("orders", "payments"), int32s(0, 0, 1), int32s(0, 1, 0), np.array([0, 56, 11], np.int16))

EXCHANGES: list[tuple[Request, Response]] = [
    (LEAD, LeaderAndIsrResponse(0, ERRORS)),
    (LEAD, LeaderAndIsrResponse(11, PartitionErrors.none())),
    (UPDATE, UpdateMetadataResponse(77)),
    (STOP, StopReplicaResponse(0, ERRORS)),
]
NOTHING: list[tuple[Request, Response]] = [
    (
        UpdateMetadata(
            1,
            2,
            -1,
            PartitionStates(
                (),
                int32s(),
                int32s(),
                int32s(),
                int32s(),
                int32s(),
                np.zeros((2, 0), np.int32),
                int32s(),
                np.zeros((2, 0), np.int32),
            ),
        ),
        UpdateMetadataResponse(0),
    ),
    (
        StopReplica(1, 2, -1, (), int32s(), int32s(), int32s(), np.zeros(0, np.bool_)),
        StopReplicaResponse(0, PartitionErrors.none()),
    ),
]


def plain_message(message: Request | Response) -> Any:
    """Returns a message as comparable values: columns as lists, lists without gaps.

    Of a live leader only the id, which every version of the protocol contains. Reasons follow the live leaders.
    """
    match message:
        case LeaderAndIsr() | UpdateMetadata():
            live: list[Any]
            if isinstance(message, LeaderAndIsr):
                live = [*(broker.id for broker in message.live_leaders), *message.reasons]
            else:
                live = [(broker.id, broker.endpoints, broker.rack) for broker in message.live_brokers]
            sender = (message.controller_id, message.controller_epoch, message.broker_epoch)
            return type(message).__name__, sender, _plain_rows(message.states), live
        case StopReplica():
            columns = (message.partition, message.leader_epoch, message.delete)
            cells = zip(*(column.tolist() for column in columns), strict=True)
            rows = [(message.topics[at].name, *cell) for at, cell in zip(message.topic.tolist(), cells, strict=True)]
            return message.controller_id, message.controller_epoch, message.broker_epoch, rows
        case LeaseRelease():
            pairs = zip(message.partition.tolist(), message.leader_epoch.tolist(), strict=True)
            rows = [(message.topics[at].name, *cell) for at, cell in zip(message.topic.tolist(), pairs, strict=True)]
            return message.controller_id, message.controller_epoch, message.broker_epoch, rows
        case StateSent():
            return message.controller_id, message.controller_epoch, message.broker_epoch
        case ReplicaReset():
            sender = (message.controller_id, message.controller_epoch, message.broker_epoch)
            return sender, message.topic, message.partition
        case UpdateMetadataResponse() | Acknowledged():
            return type(message).__name__, message.error
        case _:
            errors = message.partitions
            found = zip(errors.topic.tolist(), errors.partition.tolist(), errors.error.tolist(), strict=True)
            return type(message).__name__, message.error, [(errors.topics[at], *cell) for at, *cell in found]


def _plain_rows(of: PartitionStates) -> list[Any]:
    lists = ("isr", "replicas", "adding", "removing", "offline_replicas")
    numbers = (
        "partition",
        "controller_epoch",
        "leader",
        "leader_epoch",
        "partition_epoch",
        "is_new",
        "recovering",
        "hold",
        "previous",
        "reason",
        "unbroken",
    )
    return [
        (
            of.topics[of.topic[row]],
            [0 if (column := getattr(of, name)) is None else int(column[row]) for name in numbers],
            [_brokers_of(getattr(of, name), row) for name in lists],
        )
        for row in range(len(of))
    ]


def _brokers_of(column: Ints | None, row: int) -> list[int]:
    return [] if column is None else [member for member in column[:, row].tolist() if member != NO_BROKER]


class NetworkContract:
    pytestmark = pytest.mark.anyio

    @pytest.mark.parametrize(("request_", "response"), EXCHANGES + NOTHING)
    async def test_request_and_response_arrive_unchanged(
        self, reached: ConnectBroker, request_: Request, response: Response
    ) -> None:
        arrived: list[Request] = []

        async def respond(request: Request) -> Response:
            arrived.append(request)
            return response

        transport, broker = await reached(respond)
        connection = transport.connect(broker)

        answer = await connection.deliver(request_)

        assert [plain_message(request) for request in arrived] == [plain_message(request_)]
        assert plain_message(answer) == plain_message(response)
        await connection.close()

    async def test_requests_arrive_one_after_another(self, reached: ConnectBroker) -> None:
        arrived: list[int] = []

        async def respond(request: Request) -> Response:
            arrived.append(request.broker_epoch)
            return UpdateMetadataResponse(request.broker_epoch)

        transport, broker = await reached(respond)
        connection = transport.connect(broker)

        # A broker's refusal of the sender may be an error of the transport.
        codes = [code for code in range(50) if code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        answers = [await connection.deliver(UpdateMetadata(1, 1, code, UPDATE.states)) for code in codes]

        assert arrived == codes
        assert [answer.error for answer in answers] == codes
        await connection.close()

    async def test_connection_is_idle_before_its_first_request(self, reached: ConnectBroker) -> None:
        transport, broker = await reached(never_responds)

        connection = transport.connect(Broker(broker.id + 1, 1))  # an unreachable broker

        await connection.close()

    async def test_disconnected_broker_can_be_reached_again(self, reached: ConnectBroker) -> None:
        breaks = True

        async def respond(request: Request) -> Response:
            if breaks:
                raise ConnectionResetError("the broker breaks off")
            return UpdateMetadataResponse(0)

        transport, broker = await reached(respond)
        connection = transport.connect(broker)

        for _ in range(3):
            with pytest.raises(BrokerUnreachable) as unreachable:
                await connection.deliver(UPDATE)
            assert unreachable.value.broker == broker.id
        breaks = False

        assert await connection.deliver(UPDATE) == UpdateMetadataResponse(0)
        await connection.close()

    async def test_wait_for_a_response_is_bounded(self, reached: ConnectBroker) -> None:
        answers: list[Response] = []

        async def respond(request: Request) -> Response:
            return answers[0] if answers else await never_responds(request)

        transport, broker = await reached(respond)
        connection = transport.connect(broker)

        with anyio.fail_after(PATIENCE_S), pytest.raises(BrokerUnreachable, match="no response"):
            await connection.deliver(UPDATE)
        answers.append(UpdateMetadataResponse(0))

        assert await connection.deliver(UPDATE) == UpdateMetadataResponse(0)
        await connection.close()

    async def test_response_to_a_cancelled_request_is_never_returned(self, reached: ConnectBroker) -> None:
        arrived, may_answer = anyio.Event(), anyio.Event()

        async def respond(request: Request) -> Response:
            if request.broker_epoch == 1:
                arrived.set()
                await may_answer.wait()
            return UpdateMetadataResponse(request.broker_epoch)

        transport, broker = await reached(respond)
        connection = transport.connect(broker)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.deliver, UpdateMetadata(1, 1, 1, UPDATE.states))
            await arrived.wait()
            tasks.cancel_scope.cancel()
        may_answer.set()

        answer = await connection.deliver(UpdateMetadata(1, 1, 2, UPDATE.states))

        assert answer == UpdateMetadataResponse(2)
        await connection.close()

    async def test_connections_are_independent(self, reached: ConnectBroker) -> None:
        arrived = anyio.Event()

        async def respond(request: Request) -> Response:
            if request.broker_epoch == 1:
                arrived.set()
                return await never_responds(request)
            return UpdateMetadataResponse(0)

        transport, broker = await reached(respond)
        slow, quick = transport.connect(broker), transport.connect(broker)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow.deliver, UpdateMetadata(1, 1, 1, UPDATE.states))
            await arrived.wait()

            answer = await quick.deliver(UpdateMetadata(1, 1, 2, UPDATE.states))

            tasks.cancel_scope.cancel()
        assert answer == UpdateMetadataResponse(0)
        await slow.close()
        await quick.close()

    async def test_nothing_is_delivered_after_closing(self, reached: ConnectBroker) -> None:
        arrived = []

        async def respond(request: Request) -> Response:
            arrived.append(request)
            return UpdateMetadataResponse(0)

        transport, broker = await reached(respond)
        connection = transport.connect(broker)
        await connection.deliver(UPDATE)

        await connection.close()
        await connection.close()

        with pytest.raises(BrokerUnreachable):
            await connection.deliver(UPDATE)
        assert len(arrived) == 1


async def never_responds(request: Request) -> Response:
    """A broker that hangs."""
    await anyio.sleep_forever()
    raise AssertionError
