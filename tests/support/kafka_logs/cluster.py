"""State of the cluster: partitions with their leaders and ISRs, and the records of each replica.

A record is identified by its offset and the epoch of the leader that appended it. Two logs therefore agree as far as
both have the same epochs at the same offsets. Records beyond that are truncated when the replica becomes follower,
which is how records are lost. Time is true time in milliseconds since 1970. Records are produced whenever a partition
has a leader: `Cluster.advance` brings a partition up to a time before anything else happens to it.
"""

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

NO_BROKER: Final = -1
# Maximum lag of followers, in milliseconds' worth of records.
LAG_MS: Final = 40.0


class Log:
    """Log of one replica: the epochs with their start offsets, the log end, and the known high watermark."""

    __slots__ = ("end", "epochs", "high_watermark")

    def __init__(self) -> None:
        self.end = 0
        self.high_watermark = 0
        self.epochs: list[tuple[int, int]] = []

    def begin(self, epoch: int) -> None:
        """Begins an epoch at the log end, for a new leader."""
        while self.epochs and self.epochs[-1][1] >= self.end:
            self.epochs.pop()
        self.epochs.append((epoch, self.end))

    def copy(self, leader: "Log", end: int) -> None:
        """Copies the leader's log up to an offset."""
        self.end = end
        self.epochs = [entry for entry in leader.epochs if entry[1] < end]

    def cut(self, end: int) -> None:
        self.end = end
        self.epochs = [entry for entry in self.epochs if entry[1] < end]
        self.high_watermark = min(self.high_watermark, end)


def agreement(one: Log, other: Log) -> int:
    """Returns the offset up to which two logs have the same records."""
    same = 0
    for index in range(min(len(one.epochs), len(other.epochs))):
        if one.epochs[index] != other.epochs[index]:
            break
        ends = [log.epochs[index + 1][1] if index + 1 < len(log.epochs) else log.end for log in (one, other)]
        same = min(ends)
        if ends[0] != ends[1]:
            break
    return same


class Partition:
    """A partition.

    Attributes:
        leader, isr, leader_epoch, partition_epoch, replicas: as stored by the controller.
        serving: the broker that acts as leader, which may differ from the stored one; None for none.
        served_epoch: the leader epoch of `serving`.
        fetching: replicas that copy from `serving`.
        waiting: replicas whose leader has not begun yet.
        slow: replicas that currently copy nothing.
        committed: the true high watermark.
        epoch_starts: for each epoch that began, the epoch, its leader's log end, and `committed` at that time.
        took_part: the last epoch in which each replica led or copied.
        down: begin of an outage, whether it was planned, and the last leader; None if there is no outage.
    """

    __slots__ = (
        "adding", "advanced_at", "committed", "down", "epoch_starts", "fetching", "isr", "leader", "leader_epoch",
        "life", "logs", "name", "number", "online", "partition_epoch", "rate", "recovering", "removing", "replicas",
        "served_epoch", "serving", "slow", "took_part", "topic", "unclean", "waiting",
    )  # fmt: skip

    def __init__(self, topic: "Topic", number: int, replicas: tuple[int, ...], rate: float) -> None:
        self.topic = topic
        self.number = number
        self.name = f"{topic.name}-{number}"
        self.life = topic.life
        self.unclean = topic.unclean
        self.replicas = replicas
        self.adding: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.leader = NO_BROKER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.recovering = False
        self.online = False
        self.rate = rate
        self.logs: dict[int, Log] = defaultdict(Log)
        self.serving: int | None = None
        self.served_epoch = -1
        self.fetching: set[int] = set()
        self.waiting: set[int] = set()
        self.slow: set[int] = set()
        self.committed = 0
        self.advanced_at = 0.0
        self.epoch_starts: list[tuple[int, int, int]] = []
        self.took_part: dict[int, int] = {}
        self.down: tuple[float, bool, int] | None = None


class Topic:
    """A topic; `life` is the number of earlier topics of the same name."""

    __slots__ = ("deleting", "id", "life", "name", "partitions", "unclean")

    def __init__(self, name: str, *, id: str, life: int, unclean: bool) -> None:
        self.name = name
        self.id = id
        self.life = life
        self.unclean = unclean
        self.deleting = False
        self.partitions: list[Partition] = []


class Cluster:
    """All topics, and the partitions of each broker."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.topics: dict[str, Topic] = {}
        self.hosted: dict[int, dict[Partition, None]] = defaultdict(dict)
        self.offline: dict[Partition, None] = {}

    def add(self, topic: Topic, assigned: Iterable[tuple[int, ...]], rate: float) -> None:
        """Adds a topic without leaders."""
        self.topics[topic.name] = topic
        for number, replicas in enumerate(assigned):
            partition = Partition(topic, number, replicas, rate * self.chance.uniform(0.5, 1.5))
            topic.partitions.append(partition)
            self.assign(partition)

    def assign(self, partition: Partition) -> None:
        """Updates the partitions of brokers after a change of a partition's replicas."""
        for broker, hosted in self.hosted.items():
            if broker not in partition.replicas:
                hosted.pop(partition, None)
        for broker in partition.replicas:
            self.hosted[broker][partition] = None

    def remove(self, topic: Topic) -> None:
        del self.topics[topic.name]
        for partition in topic.partitions:
            self.offline.pop(partition, None)
            partition.serving = None
            for broker in partition.replicas:
                self.hosted[broker].pop(partition, None)

    def advance(self, p: Partition, time_ms: float) -> None:
        """Produces, copies and commits the records of a partition up to a time."""
        passed, p.advanced_at = time_ms - p.advanced_at, max(time_ms, p.advanced_at)
        if p.serving is None or passed <= 0:
            return
        log, copies = p.logs[p.serving], [p.logs[broker] for broker in p.fetching if broker not in p.slow]
        log.end += int(passed * p.rate)
        for copy in copies:
            copy.copy(log, max(copy.end, log.end - self._lag(p)))
        ends = [p.logs[broker].end for broker in p.isr]
        if ends:
            log.high_watermark = max(log.high_watermark, min(log.end, *ends))
            p.committed = max(p.committed, log.high_watermark)
        for copy in copies:
            copy.high_watermark = max(copy.high_watermark, min(copy.end, log.high_watermark - self._lag(p)))

    def _lag(self, p: Partition) -> int:
        """Returns a random lag of a follower, in records."""
        return int(self.chance.random() * LAG_MS * p.rate)

    def propose(self, p: Partition, time_ms: float, isr: tuple[int, ...]) -> tuple[int, ...]:
        """Changes the ISR as its leader does; added replicas have all committed records. Returns the previous ISR."""
        self.advance(p, time_ms)
        assert p.serving is not None
        log, before = p.logs[p.serving], p.isr
        for broker in isr:
            if broker not in before:
                p.logs[broker].copy(log, max(p.logs[broker].end, log.high_watermark))
        p.isr = isr
        p.partition_epoch += 1
        return before
