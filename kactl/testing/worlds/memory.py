"""In-memory store as a simulated server: a node of its own, behind links with delays and faults.

    client node                                   server node
    MemoryStore ──▶ SimLink ──channel──▶ MemoryWorld ──▶ ServerConnection ──▶ MemoryState
    listener   ◀──         ◀──channel── answers and events, in one order

The client code is the product's. Faults act between client and server: a lost answer is lost before the client's code
has seen it.

Each client's own session lasts as long as messages of the client reach the server. It ends at the server first; the
client learns of it with the next message that reaches it. Until then the client believes in its session.
"""

import contextlib
from collections.abc import Callable

from kactl.stores.base import StoreEvent
from kactl.stores.memory import MemoryState, MemoryStore

from ..clock import LoopClock
from ..links import Links
from ..loop import SimLoop
from ..nodes import Node
from .memory_connection import SimConnection
from .memory_link import KIND, SimLink


class MemoryWorld:
    """A simulated in-memory store.

    Args:
        links: latencies, cuts and holds; the links are of kind `store`.
        name: of the server's node.
        session_timeout_ms: of the clients' own sessions.

    Attributes:
        state: the stored data. A test may read it.
        lost_answers: probability that an operation is done and its answer lost: StoreUnavailable.
    """

    def __init__(
        self, loop: SimLoop, links: Links, *, name: str = "store", session_timeout_ms: float = 6_000.0
    ) -> None:
        self.loop = loop
        self.links = links
        self.session_timeout_ms = session_timeout_ms
        self.node = loop.node(name)
        self.state = MemoryState()
        self.lost_answers = 0.0
        self.clients: dict[str, list[SimLink]] = {}

    def client(self, node: Node) -> MemoryStore:
        """Returns a client for the programs of one node, with a session and links of its own."""
        link = self.new_link(node)
        self.clients.setdefault(node.name, []).append(link)
        return MemoryStore(self.state, clock=LoopClock(self.loop), link=link)

    def new_link(self, node: Node) -> SimLink:
        """Returns the link of a new client."""
        return SimLink(self, node)

    def new_connection(self, client: str, send: Callable[[StoreEvent], None]) -> SimConnection:
        """Returns the server's side of a new client, the name of whose node is `client`."""
        return SimConnection(self, send)

    def forget(self, link: SimLink) -> None:
        """Forget a client that has left."""
        with contextlib.suppress(ValueError):
            self.clients[link.node.name].remove(link)

    # -- faults --------------------------------------------------------------------------------------------------------

    def cut(self, node: str, *, to_server: bool = True, to_client: bool = True) -> None:
        """Cut the link between a node and the server, in one direction or in both, until `heal`."""
        if to_server:
            self.links.cut(node, self.node.name, kind=KIND, both=False)
        if to_client:
            self.links.cut(self.node.name, node, kind=KIND, both=False)

    def heal(self, node: str, *, deliver: bool = True) -> None:
        """End the cuts between a node and the server.

        Args:
            deliver: execute the operations that were sent during the cut; otherwise they are lost, as with a connection
                that breaks: they fail, and the client renews its session at once. What the server sent is always
                delivered.
        """
        self.links.heal(node, self.node.name, kind=KIND, both=False, deliver=deliver)
        self.links.heal(self.node.name, node, kind=KIND, both=False)

    def expire_session(self, node: str, *, notify_after_ms: float = 0.0) -> None:
        """End the sessions of a node's clients at the server now.

        Args:
            notify_after_ms: time during which nothing of it reaches the node, answers included.
        """
        self.links.channel(KIND, self.node.name, node).delay(notify_after_ms)
        for link in self.clients.get(node, ()):
            link.connection.expire()
