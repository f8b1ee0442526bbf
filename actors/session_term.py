"""Sessions of one controllership, and what waits for them."""

import collections
from collections.abc import Iterable, Mapping

import anyio

from kactl.decide.machines.remote_sessions import RemoteSession, SessionTable
from kactl.model import Broker, Endpoint, Fence


class SessionTerm:
    """The sessions of one controllership, and what waits for them.

    Attributes:
        loaded: set when the registrations of the predecessor are known, or the controllership has ended.
        over: set when the controllership has ended.
    """

    def __init__(self, fence: Fence, elected_ns: int) -> None:
        self.fence = fence
        self.table = SessionTable(elected_ns)
        self.loaded = anyio.Event()
        self.over = anyio.Event()
        self.checks_in_flight = 0
        self.peers: dict[int, Endpoint] = {}  # of all brokers
        self._began = anyio.Event()
        self._ending: set[int] = set()  # broker epochs of the sessions whose ends are being stored
        self._ends_tried = anyio.Event()
        self._locks: collections.defaultdict[int, anyio.Lock] = collections.defaultdict(anyio.Lock)

    def lock(self, broker: int) -> anyio.Lock:
        """Returns the lock of the registration of a broker: requests of its sessions are carried out in order."""
        return self._locks[broker]

    def know(self, brokers: Mapping[int, Broker]) -> None:
        """Remember the addresses of all registered brokers."""
        self.peers = {broker.id: broker.peer for broker in brokers.values() if broker.peer is not None}

    def ends_begin(self, sessions: Iterable[RemoteSession]) -> None:
        """The ends of some sessions are stored next."""
        self._ending.update(session.epoch for session in sessions)

    def end_tried(self, session: RemoteSession) -> None:
        """The end of a session was stored, or could not be."""
        self._ending.discard(session.epoch)
        if not self._ending:
            self.no_ends()

    def no_ends(self) -> None:
        """Wake the task that waits for ends."""
        self._ending.clear()
        self._ends_tried.set()
        self._ends_tried = anyio.Event()

    async def wait_for_ends(self) -> None:
        """Wait until the ends in progress are stored, or could not be."""
        if self._ending:
            await self._ends_tried.wait()

    def began(self) -> None:
        """Wake the tasks that wait for a session."""
        self._began.set()
        self._began = anyio.Event()

    async def wait_for_sessions(self) -> int:
        """Wait until there is a session. Returns the shortest timeout, in ms."""
        while (timeout_ms := self.table.timeout_ms_min) is None:
            await self._began.wait()
        return timeout_ms
