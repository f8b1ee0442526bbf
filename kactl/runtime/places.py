"""Places of a server's connections, and which of them make room for others.

    enter ──▶ waits in a rank ◀──set_rank──▶ at work
                    └── make_way ──┬── end of its task ──▶ the place is free

A connection that waits for its peer has a rank. The lowest rank makes way first, and in a rank the connection that has
waited for longest. One at work never does. Each server has its own rule for the limits at which a newcomer needs room.
"""

import asyncio
import itertools
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterator, KeysView, Mapping
from typing import Any, Generic, TypeVar

from .tasks import Tasks

# An address or IPv6 network; or what a server has identified, as a broker.
Owner = str | int


class Place:
    """One connection.

    Attributes:
        owner: the unit whose connections are counted together; of a stranger `group_of` its address.
        rank: None at work.
        since_s: the time since which it has its rank.
        task: what `Places.run` runs.
        is_linked: the task has handed the socket over. Otherwise socket and place are released at its end.
    """

    owner: Owner
    rank: int | None = None
    since_s: float = 0.0
    task: "asyncio.Task[Any] | None" = None
    is_linked: bool = False

    def make_way(self) -> None:
        """Close the connection for another one."""
        if self.task is not None:
            self.task.cancel("it makes room for another connection")


P = TypeVar("P", bound=Place)


class Places(Generic[P]):
    """All connections of one server.

    Args:
        name: of the server, for the log.
        now_s: a monotonic clock.
    """

    def __init__(self, name: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self.now_s = now_s
        self._tasks = Tasks(name)
        self._owners: dict[Owner, dict[P, None]] = {}  # the oldest connection first
        self._ranks: defaultdict[int, dict[P, None]] = defaultdict(dict)  # the longest wait first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, place: P) -> bool:
        return place in self._owners.get(place.owner, ())

    @property
    def owners(self) -> Mapping[Owner, Collection[P]]:
        return self._owners

    def of(self, owner: Owner) -> KeysView[P]:
        """Returns the connections of an owner, the oldest first."""
        return self._owners.get(owner, {}).keys()

    def waiting(self, *ranks: int, grace_s: float = 0.0) -> Iterator[P]:
        """Yields the connections that have waited for that long, in the order in which they make way.

        Args:
            ranks: by default all.
        """
        before_s = self.now_s() - grace_s
        for rank in ranks or sorted(self._ranks):
            yield from itertools.takewhile(lambda place: place.since_s <= before_s, self._ranks[rank])

    def first_of(self, owner: Owner, *ranks: int, grace_s: float = 0.0) -> P | None:
        """Returns the connection of an owner that makes way first. It looks at the owner's own ones only."""
        before_s = self.now_s() - grace_s
        own = (place for place in self.of(owner) if place.rank in ranks and place.since_s <= before_s)
        return min(own, key=lambda place: (place.rank, place.since_s), default=None)

    def replaceable(self) -> Iterator[P]:
        """Yields the connections that make way if there is no file descriptor left, in this order."""
        return self.waiting()

    def enter(self, place: P, rank: int | None) -> None:
        self._owners.setdefault(place.owner, {})[place] = None
        self._count += 1
        self.set_rank(place, rank)

    def set_rank(self, place: P, rank: int | None) -> None:
        """Note for what a connection waits. One that has this rank keeps its turn; one that has left, nothing."""
        if place.rank == rank or place not in self:
            return
        if place.rank is not None:
            del self._ranks[place.rank][place]
        place.rank, place.since_s = rank, self.now_s()
        if rank is not None:
            self._ranks[rank][place] = None

    def move(self, place: P, owner: Owner, rank: int | None) -> None:
        """Count a connection as one of another owner."""
        self.leave(place)
        place.owner = owner
        self.enter(place, rank)

    def leave(self, place: P) -> None:
        """Free the place of a connection, if it has not been freed."""
        if place not in self:
            return
        self.set_rank(place, None)
        own = self._owners[place.owner]
        del own[place]
        if not own:
            del self._owners[place.owner]
        self._count -= 1

    def replace(self, place: P) -> None:
        """Close a connection. Its place is free at once: its descriptor is, almost before the next one is accepted."""
        self.leave(place)
        place.make_way()

    def make_room(self, count: int) -> int:
        """Close up to `count` connections. Returns the number."""
        closed = list(itertools.islice(self.replaceable(), count))
        for place in closed:
            self.replace(place)
        return len(closed)

    def run(self, place: P, accepted: socket.socket, work: Coroutine[Any, Any, None]) -> None:
        """Serve a connection in a task, which may be cancelled before its first step."""

        def ended(_: "asyncio.Task[None]") -> None:
            if not place.is_linked:
                accepted.close()
                self.leave(place)

        place.task = self._tasks.spawn(work)
        place.task.add_done_callback(ended)

    async def close(self) -> None:
        """Cancel all tasks, and wait for their ends."""
        await self._tasks.close()
