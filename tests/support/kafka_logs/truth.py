"""What really happened, to see whether the logs were read right. Times are true ones, in ms since 1970."""

from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from .cluster import Partition, Topic

TRUTH: Final = "truth.json"


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which nobody served a partition that had been served. `end` None: to the end, or of the topic."""

    topic: str
    partition: int
    life: int
    begin: float
    end: float | None
    planned: bool
    broker: int
    new_leader: int | None = None
    leader_epoch: int | None = None
    deleted: bool = False


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Records that a replica had and cut, `committed` of them. `seen` False: it never came back to cut them."""

    topic: str
    partition: int
    life: int
    replica: int
    after_epoch: int
    log_end: int
    replica_log_end: int
    committed: int
    at: float
    seen: bool = True

    @property
    def tail(self) -> int:
        return self.replica_log_end - self.log_end


class Unclean(msgspec.Struct, frozen=True, kw_only=True):
    """An election of somebody who was not in sync."""

    topic: str
    partition: int
    life: int
    leader_epoch: int
    leader: int
    at: float


class Controllership(msgspec.Struct, frozen=True, kw_only=True):
    """Who was the controller, in which epoch, from when on."""

    controller: int
    epoch: int
    at: float


class Led(msgspec.Struct, frozen=True, array_like=True):
    """A leader epoch in which somebody took over from somebody else."""

    topic: str
    partition: int
    life: int
    leader_epoch: int
    leader: int


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """How often a partition's leader changed to another broker, and how often its leader changed the ISR."""

    topic: str
    partition: int
    life: int
    elections: int
    shrinks: int
    expands: int


class Truth(msgspec.Struct, kw_only=True):
    """All of it.

    Attributes:
        offsets_ms: of each broker's clock, at the beginning; what it shows minus what is.
        dump: the controller whose clock the metadata log has; None if there is none.
        drifts_ppm: by how much each clock goes wrong, microseconds in a second.
        absences: broker, when it died, and when it was back (None: it was not), and whether it was asked to go.
        deletions: topic, when it was asked for, and when it was gone, if it was.
        reassignments: topic, partition, begin and end.
    """

    seed: int
    lines: int = 0
    begin: float = 0.0
    end: float = 0.0
    versions: dict[int, str] = msgspec.field(default_factory=dict)
    offsets_ms: dict[int, int] = msgspec.field(default_factory=dict)
    dump: int | None = None
    drifts_ppm: dict[int, float] = msgspec.field(default_factory=dict)
    outages: list[Outage] = msgspec.field(default_factory=list)
    losses: list[Loss] = msgspec.field(default_factory=list)
    unclean: list[Unclean] = msgspec.field(default_factory=list)
    controllers: list[Controllership] = msgspec.field(default_factory=list)
    moves: list[Moves] = msgspec.field(default_factory=list)
    led: list[Led] = msgspec.field(default_factory=list)
    absences: list[tuple[int, float, float | None, bool]] = msgspec.field(default_factory=list)
    deletions: list[tuple[str, float, float | None]] = msgspec.field(default_factory=list)
    reassignments: list[tuple[str, int, float, float]] = msgspec.field(default_factory=list)

    def logged(self, broker: int, at: float) -> float:
        """What a broker's clock shows at a time."""
        return at + self.offsets_ms[broker] + (at - self.begin) * self.drifts_ppm[broker] / 1e6

    def write(self, folder: Path) -> None:
        (folder / TRUTH).write_bytes(msgspec.json.encode(self))


def read(folder: Path) -> Truth:
    """What `Truth.write` wrote."""
    return msgspec.json.decode((folder / TRUTH).read_bytes(), type=Truth)


class Watch:
    """Takes note of everything while it happens."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self._elections: Counter[Partition] = Counter()
        self._shrinks: Counter[Partition] = Counter()
        self._expands: Counter[Partition] = Counter()
        self._last: dict[Partition, int] = {}

    def down(self, p: Partition, at: float, *, planned: bool) -> None:
        """Nobody serves a partition any more."""
        if p.serving is not None:
            p.down = (at, planned, p.serving)
            p.serving = None

    def leads(self, p: Partition, at: float, leader: int, epoch: int, start: int) -> None:
        """Somebody began to serve it."""
        if p.down is not None:
            begin, planned, lost = p.down
            self.truth.outages.append(
                Outage(
                    topic=p.topic.name, partition=p.number, life=p.life, begin=begin, end=at, planned=planned,
                    broker=lost, new_leader=leader, leader_epoch=epoch,
                )
            )  # fmt: skip
            p.down = None
        if self._last.setdefault(p, leader) != leader:
            self._elections[p] += 1
            self._last[p] = leader
            self.truth.led.append(Led(p.topic.name, p.number, p.life, epoch, leader))
        p.starts.append((epoch, start, p.committed))
        p.committed = min(p.committed, start)

    def cut(self, p: Partition, at: float, replica: int, end: int, same: int, *, seen: bool = True) -> None:
        """A replica cuts what its leader does not have; `seen` False if it never got to do so."""
        after = p.took_part.get(replica, -1)
        committed = next((before for epoch, _, before in p.starts if epoch > after), p.committed)
        self.truth.losses.append(
            Loss(
                topic=p.topic.name, partition=p.number, life=p.life, replica=replica, after_epoch=after, log_end=same,
                replica_log_end=end, committed=max(0, min(end, committed) - same), at=at, seen=seen,
            )
        )  # fmt: skip

    def isr(self, p: Partition, before: int, after: int) -> None:
        """Its leader changed the ISR."""
        if after < before:
            self._shrinks[p] += 1
        elif after > before:
            self._expands[p] += 1

    def unclean(self, p: Partition, at: float, leader: int, epoch: int) -> None:
        """Somebody was elected who was not in sync."""
        self.truth.unclean.append(
            Unclean(topic=p.topic.name, partition=p.number, life=p.life, leader_epoch=epoch, leader=leader, at=at)
        )

    def deleted(self, topic: Topic, at: float) -> None:
        """The last of a topic is gone."""
        asked = max(began for name, began, _ in self.truth.deletions if name == topic.name)
        self.truth.deletions = [
            (name, began, at if (name, began) == (topic.name, asked) else done)
            for name, began, done in self.truth.deletions
        ]

    def gone(self, p: Partition) -> None:
        """Its topic is deleted; an outage that there was ends without an end."""
        self._open(p, deleted=True)
        p.serving = None

    def close(self, partitions: list[Partition], at: float) -> None:
        """The logs end here."""
        for p in partitions:
            self._open(p, deleted=False)
        counted = sorted({*self._elections, *self._shrinks, *self._expands}, key=lambda p: (p.name, p.life))
        self.truth.moves = [
            Moves(
                topic=p.topic.name, partition=p.number, life=p.life,
                elections=self._elections[p], shrinks=self._shrinks[p], expands=self._expands[p],
            )
            for p in counted
        ]  # fmt: skip
        self.truth.end = at

    def _open(self, p: Partition, *, deleted: bool) -> None:
        if p.down is not None:
            begin, planned, lost = p.down
            self.truth.outages.append(
                Outage(
                    topic=p.topic.name, partition=p.number, life=p.life, begin=begin, end=None, planned=planned,
                    broker=lost, deleted=deleted,
                )
            )  # fmt: skip
            p.down = None
