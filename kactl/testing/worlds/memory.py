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
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kactl.stores.memory import MemoryState, MemoryStore

from ..clock import LoopClock
from ..history import After, History, Writes, Written
from ..links import ANY, Links
from ..loop import SimLoop
from ..nodes import Node, on
from .memory_link import KIND, SimLink


class StoreFaults(msgspec.Struct):
    """Rates of random faults, as probabilities; they may be changed during a run.

    Attributes:
        lost_requests: an operation never reaches the server: StoreUnavailable, nothing is done.
        lost_answers: the answer is lost: StoreUnavailable, and the operation is done.
        refusals: the server refuses an operation with StoreError; nothing is done.
        late_events: an event, and all that the server sends after it, is delayed by up to `late_ms`.
        doubled_events: an event is sent twice.
        coalesced_events: an event is left out, if an equal one has not reached the client yet.
    """

    lost_requests: float = 0.0
    lost_answers: float = 0.0
    refusals: float = 0.0
    late_events: float = 0.0
    late_ms: float = 1_000.0
    doubled_events: float = 0.0
    coalesced_events: float = 0.0


class MemoryWorld:
    """A simulated in-memory store.

    Args:
        history: receives the events `store.*`.
        links: latencies, cuts and holds; the links are of kind `store`.
        name: of the server's node.
        session_timeout_ms: of the clients' own sessions.
        writes: the operations to record as `store.commit`, by name.

    Attributes:
        state: the stored data. A test may read it; changes by hand go through methods of the world.
        faults: random faults.
        stops: how often the server was stopped.
    """

    def __init__(
        self,
        loop: SimLoop,
        history: History,
        links: Links,
        *,
        name: str = "store",
        session_timeout_ms: float = 6_000.0,
        writes: Mapping[str, Writes] | None = None,
    ) -> None:
        self.loop = loop
        self.history = history
        self.links = links
        self.session_timeout_ms = session_timeout_ms
        self.writes = writes or {}
        self.node = loop.node(name)
        self.state = MemoryState()
        self.faults = StoreFaults()
        self.is_stopped = False
        self.stops = 0
        self._clients: dict[str, list[SimLink]] = {}
        self._txns = 0

    @property
    def session_end_ms(self) -> float:
        """The longest time from the last message of a client to the end of its session."""
        return self.session_timeout_ms

    def client(self, node: Node) -> MemoryStore:
        """Returns a client for the programs of one node, with a session and links of its own."""
        link = SimLink(self, node)
        self._clients.setdefault(node.name, []).append(link)
        return MemoryStore(self.state, clock=LoopClock(self.loop), link=link)

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

    def delay(self, node: str, delay_ms: float) -> None:
        """Let nothing that the server sends to a node from now on arrive within this time."""
        self.links.channel(KIND, self.node.name, node).delay(delay_ms)

    def expire_session(self, node: str, *, notify_after_ms: float = 0.0) -> None:
        """End the sessions of a node's clients at the server now.

        Args:
            notify_after_ms: time during which nothing of it reaches the node, answers included.
        """
        self.delay(node, notify_after_ms)
        for link in self._clients.get(node, ()):
            link.connection.expire()

    def expire_brokers(self, node: str) -> None:
        """End the sessions of the brokers on a node at the server now."""
        for link in self._clients.get(node, ()):
            link.connection.expire_brokers()

    def stop(self) -> None:
        """Stop the server. Operations on their way are lost, answers and events arrive. Sessions do not end."""
        if not self.is_stopped:
            self.is_stopped = True
            self.stops += 1
            self.loop.pause(self.node)
            self.links.cut(ANY, self.node.name, kind=KIND, both=False)

    def start(self) -> None:
        """Start the server again. All sessions have their whole timeout from now on."""
        if self.is_stopped:
            self.is_stopped = False
            with on(self.node):
                for link in self._links():
                    link.connection.restart()
            self.links.heal(ANY, self.node.name, kind=KIND, both=False, deliver=False)
            self.loop.resume(self.node)

    def set_faults(self, rates: Mapping[str, float]) -> None:
        """Set the rates of random faults by name; those that are left out have their defaults."""
        self.faults = StoreFaults(**rates)

    def remove_topic(self, topic: str) -> None:
        """Remove a topic from the store by hand, as an operator with a tool of the store does."""
        with on(self.node):
            after = self.before("remove_topic", topic)
            self.state.delete_topic(topic)
            self.record("", "remove_topic", after(None), sent=len(self.history.events))

    def close(self) -> None:
        """Nothing remains of this store."""

    # -- for the links -------------------------------------------------------------------------------------------------

    def next_txn(self) -> int:
        """Returns the number of a new operation."""
        self._txns += 1
        return self._txns

    def before(self, operation: str, *args: Any, **kwargs: Any) -> After:
        """Returns the function that states what an operation has written, once it has a result."""
        writes = self.writes.get(operation)
        return _nothing if writes is None else writes(self.state, *args, **kwargs)

    def forget(self, link: SimLink) -> None:
        """Forget a client that has left."""
        with contextlib.suppress(ValueError):
            self._clients[link.node.name].remove(link)

    def record(
        self,
        client: str,
        operation: str,
        written: Written,
        *,
        sent: int,
        fence: int | None = None,
        txn: int = 0,
        outcome: str = "ok",
    ) -> None:
        """Record a `store.commit`."""
        if not self.writes:
            return
        if outcome == "ok" and written.conflicts and not written.ops:
            outcome = "conflict"
        self.history.record(
            "store.commit",
            node=self.node.name,
            txn=txn or self.next_txn(),
            client=client,
            operation=operation,
            sent=sent,
            fence=fence,
            ops=written.ops,
            conflicts=written.conflicts,
            outcome=outcome,
        )

    def _links(self) -> Iterator[SimLink]:
        for links in self._clients.values():
            yield from links


def _nothing(result: Any) -> Written:
    return Written([], [])
