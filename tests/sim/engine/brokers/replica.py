"""Replicas of a modelled broker, and its disk."""

import dataclasses

from kactl.model import NO_EPOCH, NO_LEADER, TopicPartition, TopicRef

from .entries import StateEntry
from .replica_log import ReplicaLog


@dataclasses.dataclass
class Follower:
    """A follower as its leader sees it, since the leader's last LeaderAndIsr.

    Attributes:
        offset: up to which it has fetched; -1 before its first fetch.
        caught_up_ms: when it last had everything that the leader had at that time.
        fetched_ms, end: time of its last fetch, and the leader's end offset then.
        broker_epoch: of its last fetch.
    """

    caught_up_ms: float
    offset: int = -1
    fetched_ms: float = 0.0
    end: int = 0
    broker_epoch: int = NO_EPOCH


@dataclasses.dataclass
class Replica:
    """A replica that a LeaderAndIsr created in this process.

    Attributes:
        leader_epoch: NO_EPOCH until a LeaderAndIsr took effect: one whose leader is not in the metadata only creates
            the log.
        isr, partition_epoch: the leader's own if it leads: also as accepted by the controller or written by itself.
        proposed: the ISR of a proposal without a final answer.
        waits: the controller rejected a proposal: the leadership is stale until the next LeaderAndIsr.
    """

    topic: TopicRef
    log: ReplicaLog
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    isr: frozenset[int] = frozenset()
    partition_epoch: int = -1
    replicas: tuple[int, ...] = ()
    controller_epoch: int = 0
    recovering: bool = False
    proposed: frozenset[int] | None = None
    waits: bool = False
    epoch_start: int = 0
    appended_ms: float = 0.0
    followers: dict[int, Follower] = dataclasses.field(default_factory=dict)

    def assume(self, entry: StateEntry, *, now_ms: float) -> None:
        """Take the role that a LeaderAndIsr gives."""
        self.leader, self.leader_epoch = entry.leader, entry.leader_epoch
        self.isr, self.partition_epoch = frozenset(entry.isr), entry.partition_epoch
        self.replicas, self.controller_epoch = entry.replicas, entry.controller_epoch
        self.recovering, self.proposed, self.waits = entry.recovering, None, False
        self.epoch_start, self.appended_ms = self.log.end, now_ms
        self.followers = {broker: Follower(now_ms) for broker in entry.replicas if broker != entry.leader}

    def has_maximal(self, broker: int) -> bool:
        """Returns whether a broker is in the ISR, or in the one proposed."""
        return broker in self.isr or (self.proposed is not None and broker in self.proposed)


@dataclasses.dataclass
class StoredLog:
    """Log of a replica on a disk, which outlives the process.

    Attributes:
        is_overtaken: its last LeaderAndIsr arrived after a later request to delete it.
    """

    topic_id: bytes
    log: ReplicaLog
    is_overtaken: bool = False


@dataclasses.dataclass
class Disk:
    """Disk of a broker.

    Attributes:
        failed: partitions on a directory that failed; it works again after a restart.
        undeletable: partitions that cannot be deleted until a restart.
        reported: whether a response has reported a failure since the last restart.
    """

    logs: dict[TopicPartition, StoredLog] = dataclasses.field(default_factory=dict)
    failed: set[TopicPartition] = dataclasses.field(default_factory=set)
    undeletable: set[TopicPartition] = dataclasses.field(default_factory=set)
    reported: bool = False

    def mend(self) -> None:
        """Restart: directories work again."""
        self.failed.clear()
        self.undeletable.clear()
        self.reported = False
