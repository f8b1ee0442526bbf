"""Closed connections are freed by their reference counts.

Each connection that forms a reference cycle waits for the garbage collector, and 1,000 hostile connections that are
closed and opened again make collections of 100 ms, during which brokers receive no response.
"""

import gc
from collections.abc import Callable, Iterator

import pytest

from kactl.transports.kafka.listener.admission import Slot
from kactl.transports.kafka.listener.apis import APIS
from kactl.transports.kafka.listener.connection import Connection
from kactl.transports.kafka.listener.counters import PeerRejected
from kactl.transports.kafka.listener.frames import Frames
from kactl.transports.kafka.listener.relay import Relay
from kactl.transports.kafka.listener.stream import Stream

from .client import connected, request_class
from .hostile import hostile
from .listener_stub import ControllerStub, listening, until

pytestmark = pytest.mark.anyio

CREATE_TOPICS = 19
Alive = Callable[[], list[object]]
OF_A_CONNECTION = (Connection, Frames, PeerRejected, Relay, Slot, Stream)


@pytest.fixture
def alive() -> Iterator[Alive]:
    """Objects of connections that were opened since; without the garbage collector.

    What earlier tests left does not count: an exception among a test's parameters holds the frames that it passed.
    """
    gc.collect()
    gc.disable()
    earlier = {id(one): one for one in of_connections()}
    yield lambda: [one for one in of_connections() if id(one) not in earlier]
    gc.enable()


def of_connections() -> list[object]:
    return [candidate for candidate in gc.get_objects() if isinstance(candidate, OF_A_CONNECTION)]


async def test_connections_that_ended_after_a_response_are_freed(alive: Alive) -> None:
    async with listening(ControllerStub()) as (_, port):
        for _ in range(3):
            async with connected(port) as client:
                await client.ask(request_class(18, 0)())

        await until(lambda: not alive())


async def test_connections_that_the_peer_aborted_are_freed(alive: Alive) -> None:
    async with listening(ControllerStub()) as (listener, port):
        for _ in range(3):
            async with connected(port) as client:
                client.writer.write(b"\0\0")
                await until(lambda: listener.counters.connections == 1)
                client.writer.transport.abort()

        await until(lambda: not alive())


@pytest.mark.parametrize("name", [name for name, _ in hostile(APIS[CREATE_TOPICS], 0)])
async def test_connections_with_a_rejected_request_are_freed(name: str, alive: Alive) -> None:
    content = dict(hostile(APIS[CREATE_TOPICS], 0))[name]
    async with listening(ControllerStub()) as (listener, port):
        async with connected(port) as client:
            client.writer.write(content)
            client.writer.write_eof()
            await until(lambda: sum(listener.counters.rejected.values()) == 1)

        await until(lambda: not alive())
