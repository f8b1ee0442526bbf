"""Reports of this broker to the leaders that it follows.

A report contains what has changed since the last one; see `kactl.decide.messages.following`.
"""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from kactl.decide.messages.following import FollowerReports, FollowerReportsRequested, Longs, PeerMessage
from kactl.decide.state.rows import Bools, BrokerSet, Ints, RowNumbers
from kactl.model import NO_EPOCH, NO_LEADER, TopicPartition

from .growable import grow
from .hosted_replicas import HostedReplicas, Role
from .row_index import ABSENT

UNKNOWN_POSITION: Final = -1


class Following:
    """What one registration of a broker has reported. A follower counts as caught up until `report` denies it.

    Args:
        epoch: returns the broker epoch; nothing is reported while it is NO_EPOCH.
        live: returns the brokers that are live according to the metadata. Others cannot be followed: their addresses
            are not known.
        send: sends a message to another broker.
    """

    def __init__(
        self,
        broker: int,
        hosted: HostedReplicas,
        *,
        epoch: Callable[[], int],
        live: Callable[[], BrokerSet],
        send: Callable[[PeerMessage], None],
    ) -> None:
        self._broker = broker
        self._hosted = hosted
        self._epoch = epoch
        self._live = live
        self._send = send
        self._generations: dict[int, int] = {}
        # By row: the leader and the leader epoch in the last report; NO_LEADER if the partition is in no report.
        self._leader: Ints = np.zeros(0, np.int32)
        self._leader_epoch: Ints = np.zeros(0, np.int32)
        self._position: Longs = np.zeros(0, np.int64)
        self._caught_up: Bools = np.zeros(0, np.bool_)
        self._is_changed: Bools = np.zeros(0, np.bool_)
        self._early: dict[TopicPartition, tuple[int, int, bool]] = {}  # leader epoch, position, caught up

    def update(self) -> None:
        """Report all changes of followed partitions since the last call."""
        if self._epoch() == NO_EPOCH:
            return
        self._grow()
        rows = self._hosted.index.rows
        leader, leader_epoch = self._followed(rows)
        before, is_followed = self._leader[rows], leader != NO_LEADER
        moved = (leader != before) | (is_followed & (leader_epoch != self._leader_epoch[rows]))
        ended = (leader != before) & (before != NO_LEADER)
        self._leader[rows], self._leader_epoch[rows] = leader, leader_epoch
        self._position[rows[moved]], self._caught_up[rows[moved]] = UNKNOWN_POSITION, True
        self._take_early()
        reported = is_followed & (moved | self._is_changed[rows])
        self._is_changed[rows] = False
        for target in _different(leader[reported], before[ended]):
            self._report(target, rows[reported & (leader == target)], rows[ended & (before == target)])

    def forget(self, rows: RowNumbers) -> None:
        """Report that rows are not followed any more, before they are removed from the hosted replicas."""
        self._grow()
        before = self._leader[rows]
        self._leader[rows], self._is_changed[rows] = NO_LEADER, False
        for target in _different(before[before != NO_LEADER]):
            self._report(target, rows[:0], rows[before == target])

    def report(self, name: TopicPartition, position: int, *, caught_up: bool, epoch: int | None = None) -> None:
        """Report the position of one followed partition; ignored if it is not followed.

        Args:
            epoch: the leader epoch under which it is followed; None for the present one. A report that is ahead of the
                order to follow, which is still carried out, is kept for it.
        """
        self._grow()
        row = self._hosted.index.find_one(name)
        known = NO_EPOCH if row == ABSENT else int(self._leader_epoch[row])
        if epoch is not None and epoch > known:
            self._early[name] = epoch, position, caught_up
        elif row != ABSENT and self._leader[row] != NO_LEADER and epoch in (None, known):
            self._position[row], self._caught_up[row], self._is_changed[row] = position, caught_up, True
            self.update()

    def _take_early(self) -> None:
        """Apply the reports that were ahead of their orders."""
        for name, (epoch, position, caught_up) in list(self._early.items()):
            row = self._hosted.index.find_one(name)
            known = NO_EPOCH if row == ABSENT else int(self._leader_epoch[row])
            if known >= epoch:
                del self._early[name]
            if known == epoch and self._leader[row] != NO_LEADER:
                self._position[row], self._caught_up[row], self._is_changed[row] = position, caught_up, True

    def repeat(self) -> None:
        """Send each leader the number of the last report."""
        rows = self._hosted.index.rows
        self._grow()
        for leader in _different(self._leader[rows]):
            if leader != NO_LEADER:
                self._send(self._message(leader, base=self._generations[leader], rows=rows[:0]))

    def requested(self, request: FollowerReportsRequested) -> None:
        """Answer a leader: with the number of the last report if the leader has it, else with everything."""
        if self._epoch() == NO_EPOCH:
            return
        self._grow()
        leader, generation = request.leader, self._generations.get(request.leader)
        if generation is not None and (request.broker_epoch, request.generation) == (self._epoch(), generation):
            self._send(self._message(leader, base=generation, rows=self._hosted.index.rows[:0]))
            return
        self._generations[leader] = 1 if generation is None else generation
        rows = self._hosted.index.rows
        self._send(self._message(leader, base=0, rows=rows[self._leader[rows] == leader]))

    def _followed(self, rows: RowNumbers) -> tuple[Ints, Ints]:
        """Returns the leader of each row, NO_LEADER if it is not followed, and the leader epoch."""
        hosted = self._hosted
        leader = hosted.leader[rows]
        follows = (hosted.role[rows] == Role.FOLLOWER) & ~hosted.failed[rows] & self._live()[leader]
        return np.where(follows, leader, NO_LEADER).astype(np.int32), hosted.leader_epoch[rows]

    def _report(self, leader: int, followed: RowNumbers, ended: RowNumbers) -> None:
        base = self._generations.get(leader, 0)
        self._generations[leader] = base + 1
        self._send(self._message(leader, base=base, rows=followed, ended=ended))

    def _message(self, leader: int, *, base: int, rows: RowNumbers, ended: RowNumbers | None = None) -> FollowerReports:
        ended = rows[:0] if ended is None else ended
        every = np.concatenate((rows, ended))
        epochs = np.concatenate((self._leader_epoch[rows], np.full(len(ended), NO_EPOCH, np.int32)))
        return FollowerReports(
            follower=self._broker,
            broker_epoch=self._epoch(),
            leader=leader,
            generation=self._generations[leader],
            base=base,
            names=self._hosted.index.names(every),
            leader_epoch=epochs,
            position=self._position[every],
            caught_up=self._caught_up[every],
        )

    def _grow(self) -> None:
        capacity = self._hosted.index.capacity
        self._leader = grow(self._leader, capacity, NO_LEADER)
        self._leader_epoch = grow(self._leader_epoch, capacity, NO_EPOCH)
        self._position = grow(self._position, capacity, UNKNOWN_POSITION)
        self._caught_up = grow(self._caught_up, capacity, True)
        self._is_changed = grow(self._is_changed, capacity, False)


def _different(*leaders: Ints) -> Iterable[int]:
    """Returns the different leaders in some columns, in ascending order."""
    different: list[int] = np.unique(np.concatenate(leaders)).tolist()
    return different
