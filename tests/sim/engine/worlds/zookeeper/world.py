"""ZooKeeper world: an ensemble as nodes of the loop, its clients, and the faults between them."""

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from kactl.stores.zookeeper import ZooKeeperStore
from kactl.stores.zookeeper.connection import Connection, ConnectionListener
from kactl.stores.zookeeper.connection.frames import FRAME_BYTES_MAX
from kactl.testing.clock import LoopClock
from kactl.testing.history import History
from kactl.testing.links import ANY, Links
from kactl.testing.loop import SimLoop
from kactl.testing.nodes import NODE, Node

from .access import Identity
from .codes import Op
from .commits import Commits
from .content import Content
from .ensemble import ELECTION_MS, PEERS, Ensemble
from .entries import BROKERS, TOPICS
from .operations import MarkedConnection, MarkingStore
from .pipes import STORE, Pipe, dial
from .server import Fault, Server
from .tree import Change, Deleted, Tree
from .wire import Request

PORT: Final = 2181
TICK_MS: Final = 2_000.0
# Kafka's default.
SESSION_TIMEOUT_MS: Final = 18_000
# Share of the faults of a store, in which the leader also gives up.
_ELECTION_SHARE: Final = 0.5


class ZooKeeperWorld:
    """An ensemble, and the connections of its clients.

    The clients are kactl's own: the store, its sessions, and the connection over a simulated transport.

    Args:
        history: receives the `store.*` events of `tests.sim.engine.checkers.events`.
        links: their kind `store` connects clients and servers, their kind `zookeeper` the servers.
        servers: number of servers, 1 to 5.
        tick_ms: unit of session timeouts, which the servers limit to 2 to 20 ticks.
        session_timeout_ms: requested by the stores.
        chroot: of the stores; empty or begins with a slash.
        unknown: kinds of requests that the servers do not know, as those of older versions.
        frame_bytes_max: the longest response that clients accept.

    Attributes:
        ensemble: the servers and their leader.
        content: the stored records.
        pipes: the connections of all clients.
    """

    def __init__(
        self,
        loop: SimLoop,
        history: History,
        links: Links,
        *,
        servers: int = 1,
        tick_ms: float = TICK_MS,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        chroot: str = "",
        unknown: Collection[Op] = (),
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self._loop = loop
        self._history = history
        self._links = links
        self._session_timeout_ms = session_timeout_ms
        self._tick_ms = tick_ms
        self._chroot = chroot
        self._frame_bytes_max = frame_bytes_max
        self._rng = loop.streams["zookeeper faults"]
        self._rates: dict[str, float] = {}
        self.ensemble = Ensemble(loop, links, servers=servers, tick_ms=tick_ms, unknown=unknown)
        self.content = Content(self.ensemble, chroot)
        self._commits = Commits(history, self.ensemble, chroot)
        self._by_address = {server.address: server for server in self.ensemble.servers}
        self.connect = ",".join(f"{address}:{PORT}" for address in self._by_address) + chroot
        self.pipes: dict[Pipe, None] = {}

    @property
    def session_end_ms(self) -> float:
        """The longest time from the last message of a client to the end of its session: if the servers have just
        started, a leader is elected, and sessions end at the tick after their timeout.
        """
        return ELECTION_MS[1] + self._session_timeout_ms + self._tick_ms

    @property
    def servers(self) -> list[Server]:
        return self.ensemble.servers

    # -- clients

    def client(self, node: Node, **settings: Any) -> ZooKeeperStore:
        """Returns a store of a node, which enters and exits it. `settings` are those of `ZooKeeperStore`."""
        return MarkingStore(
            self.connect,
            client=self.connection,
            rng=self._loop.streams[f"store:{node.name}"],
            clock=LoopClock(self._loop),
            position=lambda: len(self._history.events),
            **{"session_timeout_ms": self._session_timeout_ms, **settings},
        )

    def connection(
        self, hosts: str, *, session_timeout_ms: int, listener: ConnectionListener, rng: random.Random
    ) -> Connection:
        """Factory of connections; see `kactl.stores.zookeeper.connection.Factory`."""
        return MarkedConnection(
            hosts,
            session_timeout_ms=session_timeout_ms,
            listener=listener,
            rng=rng,
            frame_bytes_max=self._frame_bytes_max,
            dial=self.dial,
        )

    async def dial(self, factory: Callable[[], Any], host: str, port: int) -> object:
        """Connect the current node to a server, by its address."""
        server = self._by_address.get(host)
        if server is None or port != PORT:
            raise ConnectionRefusedError(f"there is no server at {host}:{port}")
        node = NODE.get()
        pipe = await dial(
            self._links,
            factory,
            name="" if node is None else node.name,
            server=server,
            identities=[Identity("ip", "127.0.0.1")],
            ended=lambda pipe: self.pipes.pop(pipe, None),
            commits=self._commits,
        )
        self.pipes[pipe] = None
        if self._rates:
            self._plan_fault(pipe)
        return pipe

    def _pipes_of(self, node: str) -> list[Pipe]:
        return [pipe for pipe in self.pipes if pipe.name == node]

    # -- faults between clients and servers

    def cut(self, node: str, *, to_server: bool = True, to_client: bool = True, server: str = ANY) -> None:
        """Cut a node from one server, or from all, in one direction or in both."""
        if to_server:
            self._links.cut(node, server, kind=STORE, both=False)
        if to_client:
            self._links.cut(server, node, kind=STORE, both=False)

    def heal(self, node: str, *, deliver: bool = True) -> None:
        """End the cuts between a node and the servers.

        Args:
            deliver: what was sent meanwhile arrives; otherwise the connections break.
        """
        if not deliver:
            self.reset(node)
        self._links.heal(node, ANY, kind=STORE)

    def reset(self, node: str) -> int:
        """Break the connections of a node. Returns their number."""
        pipes = self._pipes_of(node)
        for pipe in pipes:
            pipe.reset()
        return len(pipes)

    def lose(self, node: str, *, done: bool, matches: Callable[[Request], bool] = lambda request: True) -> None:
        """Break a node's connections at its next matching request.

        Args:
            done: the request is executed, and its answer lost; otherwise it is not executed.
        """
        for pipe in self._pipes_of(node):
            pipe.break_at(Fault(lambda: done, matches))

    def set_faults(self, rates: Mapping[str, float]) -> None:
        """Set the rates of random faults, for each request: `lost_requests`, `lost_answers`, and `late_events`, which
        delays all that a server sends by up to `late_ms`. Others do not exist here, and have no effect.

        With several servers the leader may also give up.
        """
        self._rates = {name: rate for name, rate in rates.items() if rate}
        for pipe in self.pipes:
            pipe.end.fault = None
            if self._rates:
                self._plan_fault(pipe)
        if self._rates and len(self.servers) > 1 and self._rng.random() < _ELECTION_SHARE:
            self.elect()

    def _plan_fault(self, pipe: Pipe) -> None:
        """Let a connection break at one of its requests, by the rates."""
        rates, rng = self._rates, self._rng
        fate = {"done": False}

        def matches(request: Request) -> bool:
            if rng.random() < rates.get("late_events", 0.0):
                channel = self._links.channel(STORE, pipe.server.name, pipe.name)
                channel.delay(rng.uniform(0.0, rates.get("late_ms", 1_000.0)))
            if request.op in (Op.PING, Op.CLOSE):
                return False
            drawn = rng.random()
            fate["done"] = drawn >= rates.get("lost_requests", 0.0)
            return drawn < rates.get("lost_requests", 0.0) + rates.get("lost_answers", 0.0)

        pipe.break_at(Fault(lambda: fate["done"], matches))

    # -- sessions

    def expire_session(self, node: str, *, notify_after_ms: float = 0.0) -> None:
        """End the sessions of a node's stores at the servers, as after their timeouts.

        Args:
            notify_after_ms: until then the node learns nothing, and believes in its sessions.
        """
        self._expire(node, notify_after_ms, brokers=False)

    def expire_brokers(self, node: str) -> None:
        """End the sessions of the brokers on a node at the servers."""
        self._expire(node, 0.0, brokers=True)

    def _expire(self, node: str, notify_after_ms: float, *, brokers: bool) -> None:
        sessions = dict.fromkeys(pipe.end.session for pipe in self._pipes_of(node) if pipe.end.session)
        if notify_after_ms:
            for server in self.servers:
                self._links.channel(STORE, server.name, node).delay(notify_after_ms)
        for session in [session for session in sessions if self._is_of_broker(session) == brokers]:
            self.ensemble.expire(session)

    def _is_of_broker(self, session: int) -> bool:
        leader = self.ensemble.leader
        paths = () if leader is None else leader.tree.ephemerals.get(session, ())
        return any(path.startswith(self._chroot + BROKERS) for path in paths)

    # -- faults of servers

    def stop(self) -> None:
        """End the processes of all servers; their data and the sessions stay."""
        for server in self.servers:
            self.ensemble.crash(server)

    def start(self) -> None:
        """Start all servers that do not run, and end their cuts. Sessions have their whole timeout from then on."""
        self.heal_servers()
        for server in self.servers:
            self.ensemble.start(server)

    def elect(self) -> None:
        """Let the leader give up: every client is disconnected, and a leader is elected."""
        if self.ensemble.leader is not None:
            self.ensemble.step_down()

    def cut_servers(self, one: str, other: str = ANY) -> None:
        """Cut two servers from each other, or one from all."""
        self._links.cut(one, other, kind=PEERS)

    def heal_servers(self, one: str = ANY, other: str = ANY) -> None:
        """End cuts between servers."""
        self._links.heal(one, other, kind=PEERS)

    # -- operators

    def remove_topic(self, topic: str) -> None:
        """Remove a topic, all but its deletion mark, as an operator with a tool of the store does."""
        roots = [self._chroot + TOPICS + topic, self._chroot + "/config/topics/" + topic]

        def plan(tree: Tree) -> tuple[Change, ...]:
            below = [path for path in tree.nodes for root in roots if path == root or path.startswith(root + "/")]
            return tuple(Deleted(path) for path in sorted(below, key=lambda path: (-path.count("/"), path)))

        self.ensemble.by_hand(plan)

    def close(self) -> None:
        """Nothing remains of this store."""


def drawn(loop: SimLoop, history: History, links: Links, *, session_timeout_ms: int) -> ZooKeeperWorld:
    """Returns a world with a drawn number of servers and a drawn lag between them."""
    rng = loop.streams["zookeeper world"]
    links.latency_ms.setdefault(PEERS, (0.2, rng.choice((1.0, 20.0, 400.0))))
    # Ticks below the default, so that a short timeout is legal.
    tick_ms = min(TICK_MS, session_timeout_ms / rng.choice((3, 9, 20)))
    return ZooKeeperWorld(
        loop,
        history,
        links,
        servers=rng.choice((1, 3, 3, 5)),
        tick_ms=tick_ms,
        session_timeout_ms=session_timeout_ms,
    )
