"""Positions of followers as the leader's own handler reports them, for applications with a replication of their own.

From the first report of a leadership on, these positions decide which followers of the partition have caught up, and
not the reports of the followers themselves. A follower has caught up when it reaches the position of the leader. While
the leader goes on, a follower that reaches the position that the leader had at the report before had caught up then.

Source: Replica.updateFetchStateOrThrow, ReplicaState.isCaughtUp.
"""

import dataclasses
from typing import Final

import numpy as np

from kactl.model import TopicPartition

NEVER: Final = -np.inf


@dataclasses.dataclass(slots=True)
class _Copy:
    """A follower of one leadership.

    Attributes:
        broker_epoch: its registration at the last report. A later registration may have lost its data.
        caught_up_ms: when it had caught up last.
        reported_ms, end: time of the last report, and the leader's position then.
    """

    broker_epoch: int
    position: int = -1
    caught_up_ms: float = NEVER
    reported_ms: float = NEVER
    end: int | None = None


@dataclasses.dataclass(slots=True)
class _Leadership:
    """Positions in a leadership that began under `leader_epoch`. `end`: of the leader; None until it is reported."""

    leader_epoch: int
    end: int | None = None
    copies: dict[int, _Copy] = dataclasses.field(default_factory=dict)


class LeaderPositions:
    """The reported positions of one registration of a broker.

    Args:
        broker: the leader.
    """

    def __init__(self, broker: int) -> None:
        self._broker = broker
        self._leaderships: dict[TopicPartition, _Leadership] = {}

    def report(
        self, name: TopicPartition, leader_epoch: int, broker: int, position: int, *, broker_epoch: int, now_ms: float
    ) -> bool:
        """Note how far a replica has copied a partition; the leader itself, how far it has written.

        Args:
            leader_epoch: with which the leadership began.
            broker_epoch: of the registration of the replica.

        Returns:
            whether the replica has caught up, and had not before.
        """
        leadership = self._leaderships.get(name)
        if leadership is None or leadership.leader_epoch != leader_epoch:
            leadership = self._leaderships[name] = _Leadership(leader_epoch)
        if broker == self._broker:
            leadership.end = position
            return False
        copy = leadership.copies.get(broker)
        if copy is None or copy.broker_epoch != broker_epoch:
            copy = leadership.copies[broker] = _Copy(broker_epoch)
        was_behind = copy.caught_up_ms < copy.reported_ms or copy.reported_ms == NEVER
        if leadership.end is None or position >= leadership.end:
            copy.caught_up_ms = now_ms
        elif copy.end is not None and position >= copy.end:
            copy.caught_up_ms = max(copy.caught_up_ms, copy.reported_ms)
        copy.position, copy.reported_ms, copy.end = position, now_ms, leadership.end
        return was_behind and copy.caught_up_ms == now_ms

    def end(self, name: TopicPartition, leader_epoch: int) -> None:
        """Forget the positions of a leadership that has ended. It began under a leader epoch."""
        leadership = self._leaderships.get(name)
        if leadership is not None and leadership.leader_epoch <= leader_epoch:
            del self._leaderships[name]

    def names(self) -> tuple[TopicPartition, ...]:
        """Returns the partitions whose leaderships have reports."""
        return tuple(self._leaderships)

    def caught_up_ms(
        self, name: TopicPartition, leader_epoch: int, broker: int, *, broker_epoch: int, now_ms: float
    ) -> float | None:
        """Returns when a follower had caught up last; None if its own reports decide.

        Args:
            leader_epoch: the present one: that of the begin, or a later one after changes of the ISR.
        """
        leadership = self._leaderships.get(name)
        if leadership is None or leadership.leader_epoch > leader_epoch:
            return None
        copy = leadership.copies.get(broker)
        if copy is None or copy.broker_epoch != broker_epoch:
            return NEVER
        if leadership.end is not None and copy.position >= leadership.end:
            return now_ms
        return copy.caught_up_ms
