"""Simulated ensembles: lag, elections, lost connections, and sessions that end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import pytest
from kazoo.exceptions import NodeExistsError, NoNodeError, ZookeeperError
from kazoo.protocol.states import KazooState

from kactl.model.errors import StoreUnavailable
from kactl.runtime.patience import Patience
from kactl.stores.zookeeper import request
from kactl.stores.zookeeper.client import Client
from kactl.stores.zookeeper.request import MultiRead
from kactl.stores.zookeeper.set_watches import SetWatches
from kactl.testing import LoopClock, Schedule, SimLoop, on, sim
from kactl.testing.history import History
from kactl.testing.links import Links
from tests.sim.engine.worlds.zookeeper import Op, Server, ZooKeeperWorld
from tests.sim.engine.worlds.zookeeper.world import PORT

T = TypeVar("T")

TIMEOUT_MS: Final = 10_000
TICK_MS: Final = 1_000


class Bench:
    """A world, and clients of chosen servers. Each is on a node of its own."""

    def __init__(self, servers: int = 1, *, peers_ms: float = 0.0, store_ms: float = 1.0, **settings: Any) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        latency = {"store": (store_ms, store_ms), "zookeeper": (peers_ms, peers_ms)}
        self.history = History(lambda: loop.now_s * 1000)
        self.world = ZooKeeperWorld(
            loop, self.history, Links(loop, latency), servers=servers, tick_ms=TICK_MS, **settings
        )

    @property
    def leader(self) -> Server:
        assert self.world.ensemble.leader is not None
        return self.world.ensemble.leader

    @property
    def followers(self) -> list[Server]:
        return [server for server in self.world.servers if server is not self.leader]

    async def open(self, name: str, *servers: Server) -> "OpenClient":
        """Open a client of some servers, by default of all."""
        client = OpenClient(self, name, servers or tuple(self.world.servers))
        await client.run(client.client.open(Patience("the session is not open", LoopClock(), TIMEOUT_MS)))
        return client


class OpenClient:
    """A client on a node of its own. Records states, events, and the times of both."""

    def __init__(self, bench: Bench, name: str, servers: tuple[Server, ...]) -> None:
        self.node = bench.loop.node(name)
        self.states: list[str] = []
        self.events: list[tuple[str, str]] = []
        self._loop = bench.loop
        with on(self.node):
            self.client = Client(
                ",".join(f"{server.address}:{PORT}" for server in servers),
                session_timeout_ms=TIMEOUT_MS,
                max_in_flight=20,
                on_state=self.states.append,
                on_watch=lambda kind, path: self.events.append((kind, path)),
                factory=bench.world.connection,
                rng=bench.loop.streams[name],
            )

    async def run(self, coroutine: Awaitable[T]) -> T:
        """Run something on the client's node."""

        async def main() -> T:
            return await coroutine

        return await self._loop.start(self.node, main())

    async def ask(self, request: Any) -> Any:
        return await self.run(self.client.ask(request))

    async def data(self, path: str) -> Any:
        node = await self.ask(self.client.get(path))
        return node if isinstance(node, ZookeeperError) else node[0]


def simulated(main: Callable[[], Awaitable[None]], seed: int = 0) -> None:
    async def run() -> None:
        await main()

    sim.run(run, seed=seed, schedule=Schedule("fifo"))


def test_follower_reads_old_data_until_it_syncs() -> None:
    async def main() -> None:
        bench = Bench(3, peers_ms=300)
        follower = bench.followers[0]
        near, far = await bench.open("near", bench.leader), await bench.open("far", follower)
        await near.ask(request.create("/a", b"old"))
        await near.ask(request.sync("/"))
        await far.ask(request.sync("/"))

        await near.ask(request.put("/a", b"new"))

        assert await far.data("/a") == b"old"
        await far.ask(request.sync("/"))
        assert await far.data("/a") == b"new"

    simulated(main)


def test_client_reads_its_own_write_from_a_follower() -> None:
    async def main() -> None:
        bench = Bench(3, peers_ms=300)
        far = await bench.open("far", bench.followers[0])

        created = far.client.submit([request.create("/a", b"x"), far.client.get("/a")], lambda _: None)
        await asyncio.sleep(2)

        assert created.results[1][0] == b"x"

    simulated(main)


WRITES: Final[dict[str, Callable[[], Any]]] = {
    "create": lambda: request.create("/new", b""),
    "put": lambda: request.put("/a", b"new"),
    "delete": lambda: request.delete("/a"),
    "multi": lambda: request.multi([request.check("/a", 0), request.put("/a", b"new")]),
}
OTHERS: Final[dict[str, Callable[[], Any]]] = {
    "sync": lambda: request.sync("/"),
    "multi-read": lambda: MultiRead(("/a", "/b")),
    "watch tree": lambda: request.watch_tree("/a"),
    "set watches": lambda: SetWatches(("/a",)),
}


async def lose(kind: str, *, done: bool) -> tuple[Bench, OpenClient, Any]:
    """Break the connection at one request. Returns the result of its repetition."""
    bench = Bench()
    client = await bench.open("client")
    await client.ask(request.create("/a", b"old"))
    bench.world.lose("client", done=done)
    asked = client.client.submit([(WRITES | OTHERS)[kind]()], lambda _: None)
    await asyncio.sleep(5)
    assert asked.over
    assert asked.repeated == {0}
    assert client.states == [KazooState.CONNECTED, KazooState.SUSPENDED, KazooState.CONNECTED]
    return bench, client, asked.results[0]


@pytest.mark.parametrize("kind", WRITES)
def test_write_that_was_done_is_repeated_after_a_lost_connection(kind: str) -> None:
    async def main() -> None:
        bench, _, result = await lose(kind, done=True)

        tree = bench.leader.tree
        match kind:
            case "create":
                assert isinstance(result, NodeExistsError)
            case "put":
                assert (result.version, tree.nodes["/a"].data) == (2, b"new")
            case "delete":
                assert isinstance(result, NoNodeError)
            case _:
                assert request.first_error(result) is not None
                assert tree.nodes["/a"].version == 1

    simulated(main)


@pytest.mark.parametrize("kind", WRITES)
def test_write_that_was_not_done_succeeds_after_a_lost_connection(kind: str) -> None:
    async def main() -> None:
        bench, _, result = await lose(kind, done=False)

        nodes = bench.leader.tree.nodes
        assert request.first_error(result if isinstance(result, list) else [result]) is None
        assert ("/new" in nodes, "/a" in nodes) == (kind == "create", kind != "delete")
        assert kind not in ("put", "multi") or nodes["/a"].version == 1

    simulated(main)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("kind", OTHERS)
def test_read_is_repeated_after_a_lost_connection(kind: str, *, done: bool) -> None:
    async def main() -> None:
        _, _, result = await lose(kind, done=done)

        assert not isinstance(result, ZookeeperError)

    simulated(main)


def test_election_disconnects_every_client_and_keeps_sessions() -> None:
    async def main() -> None:
        bench = Bench(3, peers_ms=1)
        clients = [await bench.open(f"client {server.number}", server) for server in bench.world.servers]
        await clients[0].ask(request.create("/a", b"x", ephemeral=True))
        sessions = [client.client.session_id for client in clients]

        bench.world.elect()
        await asyncio.sleep(8)

        again = [KazooState.CONNECTED, KazooState.SUSPENDED, KazooState.CONNECTED]
        assert [client.states for client in clients] == [again] * 3
        assert [client.client.session_id for client in clients] == sessions
        assert await clients[1].data("/a") == b"x"

    simulated(main)


def test_killed_leader_is_replaced() -> None:
    async def main() -> None:
        bench = Bench(3, peers_ms=1)
        client = await bench.open("client")
        await client.ask(request.create("/a", b"x"))
        first = bench.leader
        before = first.tree.zxid

        bench.world.ensemble.crash(first)
        await asyncio.sleep(8)
        result = await client.ask(request.put("/a", b"y"))

        assert bench.leader is not first
        assert result.version == 1
        assert result.mzxid > before + 2**31  # of another epoch
        bench.world.ensemble.start(first)
        await asyncio.sleep(8)
        assert first.serves
        assert first.tree.nodes["/a"].data == b"y"

    simulated(main)


def test_minority_serves_nobody() -> None:
    async def main() -> None:
        bench = Bench(3, peers_ms=1)
        client = await bench.open("client")
        await client.ask(request.create("/a", b"x"))
        for server in bench.followers:
            bench.world.ensemble.crash(server)

        with pytest.raises(StoreUnavailable):
            await client.ask(request.put("/a", b"y"))
        assert not any(server.serves for server in bench.world.servers)

        for server in bench.world.servers:
            bench.world.ensemble.start(server)
        await asyncio.sleep(20)
        assert not isinstance(await client.data("/a"), ZookeeperError)

    simulated(main)


@pytest.mark.parametrize("seed", range(8))
def test_write_without_a_majority_is_done_once_or_lost(seed: int) -> None:
    outcomes: list[bytes] = []

    async def main() -> None:
        bench = Bench(3, peers_ms=1)
        leader = bench.leader
        client = await bench.open("client", leader)
        await client.ask(request.create("/a", b"x"))
        bench.world.cut_servers(leader.name)

        asked = client.client.submit([request.put("/a", b"y", 0)], lambda _: None)
        await asyncio.sleep(3)
        assert not asked.over
        bench.world.heal_servers()
        await asyncio.sleep(20)

        assert asked.over
        assert all(server.tree.nodes["/a"].data == b"y" for server in bench.world.servers)
        assert all(server.tree.nodes["/a"].version == 1 for server in bench.world.servers)
        outcomes.append(b"")

    simulated(main, seed)
    assert outcomes


def test_server_without_leader_disconnects_its_clients_and_they_move() -> None:
    async def main() -> None:
        bench = Bench(3, peers_ms=1)
        lonely, other = bench.followers
        client = await bench.open("client", lonely)
        session = client.client.session_id
        wide = await bench.open("wide", lonely, other)
        bench.world.cut_servers(lonely.name)

        await asyncio.sleep(20)
        assert not lonely.serves
        assert not client.client.connected
        assert wide.client.connected

        bench.world.heal_servers()
        await asyncio.sleep(5)
        assert client.client.connected
        assert client.client.session_id != session  # the session has ended meanwhile
        assert KazooState.LOST not in wide.states

    simulated(main)


def test_server_that_knows_less_refuses_a_client() -> None:
    async def main() -> None:
        bench = Bench(3, peers_ms=1)
        behind, other = bench.followers
        client = await bench.open("client", other, behind)
        bench.world.cut_servers(behind.name)
        for number in range(3):
            await client.ask(request.create(f"/{number}", b""))

        refused = []
        for _ in range(10):
            bench.world.reset("client")
            await asyncio.sleep(0.4)
            refused.append(client.client.trouble)
            assert await client.data("/2") == b""

        (pipe,) = bench.world.pipes
        assert pipe.server is other

    simulated(main)


def test_session_ends_some_ticks_after_its_client_was_killed() -> None:
    async def main() -> None:
        bench = Bench(3, peers_ms=1)
        watching, dying = await bench.open("watching"), await bench.open("dying")
        await dying.ask(request.create("/a", b"", ephemeral=True))
        await watching.ask(watching.client.exists("/a", watch=True))

        bench.loop.kill(dying.node)
        await asyncio.sleep(TIMEOUT_MS / 1000 * 2 / 3)
        assert watching.events == []
        await asyncio.sleep(TIMEOUT_MS / 1000 / 3 + 2 * TICK_MS / 1000)
        assert watching.events == [("DELETED", "/a")]

    simulated(main)


def test_client_learns_later_that_its_session_has_ended() -> None:
    async def main() -> None:
        bench = Bench()
        client, other = await bench.open("client"), await bench.open("other")
        await client.ask(request.create("/a", b"", ephemeral=True))

        bench.world.expire_session("client", notify_after_ms=3_000)
        await asyncio.sleep(2)
        assert isinstance(await other.data("/a"), NoNodeError)
        assert client.client.connected

        await asyncio.sleep(3)
        assert client.states == [
            KazooState.CONNECTED,
            KazooState.SUSPENDED,
            KazooState.LOST,
            KazooState.CONNECTED,
        ]

    simulated(main)


@pytest.mark.parametrize("both", [True, False])
def test_cut_client_loses_its_session(*, both: bool) -> None:
    async def main() -> None:
        bench = Bench()
        client, other = await bench.open("client"), await bench.open("other")
        await client.ask(request.create("/a", b"", ephemeral=True))

        bench.world.cut("client", to_client=both)
        await asyncio.sleep(8)
        assert client.states == [KazooState.CONNECTED, KazooState.SUSPENDED]
        await asyncio.sleep(5)
        assert isinstance(await other.data("/a"), NoNodeError)
        bench.world.heal("client")
        await asyncio.sleep(3)

        assert client.states[2:] == [KazooState.LOST, KazooState.CONNECTED]

    simulated(main)


def test_paused_leader_is_replaced_and_follows() -> None:
    async def main() -> None:
        bench = Bench(3, peers_ms=1)
        first = bench.leader
        client = await bench.open("client", *bench.followers)
        await client.ask(request.create("/a", b""))

        bench.loop.pause(first.node)
        await asyncio.sleep(15)
        assert bench.leader is not first
        assert not isinstance(await client.ask(request.put("/a", b"y")), ZookeeperError)
        bench.loop.resume(first.node)
        await asyncio.sleep(5)

        assert first.serves
        assert first.tree.nodes["/a"].data == b"y"

    simulated(main)


def test_answer_that_is_too_long_ends_the_connection() -> None:
    async def main() -> None:
        bench = Bench(frame_bytes_max=10_000)
        client = await bench.open("client")
        await client.ask(request.create("/a", bytes(20_000)))

        asked = client.client.submit([client.client.get("/a")], lambda _: None)
        await asyncio.sleep(1)

        assert not asked.over
        assert "a frame of 20" in client.client._connection.trouble

    simulated(main)


def test_older_servers_answer_reads_one_by_one() -> None:
    async def main() -> None:
        bench = Bench(unknown=[Op.MULTI_READ, Op.ADD_WATCH])
        client = await bench.open("client")
        await client.ask(request.create("/a", b"x"))

        nodes = await client.run(client.client.read_all(["/a", "/b"]))

        assert nodes[0][0] == b"x"
        assert isinstance(nodes[1], NoNodeError)
        assert not client.client.reads_many

    simulated(main)


def test_equal_seeds_make_equal_runs() -> None:
    def run(seed: int) -> tuple[Any, ...]:
        async def main() -> tuple[Any, ...]:
            bench = Bench(5, peers_ms=3, store_ms=2)
            clients = [await bench.open(f"client {number}") for number in range(4)]
            for number, client in enumerate(clients):
                await client.ask(request.create(f"/{number}", b"", ephemeral=True))
            bench.world.elect()
            await asyncio.sleep(5)
            bench.world.ensemble.crash(bench.leader)
            bench.loop.kill(clients[0].node)
            await asyncio.sleep(30)
            states = [client.states for client in clients]
            return bench.loop.now_s, bench.loop.steps, states, bench.leader.name, bench.leader.tree.zxid

        return sim.run(main, seed=seed)

    assert run(1) == run(1)
    assert run(1) != run(2)
