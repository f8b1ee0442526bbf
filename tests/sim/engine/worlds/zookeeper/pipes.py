"""Connections between clients and servers: the client's end is an asyncio transport, so that real clients use them.

Bytes arrive in order and after drawn delays, on the channels of `Links`. A cut link delays them until it is healed, as
a network does that loses packets. A reset breaks the connection at both ends; what had not arrived is lost.
"""

import asyncio
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kactl.testing.links import Links
from kactl.testing.nodes import NODE, Node

from . import wire
from .access import Identity
from .commits import Commits
from .server import Fault, Origin, Server, ServerEnd

# Kind of the links between clients and servers.
STORE: Final = "store"
_LENGTH: Final = struct.Struct("!i")


class Pipe(asyncio.Transport):
    """One connection, as the transport of its client.

    Args:
        protocol: of the client.
        client: node of the client; None outside all nodes.
        name: of the client in the names of its links.
        ended: called when the connection is over.
        commits: receives the requests that are answered, or lost.

    Attributes:
        end: the server's end.
    """

    def __init__(
        self,
        links: Links,
        protocol: asyncio.Protocol,
        *,
        client: Node | None,
        name: str,
        server: Server,
        identities: Sequence[Identity],
        ended: Callable[["Pipe"], None],
        commits: Commits,
    ) -> None:
        super().__init__()
        self._links = links
        self._protocol = protocol
        self._client = client
        self.name = name
        self.server = server
        self._node = server.node
        self._up = links.channel(STORE, name, server.name)
        self._down = links.channel(STORE, server.name, name)
        self._ended = ended
        self._commits = commits
        self._closes = False  # by the client
        self._is_over = False  # for the client
        self._is_reset = False
        self._out: list[bytes] = []
        self.end = ServerEnd(server, client=name, send=self._send, close=self._close_by_server, identities=identities)
        self.operations = self.end.operations

    # -- the client's end

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closes or self._is_over:
            return
        sent = bytes(data)
        self._up.send(lambda: self._arrive(sent), to=self._node)

    def is_closing(self) -> bool:
        return self._closes or self._is_over

    def abort(self) -> None:
        if self.is_closing():
            return
        self._closes = True
        self._up.send(self._leave, to=self._node)
        asyncio.get_running_loop().call_soon(self._lose)

    close = abort

    def _lose(self, error: Exception | None = None) -> None:
        if not self._is_over:
            self._is_over = True
            self._ended(self)
            if not self._closes:
                self._lose_operations()
            self._protocol.connection_lost(error)

    def _deliver(self, data: bytes) -> None:
        if self.is_closing() or self._is_reset:
            return
        for frame in _frames(data) if self.operations else ():
            xid, _ = wire.header(frame)
            if self.operations.pop(xid, None) is not None:
                self._commits.answered(Origin(self.end, xid))
        self._protocol.data_received(data)

    def _lose_operations(self) -> None:
        for xid in list(self.operations):
            self._commits.lost(Origin(self.end, xid))
        # A server that has received a request may still have it decided, much later if it is cut off.
        self.end.lost_operations.update(self.operations)
        self.operations.clear()

    # -- the server's end

    def _arrive(self, data: bytes) -> None:
        for frame in _frames(data):
            if not self._is_reset:
                self.end.received(frame)

    def _leave(self) -> None:
        self._lose_operations()
        if not self.end.is_closed:
            self.end.closed_by_client()

    def _send(self, frame: bytes) -> None:
        """Send a frame, together with all others of this turn of the loop."""
        if not self._out:
            self._links.call_at(self._links.loop.now_s, self._flush, on=self._node)
        self._out += (_LENGTH.pack(len(frame)), frame)

    def _flush(self) -> None:
        if self._out and not self._is_reset:
            data, self._out = b"".join(self._out), []
            self._down.send(lambda: self._deliver(data), to=self._client)

    def _close_by_server(self, flushes: bool) -> None:
        if flushes:
            self._flush()
        self._out.clear()
        self._down.send(self._lose, to=self._client)

    # -- faults

    def reset(self) -> None:
        """Break the connection: nothing of what is on its way arrives, and both ends see the end after a delay."""
        if self._is_reset or self._is_over:
            return
        self._is_reset = True
        error = ConnectionResetError("the connection was reset")
        self._down.send(lambda: self._lose(error), to=self._client)
        self._up.send(self._leave, to=self._node)

    def break_at(self, fault: Fault) -> None:
        """Break the connection at a request."""
        self.end.fault = fault


def _frames(data: bytes) -> Iterator[bytes]:
    """Yields the frames of data that contains whole frames."""
    begin = 0
    while begin < len(data):
        (length,) = _LENGTH.unpack_from(data, begin)
        begin += _LENGTH.size + length
        yield data[begin - length : begin]


async def dial(
    links: Links,
    factory: Callable[[], asyncio.Protocol],
    *,
    name: str,
    server: Server,
    identities: Sequence[Identity],
    ended: Callable[[Pipe], None],
    commits: Commits,
) -> Pipe:
    """Connect the current node to a server: one round trip.

    Raises:
        ConnectionRefusedError: the server's process does not run.
    """
    loop, client = asyncio.get_running_loop(), NODE.get()
    answered: asyncio.Future[bool] = loop.create_future()
    up, down = links.channel(STORE, name, server.name), links.channel(STORE, server.name, name)

    def answer(accepted: bool) -> None:
        if not answered.done():
            answered.set_result(accepted)

    def arrive() -> None:
        # The kernel accepts, also for a process that is paused.
        is_up = server.is_up
        down.send(lambda: answer(is_up), to=client)

    up.send(arrive, to=None)
    if not await answered or not server.is_up:
        raise ConnectionRefusedError(f"{server.name} at {server.address} refuses the connection")
    protocol = factory()
    pipe = Pipe(
        links,
        protocol,
        client=client,
        name=name,
        server=server,
        identities=identities,
        ended=ended,
        commits=commits,
    )
    server.accept(pipe.end)
    protocol.connection_made(pipe)
    return pipe
