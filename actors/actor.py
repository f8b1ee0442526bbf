"""What an actor is: one task, one inbox, one owner of state.

`tell` puts a message into the inbox and goes on; `ask` waits for what the actor makes of it. Asks go down, from the
controller to the machines, never back up: a cycle of asks is a deadlock.

An exception that an asked message raises goes to the asker. One that a told message raises leaves the actor, and so
reaches whoever supervises it. The inbox is a deque with a wake-up: an order of magnitude cheaper than a stream, since
draining it needs no switch of tasks for each message.
"""

import asyncio
import collections
import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kactl.errors import KactlError, Remedy
from kactl.runtime.logs import logger

log = logger(__name__)

M = TypeVar("M")

# A restart of a whole cluster with its notifications fits; a runaway watcher does not.
INBOX_LIMIT: Final = 10_000
# How many kinds of messages are told apart by who takes some before others.
LANES: Final = 3
# How many messages may go before one that nobody waits for.
OVERTAKEN_MAX: Final = 20
# For how long an actor goes on without letting others of the process have their turn, while messages wait.
TURN_MS: Final = 2.0


def _no_time() -> float:
    return 0.0


class InboxFull(KactlError):
    """An actor does not keep up; the message was not taken."""

    remedy = Remedy.RETRY
    http_status = 503

    def __init__(self, actor: str, limit: int) -> None:
        super().__init__(f"the inbox of {actor} holds {limit} messages and takes no more until it has caught up")


class ActorStopped(KactlError):
    """The actor had ended before it came to the message."""

    remedy = Remedy.RETRY
    http_status = 503

    def __init__(self, actor: str) -> None:
        super().__init__(f"{actor} has stopped")


def _one_lane(message: object) -> int:
    return 0


class Entry(NamedTuple, Generic[M]):
    """A message that waits. `number` tells the order in which they came."""

    number: int
    message: M
    reply_to: asyncio.Future[Any] | None
    once: bool
    put_ms: float


class Inbox(Generic[M]):
    """Messages in the order in which they came, each with the future of its asker, if any asked.

    They stand in lanes, so that the oldest of one kind can be found. Those of lane 2 go before those of lane 1, and
    otherwise the order is kept. What nobody waits for stands in lane 1; it is not overtaken for ever.

    Args:
        now: the time in ms, on a clock that never goes back, by which waits are told; without it they are 0.
        lane: in which of LANES lanes a message waits.
    """

    def __init__(
        self,
        owner: str,
        limit: int = INBOX_LIMIT,
        *,
        now: Callable[[], float] = _no_time,
        lane: Callable[[M], int] = _one_lane,
    ) -> None:
        self._owner = owner
        self._limit = limit
        self._now = now
        self._lane = lane
        self._lanes: tuple[collections.deque[Entry[M]], ...] = tuple(collections.deque() for _ in range(LANES))
        self._put = 0  # how many there ever were
        self._overtaken = 0  # how many of lane 2 went before those of lane 1, since one of them was taken
        self.waited_ms = 0.0  # for how long the message that was taken last had waited
        self._wake: asyncio.Future[None] | None = None
        self._once: set[M] = set()  # what `put_once` left and nobody has taken yet
        self._closed = False
        self.refused = 0  # how often the limit was met

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    @property
    def oldest_ms(self) -> float:
        """For how long the oldest message has waited; 0 if none does."""
        return max((self._now() - lane[0].put_ms for lane in self._lanes if lane), default=0.0)

    def oldest_ms_in(self, lane: int) -> float:
        """The same of one lane."""
        return self._now() - self._lanes[lane][0].put_ms if self._lanes[lane] else 0.0

    def in_lane(self, lane: int) -> Sequence[Entry[M]]:
        """What waits in one lane, in order. Not to be kept."""
        return self._lanes[lane]

    def waiting(self) -> Iterator[tuple[M, float, bool]]:
        """What waits, in order: each message, for how long, and whether somebody waits for its answer."""
        now_ms = self._now()
        for entry in heapq.merge(*self._lanes, key=_number):
            yield entry.message, now_ms - entry.put_ms, entry.reply_to is not None

    def put(self, message: M, reply_to: asyncio.Future[Any] | None = None, *, once: bool = False) -> None:
        """Take a message.

        Raises:
            InboxFull: the limit is met; the message was not taken.
            ActorStopped: nobody will read it.
        """
        if self._closed:
            raise ActorStopped(self._owner)
        # What was put once is bounded by how many things there are to look at, and takes no room from others.
        if not once and len(self) - len(self._once) >= self._limit:
            self.refused += 1
            raise InboxFull(self._owner, self._limit)
        self._lanes[self._lane(message)].append(Entry(self._put, message, reply_to, once, self._now()))
        self._put += 1
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def put_once(self, message: M) -> None:
        """Take a message that says no more than "look again", unless the same waits already. It has to be hashable.

        It is taken above the limit, too: what tells of a change only once, as a watch does, must not be lost.

        Raises:
            ActorStopped: nobody will read it.
        """
        if message not in self._once:
            self.put(message, once=True)
            self._once.add(message)

    async def take(self) -> tuple[M, asyncio.Future[Any] | None]:
        """The oldest message; waits for one."""
        while not (oldest := self._oldest()):
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        return self._taken(oldest)

    def take_from(self, *lanes: int) -> tuple[M, asyncio.Future[Any] | None] | None:
        """The oldest message of the first of these lanes in which one waits; None if none does."""
        for lane in lanes:
            if self._lanes[lane]:
                return self._taken(self._lanes[lane])
        return None

    def _oldest(self) -> collections.deque[Entry[M]] | None:
        """The lane of the oldest message, or of one that goes before it; None if nothing waits."""
        taken = [lane for lane in self._lanes if lane]
        if not taken:
            return None
        oldest = min(taken, key=lambda lane: lane[0].number)
        patient, hasty = self._lanes[1], self._lanes[2]
        if oldest is not patient:
            return oldest
        self._overtaken = self._overtaken + 1 if hasty and self._overtaken < OVERTAKEN_MAX else 0
        return hasty if self._overtaken else patient

    def _taken(self, lane: collections.deque[Entry[M]]) -> tuple[M, asyncio.Future[Any] | None]:
        entry = lane.popleft()
        if entry.once:
            self._once.discard(entry.message)
        self.waited_ms = self._now() - entry.put_ms
        return entry.message, entry.reply_to

    def drain(self) -> list[tuple[M, asyncio.Future[Any] | None]]:
        """All messages, taken out at once."""
        drained = [(entry.message, entry.reply_to) for entry in heapq.merge(*self._lanes, key=_number)]
        for lane in self._lanes:
            lane.clear()
        self._once.clear()
        return drained

    def close(self) -> None:
        """Take nothing any more, and tell those who still wait for an answer."""
        self._closed = True
        for _, reply_to in self.drain():
            if reply_to is not None and not reply_to.done():
                reply_to.set_exception(ActorStopped(self._owner))


def _number(entry: Entry[Any]) -> int:
    return entry.number


class Ref(Generic[M]):
    """How others know an actor."""

    def __init__(self, inbox: Inbox[M]) -> None:
        self._inbox = inbox

    def tell(self, message: M) -> None:
        """Leave a message. Raises InboxFull or ActorStopped."""
        self._inbox.put(message)

    async def ask(self, message: M) -> Any:
        """Leave a message and wait for its result; what it raises, this raises."""
        reply_to: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._inbox.put(message, reply_to)
        return await reply_to


class Actor(Generic[M]):
    """The loop. Subclasses say in `receive` what becomes of a message."""

    def __init__(
        self,
        name: str,
        *,
        limit: int = INBOX_LIMIT,
        now: Callable[[], float] = _no_time,
        lane: Callable[[M], int] = _one_lane,
    ) -> None:
        self.name = name
        self._now = now
        self.inbox: Inbox[M] = Inbox(name, limit, now=now, lane=lane)

    @property
    def ref(self) -> Ref[M]:
        return Ref(self.inbox)

    async def receive(self, message: M) -> Any:
        """What becomes of a message; the result is the asker's."""
        raise NotImplementedError

    async def run(self) -> None:
        """Take one message after the other, until cancelled. After an error it can be run again: the inbox is kept."""
        try:
            since_ms = self._now()
            while True:
                message, reply_to = await self.inbox.take()
                await self._one(message, reply_to)
                # Neither taking nor handling a message needs to wait for anything.
                if self._now() - since_ms >= TURN_MS:
                    await asyncio.sleep(0)
                    since_ms = self._now()
        except asyncio.CancelledError:
            self.inbox.close()
            raise

    async def _one(self, message: M, reply_to: asyncio.Future[Any] | None) -> None:
        if reply_to is None:
            await self.receive(message)
            return
        try:
            result = await self.receive(message)
        except Exception as error:
            if reply_to.cancelled():
                # Whoever asked has given up, which must not be the end of the actor.
                log.info("%s: nobody waits any more to hear that %s failed: %r", self.name, message, error)
                return
            reply_to.set_exception(error)
        except BaseException:
            if not reply_to.done():
                reply_to.set_exception(ActorStopped(self.name))
            raise
        else:
            if not reply_to.done():
                reply_to.set_result(result)
