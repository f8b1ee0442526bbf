"""History of a generated cluster, for comparison with results. Times are true times in ms since 1970."""

from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from .cluster import Partition, Topic

TRUTH: Final = "truth.json"


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """An interval without a leader. `end` None: until the end of the logs or the deletion of the topic."""

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
    """Records that a replica truncated, `committed` of them. `seen` False: the replica never returned to do so."""

    topic: str
    partition: int
    life: int
    replica: int
    after_epoch: int
    log_end: int
    replica_log_end: int
    committed: int
    time_ms: float
    seen: bool = True

    @property
    def tail(self) -> int:
        return self.replica_log_end - self.log_end


class Unclean(msgspec.Struct, frozen=True, kw_only=True):
    """An election of a replica that was not in sync."""

    topic: str
    partition: int
    life: int
    leader_epoch: int
    leader: int
    time_ms: float


class Controllership(msgspec.Struct, frozen=True, kw_only=True):
    """A controller, its epoch, and the time of its election."""

    controller: int
    epoch: int
    time_ms: float


class Led(msgspec.Struct, frozen=True, array_like=True):
    """A leader epoch with another leader than before."""

    topic: str
    partition: int
    life: int
    leader_epoch: int
    leader: int


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """Number of a partition's changes of leader, and of ISR changes by its leaders."""

    topic: str
    partition: int
    life: int
    elections: int
    shrinks: int
    expands: int


class Truth(msgspec.Struct, kw_only=True):
    """The complete history.

    Attributes:
        offsets_ms: initial offset of each broker's clock from true time.
        dump: the controller whose clock the metadata log has; None without KRaft.
        drifts_ppm: drift of each clock in microseconds per second.
        absences: broker, begin, end (None: it did not return), and whether the absence was a controlled shutdown.
        deletions: topic, time of the request, and time of the end (None: not deleted).
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

    def logged(self, broker: int, time_ms: float) -> float:
        """Returns the time that a broker's clock shows at a true time."""
        return time_ms + self.offsets_ms[broker] + (time_ms - self.begin) * self.drifts_ppm[broker] / 1e6

    def write(self, folder: Path) -> None:
        (folder / TRUTH).write_bytes(msgspec.json.encode(self))


def read(folder: Path) -> Truth:
    """Reads a file of `Truth.write`."""
    return msgspec.json.decode((folder / TRUTH).read_bytes(), type=Truth)


class Recorder:
    """Recorder of the history."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self._elections: Counter[Partition] = Counter()
        self._shrinks: Counter[Partition] = Counter()
        self._expands: Counter[Partition] = Counter()
        self._last: dict[Partition, int] = {}

    def down(self, p: Partition, time_ms: float, *, planned: bool) -> None:
        """Records that a partition lost its leader."""
        if p.serving is not None:
            p.down = (time_ms, planned, p.serving)
            p.serving = None

    def leads(self, p: Partition, time_ms: float, leader: int, epoch: int, start: int) -> None:
        """Records that a broker began to lead a partition."""
        if p.down is not None:
            begin, planned, lost = p.down
            self.truth.outages.append(
                Outage(
                    topic=p.topic.name, partition=p.number, life=p.life, begin=begin, end=time_ms, planned=planned,
                    broker=lost, new_leader=leader, leader_epoch=epoch,
                )
            )  # fmt: skip
            p.down = None
        if self._last.setdefault(p, leader) != leader:
            self._elections[p] += 1
            self._last[p] = leader
            self.truth.led.append(Led(p.topic.name, p.number, p.life, epoch, leader))
        p.epoch_starts.append((epoch, start, p.committed))
        p.committed = min(p.committed, start)

    def cut(self, p: Partition, time_ms: float, replica: int, end: int, same: int, *, seen: bool = True) -> None:
        """Records a truncation; `seen` is False if the replica never returned to perform it."""
        after = p.took_part.get(replica, -1)
        committed = next((before for epoch, _, before in p.epoch_starts if epoch > after), p.committed)
        self.truth.losses.append(
            Loss(
                topic=p.topic.name, partition=p.number, life=p.life, replica=replica, after_epoch=after, log_end=same,
                replica_log_end=end, committed=max(0, min(end, committed) - same), time_ms=time_ms, seen=seen,
            )
        )  # fmt: skip

    def isr(self, p: Partition, before: int, after: int) -> None:
        """Records that a leader changed the ISR."""
        if after < before:
            self._shrinks[p] += 1
        elif after > before:
            self._expands[p] += 1

    def unclean(self, p: Partition, time_ms: float, leader: int, epoch: int) -> None:
        """Records an unclean election."""
        self.truth.unclean.append(
            Unclean(
                topic=p.topic.name, partition=p.number, life=p.life, leader_epoch=epoch, leader=leader, time_ms=time_ms
            )
        )

    def deleted(self, topic: Topic, time_ms: float) -> None:
        """Records the end of a deletion."""
        latest = max(began for name, began, _ in self.truth.deletions if name == topic.name)
        self.truth.deletions = [
            (name, began, time_ms if (name, began) == (topic.name, latest) else done)
            for name, began, done in self.truth.deletions
        ]

    def gone(self, p: Partition) -> None:
        """Records that a partition's topic is deleted; its outage, if any, has no end."""
        self._open(p, deleted=True)
        p.serving = None

    def close(self, partitions: list[Partition], time_ms: float) -> None:
        """Records the end of the logs."""
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
        self.truth.end = time_ms

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
