"""The model of ZooKeeper compared with a real server: one random script for both, answers, events and trees are equal.

    python -m tests.sim.zookeeper.judge [OPERATIONS [SEED]]

Compared are, for each client, all answers and events in the order of receipt, and at the end of each script the whole
tree. Ids of sessions are compared by client, numbers of transactions by their order, times not at all, and lists of
children and access lists as sets. A script runs in lockstep: the next step begins after all answers of the last one, so
that a real server has one order of requests too. Events of other clients are received in their own time; each client's
stream is compared by itself.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from kazoo.exceptions import ZookeeperError
from kazoo.protocol.serialization import Auth, GetACL
from kazoo.protocol.states import EventType, ZnodeStat

from kactl.stores.zookeeper import request
from kactl.stores.zookeeper.connection.messages import Session
from kactl.testing import Schedule, SimLoop, sim
from kactl.testing.history import History
from kactl.testing.links import Links
from tests.sim.engine.worlds.zookeeper import ZooKeeperWorld
from tests.support.zookeeper_server import ZooKeeperServer

from .raw_client import AUTH_XID, Dial, RawClient, kept_alive
from .scripts import CLIENTS, LAST_SEEN, USERS, OneRequest, SetAllWatches, Step, script, secret

# Short, so that sessions expire soon: the shortest timeout is two ticks.
TICK_MS: Final = 300
# Requested timeouts; the server limits them to 20 and to 2 ticks. The longer one outlasts pauses of a busy machine.
TIMEOUT_MS: Final = 60_000
EXPIRY_MS: Final = 1
ENDED_MS: Final = 4 * TICK_MS
SCRIPT_OPERATIONS: Final = 500
FUTURE: Final = 2**62
# Length of each side of a difference, in a report.
TEXT_MAX: Final = 2_000
_UNKNOWN_TYPE: Final = 99
_TOO_LONG: Final = 1_200_000


class Recording(NamedTuple):
    """Responses and events that the clients of one script have received, and the tree at its end."""

    heard: list[list[Any]]
    tree: dict[str, Any]


class Difference(NamedTuple):
    """Where model and server differ.

    Attributes:
        client: number of the client, or "tree".
        at: position among its received values, or a path.
    """

    seed: int
    client: int | str
    at: int | str
    server: Any
    model: Any

    def __str__(self) -> str:
        place = f"script {self.seed}, client {self.client}, at {self.at}"
        return f"{place}:\n  server {repr(self.server)[:TEXT_MAX]}\n  model  {repr(self.model)[:TEXT_MAX]}"


class _Unknown:
    type = _UNKNOWN_TYPE

    def serialize(self) -> bytes:
        return b""


class _Run:
    """One script on one server."""

    def __init__(self, dial: Dial, seed: int, steps: list[Step]) -> None:
        self._dial = dial
        # Below a node of its own: a sequential node beside the root gets a number of that.
        self._above = f"/script-{seed}"
        self._root = f"{self._above}/root"
        self._steps = steps
        self._heard: list[list[Any]] = [[] for _ in range(CLIENTS)]
        self._clients: list[RawClient] = []
        self._sessions: dict[int, str] = {}

    async def run(self) -> Recording:
        keeper = RawClient([])
        await keeper.connect(self._dial, Session(), timeout_ms=TIMEOUT_MS)
        await keeper.ask([request.create(self._above, None), request.create(self._root, None)])
        for client in range(CLIENTS):
            self._clients.append(RawClient(self._heard[client]))
            await self._open(client)
        for step in self._steps:
            keeper.ping()
            for line in self._clients:
                line.ping()
            if step.do != "ask":
                # A connection that is closed with data on its way may lose earlier data, too.
                await self._clients[step.client].ask([request.sync(self._root)])
            await getattr(self, "_" + step.do.replace(" ", "_"))(step.client, step.argument)
        for client in range(CLIENTS):
            await self._clients[client].ask([request.sync(self._root)])
        for user in USERS:
            await keeper.ask([Auth(0, "digest", secret(user))], xid=AUTH_XID)
        tree = {path: value async for path, value in _tree(keeper, self._root)}
        for line in (*self._clients, keeper):
            await line.end_session()
        return _normal(Recording(self._heard, tree), self._root, self._sessions)

    async def _open(self, client: int, timeout_ms: int = TIMEOUT_MS) -> None:
        """Connect a client with a new session."""
        line = self._clients[client] = RawClient(self._heard[client])
        await line.connect(self._dial, Session(), timeout_ms=timeout_ms)
        self._sessions[line.session.id] = f"session {len(self._sessions)}"
        self._heard[client].append(("opened", line.timeout_ms, len(line.session.password)))

    async def _resume(self, client: int) -> None:
        """Connect a client with its session; with a new one if that has ended."""
        before = self._clients[client]
        line = self._clients[client] = RawClient(self._heard[client])
        await line.connect(self._dial, before.session, timeout_ms=TIMEOUT_MS, zxid=before.zxid)
        if not line.timeout_ms:
            await line.closed()
        self._heard[client].append(("resumed", line.timeout_ms, line.session == before.session))
        if not line.timeout_ms:
            await self._open(client)

    # -- steps

    async def _ask(self, client: int, group: list[Any]) -> None:
        await self._clients[client].ask([self._request(client, each) for each in group])

    def _request(self, client: int, one: OneRequest) -> Any:
        made = one.make(self._root)
        if isinstance(made, SetAllWatches) and made.zxid == LAST_SEEN:
            return made._replace(zxid=self._clients[client].zxid)
        return made

    async def _drop(self, client: int, _: None) -> None:
        self._clients[client].drop()
        await self._clients[client].closed()
        await self._resume(client)

    async def _take_over(self, client: int, _: None) -> None:
        before = self._clients[client]
        line = RawClient(self._heard[client])
        await line.connect(self._dial, before.session, timeout_ms=TIMEOUT_MS, zxid=before.zxid)
        await before.closed()
        self._clients[client] = line

    async def _close(self, client: int, _: None) -> None:
        await self._clients[client].end_session()
        await self._resume(client)

    async def _auth(self, client: int, user: str) -> None:
        await self._clients[client].ask([Auth(0, "digest", secret(user))], xid=AUTH_XID)

    async def _bad_auth(self, client: int, user: str) -> None:
        await self._clients[client].ask([Auth(0, "unknown", secret(user))], xid=AUTH_XID)
        await self._clients[client].closed()
        await self._resume(client)

    async def _unknown(self, client: int, _: None) -> None:
        await self._clients[client].ask([_Unknown()])
        await self._clients[client].closed()
        await self._resume(client)

    async def _too_long(self, client: int, _: None) -> None:
        await self._clients[client].ask([request.put(self._root, bytes(_TOO_LONG))])
        await self._resume(client)

    async def _wrong_password(self, client: int, _: None) -> None:
        line = RawClient(self._heard[client])
        session = Session(self._clients[client].session.id, b"another password")
        await line.connect(self._dial, session, timeout_ms=TIMEOUT_MS)
        await line.closed()
        self._heard[client].append(("refused", line.timeout_ms, line.session))
        # The server closes the connection of a session before it looks at the password of the next.
        if not self._clients[client].is_closed:
            await self._clients[client].ask([request.sync(self._root)])
        if self._clients[client].is_closed:
            await self._resume(client)

    async def _from_the_future(self, client: int, _: None) -> None:
        line = RawClient(self._heard[client])
        await line.connect(self._dial, self._clients[client].session, timeout_ms=TIMEOUT_MS, zxid=FUTURE)
        self._heard[client].append(("refused", line.timeout_ms, line.session))

    async def _expire(self, client: int, group: list[Any]) -> None:
        """Let a new session end by its timeout, after some operations."""
        await self._clients[client].end_session()
        await self._open(client, EXPIRY_MS)
        line = self._clients[client]
        await line.ask([self._request(client, each) for each in group])
        heard = self._heard[client]
        before = len(heard)

        async def ended() -> None:
            await line.closed()
            # A server may close an idle connection some ticks before it ends the session.
            await asyncio.sleep(ENDED_MS / 1000)

        await kept_alive([other for other in self._clients if other is not line], ended())
        # A server closes the connection of an ended session at once, and may have sent the events of its end before.
        heard[before:] = [entry for entry in heard[before:] if entry[0] != "event"]
        await self._resume(client)


async def _tree(client: RawClient, path: str) -> Any:
    """Yields all nodes at and below a path: access list, data, stat and children."""
    before = len(client.heard)
    await client.ask([GetACL(path), *_reads(path)])
    answers = client.heard[before:]
    yield path, answers
    listed = answers[2][3]
    if not isinstance(listed, ZookeeperError):
        for name in sorted(listed[0]):
            async for below in _tree(client, f"{path}/{name}"):
                yield below


def _reads(path: str) -> list[Any]:
    from kazoo.protocol.serialization import Exists, GetChildren2, GetData

    return [GetData(path, None), GetChildren2(path, None), Exists(path, None)]


# -- differences that are allowed --------------------------------------------------------------------------------------


def _normal(recording: Recording, root: str, sessions: dict[int, str]) -> Recording:
    """Returns a recording without ids, times, and the order of children; numbers of transactions by their order."""
    zxids = sorted({zxid for one in [*recording.heard, *recording.tree.values()] for zxid in _zxids(one)})
    ranks = {zxid: rank for rank, zxid in enumerate(zxids)}
    plain = _Plain(root, sessions, ranks)
    return Recording(
        [_sorted_ends([plain.entry(entry) for entry in heard]) for heard in recording.heard],
        {
            path.removeprefix(root): [plain.entry(entry) for entry in entries]
            for path, entries in recording.tree.items()
        },
    )


def _zxids(value: Any) -> Iterator[int]:
    if isinstance(value, ZnodeStat):
        yield from (value.czxid, value.mzxid, value.pzxid)
    elif isinstance(value, tuple) and value and value[0] == "answer":
        yield value[1]
        yield from _zxids(value[3])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _zxids(each)


class _Plain:
    """Values without the fields that may differ."""

    def __init__(self, root: str, sessions: dict[int, str], ranks: dict[int, int]) -> None:
        self._root = root
        self._sessions = sessions
        self._ranks = ranks

    def entry(self, entry: Any) -> Any:
        if entry[0] == "answer":
            _, zxid, asked, result = entry
            return ("answer", self._ranks[zxid], _kind(asked), self._value(result, asked))
        if entry[0] == "event":
            return (*entry[:2], entry[2].removeprefix(self._root))
        return entry

    def _value(self, value: Any, asked: Any) -> Any:
        if isinstance(value, ZookeeperError):
            return type(value).__name__
        if isinstance(value, ZnodeStat):
            return self._stat(value)
        if isinstance(value, str):
            return value.removeprefix(self._root)
        if getattr(asked, "type", 0) in (8, 12) and isinstance(value, list | tuple):
            names, *stat = value if asked.type == 12 else (value,)
            return [sorted(names), *(self._value(each, None) for each in stat)]
        if isinstance(asked, GetACL):
            return [sorted(value[0]), self._value(value[1], None)]
        if isinstance(value, list | tuple):
            return [self._value(each, None) for each in value]
        return value

    def _stat(self, stat: ZnodeStat) -> tuple[Any, ...]:
        return (
            "stat",
            *(self._ranks[zxid] for zxid in (stat.czxid, stat.mzxid, stat.pzxid)),
            *(stat.version, stat.cversion, stat.aversion, stat.dataLength, stat.numChildren),
            self._sessions.get(stat.ephemeralOwner, stat.ephemeralOwner),
        )


def _kind(asked: Any) -> str:
    text = type(asked).__name__
    path = getattr(asked, "path", None)
    return text if path is None else f"{text} {path!r}"


def _sorted_ends(entries: list[Any]) -> list[Any]:
    """Returns the entries with each run of events sorted that the end of a session may have caused.

    A server deletes the nodes of a session in the order of a hash table.
    """
    found: list[Any] = []
    run: list[Any] = []
    for entry in entries:
        if entry[0] == "event" and entry[1] in (EventType.DELETED, EventType.CHILD):
            run.append(entry)
            continue
        found += sorted(run)
        run = []
        found.append(entry)
    return found + sorted(run)


# -- both sides --------------------------------------------------------------------------------------------------------


def on_model(seed: int, steps: list[Step]) -> Recording:
    """Run a script on the model."""

    async def main() -> Recording:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        world = ZooKeeperWorld(loop, History(lambda: loop.now_s * 1000), Links(loop), tick_ms=TICK_MS)
        (server,) = world.servers
        return await _Run(lambda factory: world.dial(factory, server.address, 2181), seed, steps).run()

    return sim.run(main, seed=seed, schedule=Schedule("fifo"))


async def on_server(server: ZooKeeperServer, seed: int, steps: list[Step]) -> Recording:
    """Run a script on a real server."""
    loop = asyncio.get_running_loop()
    return await _Run(lambda factory: loop.create_connection(factory, "127.0.0.1", server.port), seed, steps).run()


def differences(seed: int, server: Recording, model: Recording) -> Iterator[Difference]:
    """Yields the first difference of each client, and those of the trees."""
    for client, (real, simulated) in enumerate(zip(server.heard, model.heard, strict=True)):
        for at in range(max(len(real), len(simulated))):
            one, other = real[at : at + 1], simulated[at : at + 1]
            if one != other:
                yield Difference(seed, client, at, real[max(0, at - 3) : at + 2], simulated[max(0, at - 3) : at + 2])
                break
    for path in sorted(server.tree.keys() | model.tree.keys()):
        if server.tree.get(path) != model.tree.get(path):
            yield Difference(seed, "tree", path, server.tree.get(path), model.tree.get(path))


def judge(server: ZooKeeperServer, seed: int, operations: int = SCRIPT_OPERATIONS) -> list[Difference]:
    """Run one script on both. Returns the differences."""
    steps = script(seed, operations)
    real = asyncio.run(on_server(server, seed, steps))
    return list(differences(seed, real, on_model(seed, steps)))


def main(operations: int = 10_000, seed: int = 0) -> int:
    """Judge that many operations. Returns the exit status: 1 if there is a difference."""
    began, found = time.monotonic(), 0
    scripts = -(-operations // SCRIPT_OPERATIONS)
    with tempfile.TemporaryDirectory() as folder, ZooKeeperServer(Path(folder), tick_ms=TICK_MS) as server:
        for one in range(seed, seed + scripts):
            for difference in judge(server, one):
                found += 1
                print(difference, flush=True)
            if (one - seed) % 100 == 99:
                done = (one - seed + 1) * SCRIPT_OPERATIONS
                print(f"{done} operations, {found} differences, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{scripts * SCRIPT_OPERATIONS} operations, {found} differences, {time.monotonic() - began:.0f} s")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
