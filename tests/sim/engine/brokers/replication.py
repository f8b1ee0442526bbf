"""Replication between modelled brokers: appends, fetches, truncation by epoch, and ISR changes that follow from lag.

    leader ── appends at a rate ──▶ log ◀── fetches each 500 ms ── follower
       │                                                              │ truncates to the end offset of its last epoch
       └── proposes: out after `lag_ms` without being caught up, in at the high watermark and past the epoch's start

Source: Partition.maybeExpandIsr, maybeShrinkIsr and updateFollowerFetchState; ReplicaFetcherThread.
"""

from collections.abc import Callable
from typing import NamedTuple

from kactl.model import TopicPartition

from .receiver import Receiver
from .replica import Follower, Replica
from .replica_log import NO_EPOCH

FETCH_MS = 500.0


class FetchedPartition(NamedTuple):
    """One partition of a fetch request."""

    leader_epoch: int
    topic_id: bytes
    offset: int
    last_epoch: int


class Records(NamedTuple):
    """One partition of a fetch response: runs that follow, or the epoch and end offset to truncate to."""

    leader_epoch: int
    runs: tuple[tuple[int, int], ...] = ()
    diverging: tuple[int, int] | None = None


class Fetch(NamedTuple):
    """Fetch request of one broker to another."""

    broker: int
    broker_epoch: int
    partitions: dict[TopicPartition, FetchedPartition]


Proposed = Callable[[TopicPartition, Replica, frozenset[int]], None]


class Replication:
    """Leaders and followers of one broker process.

    Args:
        append_rate: records per second that each leader appends.
        lag_ms: after which a follower that is not caught up leaves the ISR.
        propose: called with an ISR that a leader wants.
    """

    def __init__(
        self,
        receiver: Receiver,
        *,
        now_ms: Callable[[], float],
        append_rate: float,
        lag_ms: float,
        propose: Proposed,
    ) -> None:
        self._receiver = receiver
        self._now_ms = now_ms
        self._append_rate = append_rate
        self._lag_ms = lag_ms
        self._propose = propose

    # -- followers -----------------------------------------------------------------------------------------------------

    def fetches(self) -> dict[int, Fetch]:
        """Returns the fetch request for each leader, by broker."""
        me = self._receiver.broker
        wanted: dict[int, Fetch] = {}
        for name, replica in self._receiver.replicas.items():
            if replica.leader_epoch != NO_EPOCH and replica.leader >= 0 and replica.leader != me:
                fetch = wanted.setdefault(replica.leader, Fetch(me, self._receiver.epoch, {}))
                log = replica.log
                fetch.partitions[name] = FetchedPartition(
                    replica.leader_epoch, replica.topic.id, log.end, log.last_epoch
                )
        return wanted

    def fetched(self, leader: int, fetch: Fetch, answer: dict[TopicPartition, Records]) -> None:
        """Apply a fetch response. One for an earlier leader epoch is dropped."""
        for name, records in answer.items():
            replica = self._receiver.replicas.get(name)
            asked = fetch.partitions[name]
            if (
                replica is None
                or (replica.leader, replica.leader_epoch) != (leader, asked.leader_epoch)
                or replica.log.end != asked.offset
            ):
                continue
            if records.diverging is not None:
                replica.log.truncate_to_epoch(*records.diverging)
            else:
                replica.log.extend(records.runs)

    # -- leaders -------------------------------------------------------------------------------------------------------

    def serve(self, fetch: Fetch) -> dict[TopicPartition, Records]:
        """Returns the response to a fetch; partitions that this broker does not lead in that epoch are left out."""
        me, now_ms = self._receiver.broker, self._now_ms()
        answer: dict[TopicPartition, Records] = {}
        for name, asked in fetch.partitions.items():
            replica = self._receiver.replicas.get(name)
            if replica is None or replica.leader != me or replica.topic.id != asked.topic_id:
                continue
            if replica.leader_epoch != asked.leader_epoch or fetch.broker not in replica.followers:
                continue
            self._append(replica, now_ms)
            log = replica.log
            epoch, end = log.end_of(asked.last_epoch)
            if asked.offset and (epoch != asked.last_epoch or end < asked.offset):
                answer[name] = Records(asked.leader_epoch, diverging=(epoch, end))
                continue
            answer[name] = Records(asked.leader_epoch, tuple(log.after(asked.offset)))
            self._progress(name, replica, fetch, asked.offset, now_ms)
        return answer

    def _append(self, replica: Replica, now_ms: float) -> None:
        """Append the records of clients since the last call."""
        count = int((now_ms - replica.appended_ms) * self._append_rate / 1000)
        if count:
            replica.log.append(replica.leader_epoch, count)
            replica.appended_ms += count * 1000 / self._append_rate

    def _progress(self, name: TopicPartition, replica: Replica, fetch: Fetch, offset: int, now_ms: float) -> None:
        """Record the fetch of a follower; propose it if it has caught up."""
        broker = fetch.broker
        follower = replica.followers[broker]
        follower.broker_epoch = fetch.broker_epoch
        # A stock follower fetches again at once; this one only after an interval, in which the leader appends more.
        end = follower.end if follower.fetched_ms else replica.log.end
        _caught_up(follower, offset, replica.log.end, now_ms)
        if replica.has_maximal(broker) or replica.proposed is not None or replica.waits:
            return
        reached = max(min(self._high_watermark(replica), end), replica.epoch_start)
        if offset >= reached and broker in self._receiver.live:
            self._propose(name, replica, replica.isr | {broker})

    def _high_watermark(self, replica: Replica) -> int:
        offsets = [replica.followers[broker].offset for broker in replica.isr if broker in replica.followers]
        return min(offsets, default=replica.log.end)

    def check_lag(self) -> None:
        """Propose ISRs without the followers that lag behind."""
        me, now_ms = self._receiver.broker, self._now_ms()
        for name, replica in list(self._receiver.replicas.items()):
            if replica.leader != me or replica.proposed is not None or replica.waits:
                continue
            self._append(replica, now_ms)
            late = {
                broker
                for broker in sorted(replica.isr - {me})
                if (follower := replica.followers.get(broker)) is None or self._lags(follower, replica, now_ms)
            }
            if late:
                self._propose(name, replica, replica.isr - late)

    def _lags(self, follower: Follower, replica: Replica, now_ms: float) -> bool:
        return follower.offset != replica.log.end and now_ms - follower.caught_up_ms > self._lag_ms


def _caught_up(follower: Follower, offset: int, end: int, now_ms: float) -> None:
    """A follower is caught up to a moment if it fetches from the end offset that the leader had then."""
    if offset >= end:
        follower.caught_up_ms = now_ms
    elif follower.fetched_ms and offset >= follower.end:
        follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
    follower.offset, follower.fetched_ms, follower.end = offset, now_ms, end
