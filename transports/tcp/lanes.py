"""Messages that wait to be written to a link, without I/O.

One part is taken at a time, from the most urgent lane that has one, so that a message waits for at most one part of a
less urgent one. Within a lane messages keep their order and are not mixed.
"""

import collections
from collections.abc import Iterator
from typing import Final

from kactl.model.errors import KactlError

from .framing import Lane, Message, frames_of


class LaneFull(KactlError):
    """A lane has reached its limit: the peer reads more slowly than this process writes."""

    def __init__(self, lane: Lane, queued: int) -> None:
        super().__init__(f"{queued} bytes wait in the lane of {lane.name.lower()}: the peer does not read them")


class Lanes:
    """Queues of one link.

    Args:
        part: size of a part, header included.
        limit: a lane with this many bytes accepts no more. A single message may be larger.
    """

    def __init__(self, *, part: int, limit: int) -> None:
        self._part = part
        self._limit = limit
        self._queues: Final[dict[Lane, collections.deque[Message]]] = {lane: collections.deque() for lane in Lane}
        self._begun: dict[Lane, Iterator[bytes]] = {}
        self.queued: dict[Lane, int] = dict.fromkeys(Lane, 0)

    def put(self, message: Message) -> None:
        """Queue a message.

        Raises:
            LaneFull: its lane has reached the limit.
        """
        lane = message.lane
        if self.queued[lane] >= self._limit:
            raise LaneFull(lane, self.queued[lane])
        self._queues[lane].append(message)
        self.queued[lane] += message.size

    def take(self) -> tuple[Lane, bytes] | None:
        """Returns the next frame and its lane; None if nothing waits."""
        for lane, queue in self._queues.items():
            begun = self._begun.get(lane)
            if begun is None:
                if not queue:
                    continue
                begun = self._begun[lane] = frames_of(queue[0], self._part)
            frame = next(begun, None)
            if frame is not None:
                return lane, frame
            self._end(lane)
            return self.take()
        return None

    def withdraw(self, kind: object, stream: int) -> bool:
        """Remove a request of which nothing has been written. Returns whether it was there."""
        for lane, queue in self._queues.items():
            first = 1 if lane in self._begun else 0
            for at in range(first, len(queue)):
                message = queue[at]
                if (message.kind, message.stream, message.answer) == (kind, stream, False):
                    del queue[at]
                    self.queued[lane] -= message.size
                    return True
        return False

    def clear(self) -> None:
        """Drop everything."""
        for queue in self._queues.values():
            queue.clear()
        self._begun.clear()
        self.queued.update(dict.fromkeys(Lane, 0))

    def __bool__(self) -> bool:
        return any(self._queues.values())

    def _end(self, lane: Lane) -> None:
        del self._begun[lane]
        self.queued[lane] -= self._queues[lane].popleft().size
