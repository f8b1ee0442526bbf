"""Connections without a complete handshake: how many there may be, and which of them continues next.

    SILENT ──first byte──▶ WAITING ──a place is free──▶ HANDSHAKE ──▶ known
       └── time limit, displaced ─┴── time limit ────────────┴──▶ closed

Many programs may share one address, so an address never has a limit of its own while no other one needs the room. A
handshake that runs is not interrupted for a newcomer of its address: a crowd whose handshakes displace each other
completes none. Each state has a time limit, after which a place or the room of a connection is free again.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Final

from kactl.runtime.addresses import group_of
from kactl.runtime.places import Owner, Place, Places

from .limits import Limits

# Addresses with a complete handshake that are remembered: as many as a large cluster has processes.
_KNOWN_MAX: Final = 4_096
# A peer sends its first byte at once; one in a busy process may need this long.
_FRESH_S: Final = 1.0


class Stranger(Place):
    """A connection without a complete handshake. Its owner is its address.

    Attributes:
        spoke: set once something can be read.
    """

    def __init__(self, host: str) -> None:
        self.owner = group_of(host)
        self.spoke = asyncio.Event()


class Strangers(Places[Stranger]):
    """All strangers of one listener, each with its task."""

    def __init__(self, limits: Limits) -> None:
        super().__init__("the network")
        self._limits = limits
        # Addresses that have completed a handshake, the latest one last.
        self._known: dict[Owner, None] = {}
        self._running: Counter[Owner] = Counter()  # handshakes, by address
        self._waiting: dict[Owner, dict[asyncio.Future[None], None]] = {}  # the newest last

    def admit(self, host: str) -> Stranger | None:
        """Returns the stranger of a new connection, for which another one may be closed.

        There is none if the new connection is the one to close. The room is shared by addresses: one that has
        more than its places gives way first, then one without a complete handshake, then the one with the most
        strangers.
        """
        newcomer = Stranger(host)
        if len(self) >= self._limits.strangers:
            sizes = Counter({owner: len(own) for owner, own in self.owners.items()})
            sizes[newcomer.owner] += 1
            places = self._limits.strangers_per_address
            owner = max(
                sizes,
                key=lambda name: (sizes[name] > places, name not in self._known, sizes[name], name == newcomer.owner),
            )
            # The oldest one that sends nothing, or else the newest one, whose handshake would be completed last.
            newest = newcomer if owner == newcomer.owner else [*self.of(owner)][-1]
            displaced = next(filter(self._is_silent, self.of(owner)), newest)
            if displaced is newcomer:
                return None
            self.replace(displaced)
        self.enter(newcomer, 0)
        return newcomer

    def replaceable(self) -> Iterator[Stranger]:
        """Yields strangers that have sent nothing for a moment."""
        return filter(self._is_silent, self.waiting())

    def _is_silent(self, stranger: Stranger) -> bool:
        return not stranger.spoke.is_set() and stranger.since_s <= self.now_s() - _FRESH_S

    @contextlib.asynccontextmanager
    async def turn(self, stranger: Stranger) -> AsyncIterator[None]:
        """Wait for a place for a handshake, and hold it. The address counts as known if the block succeeds."""
        turn, group = asyncio.get_running_loop().create_future(), stranger.owner
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

    def _remember(self, group: Owner) -> None:
        self._known.pop(group, None)
        self._known[group] = None
        if len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]
