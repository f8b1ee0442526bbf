"""In-memory store without latency or faults, for simulated clusters."""

from kactl.stores.memory import MemoryState, MemoryStore
from kactl.testing.clock import LoopClock
from kactl.testing.loop import SimLoop
from kactl.testing.nodes import Node
from kactl.testing.stored import MemoryStored


class PlainWorld:
    """Clients that share one state. A killed client's sessions end after the session timeout."""

    def __init__(self, loop: SimLoop, *, session_timeout_ms: float) -> None:
        self._loop = loop
        self._state = MemoryState()
        self._session_timeout_ms = session_timeout_ms
        self._opened: dict[str, list[tuple[Node, MemoryStore, set[int]]]] = {}
        self.stored = MemoryStored(self._state)

    def client(self, node: Node) -> MemoryStore:
        """Returns a client for a new process."""
        store = MemoryStore(self._state, clock=LoopClock())
        self._opened.setdefault(node.name, []).append((node, store, set()))
        return store

    def killed(self, node: Node) -> None:
        """End the sessions of a killed process after their timeout."""
        for each, store, _ in self._opened.get(node.name, ()):
            if each is node:
                self._loop.call_later(self._session_timeout_ms / 1000, self._end, store)

    def _end(self, store: MemoryStore) -> None:
        sessions = [store._session, *(session._id for session in store._broker_sessions)]
        for session in sessions:
            if session is not None:
                self._state.end_session(session)

    def expire_session(self, name: str) -> None:
        """End the session of the present process of that name."""
        node, store, _ = self._opened[name][-1]
        if node.state == "running" and store._session is not None:
            store.expire()
