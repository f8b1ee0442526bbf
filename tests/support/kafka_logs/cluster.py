"""The cluster as it is: partitions, who leads them and is in sync, and which records each replica holds.

A record is told from others by its offset and the epoch of the leader that took it, so that two logs agree as far as
both have the same epochs from the same offsets on. What a replica holds beyond that is cut when it begins to follow,
and that is how records are lost. Time is milliseconds since 1970, true time, and records flow whenever somebody leads:
a partition is brought up to a time before anything else happens to it.
"""

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

NOBODY: Final = -1
# Followers are behind by up to so many milliseconds' records.
LAG_MS: Final = 40.0


class Log:
    """What one replica holds: the offsets at which epochs began, where it ends, and what it knows to be committed."""

    __slots__ = ("end", "epochs", "high_watermark")

    def __init__(self) -> None:
        self.end = 0
        self.high_watermark = 0
        self.epochs: list[tuple[int, int]] = []

    def begin(self, epoch: int) -> None:
        """A leader of that epoch takes records from here on."""
        while self.epochs and self.epochs[-1][1] >= self.end:
            self.epochs.pop()
        self.epochs.append((epoch, self.end))

    def copy(self, leader: "Log", end: int) -> None:
        """Hold what the leader holds, up to an offset."""
        self.end = end
        self.epochs = [each for each in leader.epochs if each[1] < end]

    def cut(self, end: int) -> None:
        self.end = end
        self.epochs = [each for each in self.epochs if each[1] < end]
        self.high_watermark = min(self.high_watermark, end)


def agree(one: Log, other: Log) -> int:
    """Up to which offset two logs hold the same records."""
    same = 0
    for at in range(min(len(one.epochs), len(other.epochs))):
        if one.epochs[at] != other.epochs[at]:
            break
        ends = [log.epochs[at + 1][1] if at + 1 < len(log.epochs) else log.end for log in (one, other)]
        same = min(ends)
        if ends[0] != ends[1]:
            break
    return same


class Partition:
    """One of them.

    Attributes:
        leader, isr, leader_epoch, partition_epoch, replicas: as the controller has stored them.
        serving: who takes records now, whatever the controller believes; None if nobody does.
        served_epoch: in which leader epoch.
        fetching: replicas that copy from `serving`.
        waiting: replicas that follow a leader which has not begun yet.
        slow: replicas that copy nothing for now.
        committed: the true high watermark.
        starts: epoch, its leader's log end, and what had been committed, for each that began.
        took_part: the last epoch in which each replica led or copied.
        down: since when nobody serves, whether that was wanted, and who served last; None if somebody serves, or
            nobody ever did.
    """

    __slots__ = (
        "adding", "advanced_at", "committed", "down", "fetching", "isr", "leader", "leader_epoch", "life", "logs",
        "name", "number", "online", "partition_epoch", "rate", "recovering", "removing", "replicas", "served_epoch",
        "serving", "slow", "starts", "took_part", "topic", "unclean", "waiting",
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
        self.leader = NOBODY
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
        self.starts: list[tuple[int, int, int]] = []
        self.took_part: dict[int, int] = {}
        self.down: tuple[float, bool, int] | None = None


class Topic:
    """A topic; `life` counts those of the same name before it."""

    __slots__ = ("deleting", "id", "life", "name", "partitions", "unclean")

    def __init__(self, name: str, *, id: str, life: int, unclean: bool) -> None:
        self.name = name
        self.id = id
        self.life = life
        self.unclean = unclean
        self.deleting = False
        self.partitions: list[Partition] = []


class Cluster:
    """All of it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.topics: dict[str, Topic] = {}
        self.held: dict[int, dict[Partition, None]] = defaultdict(dict)
        self.offline: dict[Partition, None] = {}

    def add(self, topic: Topic, assigned: Iterable[tuple[int, ...]], rate: float) -> None:
        """A new topic; none of its partitions has a leader yet."""
        self.topics[topic.name] = topic
        for number, replicas in enumerate(assigned):
            partition = Partition(topic, number, replicas, rate * self.chance.uniform(0.5, 1.5))
            topic.partitions.append(partition)
            self.hold(partition)

    def hold(self, partition: Partition) -> None:
        """Let brokers hold what is assigned to them, and nobody else."""
        for broker, held in self.held.items():
            if broker not in partition.replicas:
                held.pop(partition, None)
        for broker in partition.replicas:
            self.held[broker][partition] = None

    def remove(self, topic: Topic) -> None:
        del self.topics[topic.name]
        for partition in topic.partitions:
            self.offline.pop(partition, None)
            partition.serving = None
            for broker in partition.replicas:
                self.held[broker].pop(partition, None)

    def advance(self, p: Partition, at: float) -> None:
        """Let records flow up to a time: taken by whoever serves, copied by those who fetch, committed by the ISR."""
        passed, p.advanced_at = at - p.advanced_at, max(at, p.advanced_at)
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
        """By how many records a follower is behind just now."""
        return int(self.chance.random() * LAG_MS * p.rate)

    def propose(self, p: Partition, at: float, isr: tuple[int, ...]) -> tuple[int, ...]:
        """Its leader changes the ISR, to which nobody comes who lacks what is committed; the one before."""
        self.advance(p, at)
        assert p.serving is not None
        log, before = p.logs[p.serving], p.isr
        for broker in isr:
            if broker not in before:
                p.logs[broker].copy(log, max(p.logs[broker].end, log.high_watermark))
        p.isr = isr
        p.partition_epoch += 1
        return before
