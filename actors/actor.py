"""Base of the actors: one task, one inbox, one owner of state.

`Ref.tell` queues a message. `Ref.ask` queues a message and waits for its result. The controller calls `ask` of the
machines, and no machine calls `ask` of the controller: a cycle of such calls would be a deadlock.

An exception raised for a message of `ask` is raised to its caller. One raised for a message of `tell` leaves the actor
and reaches its supervisor. The inbox is a deque with a wake-up. It is an order of magnitude cheaper than a stream,
since draining it needs no task switch for each message.
"""

import asyncio
import collections
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kactl.model.errors import IllegalState, KactlError, Remedy
from kactl.runtime.logs import logger
from kactl.telemetry.event_record import NO_ORIGIN, Origin, present

log = logger(__name__)

M = TypeVar("M")

# A restart of a whole cluster with its notifications fits; a runaway watcher does not.
INBOX_LIMIT: Final = 10_000
# An actor handles messages for this long before it yields to other tasks of the process.
TURN_MS: Final = 2.0


def _no_time() -> float:
    return 0.0


class InboxFull(KactlError):
    """The inbox of an actor is full; the message was not queued."""

    remedy = Remedy.RETRY
    http_status = 503

    def __init__(self, actor: str, limit: int) -> None:
        super().__init__(f"the inbox of {actor} holds {limit} messages and takes no more until it has caught up")


class ActorStopped(KactlError):
    """The actor stopped before it handled the message."""

    remedy = Remedy.RETRY
    http_status = 503

    def __init__(self, actor: str) -> None:
        super().__init__(f"{actor} has stopped")


class Entry(NamedTuple, Generic[M]):
    """A queued message.

    Attributes:
        reply_to: receives the result; None for a message of `tell`.
        put_ms: when it was queued, by the monotonic clock of the inbox.
        origin: what led to it.
    """

    message: M
    reply_to: asyncio.Future[Any] | None
    put_ms: float
    origin: Origin = NO_ORIGIN


class Inbox(Generic[M]):
    """Bounded queue of the messages of one actor.

    Args:
        owner: the actor, for error messages.
        now: a monotonic clock, in ms, for waiting times; without it they are 0.

    Attributes:
        refused: number of messages that were rejected because of the limit.
        abandoned: number of messages that were taken after their caller had stopped waiting.
        waited_ms: how long the message that was taken last had waited.
        origin: what led to that message.
    """

    def __init__(self, owner: str, limit: int = INBOX_LIMIT, *, now: Callable[[], float] = _no_time) -> None:
        self._owner = owner
        self._limit = limit
        self._now = now
        self._entries: collections.deque[Entry[M]] = collections.deque()
        self._wake: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # of the actor
        self._closed = False
        self.waited_ms = 0.0
        self.origin = NO_ORIGIN
        self.refused = 0
        self.abandoned = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def oldest(self) -> M | None:
        """Returns the message that is taken next; None if there is none."""
        return self._entries[0].message if self._entries else None

    @property
    def oldest_ms(self) -> float:
        """Returns how long the oldest message has waited; 0 if there is none."""
        return self._now() - self._entries[0].put_ms if self._entries else 0.0

    def put(self, message: M, reply_to: asyncio.Future[Any] | None = None) -> None:
        """Queue a message.

        Raises:
            InboxFull: the limit is reached; the message was not queued.
            ActorStopped: the inbox is closed.
        """
        self._check_open()
        if self._bounded() >= self._limit:
            self.refused += 1
            raise InboxFull(self._owner, self._limit)
        self._append(Entry(message, reply_to, self._now(), present(traced=reply_to is not None)))

    async def take(self) -> tuple[M, asyncio.Future[Any] | None]:
        """Return the next message and the future of its result; wait for one."""
        self._loop = asyncio.get_running_loop()
        while (entry := self._pop()) is None:
            self._wake = self._loop.create_future()
            await self._wake
        return self._taken(entry)

    def check_loop(self) -> None:
        """Raises IllegalState in another event loop than the actor's, which would not notice the message."""
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise IllegalState(
                f"{self._owner} runs in another event loop than this call, which would wait for ever: call it there, "
                "as by asyncio.run_coroutine_threadsafe, or enter one object for each loop"
            )

    def drain(self) -> list[Entry[M]]:
        """Remove and return all messages, in the order in which they were queued."""
        drained = list(self._entries)
        self._entries.clear()
        return drained

    def refill(self, entries: Iterable[Entry[M]]) -> None:
        """Queue messages that were drained, with their times."""
        for entry in entries:
            self._append(entry)

    def close(self) -> None:
        """Reject further messages, and raise ActorStopped for the waiting callers of `ask`."""
        self._closed = True
        for entry in self.drain():
            if entry.reply_to is not None and not entry.reply_to.done():
                entry.reply_to.set_exception(ActorStopped(self._owner))

    def _check_open(self) -> None:
        if self._closed:
            raise ActorStopped(self._owner)

    def _taken(self, entry: Entry[M]) -> tuple[M, asyncio.Future[Any] | None]:
        self.waited_ms, self.origin = self._now() - entry.put_ms, entry.origin
        if entry.reply_to is not None and entry.reply_to.cancelled():
            self.abandoned += 1
        return entry.message, entry.reply_to

    def _bounded(self) -> int:
        """The number of messages to which the limit applies."""
        return len(self._entries)

    def _append(self, entry: Entry[M]) -> None:
        self._entries.append(entry)
        self._wake_up()

    def _pop(self) -> Entry[M] | None:
        return self._entries.popleft() if self._entries else None

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Ref(Generic[M]):
    """Reference to an actor."""

    def __init__(self, inbox: Inbox[M]) -> None:
        self._inbox = inbox

    def tell(self, message: M) -> None:
        """Queue a message. Raises InboxFull or ActorStopped."""
        self._inbox.put(message)

    async def ask(self, message: M) -> Any:
        """Queue a message, wait for it, and return its result. Raises the exception that the actor raises for it."""
        reply_to: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._inbox.check_loop()
        self._inbox.put(message, reply_to)
        try:
            return await reply_to
        finally:
            # An exception refers to this frame by its traceback: without the cycle, both are freed at once.
            del reply_to


class Actor(Generic[M]):
    """Handles one message after the other. Subclasses implement `receive`."""

    def __init__(
        self,
        name: str,
        *,
        inbox: Inbox[M] | None = None,
        limit: int = INBOX_LIMIT,
        now: Callable[[], float] = _no_time,
    ) -> None:
        self.name = name
        self._now = now
        self._busy_ms = 0.0  # without the message in progress
        self._busy_since_ms: float | None = None
        self.inbox: Inbox[M] = Inbox(name, limit, now=now) if inbox is None else inbox

    @property
    def ref(self) -> Ref[M]:
        return Ref(self.inbox)

    @property
    def busy_ms(self) -> float:
        """Returns for how long messages have been handled, the one in progress included. Waiting inside of a handler,
        as for the store, counts."""
        return self._busy_ms if self._busy_since_ms is None else self._busy_ms + self._now() - self._busy_since_ms

    async def receive(self, message: M) -> Any:
        """Handle a message and return its result."""
        raise NotImplementedError

    async def run(self) -> None:
        """Handle messages until cancelled. After an error it can be run again: the inbox is kept."""
        try:
            since_ms = self._now()
            while True:
                await self._one(*await self.inbox.take())  # without a variable that keeps the last message
                # Neither `take` nor `receive` has to suspend.
                if self._now() - since_ms >= TURN_MS:
                    await asyncio.sleep(0)
                    since_ms = self._now()
        except asyncio.CancelledError:
            self.inbox.close()
            raise

    async def _one(self, message: M, reply_to: asyncio.Future[Any] | None) -> None:
        # Busy time is measured here: another frame with `reply_to` would be in the traceback's cycle.
        self._busy_since_ms = self._now()
        try:
            if reply_to is None:
                await self.receive(message)
                return
            try:
                result = await self.receive(message)
            except Exception as error:
                if reply_to.cancelled():
                    # The caller was cancelled; that must not end the actor.
                    log.info("%s: %s failed after its caller was cancelled: %r", self.name, message, error)
                    return
                reply_to.set_exception(error)
                del reply_to  # as in `Ref.ask`
            except BaseException:
                if not reply_to.done():
                    reply_to.set_exception(ActorStopped(self.name))
                raise
            else:
                if not reply_to.done():
                    reply_to.set_result(result)
        finally:
            self._busy_ms = self.busy_ms
            self._busy_since_ms = None
