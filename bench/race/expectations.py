"""Expected requests of a phase, and the time of the last one.

An expectation is a set of cells, each a partition at a broker, and a condition for each: the partition is in a request,
its leader epoch is higher than at the start of the phase, or it is deleted. Requests are stored with the times of
their last bytes and evaluated only between phases.
"""

from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from bench.clusters import Shape

from .scan import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Header, Ints, Scan, scan

RequestName = Literal["leader_and_isr", "update_metadata", "stop_replica"]
NAMES: dict[int, RequestName] = {
    LEADER_AND_ISR: "leader_and_isr",
    UPDATE_METADATA: "update_metadata",
    STOP_REPLICA: "stop_replica",
}


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """A set of partitions that brokers should receive.

    Attributes:
        request: type of the request.
        when: the partition is `received`, its leader epoch is `raised`, or it is `gone`.
        partitions: numbers in the cluster; None for all.
        brokers: the receiving brokers.
        hosted: whether each broker should receive only partitions of which it has a replica.
    """

    request: RequestName
    when: Literal["received", "raised", "gone"]
    brokers: list[int]
    partitions: list[int] | None = None
    hosted: bool = False


class Progress(msgspec.Struct, frozen=True):
    """Progress of an expectation: number of missing cells, and time of the last one reached (None: no cell)."""

    missing: int
    at: float | None


class Traffic(msgspec.Struct):
    """Requests since the mark, by type.

    Attributes:
        first_at: time of the first request of any type.
        strange: requests with a wrong broker epoch or with unknown topics.
    """

    requests: dict[RequestName, int] = msgspec.field(default_factory=lambda: dict.fromkeys(NAMES.values(), 0))
    bytes: dict[RequestName, int] = msgspec.field(default_factory=lambda: dict.fromkeys(NAMES.values(), 0))
    first_at: float | None = None
    strange: int = 0


class Body:
    """The partitions of one request, or of equal ones to several brokers; read at first use."""

    __slots__ = ("_found", "_rows", "frame", "header")

    def __init__(self, frame: bytearray, header: Header, found: Scan | None) -> None:
        self.frame = frame
        self.header = header
        self._found = found
        self._rows: Rows | None = None

    @property
    def content(self) -> memoryview:
        """The bytes after the broker epoch."""
        return memoryview(self.frame)[self.header.body :]

    def rows(self, numbers: "Numbers") -> "Rows":
        if self._rows is None:
            self._rows = Rows(self._found or scan(self.frame, self.header), numbers)
        return self._rows


class Arrival(msgspec.Struct, frozen=True):
    """A received request.

    Attributes:
        at: time of its last byte on the monotonic clock.
        size: bytes, including the length field.
        is_current: whether it has the broker's epoch, or none.
    """

    broker: int
    at: float
    size: int
    body: Body
    is_current: bool = True


class Numbers:
    """Numbers of partitions in the cluster."""

    def __init__(self, shape: Shape) -> None:
        self._per_topic = shape.per_topic
        self._topics = {ref.name.encode(): index for index, ref in enumerate(shape.refs())}

    def of(self, found: Scan) -> tuple[Ints, bool]:
        """Returns int32[n], -1 for partitions of unknown topics, and whether there are such."""
        topics = np.array([self._topics.get(name, -1) for name in found.names()], np.int32)
        topic = np.repeat(topics, found.counts)
        number = topic * np.int32(self._per_topic) + found.partition()
        number[topic < 0] = -1
        return number, bool((topics < 0).any())


class Rows:
    """The partitions in one request, as columns."""

    __slots__ = ("epoch", "gone", "number", "strange")

    def __init__(self, found: Scan, numbers: Numbers) -> None:
        number, self.strange = numbers.of(found)
        known = number >= 0
        self.number: Ints = number[known]
        self.epoch: Ints = found.leader_epoch()[known]
        self.gone: npt.NDArray[np.bool_] = found.gone()[known]


class Tracker:
    """Evaluation of requests against expectations."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._numbers = Numbers(shape)
        self._replicas = shape.assignments().replicas
        # The highest received leader epoch of each partition, and its value at the mark.
        self._epoch = np.full(shape.partitions, -1, np.int32)
        self._before = self._epoch.copy()
        self._expectations: dict[str, Expectation] = {}
        self._cells: dict[str, npt.NDArray[np.bool_]] = {}
        self._at: dict[str, float] = {}
        self.traffic = Traffic()

    def mark(self, expectations: dict[str, Expectation]) -> None:
        """Begins to evaluate these expectations."""
        self._before = self._epoch.copy()
        self._expectations = expectations
        self._cells = {name: self._wanted(expectation) for name, expectation in expectations.items()}
        self._at = {}
        self.traffic = Traffic()

    def add(self, arrival: Arrival) -> None:
        """Evaluates one request; requests are added in order of time."""
        api = arrival.body.header.api
        request = NAMES[api]
        traffic = self.traffic
        traffic.requests[request] += 1
        traffic.bytes[request] += arrival.size
        traffic.first_at = arrival.at if traffic.first_at is None else traffic.first_at
        rows = arrival.body.rows(self._numbers)
        traffic.strange += rows.strange or not arrival.is_current
        for name, expectation in self._expectations.items():
            if expectation.request == request:
                self._update(name, expectation, arrival, rows)
        if api != STOP_REPLICA:
            self._epoch[rows.number] = np.maximum(self._epoch[rows.number], rows.epoch)

    def progress(self) -> dict[str, Progress]:
        """Returns the progress of each expectation."""
        return {name: Progress(int(np.count_nonzero(cells)), self._at.get(name)) for name, cells in self._cells.items()}

    def _wanted(self, expectation: Expectation) -> npt.NDArray[np.bool_]:
        """Returns bool[broker, partition]; there is no broker 0."""
        cells = np.zeros((self._shape.brokers + 1, self._shape.partitions), np.bool_)
        chosen: slice | list[int] = slice(None) if expectation.partitions is None else expectation.partitions
        wanted = np.zeros(self._shape.partitions, np.bool_)
        wanted[chosen] = True
        for broker in expectation.brokers:
            cells[broker] = wanted & (self._replicas == broker).any(axis=0) if expectation.hosted else wanted
        return cells

    def _update(self, name: str, expectation: Expectation, arrival: Arrival, rows: Rows) -> None:
        waiting = self._cells[name][arrival.broker]
        hit = waiting[rows.number]
        if expectation.when == "raised":
            hit &= rows.epoch > self._before[rows.number]
        elif expectation.when == "gone":
            hit &= rows.gone
        if hit.any():
            waiting[rows.number[hit]] = False
            self._at[name] = arrival.at
