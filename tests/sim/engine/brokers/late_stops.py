"""Replicas that a late copy of a StopReplica has stopped.

    StopReplica, first copy ─────────────────────── held by the network ──────────────────────▶ stops the new replica
    StopReplica, second copy ──▶ stops the replica          LeaderAndIsr ──▶ starts a new one

The controller has given up the first copy, and does not know that it arrives. A request without a topic id, or for a
topic without one, cannot be distinguished from one for a later topic of the name, whose leader epochs begin at 0 again.
"""

from kactl.model import TopicPartition


class LateStops:
    """Replicas of one broker process.

    Attributes:
        lost: replicas that a request stopped which was sent before the one that started them.
    """

    def __init__(self) -> None:
        self.lost: set[TopicPartition] = set()
        self._started: dict[TopicPartition, int] = {}

    def started(self, name: TopicPartition, message: int) -> None:
        """A request has started a replica, or changed its role.

        Args:
            message: number of the request.
        """
        self._started[name] = message
        self.lost.discard(name)

    def last_start(self, name: TopicPartition) -> int:
        """Returns the number of the last request that has started a replica or changed its role; 0 if it is stopped."""
        return self._started.get(name, 0)

    def stopped(self, name: TopicPartition, message: int) -> None:
        """A request has stopped a replica."""
        if message < self._started.pop(name, 0):
            self.lost.add(name)
