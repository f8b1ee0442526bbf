"""One loop that accepts connections, whatever is left of descriptors."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from kactl.runtime.front_door import FrontDoor
from kactl.runtime.listening import listening_sockets
from tests.support.descriptors import no_descriptor_left

pytestmark = pytest.mark.anyio


class Server:
    """A front door that keeps its connections, and closes the oldest to make room."""

    def __init__(self) -> None:
        self.kept: list[socket.socket] = []
        self.served = True
        self.has_room = True
        self.reasons: list[str] = []
        self._changed = asyncio.Event()

    def take(self, accepted: socket.socket, address: Any) -> bool:
        self.kept.append(accepted)
        self._changed.set()
        return self.served

    def make_room(self, count: int) -> int:
        closed, self.kept = self.kept[:1], self.kept[1:]
        for connection in closed:
            connection.close()
        return len(closed)

    async def until_replaced(self, first: socket.socket) -> None:
        with anyio.fail_after(60):
            while first in self.kept or not self.kept:
                self._changed.clear()
                await self._changed.wait()

    async def until_kept(self, count: int) -> None:
        with anyio.fail_after(60):
            while len(self.kept) < count:
                self._changed.clear()
                await self._changed.wait()


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[tuple[Server, socket.socket]]:
    """Yields a server, and its listening socket."""
    server, sockets = Server(), listening_sockets("127.0.0.1", 0, backlog=128)
    door = FrontDoor(
        sockets,
        server.take,
        make_room=server.make_room,
        exhausted=server.reasons.append,
        name="the server",
        has_room=lambda: server.has_room,
    )
    door.open()
    try:
        yield server, sockets[0]
    finally:
        door.close()
        for connection in server.kept:
            connection.close()


async def test_connection_replaces_another_without_descriptors() -> None:
    async with listening() as (server, bound):
        with contextlib.closing(socket.create_connection(bound.getsockname())):
            await server.until_kept(1)
            first = server.kept[0]
            with contextlib.closing(socket.socket()) as client, no_descriptor_left():
                client.connect(bound.getsockname())
                await server.until_replaced(first)

    assert server.reasons == ["Too many open files, and 1 connections that wait for their peers are closed"]


async def test_connections_wait_in_the_queue_while_there_is_no_room() -> None:
    async with listening() as (server, bound):
        server.has_room = False
        with contextlib.closing(socket.create_connection(bound.getsockname())):
            for _ in range(100):
                await asyncio.sleep(0)
            before = len(server.kept)
            server.has_room = True
            await server.until_kept(1)

    assert before == 0


@pytest.mark.parametrize(("served", "expected"), [(True, 16), (False, 64)])
async def test_one_iteration_of_the_loop_accepts_some_connections(served: bool, expected: int) -> None:
    """One that is refused costs less than one that is served."""
    async with listening() as (server, bound):
        server.served = served
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(contextlib.closing(socket.create_connection(bound.getsockname())))
            await asyncio.sleep(0)
            await server.until_kept(1)
            first = len(server.kept)
            await server.until_kept(100)

    assert first == expected
