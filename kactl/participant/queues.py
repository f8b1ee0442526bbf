"""Bounded queues of a broker under one registration: requests of controllers, and messages of other participants."""

import collections
from typing import Final

import anyio

from kactl.decide.messages.control import Request, Response
from kactl.decide.messages.following import PeerMessage
from kactl.model.errors import BrokerUnreachable

# A sender has one request in flight, with a timeout of half a minute. More requests than this can accumulate only if
# the broker hangs for most of an hour.
REQUESTS_LIMIT: Final = 100
# Messages are handled at once unless the broker hangs. Those beyond are lost, and are repeated at intervals.
MESSAGES_LIMIT: Final = 1_000


class PendingRequest:
    """A queued request. If `response` is None when `done` is set, no response will follow."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.response: Response | None = None
        self.done = anyio.Event()


class RequestQueue:
    """Requests in the order of their arrival. One of them is carried out at a time: the current one."""

    def __init__(self, broker: int) -> None:
        self._broker = broker
        self._waiting: collections.deque[PendingRequest] = collections.deque()
        self._current: PendingRequest | None = None
        self._changed = anyio.Event()
        self._has_ended = False

    async def put(self, request: Request) -> Response:
        """Queue a request, and wait for its response.

        Raises:
            BrokerUnreachable: the queue is full or has ended, or the request failed.
        """
        if self._has_ended:
            raise BrokerUnreachable(self._broker, "it has ended")
        if len(self._waiting) >= REQUESTS_LIMIT:
            raise BrokerUnreachable(self._broker, f"its queue is full with {REQUESTS_LIMIT} requests")
        pending = PendingRequest(request)
        self._waiting.append(pending)
        self._changed.set()
        await pending.done.wait()
        if pending.response is None:
            raise BrokerUnreachable(self._broker, "it ended or failed before it sent a response")
        return pending.response

    def take(self) -> PendingRequest | None:
        """Returns the next request, which becomes the current one; None if none waits."""
        if not self._waiting:
            return None
        self._current = self._waiting.popleft()
        return self._current

    def finish(self, current: PendingRequest) -> None:
        """Return the response of the current request, or its failure, to its sender."""
        self._current = None
        current.done.set()

    async def wait(self) -> None:
        """Wait for a request, or for `wake`."""
        self._changed = anyio.Event()
        await self._changed.wait()

    def wake(self) -> None:
        """End `wait`, because the consumer has something else to do."""
        self._changed.set()

    def end(self) -> None:
        """Fail all requests, also the current one, and all later ones."""
        self._has_ended = True
        unanswered = [*self._waiting] if self._current is None else [self._current, *self._waiting]
        self._waiting.clear()
        for pending in unanswered:
            pending.done.set()


class PeerMessages:
    """Messages in the order of their arrival."""

    def __init__(self) -> None:
        self._messages: collections.deque[PeerMessage] = collections.deque()
        self._arrived = anyio.Event()

    def put(self, message: PeerMessage) -> None:
        """Queue a message; it is lost if the queue is full."""
        if len(self._messages) < MESSAGES_LIMIT:
            self._messages.append(message)
            self._arrived.set()

    async def wait(self) -> None:
        """Wait for a message."""
        while not self._messages:
            self._arrived = anyio.Event()
            await self._arrived.wait()

    def take(self) -> PeerMessage:
        """Returns the next message; there has to be one."""
        return self._messages.popleft()
