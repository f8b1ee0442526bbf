"""What a phase waits to see at the brokers, and when the last of it came.

A *wish* is a set of cells, a partition at a broker, and of a word that is to reach each of them: that it is told of
at all, that its leader epoch has risen above what was known when the phase began, that it is gone. Requests are put
aside while they come, each with the time of its last byte, and are gone through between the phases only.
"""

from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from bench.clusters import Shape

from .scan import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Header, Ints, Scan, scan

Said = Literal["leader_and_isr", "update_metadata", "stop_replica"]
NAMES: dict[int, Said] = {
    LEADER_AND_ISR: "leader_and_isr",
    UPDATE_METADATA: "update_metadata",
    STOP_REPLICA: "stop_replica",
}


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What brokers are to be told.

    Attributes:
        said: in which request.
        when: `told` of the partition, its leader epoch `raised`, or it is `gone`.
        partitions: their numbers in the cluster; None for all.
        brokers: who is to be told.
        hosted: each broker only of the partitions of which it has a replica.
    """

    said: Said
    when: Literal["told", "raised", "gone"]
    brokers: list[int]
    partitions: list[int] | None = None
    hosted: bool = False


class Fulfilled(msgspec.Struct, frozen=True):
    """How far a wish is: cells that wait, and when the last one that does not was reached (None: none was)."""

    missing: int
    at: float | None


class Traffic(msgspec.Struct):
    """What has come in since the mark, by the request's name.

    Attributes:
        first_at: when the first request had come, of any kind.
        strange: requests with another broker epoch than the broker's, or about topics that the cluster does not have.
    """

    requests: dict[Said, int] = msgspec.field(default_factory=lambda: dict.fromkeys(NAMES.values(), 0))
    bytes: dict[Said, int] = msgspec.field(default_factory=lambda: dict.fromkeys(NAMES.values(), 0))
    first_at: float | None = None
    strange: int = 0


class Body:
    """The partitions of one request, or of equal ones to several brokers; read when first asked for."""

    __slots__ = ("_found", "_rows", "frame", "header")

    def __init__(self, frame: bytearray, header: Header, found: Scan | None) -> None:
        self.frame = frame
        self.header = header
        self._found = found
        self._rows: Rows | None = None

    @property
    def content(self) -> memoryview:
        """What follows the broker epoch."""
        return memoryview(self.frame)[self.header.body :]

    def rows(self, numbers: "Numbers") -> "Rows":
        if self._rows is None:
            self._rows = Rows(self._found or scan(self.frame, self.header), numbers)
        return self._rows


class Arrival(msgspec.Struct, frozen=True):
    """A request of which the last byte came at a time of the monotonic clock.

    Attributes:
        size: in bytes, with its length.
        is_current: whether it names the broker's epoch, or none.
    """

    broker: int
    at: float
    size: int
    body: Body
    is_current: bool = True


class Numbers:
    """Which number a partition has in the cluster."""

    def __init__(self, shape: Shape) -> None:
        self._per_topic = shape.per_topic
        self._topics = {ref.name.encode(): at for at, ref in enumerate(shape.refs())}

    def of(self, found: Scan) -> tuple[Ints, bool]:
        """int32[n], -1 for those of other topics; and whether there are such."""
        topics = np.array([self._topics.get(name, -1) for name in found.names()], np.int32)
        topic = np.repeat(topics, found.counts)
        number = topic * np.int32(self._per_topic) + found.partition()
        number[topic < 0] = -1
        return number, bool((topics < 0).any())


class Rows:
    """The partitions that one request names, as columns."""

    __slots__ = ("epoch", "gone", "number", "strange")

    def __init__(self, found: Scan, numbers: Numbers) -> None:
        number, self.strange = numbers.of(found)
        known = number >= 0
        self.number: Ints = number[known]
        self.epoch: Ints = found.leader_epoch()[known]
        self.gone: npt.NDArray[np.bool_] = found.gone()[known]


class Tally:
    """Counts what has come in against what is wished for."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._numbers = Numbers(shape)
        self._replicas = shape.assignments().replicas
        # The highest leader epoch that was ever heard of each partition, and what it was at the mark.
        self._epoch = np.full(shape.partitions, -1, np.int32)
        self._before = self._epoch.copy()
        self._wishes: dict[str, Wish] = {}
        self._cells: dict[str, npt.NDArray[np.bool_]] = {}
        self._at: dict[str, float] = {}
        self.traffic = Traffic()

    def mark(self, wishes: dict[str, Wish]) -> None:
        """From here on it is looked for these."""
        self._before = self._epoch.copy()
        self._wishes = wishes
        self._cells = {name: self._wanted(wish) for name, wish in wishes.items()}
        self._at = {}
        self.traffic = Traffic()

    def add(self, arrival: Arrival) -> None:
        """Count one request; they come in the order of their times."""
        api = arrival.body.header.api
        said = NAMES[api]
        traffic = self.traffic
        traffic.requests[said] += 1
        traffic.bytes[said] += arrival.size
        traffic.first_at = arrival.at if traffic.first_at is None else traffic.first_at
        rows = arrival.body.rows(self._numbers)
        traffic.strange += rows.strange or not arrival.is_current
        for name, wish in self._wishes.items():
            if wish.said == said:
                self._fulfil(name, wish, arrival, rows)
        if api != STOP_REPLICA:
            self._epoch[rows.number] = np.maximum(self._epoch[rows.number], rows.epoch)

    def fulfilled(self) -> dict[str, Fulfilled]:
        """How far each wish is."""
        return {
            name: Fulfilled(int(np.count_nonzero(cells)), self._at.get(name)) for name, cells in self._cells.items()
        }

    def _wanted(self, wish: Wish) -> npt.NDArray[np.bool_]:
        """bool[broker, partition]; broker 0 is nobody."""
        cells = np.zeros((self._shape.brokers + 1, self._shape.partitions), np.bool_)
        chosen: slice | list[int] = slice(None) if wish.partitions is None else wish.partitions
        wanted = np.zeros(self._shape.partitions, np.bool_)
        wanted[chosen] = True
        for broker in wish.brokers:
            cells[broker] = wanted & (self._replicas == broker).any(axis=0) if wish.hosted else wanted
        return cells

    def _fulfil(self, name: str, wish: Wish, arrival: Arrival, rows: Rows) -> None:
        waiting = self._cells[name][arrival.broker]
        hit = waiting[rows.number]
        if wish.when == "raised":
            hit &= rows.epoch > self._before[rows.number]
        elif wish.when == "gone":
            hit &= rows.gone
        if hit.any():
            waiting[rows.number[hit]] = False
            self._at[name] = arrival.at
