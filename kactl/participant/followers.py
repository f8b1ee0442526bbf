"""Followers of this leader, as they report themselves.

A report counts only for the registration of the follower and for the leader epochs that it contains. It confirms a
leadership if it arrives after the leadership has begun; leaders therefore request reports when they begin to lead.
"""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from kactl.decide.messages.following import FollowerReports, FollowerReportsRequested, Longs, PeerMessage
from kactl.decide.state.rows import Bools, Ints
from kactl.model import NO_BROKER, NO_EPOCH, TopicPartition
from kactl.runtime.clock import Clock
from kactl.stores.base import Names

from .growable import grow
from .hosted_replicas import HostedReplicas, names_of
from .leader_positions import NEVER, LeaderPositions
from .row_index import ABSENT, RowIndex

Floats = npt.NDArray[np.float64]

# Reports within the time after which a lagging member leaves the ISR.
REPORTS_PER_LAG: Final = 4
# A follower counts as following until two reports are missing.
MISSING_MAX: Final = 2


class _Follower:
    """Last report of one registration of a follower.

    Attributes:
        received_ms: arrival of the last message that confirmed the report.
        turn: number of leaderships that had begun here by then.
    """

    def __init__(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        self.generation = 0
        self.received_ms = NEVER
        self.turn = 0
        self.clear()

    def clear(self) -> None:
        self.index = RowIndex()
        self.leader_epoch: Ints = np.zeros(0, np.int32)
        self.position: Longs = np.zeros(0, np.int64)
        self.caught_up: Bools = np.zeros(0, np.bool_)

    def apply(self, report: FollowerReports) -> None:
        """Apply the rows of a report."""
        ended = report.leader_epoch == NO_EPOCH
        self._remove(report.names.take(ended))
        self._put(report, ~ended)

    def _remove(self, names: Names) -> None:
        rows = self.index.find(names_of(names.topics), names.topic, names.partition)
        self.index.remove(rows[rows != ABSENT])

    def _put(self, report: FollowerReports, chosen: Bools) -> None:
        names, topics = report.names.take(chosen), names_of(report.names.topics)
        rows = self.index.find(topics, names.topic, names.partition)
        absent = rows == ABSENT
        if absent.any():
            rows[absent] = self.index.add(topics, names.topic[absent], names.partition[absent])
            self.leader_epoch = grow(self.leader_epoch, self.index.capacity, NO_EPOCH)
            self.position = grow(self.position, self.index.capacity, 0)
            self.caught_up = grow(self.caught_up, self.index.capacity, False)
        self.leader_epoch[rows] = report.leader_epoch[chosen]
        self.position[rows] = report.position[chosen]
        self.caught_up[rows] = report.caught_up[chosen]


class Followers:
    """Reports of all followers to one registration of a broker.

    Args:
        epoch_of: returns the epoch of a broker's registration according to the metadata, NO_EPOCH if it is not known.
        send: sends a message to another broker.
        lag_ms: see `Participant`.
    """

    def __init__(
        self,
        broker: int,
        hosted: HostedReplicas,
        *,
        clock: Clock,
        epoch_of: Callable[[int], int],
        send: Callable[[PeerMessage], None],
        lag_ms: float,
    ) -> None:
        self._broker = broker
        self._hosted = hosted
        self._clock = clock
        self._epoch_of = epoch_of
        self._send = send
        self._positions = LeaderPositions(broker)
        self._fresh_ms = lag_ms * MISSING_MAX / REPORTS_PER_LAG
        self._followers: dict[int, _Follower] = {}

    def receive(self, report: FollowerReports) -> bool:
        """Apply a report. Returns whether it counts; otherwise the follower receives a request for everything, unless
        it has sent a later report already."""
        known = self._followers.get(report.follower)
        if report.leader != self._broker or (known is not None and report.broker_epoch < known.broker_epoch):
            return False
        if known is None or report.broker_epoch > known.broker_epoch:
            known = _Follower(report.broker_epoch)
        elif report.generation < known.generation:
            return False
        if report.base not in (0, known.generation):
            self.request([report.follower])
            return False
        if report.base == 0:
            known.clear()
        known.apply(report)
        known.generation = report.generation
        known.received_ms, known.turn = self._clock.monotonic_ms(), self._hosted.turn
        self._followers[report.follower] = known
        return True

    def request(self, brokers: Iterable[int]) -> None:
        """Request reports: a leadership has begun, or a report is missing."""
        for broker in brokers:
            if broker not in (self._broker, NO_BROKER):
                known = self._followers.get(broker)
                epoch, generation = (NO_EPOCH, 0) if known is None else (known.broker_epoch, known.generation)
                self._send(FollowerReportsRequested(self._broker, broker, epoch, generation))

    def report(self, name: TopicPartition, leader_epoch: int, broker: int, position: int) -> bool:
        """Note a position that a leader of this broker reports; see `leader_positions`. Returns whether the replica has
        caught up now."""
        return self._positions.report(
            name,
            leader_epoch,
            broker,
            position,
            broker_epoch=self.epoch_of(broker),
            now_ms=self._clock.monotonic_ms(),
        )

    def leadership_ended(self, name: TopicPartition, leader_epoch: int) -> None:
        """Forget the positions that a leader of this broker has reported."""
        self._positions.end(name, leader_epoch)

    def confirmed_ms(self, broker: int, names: Names, leader_epoch: Ints) -> Floats:
        """Returns float64[n]: when a broker last reported that it follows each partition under that leader epoch and
        has caught up; NEVER if it has not since the leadership began, or reports something else now.

        Where the leader reports positions, these decide when it had caught up.
        """
        confirmed = np.full(len(names), NEVER)
        follower = self._followers.get(broker)
        if follower is None or follower.broker_epoch < self._epoch_of(broker):
            return confirmed
        topics = names_of(names.topics)
        rows = follower.index.find(topics, names.topic, names.partition)
        ours = self._hosted.index.find(topics, names.topic, names.partition)
        known = (rows != ABSENT) & (ours != ABSENT)
        rows, ours = rows[known], ours[known]
        follows = (follower.leader_epoch[rows] == leader_epoch[known]) & (self._hosted.began[ours] <= follower.turn)
        times = np.where(follows & follower.caught_up[rows], follower.received_ms, NEVER)
        now_ms = self._clock.monotonic_ms()
        for name in self._positions.names():
            for place in np.flatnonzero(follows & (ours == self._hosted.index.find_one(name))).tolist():
                caught_up_ms = self._positions.caught_up_ms(
                    name,
                    int(follower.leader_epoch[rows[place]]),
                    broker,
                    broker_epoch=follower.broker_epoch,
                    now_ms=now_ms,
                )
                if caught_up_ms is not None:
                    times[place] = min(follower.received_ms, caught_up_ms)
        confirmed[known] = times
        return confirmed

    def follows(self, broker: int, names: Names, leader_epoch: Ints) -> Bools:
        """Returns bool[n]: the partitions that a broker follows under these leader epochs, and has caught up with,
        according to a report that is not too old."""
        oldest_ms = self._clock.monotonic_ms() - self._fresh_ms
        following: Bools = self.confirmed_ms(broker, names, leader_epoch) >= oldest_ms
        return following

    def epoch_of(self, broker: int) -> int:
        """Returns the registration of a broker that its reports name; if it has sent none, the one in the metadata."""
        follower = self._followers.get(broker)
        return self._epoch_of(broker) if follower is None else follower.broker_epoch
