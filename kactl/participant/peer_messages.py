"""Bounded queue of the messages of other participants."""

import collections
from typing import Final

import anyio

from kactl.messages.following import PeerMessage

# Messages are handled at once unless the broker hangs. Those beyond are lost, and are repeated at intervals.
MESSAGES_LIMIT: Final = 1_000


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
