"""Transport to participants of the same process."""

from functools import partial

import anyio
import pytest

from kactl.decide.messages.control import Request, Response, UpdateMetadataResponse
from kactl.model import Broker
from kactl.model.errors import BrokerUnreachable
from kactl.testing.contracts.network import ConnectBroker, NetworkContract, Respond
from kactl.transports.base import Connection, Transport
from kactl.transports.memory import MemoryHub, MemoryTransport
from tests.support.clocks import ManualClock
from tests.support.control_requests import update_metadata

pytestmark = pytest.mark.anyio

REQUEST = update_metadata()


class Responds:
    """Participant that returns the result of a function."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond

    async def handle(self, request: Request) -> Response:
        return await self._respond(request)


class TestMemoryTransport(NetworkContract):
    @pytest.fixture
    def reached(self) -> ConnectBroker:
        async def reach(respond: Respond) -> tuple[Transport, Broker]:
            hub = MemoryHub()
            hub.attach(1, Responds(respond))
            return MemoryTransport(hub, request_timeout_ms=200), Broker(1, 77)

        return reach


class BlockingParticipant:
    """Participant that responds once its event is set."""

    def __init__(self) -> None:
        self.request: list[Request] = []
        self.released = anyio.Event()
        self.failure: Exception | None = None

    async def handle(self, request: Request) -> Response:
        self.request.append(request)
        await self.released.wait()
        if self.failure is not None:
            raise self.failure
        return UpdateMetadataResponse(error=0)


@pytest.fixture
def hub() -> MemoryHub:
    return MemoryHub()


@pytest.fixture
def connection(hub: MemoryHub, clock: ManualClock) -> Connection:
    transport: Transport = MemoryTransport(hub, clock=clock, request_timeout_ms=30_000)
    return transport.connect(Broker(1, epoch=5))


@pytest.fixture
def broker(hub: MemoryHub) -> BlockingParticipant:
    handler = BlockingParticipant()
    hub.attach(1, handler)
    return handler


async def test_response_is_returned(connection: Connection, broker: BlockingParticipant) -> None:
    broker.released.set()

    assert await connection.deliver(REQUEST) == UpdateMetadataResponse(error=0)
    assert broker.request == [REQUEST]


async def test_missing_participant_is_unreachable(connection: Connection) -> None:
    with pytest.raises(BrokerUnreachable, match="broker 1: no participant"):
        await connection.deliver(REQUEST)


async def test_replaced_participant_receives_no_request(
    hub: MemoryHub, connection: Connection, broker: BlockingParticipant
) -> None:
    later = BlockingParticipant()
    later.released.set()
    hub.attach(1, later)

    hub.detach(1, broker)  # late: does not detach the newer participant
    await connection.deliver(REQUEST)

    assert (broker.request, later.request) == ([], [REQUEST])


async def test_hanging_broker_is_unreachable_after_the_timeout(
    clock: ManualClock, connection: Connection, broker: BlockingParticipant
) -> None:
    given_up = []

    async def deliver() -> None:
        with pytest.raises(BrokerUnreachable, match="no response within 30000 ms"):
            await connection.deliver(REQUEST)
        given_up.append(clock.monotonic_ms())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(deliver)
        await clock.advance(29_999)
        assert not given_up

        await clock.advance(1)
        assert given_up == [30_000]

    broker.released.set()
    assert await connection.deliver(REQUEST) == UpdateMetadataResponse(error=0)  # the connection can be used again


async def test_failing_broker_is_unreachable(connection: Connection, broker: BlockingParticipant) -> None:
    broker.released.set()
    broker.failure = ValueError("no idea")

    with pytest.raises(BrokerUnreachable, match="no idea"):
        await connection.deliver(REQUEST)


async def test_cancelled_request_leaves_no_timer(
    clock: ManualClock, connection: Connection, broker: BlockingParticipant
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(connection.deliver, REQUEST))
        await clock.advance(1)
        tasks.cancel_scope.cancel()

    assert broker.request == [REQUEST]
    assert clock.sleepers == 0


async def test_closed_connection_delivers_nothing(connection: Connection, broker: BlockingParticipant) -> None:
    broker.released.set()

    await connection.close()

    with pytest.raises(BrokerUnreachable, match="closed"):
        await connection.deliver(REQUEST)
    assert broker.request == []
