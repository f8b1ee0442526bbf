"""Stub brokers: they accept every request, respond immediately with success, and record times.

One process runs all of them. Each has its own ZooKeeper session with its registration, and its own port. Requests are
stamped at their last byte and stored; they are evaluated when the race requests sums. Requests to several brokers
that are equal after the broker epoch are stored once, and their memory is reused.

    python -m bench.race.stubs --help
"""

import argparse
import asyncio
import gc
import socket
import time
from pathlib import Path
from typing import Final, cast

import msgspec

from bench.clusters import Shape
from bench.run import event_loop, run
from tests.support.processes import free_port

from .control import Answer, Asked, Count, Leave, Mark, Return, Sums
from .expectations import Arrival, Body, Tracker
from .scan import UPDATE_METADATA, NotServed, header, scan
from .session import BrokerSession, SessionFailed, registration
from .stub_responses import answer

clock = time.monotonic

# As in brokers.
REQUEST_SIZE_MAX: Final = 100 * 1024 * 1024
# A mark names some ten thousand partitions.
_CONTROL_LINE_MAX: Final = 64 * 1024 * 1024


class Inbox:
    """Requests to all stub brokers, in order of arrival."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.failures: list[str] = []
        self._bodies: dict[int, list[Body]] = {}
        self._spare: dict[int, list[bytearray]] = {}

    def room(self, size: int) -> bytearray:
        """Returns memory for a request of this size."""
        spare = self._spare.get(size)
        return spare.pop() if spare else bytearray(size)

    def take(self, broker: "StubBroker", frame: bytearray, at: float) -> bytes:
        """Stores a request and returns the response.

        Raises:
            NotServed: brokers of these protocol levels do not receive such requests.
        """
        head = header(frame)
        if head.api == UPDATE_METADATA:
            body, found = self._kept(Body(frame, head, None)), None
        else:
            found = scan(frame, head)
            body = Body(frame, head, found)
        response = answer(head, found)
        is_current = head.broker_epoch in (-1, broker.epoch)
        self.arrivals.append(Arrival(broker.id, at, 4 + len(frame), body, is_current))
        return response

    def clear(self) -> None:
        """Discards all requests."""
        self.arrivals.clear()
        self._bodies.clear()
        self._spare.clear()
        gc.collect()

    def _kept(self, body: Body) -> Body:
        """Returns an equal stored request, if there is one."""
        similar = self._bodies.setdefault(len(body.frame), [])
        for known in similar:
            if known.header.body == body.header.body and body.frame.endswith(known.content):
                self._spare.setdefault(len(body.frame), []).append(body.frame)
                return known
        similar.append(body)
        return body


class Requests(asyncio.BufferedProtocol):
    """One connection of a controller. Each request is received into its final memory."""

    def __init__(self, broker: "StubBroker", inbox: Inbox) -> None:
        self._broker = broker
        self._inbox = inbox
        self._size = bytearray(4)
        self._await(self._size)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._broker.connections.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._broker.connections.discard(self._transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled < len(self._into):
            return
        at = clock()
        whole = self._into
        if whole is self._size:
            size = int.from_bytes(whole)
            if 0 < size <= REQUEST_SIZE_MAX:
                self._await(self._inbox.room(size))
            else:
                self._refuse(f"a request of {size} bytes")
            return
        self._await(self._size)
        try:
            self._transport.write(self._inbox.take(self._broker, whole, at))
        except NotServed as error:
            self._refuse(str(error))

    def _await(self, into: bytearray) -> None:
        self._into = into
        self._room = memoryview(into)
        self._filled = 0

    def _refuse(self, what: str) -> None:
        self._inbox.failures.append(f"broker {self._broker.id} was sent {what}")
        self._await(self._size)
        self._transport.abort()


class StubBroker:
    """One broker."""

    def __init__(self, id_: int, inbox: Inbox, *, zookeeper_port: int, session_timeout_ms: int) -> None:
        self.id = id_
        self.port = free_port()
        self.epoch = -1
        self.connections: set[asyncio.Transport] = set()
        self._inbox = inbox
        self._zookeeper_port = zookeeper_port
        self._session_timeout_ms = session_timeout_ms
        self._session: BrokerSession | None = None
        self._server: asyncio.Server | None = None

    async def come(self) -> float:
        """Listens, opens a session and registers. Returns the time of the request to register."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Requests(self, self._inbox), "127.0.0.1", self.port)
        self._session = await BrokerSession.opened(self._zookeeper_port, timeout_ms=self._session_timeout_ms)
        data = registration(self.port, round(time.time() * 1000))
        at = clock()
        self.epoch = await self._session.register(f"/brokers/ids/{self.id}", data)
        return at

    async def leave(self) -> float:
        """Ends the session, then the connections. Returns the time of the request to end the session."""
        assert self._session is not None
        assert self._server is not None
        at = clock()
        closing = asyncio.ensure_future(self._session.close())
        await asyncio.sleep(0)
        self._server.close()
        for connection in tuple(self.connections):
            connection.abort()
        await closing
        return at


class StubControl:
    """Responses to the race's questions about what the stub brokers received."""

    def __init__(self, shape: Shape, brokers: dict[int, StubBroker], inbox: Inbox) -> None:
        self._brokers = brokers
        self._inbox = inbox
        self._tracker = Tracker(shape)
        self._counted = 0

    async def answer(self, asked: Asked) -> Answer:
        match asked:
            case Mark():
                self._count()
                self._inbox.clear()
                self._counted = 0
                self._tracker.mark(asked.expectations)
                return Answer(at=clock())
            case Count():
                return Answer(requests=len(self._inbox.arrivals))
            case Sums():
                self._count()
                if self._inbox.failures:
                    return Answer(failed="; ".join(self._inbox.failures))
                return Answer(expectations=self._tracker.progress(), traffic=self._tracker.traffic)
            case Leave():
                return Answer(at=await self._brokers[asked.broker].leave())
            case Return():
                return Answer(at=await self._brokers[asked.broker].come())

    def _count(self) -> None:
        for arrival in self._inbox.arrivals[self._counted :]:
            self._tracker.add(arrival)
        self._counted = len(self._inbox.arrivals)


async def serve(asked: argparse.Namespace) -> None:
    """Registers all brokers, then responds to the race until it disconnects."""
    shape = Shape(asked.partitions, asked.topics, asked.brokers, asked.replication_factor)
    inbox = Inbox()
    brokers = {
        id_: StubBroker(id_, inbox, zookeeper_port=asked.zookeeper_port, session_timeout_ms=asked.session_timeout_ms)
        for id_ in range(1, asked.brokers + 1)
    }
    for broker in brokers.values():
        await broker.come()
    stub_control = StubControl(shape, brokers, inbox)
    control = socket.socket(socket.AF_UNIX)
    control.connect(str(asked.control))
    reader, writer = await asyncio.open_unix_connection(sock=control, limit=_CONTROL_LINE_MAX)
    gc.collect()
    gc.freeze()
    gc.disable()  # its pauses would count for the contender
    decoder: msgspec.json.Decoder[Asked] = msgspec.json.Decoder(Asked)
    while line := await reader.readline():
        try:
            response = await stub_control.answer(decoder.decode(line))
        except (NotServed, SessionFailed, OSError) as error:
            response = Answer(failed=str(error))
        writer.write(msgspec.json.encode(response) + b"\n")
        await writer.drain()


def main() -> None:
    """Runs until the race closes its end."""
    parser = argparse.ArgumentParser(prog="python -m bench.race.stubs", description=__doc__.splitlines()[0])
    parser.add_argument("--control", type=Path, required=True, help="the socket on which the race listens")
    parser.add_argument("--zookeeper-port", type=int, required=True, help="on loopback")
    parser.add_argument("--session-timeout-ms", type=int, default=18_000)
    for name, default in (("brokers", 3), ("partitions", 60), ("topics", 3), ("replication-factor", 3)):
        parser.add_argument(f"--{name}", type=int, default=default, help="of the cluster")
    run(serve(parser.parse_args()), event_loop("auto"))


if __name__ == "__main__":
    main()
