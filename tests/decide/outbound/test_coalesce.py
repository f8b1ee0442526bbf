"""Merging queued requests changes neither the broker's final state nor the results for its controller."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kactl.decide.messages.control import (
    LeaderAndIsr,
    OrderReason,
    PartitionStates,
    Request,
    StopReplica,
    UpdateMetadata,
)
from kactl.decide.outbound.coalesce import coalesced
from kactl.model import NO_BROKER, Broker, Endpoint, TopicRef
from kactl.model.errors import ErrorCode
from tests.support.marks import at_most
from tests.support.model_broker import ModelBroker

US = 1
IDS = [bytes([1]) * 16, bytes([2]) * 16]


def broker_on_port(id_: int, port: int = 9092) -> Broker:
    return Broker(id_, 100 + id_, (Endpoint("I", f"h{id_}", port),))


# -- random requests ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Dice:
    """Random requests.

    Args:
        sane: leaders are live and epochs increase, as from a real controller; otherwise values are arbitrary.
    """

    seed: int
    sane: bool

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.alive = [2, 3, 4]
        self.epochs: dict[tuple[int, int], int] = {}

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def request(self) -> Request:
        kind = self.random.integers(5)
        if kind < 2:
            return self.leader_and_isr()
        return self.update_metadata() if kind < 4 else self.stop_replica()

    def named(self) -> tuple[list[TopicRef], Any, Any]:
        """Returns topics and some of their partitions."""
        refs = [TopicRef(name, IDS[int(self.chance(0.02))]) for name in ("a", "b", "c")]
        which = np.flatnonzero(self.random.random(9) < 0.4)
        return refs, (which // 3).astype(np.int32), (which % 3).astype(np.int32)

    def states(self, *, metadata: bool) -> PartitionStates:
        refs, topic, partition = self.named()
        count = len(topic)
        names = list(zip(topic.tolist(), partition.tolist(), strict=True))
        if self.sane:
            if not metadata:
                self.epochs |= {name: self.epochs.get(name, -1) + int(self.random.integers(0, 3)) for name in names}
            leader_epoch = np.array([max(self.epochs.get(name, 0), 0) for name in names], np.int32)
            leader = self.random.choice([US, *self.alive], count).astype(np.int32)
            replicas = np.tile(np.array([[US], [2], [3], [4]], np.int32), (1, count))
        else:
            leader_epoch = self.random.integers(0, 4, count, dtype=np.int32)
            leader = self.random.integers(-1, 6, count, dtype=np.int32)
            replicas = np.where(self.random.random((4, count)) < 0.9, [[US], [2], [3], [4]], -1).astype(np.int32)
        if metadata:
            leader = np.where(self.random.random(count) < 0.1, np.int32(-2), leader)
        width = int(self.random.integers(1, 5))

        def numbers() -> Any:
            return self.random.integers(0, 9, count, dtype=np.int32)

        def flags() -> Any:
            return self.random.random(count) < 0.3

        return PartitionStates(
            topics=refs,
            topic=topic,
            partition=partition,
            controller_epoch=numbers(),
            leader=leader,
            leader_epoch=leader_epoch,
            isr=replicas[:width],
            partition_epoch=numbers(),
            replicas=replicas,
            adding=replicas[:1] if self.chance(0.2) else None,
            offline_replicas=replicas[-1:] if metadata and self.chance(0.3) else None,
            is_new=None if metadata else flags(),
            recovering=None if metadata else flags(),
        )

    def leader_and_isr(self) -> Request:
        leaders = tuple(broker_on_port(id_) for id_ in sorted({US, *self.alive}))
        return LeaderAndIsr(9, 1, 77, self.states(metadata=False), leaders)

    def update_metadata(self) -> Request:
        if self.chance(0.2):
            self.alive = np.flatnonzero(self.random.random(6) < 0.7).tolist()
        moved = self.chance(0.05)
        live = tuple(broker_on_port(id_, 9093 if moved else 9092) for id_ in sorted({US, *self.alive}))
        return UpdateMetadata(9, 1, 77, self.states(metadata=True), live)

    def stop_replica(self) -> Request:
        refs, topic, partition = self.named()
        epochs = self.random.integers(-2, 4, len(topic), dtype=np.int32)
        return StopReplica(9, 1, 77, refs, topic, partition, epochs, self.random.random(len(topic)) < 0.5)


# -- outcomes ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Results:
    """Results of responses for the controller: failed directories and the outcome of each deletion."""

    failed: set[str] = dataclasses.field(default_factory=set)
    deletions: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    def record(self, request: Request, answer: dict[str, int]) -> None:
        if isinstance(request, LeaderAndIsr):
            self.failed |= {name for name, error in answer.items() if error == ErrorCode.KAFKA_STORAGE_ERROR}
            self.failed -= {name for name, error in answer.items() if error == ErrorCode.NONE}
        if isinstance(request, StopReplica):
            for row, (name, error) in enumerate(answer.items()):
                codes = self.deletions.setdefault(name, [])
                # A repeated result counts once.
                if request.delete[row] and codes[-1:] != [error]:
                    codes.append(error)


@dataclasses.dataclass
class CoalescingQueue:
    """A broker, a controller, and the request queue between them."""

    broker: ModelBroker
    results: Results = dataclasses.field(default_factory=Results)
    waiting: list[Request] = dataclasses.field(default_factory=list)
    in_flight: bool = False
    delivered: int = 0

    def deliver(self) -> None:
        if self.waiting:
            request = self.waiting.pop(0)
            self.results.record(request, self.broker.take(request))
            self.delivered += 1
            self.in_flight = False

    def coalesce(self) -> None:
        alive: Any = self.broker.alive or None
        begin = int(self.in_flight and bool(self.waiting))
        if begin and isinstance(self.waiting[0], UpdateMetadata):
            alive = self.waiting[0].alive
        made = coalesced(self.waiting[begin:], broker=US, alive=alive)
        self.waiting[begin:] = [each.request for each in made]

    @property
    def outcome(self) -> tuple[Any, ...]:
        broker = dataclasses.asdict(self.broker)
        deletions = {name: codes for name, codes in self.results.deletions.items() if codes}
        return broker, self.results.failed, deletions


@settings(max_examples=at_most(500))
@given(
    seed=st.integers(0, 2**32),
    sane=st.booleans(),
    steps=st.lists(st.sampled_from(["put", "put", "put", "put", "take off", "deliver", "coalesce"]), max_size=40),
    unmade=st.sets(st.sampled_from(["a-0", "a-1", "b-0", "c-2"])),
)
def test_merging_does_not_change_the_outcome(seed: int, sane: bool, steps: list[str], unmade: set[str]) -> None:
    dice = Dice(seed, sane)
    whole, together = (CoalescingQueue(ModelBroker(US, frozenset(unmade))) for _ in range(2))

    for step in steps:
        if step == "put":
            request = dice.request()
            whole.waiting.append(request)
            together.waiting.append(request)
        elif step == "take off":
            together.in_flight = True
        elif step == "deliver":
            together.deliver()
        else:
            together.coalesce()
    together.coalesce()
    for line in (whole, together):
        while line.waiting:
            line.deliver()

    assert together.outcome == whole.outcome
    assert together.delivered <= whole.delivered


# -- rule by rule ------------------------------------------------------------------------------------------------------


def one_row(
    name: str, *, leader: int, epoch: int, replicas: Sequence[int], is_new: bool | None = None
) -> PartitionStates:
    topic, partition = name.split("-")
    at, one = np.zeros(1, np.int32), np.array([epoch], np.int32)
    listed = np.array([[id_] for id_ in replicas], np.int32)
    return PartitionStates(
        topics=[TopicRef(topic, IDS[0])],
        topic=at,
        partition=np.array([int(partition)], np.int32),
        controller_epoch=at,
        leader=np.array([leader], np.int32),
        leader_epoch=one,
        isr=listed,
        partition_epoch=one,
        replicas=listed,
        is_new=None if is_new is None else np.array([is_new]),
    )


def lead_one(
    name: str, leader: int = US, epoch: int = 0, *, replicas: Sequence[int] = (1, 2, 3), is_new: bool = False
) -> LeaderAndIsr:
    said = one_row(name, leader=leader, epoch=epoch, replicas=replicas, is_new=is_new)
    return LeaderAndIsr(9, 1, 77, said, (broker_on_port(leader),) if leader > 0 else ())


def update_one(*alive: int, name: str = "z-0", leader: int = US, epoch: int = 0) -> UpdateMetadata:
    said = one_row(name, leader=leader, epoch=epoch, replicas=(1, 2, 3))
    return UpdateMetadata(9, 1, 77, said, tuple(broker_on_port(id_) for id_ in alive))


def stop_one(name: str, epoch: int, *, delete: bool = False) -> StopReplica:
    topic, partition = name.split("-")
    at, one = np.zeros(1, np.int32), np.array([epoch], np.int32)
    return StopReplica(
        9, 1, 77, [TopicRef(topic, IDS[0])], at, np.array([int(partition)], np.int32), one, np.array([delete])
    )


BEFORE: list[Request] = [update_one(1, 2), lead_one("a-0", US, 2)]
TOGETHER: dict[str, tuple[list[Request], list[str]]] = {
    "what was said of other partitions": (
        [lead_one("a-0", 2, 3), lead_one("b-0", 2, 0)],
        ["LeaderAndIsr"],
    ),
    "the latest of each kind": (
        [
            lead_one("a-0", 2, 3),
            update_one(1, 2, epoch=3),
            lead_one("a-0", US, 4),
            update_one(1, 2, epoch=4),
            lead_one("a-0", 2, 5),
        ],
        ["LeaderAndIsr", "UpdateMetadata"],
    ),
    "a broker that comes and goes and leads nothing": (
        [
            lead_one("a-0", 2, 3),
            update_one(1, 2, 3),
            lead_one("a-0", US, 4),
            update_one(1, 2),
            lead_one("b-0", 2, 0),
            update_one(1, 2, 3),
        ],
        ["LeaderAndIsr", "UpdateMetadata"],
    ),
    "leading and stopping, of different partitions": (
        [
            lead_one("a-0", 2, 3),
            stop_one("b-0", 1),
            lead_one("a-0", US, 4),
            stop_one("b-1", 1),
        ],
        ["LeaderAndIsr", "StopReplica"],
    ),
    "a stop before a deletion": (
        [stop_one("a-0", 2), stop_one("a-0", -2, delete=True)],
        ["StopReplica"],
    ),
    "a deletion before a stop": (
        [stop_one("a-0", -2, delete=True), stop_one("a-0", 5)],
        ["StopReplica"],
    ),
    "a deletion that is asked for twice": (
        [stop_one("a-0", -2, delete=True), stop_one("a-0", 5, delete=True)],
        ["StopReplica"],
    ),
    "two stops": ([stop_one("a-0", 1), stop_one("a-0", 3)], ["StopReplica"]),
    "what is taken away in the end": (
        [update_one(1, 2, name="a-0", epoch=3), update_one(1, 2, name="a-0", leader=-2)],
        ["UpdateMetadata"],
    ),
    "the same epoch, received already": (
        [lead_one("a-0", 2, 2), lead_one("a-0", US, 2)],
        ["LeaderAndIsr"],
    ),
}


@pytest.mark.parametrize(("requests", "kinds"), TOGETHER.values(), ids=TOGETHER.keys())
def test_superseded_requests_are_merged(requests: list[Request], kinds: list[str]) -> None:
    made = _no_difference(requests, alive=update_one(1, 2).alive)

    assert [type(each).__name__ for each in made] == kinds


APART: dict[str, list[Request]] = {
    "a replica is stopped, and serves again": [
        lead_one("a-0", 2, 3),
        stop_one("a-0", -1),
        lead_one("a-0", US, 4),
    ],
    "a replica is deleted, and made again": [
        stop_one("a-0", -1, delete=True),
        lead_one("a-0", US, 1),
        stop_one("a-0", 1),
    ],
    "one leader goes, another comes": [
        lead_one("a-0", 2, 3),
        update_one(1, 3),
        lead_one("b-0", 3, 1),
    ],
    "a leader that is dead by then": [
        lead_one("a-0", 2, 3),
        update_one(1),
        lead_one("b-0", 2, 1),
    ],
    "a leader that is not known to be alive": [lead_one("a-0", 2, 3), lead_one("a-0", 3, 4)],
    "nobody leads": [lead_one("a-0", 2, 3), lead_one("a-0", -1, 4)],
    "the recipient is no replica any more": [
        lead_one("a-0", 2, 3),
        lead_one("a-0", 2, 4, replicas=(2, 3)),
    ],
    "the recipient was no replica": [
        lead_one("c-0", 2, 3, replicas=(2, 3), is_new=True),
        lead_one("c-0", 2, 4),
    ],
    "new only the second time": [lead_one("c-0", US, 3), lead_one("c-0", US, 4, is_new=True)],
    "a partition that is forgotten, and made again": [
        update_one(1, 2, name="a-0", leader=-2),
        update_one(1, 2, name="a-0", leader=2),
    ],
    "a stop that is obeyed where the deletion is not": [
        stop_one("a-0", 3),
        stop_one("a-0", 1, delete=True),
    ],
    "a stop that is obeyed where the deletion was not": [
        stop_one("a-0", 1, delete=True),
        stop_one("a-0", 3),
    ],
    "deletions that are answered in two ways": [
        stop_one("a-0", 1, delete=True),
        stop_one("a-0", 3, delete=True),
    ],
}


@pytest.mark.parametrize("requests", APART.values(), ids=APART.keys())
def test_requests_with_different_outcomes_are_not_merged(requests: list[Request]) -> None:
    made = _no_difference(requests, alive=update_one(1, 2).alive)

    assert [id(each) for each in made] == [id(each) for each in requests]


UNKNOWN: dict[str, list[Request]] = {
    "a leader that was alive": [
        lead_one("b-0", US, 1),
        update_one(1, 3),
        lead_one("a-0", 2, 3),
    ],
    "a leader that was alive, and is again": [
        update_one(1, 3),
        lead_one("a-0", 2, 3),
        update_one(1, 2, 3),
    ],
}


@pytest.mark.parametrize("requests", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_nothing_passes_an_update_without_known_live_brokers(requests: list[Request]) -> None:
    made = _no_difference(requests, alive=None)

    assert [id(each) for each in made] == [id(each) for each in requests]


def _no_difference(requests: list[Request], *, alive: Any) -> list[Request]:
    """Returns the merged requests, after asserting the same outcome for a broker that knows `a-0`."""
    made = [each.request for each in coalesced(requests, broker=US, alive=alive)]
    outcomes = []
    for said in (requests, made):
        line = CoalescingQueue(ModelBroker(US, frozenset({"c-0"})), waiting=[*BEFORE, *said])
        while line.waiting:
            line.deliver()
        outcomes.append(line.outcome)
    assert outcomes[0] == outcomes[1]
    return made


def test_merged_request_has_the_queue_time_of_its_first() -> None:
    requests: list[Request] = [
        update_one(1, 2),
        lead_one("a-0", 2, 3),
        update_one(1, 2),
        lead_one("a-0", US, 4),
        stop_one("a-0", -1),
    ]

    made = coalesced(requests, broker=US, alive=update_one(1, 2).alive)

    assert [(type(each.request).__name__, each.since) for each in made] == [
        ("UpdateMetadata", 0),
        ("LeaderAndIsr", 1),
        ("StopReplica", 4),
    ]


def test_merged_requests_respect_the_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kactl.decide.outbound.merge.PARTITIONS_OF_A_REQUEST_MAX", 2)
    requests = [lead_one(f"a-{at}", US, 3) for at in (1, 2, 3, 3)]

    made = coalesced(requests, broker=US, alive={})

    assert [len(each.request.states) for each in made if isinstance(each.request, LeaderAndIsr)] == [2, 1]


def test_requests_of_different_controllers_are_not_merged() -> None:
    requests = [update_one(1, 2), dataclasses.replace(update_one(1, 2), controller_epoch=2)]

    assert [each.request for each in coalesced(requests, broker=US, alive={})] == requests


def test_rows_of_merged_requests_keep_their_reasons() -> None:
    def explained(name: str, epoch: int, strategy: str) -> LeaderAndIsr:
        return dataclasses.replace(lead_one(name, US, epoch), reasons=(OrderReason("BrokerChange", strategy),))

    def merged(*requests: LeaderAndIsr) -> LeaderAndIsr:
        (found,) = [each.request for each in coalesced(requests, broker=US, alive={})]
        assert isinstance(found, LeaderAndIsr)
        return found

    both = merged(explained("a-1", 3, "offline"), explained("a-2", 3, "first"))
    assert [both.reason_of(row).strategy for row in range(2)] == ["offline", "first"]

    # Merged again: the reason that no row has any more is not kept.
    later = merged(both, explained("a-1", 4, "preferred"), lead_one("a-3", US, 1))
    assert [later.reason_of(row).strategy for row in range(3)] == ["preferred", "first", ""]
    assert len(later.reasons) == 3


def test_columns_that_only_one_of_merged_requests_has_are_unknown_in_the_others() -> None:
    """An unknown earlier leader is not broker 0, and the count of epochs with the same leader is the one of its row."""
    states = dataclasses.replace(
        lead_one("a-1", US, 3).states, previous=np.array([2], np.int32), unbroken=np.array([2], np.int32)
    )
    first, later = dataclasses.replace(lead_one("a-1", US, 3), states=states), lead_one("a-1", US, 4)
    other = lead_one("a-2", US, 1)

    (both,) = [each.request for each in coalesced([first, other], broker=US, alive={})]
    (newest,) = [each.request for each in coalesced([first, later, other], broker=US, alive={})]

    assert isinstance(both, LeaderAndIsr)
    assert isinstance(newest, LeaderAndIsr)
    assert both.states.previous is not None
    assert both.states.previous.tolist() == [2, NO_BROKER]
    assert both.states.unbroken is not None
    assert both.states.unbroken.tolist() == [2, 0]
    assert newest.states.unbroken is None or newest.states.unbroken.tolist() == [0, 0]
