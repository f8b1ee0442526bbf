"""One registry of connections for all servers: which one makes way, and what is released at its end."""

import asyncio
import socket

import pytest

from kactl.runtime.places import Place, Places


class Connection(Place):
    def __init__(self, owner: str = "192.0.2.1") -> None:
        self.owner = owner
        self.has_made_way = False

    def make_way(self) -> None:
        self.has_made_way = True
        super().make_way()


class Server(Places[Connection]):
    def __init__(self) -> None:
        self.time_s = 0.0
        super().__init__("the server", lambda: self.time_s)


def test_lowest_rank_makes_way_and_then_the_longest_wait() -> None:
    server = Server()
    late, first, second, working = (Connection() for _ in range(4))
    for connection, rank in ((late, 1), (first, 0), (second, 0), (working, None)):
        server.enter(connection, rank)
    server.set_rank(first, None)
    server.set_rank(first, 0)

    assert [*server.waiting()] == [second, first, late]
    assert server.make_room(8) == 3
    assert not working.has_made_way
    assert len(server) == 1


def test_connection_keeps_its_turn_in_the_same_rank() -> None:
    server = Server()
    first, second = Connection(), Connection()
    server.enter(first, 0)
    server.enter(second, 0)
    server.time_s = 1.0

    server.set_rank(first, 0)

    assert [*server.waiting(grace_s=1.0)] == [first, second]


def test_connection_does_not_make_way_at_once() -> None:
    server = Server()
    server.enter(old := Connection(), 0)
    server.time_s = 1.0
    server.enter(Connection(), 0)

    assert [*server.waiting(grace_s=1.0)] == [old]


def test_owner_replaces_its_own_connections_by_rank_and_wait() -> None:
    server = Server()
    late, old, working, fresh = (Connection() for _ in range(4))
    server.enter(Connection("192.0.2.2"), 0)
    for connection, rank in ((late, 1), (working, None), (old, 0)):
        server.enter(connection, rank)
    server.time_s = 1.0
    server.enter(fresh, 0)

    assert server.first_of("192.0.2.1", 0, 1, grace_s=1.0) is old
    assert server.first_of("192.0.2.1", 1, grace_s=1.0) is late
    assert server.first_of("192.0.2.3", 0, 1) is None


def test_connection_counts_for_its_owner_until_it_leaves() -> None:
    server = Server()
    one, other = Connection(), Connection()
    server.enter(one, 0)
    server.enter(other, 0)

    server.move(one, 7, None)
    server.leave(other)
    server.leave(other)

    assert {owner: [*own] for owner, own in server.owners.items()} == {7: [one]}
    assert len(server) == 1


@pytest.mark.anyio
async def test_task_cancelled_before_its_first_step_leaves_nothing_open() -> None:
    server, connection = Server(), Connection()
    accepted, peer = socket.socketpair()

    async def serve() -> None:
        raise AssertionError("it has begun")

    server.enter(connection, 0)
    work = serve()
    server.run(connection, accepted, work)
    task = connection.task
    server.replace(connection)
    assert task is not None
    await asyncio.wait([task])
    await asyncio.sleep(0)

    assert accepted.fileno() == -1
    assert len(server) == 0
    peer.close()


@pytest.mark.anyio
async def test_linked_connection_keeps_its_place_after_its_task() -> None:
    server, connection = Server(), Connection()
    accepted, peer = socket.socketpair()

    async def serve() -> None:
        connection.is_linked = True

    server.enter(connection, None)
    server.run(connection, accepted, serve())
    assert connection.task is not None
    await connection.task
    await asyncio.sleep(0)

    assert accepted.fileno() >= 0
    assert connection in server
    accepted.close()
    peer.close()
