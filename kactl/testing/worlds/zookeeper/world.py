"""ZooKeeper world: an ensemble as nodes of the loop, its clients, and the faults between them."""

import random
from collections.abc import Callable, Collection
from typing import Any, Final

from kactl.stores.zookeeper import ZooKeeperStore
from kactl.stores.zookeeper.connection import Connection, ConnectionListener
from kactl.stores.zookeeper.connection.frames import FRAME_BYTES_MAX
from kactl.stores.zookeeper.connection.native import NativeConnection
from kactl.testing.clock import LoopClock
from kactl.testing.links import ANY, Links
from kactl.testing.loop import SimLoop
from kactl.testing.nodes import NODE, Node

from .access import Identity
from .codes import Op
from .ensemble import PEERS, Ensemble
from .pipes import STORE, Pipe, dial
from .server import Fault, Server
from .wire import Request

PORT: Final = 2181
TICK_MS: Final = 2_000.0
# Kafka's default.
SESSION_TIMEOUT_MS: Final = 18_000


class ZooKeeperWorld:
    """An ensemble, and the connections of its clients.

    The clients are kactl's own: the store, its sessions, and the connection over a simulated transport.

    Args:
        links: their kind `store` connects clients and servers, their kind `zookeeper` the servers.
        servers: number of servers, 1 to 5.
        tick_ms: unit of session timeouts, which the servers limit to 2 to 20 ticks.
        session_timeout_ms: requested by the stores.
        chroot: of the stores; empty or begins with a slash.
        unknown: kinds of requests that the servers do not know, as those of older versions.
        frame_bytes_max: the longest response that clients accept.

    Attributes:
        ensemble: the servers and their leader.
    """

    def __init__(
        self,
        loop: SimLoop,
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
        self._links = links
        self._session_timeout_ms = session_timeout_ms
        self._frame_bytes_max = frame_bytes_max
        self.ensemble = Ensemble(loop, links, servers=servers, tick_ms=tick_ms, unknown=unknown)
        self._by_address = {server.address: server for server in self.ensemble.servers}
        self.connect = ",".join(f"{address}:{PORT}" for address in self._by_address) + chroot
        self.pipes: dict[Pipe, None] = {}

    @property
    def servers(self) -> list[Server]:
        return self.ensemble.servers

    # -- clients

    def client(self, node: Node, **settings: Any) -> ZooKeeperStore:
        """Returns a store of a node, which enters and exits it. `settings` are those of `ZooKeeperStore`."""
        settings = {"session_timeout_ms": self._session_timeout_ms, **settings}
        return ZooKeeperStore(
            self.connect,
            client=self.connection,
            rng=self._loop.streams[f"store:{node.name}"],
            clock=LoopClock(),
            **settings,
        )

    def connection(
        self, hosts: str, *, session_timeout_ms: int, listener: ConnectionListener, rng: random.Random
    ) -> Connection:
        """Factory of connections; see `kactl.stores.zookeeper.connection.Factory`."""
        return NativeConnection(
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
            ended=self._forget,
        )
        self.pipes[pipe] = None
        return pipe

    def _forget(self, pipe: Pipe) -> None:
        self.pipes.pop(pipe, None)

    # -- faults between clients and servers

    def cut(self, client: str, server: str = ANY, *, both: bool = True) -> None:
        """Cut a client from a server, or from all; with `both=False` only what the client sends is stopped."""
        self._links.cut(client, server, kind=STORE, both=both)

    def heal(self, client: str = ANY, server: str = ANY, *, both: bool = True) -> None:
        """End cuts between clients and servers. What was sent meanwhile arrives, if its connection exists."""
        self._links.heal(client, server, kind=STORE, both=both)

    def reset(self, client: str) -> int:
        """Break the connections of a client. Returns their number."""
        pipes = [pipe for pipe in self.pipes if pipe.name == client]
        for pipe in pipes:
            pipe.reset()
        return len(pipes)

    def lose(self, client: str, *, done: bool, matches: Callable[[Request], bool] = lambda request: True) -> None:
        """Break a client's connections at its next matching request.

        Args:
            done: the request is executed, and its answer lost; otherwise it is not executed.
        """
        for pipe in self.pipes:
            if pipe.name == client:
                pipe.break_at(Fault(done, matches))

    def expire_sessions(self, client: str, *, notify_after_ms: float = 0.0) -> int:
        """End the sessions of a client at the servers, as after their timeouts. Returns their number.

        Args:
            notify_after_ms: until then the client learns nothing, and believes in its sessions.
        """
        sessions = [pipe.end.session for pipe in self.pipes if pipe.name == client and pipe.end.session]
        if notify_after_ms:
            for server in self.servers:
                self._links.channel(STORE, server.name, client).delay(notify_after_ms)
        return sum(map(self.ensemble.expire, sessions))

    # -- faults of servers

    def crash(self, server: Server) -> None:
        """End the process of a server; its data stays."""
        self.ensemble.crash(server)

    def start(self, server: Server) -> None:
        """Start a server that has crashed."""
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
