"""Connections without a complete handshake: how many there may be, and which of them continues next.

    SILENT ──first byte──▶ WAITING ──a place is free──▶ HANDSHAKE ──▶ known
       └── time limit, displaced ─┴── time limit ────────────┴──▶ closed

Many programs may share one address, so an address never has a limit of its own while no other one needs the room. A
handshake that runs is not interrupted for a newcomer of its address: a crowd whose handshakes displace each other
completes none. Each state has a time limit, after which a place or the room of a connection is free again.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from kactl.runtime.addresses import group_of

from .limits import Limits

# Addresses with a complete handshake that are remembered: as many as a large cluster has processes.
_KNOWN_MAX: Final = 4_096
# A peer sends its first byte at once; one in a busy process may need this long.
_FRESH_S: Final = 1.0


class Stranger:
    """A connection without a complete handshake.

    Attributes:
        group: `group_of` its host, the unit that counts as an address.
        spoke: set once something can be read.
        is_linked: whether a link owns the socket.
    """

    def __init__(self, host: str, now_s: float) -> None:
        self.group = group_of(host)
        self.spoke = asyncio.Event()
        self.since_s = now_s
        self.is_linked = False


class Strangers:
    """All strangers of one listener, each with its task."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Stranger, asyncio.Task[None]] = {}  # the oldest first
        # Addresses that have completed a handshake, the latest one last.
        self._known: dict[str, None] = {}
        self._running: Counter[str] = Counter()  # handshakes, by address
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}  # the newest last

    def admit(self, host: str) -> tuple[Stranger | None, "asyncio.Task[None] | None"]:
        """Returns the stranger of a new connection, and the task of the one that it displaces.

        There is no stranger if the new connection is the one to close. The room is shared by addresses: one that has
        more than its places gives way first, then one without a complete handshake, then the one with the most
        strangers.
        """
        newcomer = Stranger(host, self._loop.time())
        if len(self._tasks) < self._limits.strangers:
            return newcomer, None
        sizes = Counter(stranger.group for stranger in (*self._tasks, newcomer))
        places = self._limits.strangers_per_address
        group = max(
            sizes, key=lambda name: (sizes[name] > places, name not in self._known, sizes[name], name == newcomer.group)
        )
        # The oldest one that sends nothing, or else the newest one, whose handshake would be completed last.
        own = [stranger for stranger in self._tasks if stranger.group == group]
        late_s = newcomer.since_s - _FRESH_S
        silent = (stranger for stranger in own if stranger.since_s <= late_s and not stranger.spoke.is_set())
        displaced = next(silent, newcomer if group == newcomer.group else own[-1])
        return (None, None) if displaced is newcomer else (newcomer, self._tasks.pop(displaced))

    def make_room(self, count: int) -> int:
        """Close up to `count` strangers that have sent nothing for a moment. Returns the number."""
        late_s = self._loop.time() - _FRESH_S
        silent = [each for each in self._tasks if each.since_s <= late_s and not each.spoke.is_set()][:count]
        for stranger in silent:
            self._tasks.pop(stranger).cancel("no file descriptor is left")
        return len(silent)

    def began(self, stranger: Stranger, task: "asyncio.Task[None]", accepted: socket.socket) -> None:
        """Count a stranger until the end of its task, which may be cancelled before its first step."""

        def ended(_: "asyncio.Task[None]") -> None:
            self._tasks.pop(stranger, None)
            if not stranger.is_linked:
                accepted.close()

        self._tasks[stranger] = task
        task.add_done_callback(ended)

    @contextlib.asynccontextmanager
    async def place(self, stranger: Stranger) -> AsyncIterator[None]:
        """Wait for a place for a handshake, and hold it. The address counts as known if the block succeeds."""
        turn, group = self._loop.create_future(), stranger.group
        self._waiting.setdefault(group, {})[turn] = None
        self._give_places()
        try:
            await turn
            yield
            self._remember(group)
        finally:
            if turn.cancelled():
                self._waiting.get(group, {}).pop(turn, None)
            else:
                self._running[group] -= 1
            self._give_places()

    def _give_places(self) -> None:
        """Fill free places from the address with the fewest handshakes, beginning with its newest connection.

        The newest goes first because after an outage the oldest have given up, or are about to. One address has half of
        the places at most, and known addresses go first.
        """
        limit = self._limits.strangers_per_address
        while self._running.total() < 2 * limit:
            groups = (group for group, turns in self._waiting.items() if turns and self._running[group] < limit)
            group = min(groups, key=lambda group: (group not in self._known, self._running[group]), default=None)
            if group is None:
                break
            turn, _ = self._waiting[group].popitem()
            if not turn.done():  # its task may have been cancelled in this iteration of the loop
                turn.set_result(None)
                self._running[group] += 1
        self._running = +self._running
        for group in [group for group, turns in self._waiting.items() if not turns]:
            del self._waiting[group]

    def _remember(self, group: str) -> None:
        self._known.pop(group, None)
        self._known[group] = None
        if len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]
