"""Checks of a modelled broker on the controller's requests, in Kafka's order."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from kactl.decide.messages.control import LeaderAndIsr, PartitionStates, Request, StopReplica, UpdateMetadata
from kactl.decide.state.rows import Ints
from kactl.model import Broker, TopicPartition, TopicRef
from kactl.model.errors import ErrorCode
from kactl.testing.history import History
from kactl.testing.transport import ControlMessage
from tests.sim.engine.brokers.receiver import Receiver
from tests.sim.engine.brokers.replica import Disk
from tests.sim.engine.checkers.events import validate
from tests.sim.engine.run import run_script
from tests.sim.engine.script import Action, BrokersSpec, Script, WorldSpec

T = TopicRef("t", b"t" * 16)
NEXT_T = TopicRef("t", b"n" * 16)
T_0 = TopicPartition("t", 0)
EPOCH = 7


class Made:
    """A registered broker 1 that knows the brokers 1 and 2."""

    def __init__(self) -> None:
        self.history = History(lambda: 0.0)
        self.disk = Disk()
        self.removed_by_hand: dict[str, set[bytes]] = {}
        self.receiver = Receiver(1, self.disk, self.history, removed_by_hand=self.removed_by_hand, now_ms=lambda: 0.0)
        self.receiver.registering({})
        self.receiver.registered(EPOCH)

    def send(self, request: Request, *, number: int = 1) -> Any:
        response = self.receiver.answer(ControlMessage(number, request))
        for event in self.history.events:
            validate(event)
        return response

    def complaints(self) -> list[str]:
        return [event.fields["invariant"] for event in self.history.events if event.kind == "broker.complaint"]


@pytest.fixture
def made() -> Made:
    return Made()


@pytest.fixture
def greeted(made: Made) -> Made:
    made.send(metadata())
    return made


def one(number: int) -> Ints:
    return np.array([number], np.int32)


def states(topic: TopicRef = T, *, leader: int, epoch: int, version: int, replicas: tuple[int, ...]) -> PartitionStates:
    column = np.array([replicas], np.int32).T
    return PartitionStates(
        (topic,),
        topic=one(0),
        partition=one(0),
        controller_epoch=one(3),
        leader=one(leader),
        leader_epoch=one(epoch),
        isr=column,
        partition_epoch=one(version),
        replicas=column,
        is_new=np.array([True]),
        recovering=np.array([False]),
    )


def lead(
    *,
    leader: int = 1,
    epoch: int = 0,
    version: int = 0,
    replicas: tuple[int, ...] = (1, 2),
    topic: TopicRef = T,
    broker_epoch: int = EPOCH,
    by: int = 3,
) -> LeaderAndIsr:
    rows = states(topic, leader=leader, epoch=epoch, version=version, replicas=replicas)
    return LeaderAndIsr(100, by, broker_epoch, rows)


def no_states() -> PartitionStates:
    none, empty = np.zeros(0, np.int32), np.zeros((0, 0), np.int32)
    return PartitionStates((), none, none, none, none, none, empty, none, empty)


def metadata(*, by: int = 3, live: tuple[int, ...] = (1, 2), broker_epoch: int = EPOCH) -> UpdateMetadata:
    return UpdateMetadata(100, by, broker_epoch, no_states(), tuple(Broker(broker, 1) for broker in live))


def stop(*, epoch: int, delete: bool = False) -> StopReplica:
    return StopReplica(100, 3, EPOCH, (T,), one(0), one(0), one(epoch), np.array([delete]))


def test_request_for_an_earlier_registration_is_rejected(greeted: Made) -> None:
    assert greeted.send(lead(broker_epoch=EPOCH - 1)).error == ErrorCode.STALE_BROKER_EPOCH
    assert greeted.send(lead(broker_epoch=EPOCH + 1)).error == ErrorCode.NONE


def test_request_of_an_earlier_controller_is_rejected(greeted: Made) -> None:
    greeted.send(metadata(by=4))

    assert greeted.send(lead(by=3)).error == ErrorCode.STALE_CONTROLLER_EPOCH
    assert not greeted.receiver.replicas


def test_leader_and_isr_before_update_metadata_is_a_complaint(made: Made) -> None:
    made.send(lead())

    assert made.complaints() == ["INV-49"]


def test_metadata_of_an_earlier_controller_does_not_count(greeted: Made) -> None:
    greeted.send(lead(by=4))

    assert greeted.complaints() == ["INV-49"]


def test_metadata_before_the_epoch_of_the_registration_is_known_counts(made: Made) -> None:
    made.receiver.registering({T_0: T.id})
    made.send(metadata(broker_epoch=EPOCH + 1))
    made.receiver.registered(EPOCH + 1)
    made.send(lead(broker_epoch=EPOCH + 1))

    assert made.complaints() == []
    assert made.receiver.older == {T_0: T.id}


@pytest.mark.parametrize(
    ("second", "error", "leads"),
    [
        (lead(leader=2, epoch=2), ErrorCode.NONE, 2),
        (lead(leader=2, epoch=1), ErrorCode.STALE_CONTROLLER_EPOCH, 1),
        (lead(leader=2, epoch=0), ErrorCode.STALE_CONTROLLER_EPOCH, 1),
        (lead(leader=2, epoch=2, version=-1), ErrorCode.NONE, 1),
        (lead(leader=2, epoch=2, topic=TopicRef("t", b"u" * 16)), ErrorCode.INCONSISTENT_TOPIC_ID, 1),
        (lead(leader=3, epoch=2), ErrorCode.NONE, 1),  # the leader is not in the metadata
        (lead(leader=-1, epoch=2), ErrorCode.NONE, 1),
    ],
    ids=["newer", "same", "older", "older version", "other topic", "unknown leader", "no leader"],
)
def test_second_leader_and_isr(greeted: Made, second: LeaderAndIsr, error: ErrorCode, leads: int) -> None:
    greeted.send(lead(epoch=1))

    response = greeted.send(second)

    assert response.partitions.error.tolist() == [error]
    assert greeted.receiver.replicas[T_0].leader == leads


def test_broker_that_is_no_replica_complains(greeted: Made) -> None:
    response = greeted.send(lead(leader=2, replicas=(2, 3)))

    assert response.partitions.error.tolist() == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert greeted.complaints() == ["INV-49"]


def test_partition_on_a_failed_directory_is_a_storage_error(greeted: Made) -> None:
    greeted.disk.failed.add(T_0)

    assert greeted.send(lead()).partitions.error.tolist() == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert greeted.disk.reported


@pytest.mark.parametrize(
    ("epoch", "error", "is_left"),
    [
        (5, ErrorCode.NONE, False),
        (4, ErrorCode.FENCED_LEADER_EPOCH, True),
        (-1, ErrorCode.NONE, False),
        (-2, ErrorCode.NONE, False),
    ],
)
def test_stop_compares_the_leader_epoch(greeted: Made, epoch: int, error: ErrorCode, is_left: bool) -> None:
    greeted.send(lead(epoch=5))

    assert greeted.send(stop(epoch=epoch)).partitions.error.tolist() == [error]
    assert (T_0 in greeted.receiver.replicas) == is_left


def test_deletion_removes_the_log_and_a_stop_does_not(greeted: Made) -> None:
    greeted.send(lead(epoch=5))
    greeted.send(stop(epoch=5))
    assert T_0 in greeted.disk.logs

    greeted.send(stop(epoch=5, delete=True))

    assert T_0 not in greeted.disk.logs


@pytest.mark.parametrize(("number", "is_overtaken"), [(1, True), (3, False)])
def test_log_of_a_request_from_before_its_deletion_is_overtaken(greeted: Made, number: int, is_overtaken: bool) -> None:
    greeted.send(lead(epoch=5), number=1)
    greeted.send(stop(epoch=5, delete=True), number=2)

    greeted.send(lead(epoch=5), number=number)

    assert greeted.disk.logs[T_0].is_overtaken == is_overtaken


def test_later_request_for_an_overtaken_log_makes_it_regular(greeted: Made) -> None:
    greeted.send(stop(epoch=5, delete=True), number=2)
    greeted.send(lead(epoch=5), number=1)

    greeted.send(lead(epoch=6), number=3)

    assert not greeted.disk.logs[T_0].is_overtaken


@pytest.mark.parametrize(("number", "is_blocked"), [(1, True), (3, False)])
def test_replica_of_a_late_request_blocks_the_next_topic(greeted: Made, number: int, is_blocked: bool) -> None:
    greeted.send(stop(epoch=5, delete=True), number=2)
    greeted.send(lead(epoch=5), number=number)

    greeted.send(lead(topic=NEXT_T), number=4)

    assert (T_0 in greeted.receiver.blocked) == is_blocked


@pytest.mark.parametrize(("named", "is_blocked"), [(False, True), (True, False)])
def test_replica_that_only_an_earlier_controller_has_named_blocks_the_next_topic(
    greeted: Made, named: bool, is_blocked: bool
) -> None:
    greeted.send(lead(epoch=5))
    greeted.send(metadata(by=4))
    if named:
        greeted.send(lead(epoch=5, by=4))

    greeted.send(lead(topic=NEXT_T, by=4))

    assert (T_0 in greeted.receiver.blocked) == is_blocked


def test_operator_removes_only_replicas_of_the_topic_that_was_removed_by_hand(greeted: Made) -> None:
    greeted.send(lead(epoch=5))
    greeted.removed_by_hand["t"] = {T.id}

    new = greeted.send(lead(topic=NEXT_T))
    late = greeted.send(lead(epoch=6))

    assert (new.partitions.error[0], late.partitions.error[0]) == (ErrorCode.NONE, ErrorCode.INCONSISTENT_TOPIC_ID)
    assert greeted.receiver.replicas[T_0].topic == NEXT_T


def test_partition_is_not_blocked_after_the_earlier_replica_is_stopped(greeted: Made) -> None:
    greeted.send(lead(epoch=5))
    greeted.send(metadata(by=4))
    greeted.send(lead(topic=NEXT_T, by=4))

    greeted.send(StopReplica(100, 4, EPOCH, (NEXT_T,), one(0), one(0), one(-2), np.array([True])))

    assert T_0 not in greeted.receiver.blocked


@pytest.mark.parametrize(("number", "live", "then", "is_ignored"), [
    (1, (1,), None, True),
    (3, (1,), None, False),
    (1, (1, 2), None, False),
    (1, (1,), lead(leader=2, epoch=2, version=2), False),
    (1, (1,), stop(epoch=1), False),
], ids=["late", "in order", "live leader", "applied later", "stopped later"])  # fmt: skip
def test_leader_that_only_late_metadata_leaves_out_is_ignored(
    number: int, live: tuple[int, ...], then: Request | None, is_ignored: bool, made: Made
) -> None:
    made.send(metadata(), number=2)
    made.send(lead(epoch=0), number=2)

    made.send(metadata(live=live), number=number)
    made.send(lead(leader=2, epoch=1, version=1), number=4)
    assert made.receiver.replicas[T_0].leader == (2 if live == (1, 2) else 1)
    if then is not None:
        made.send(metadata(), number=5)
        made.send(then, number=6)

    assert (T_0 in made.receiver.ignored) == is_ignored


IGNORED, MOVE, STOP = "ignored", "move", "stop"


@pytest.mark.parametrize(("number", "then", "is_missed"), [
    (3, None, True), (1, None, False), (3, IGNORED, True), (3, MOVE, False), (3, STOP, False),
])  # fmt: skip
def test_deletion_of_a_twin_is_missed_until_the_broker_starts_or_stops_the_replica(
    greeted: Made, number: int, then: str | None, is_missed: bool
) -> None:
    twin = Made()
    greeted.send(lead(epoch=5), number=2)
    assert not greeted.receiver.has_missed_deletion(T_0, twin.receiver)

    twin.send(stop(epoch=6, delete=True), number=number)
    if then is not None:
        later: dict[str, Request] = {IGNORED: lead(epoch=5), MOVE: lead(epoch=7), STOP: stop(epoch=7, delete=True)}
        greeted.send(later[then], number=4)

    assert greeted.receiver.has_missed_deletion(T_0, twin.receiver) == is_missed


@pytest.mark.parametrize(("adding", "complaints"), [((), ["INV-49"]), ((2,), ["INV-49"]), ((1,), [])])
def test_later_leader_and_isr_names_an_old_partition_only_if_it_is_added(
    adding: tuple[int, ...], complaints: list[str], made: Made
) -> None:
    made.receiver.registering({T_0: T.id})
    made.receiver.registered(EPOCH + 1)
    made.send(metadata(broker_epoch=EPOCH + 1))
    made.send(LeaderAndIsr(100, 3, EPOCH + 1, no_states()))
    old = lead(broker_epoch=EPOCH + 1)
    assert old.states.is_new is not None
    old.states.is_new[0] = False
    states_of_old = dataclasses.replace(old.states, adding=np.array([adding], np.int32).T)

    made.send(dataclasses.replace(old, states=states_of_old))

    assert made.complaints() == complaints


@pytest.mark.parametrize(("deleted_at_ms", "older"), [(9_000, {"t2"}), (11_000, {"t1", "t2"})])
def test_replica_that_was_deleted_before_the_registration_is_not_old(
    deleted_at_ms: int, older: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 2 registers again while the deletion of t1 waits for broker 1. The next t1 begins while 2 is drained."""
    registered: list[set[str]] = []
    registering = Receiver.registering

    def recorded(self: Receiver, older: Mapping[TopicPartition, bytes]) -> None:
        if self.broker == 2:
            registered.append({name.topic for name in older})
        registering(self, older)

    monkeypatch.setattr(Receiver, "registering", recorded)
    topics = [
        Action("create", at_ms=at_ms, args={"topic": topic, "replicas": [replicas], "has_id": False})
        for at_ms, topic, replicas in [(1_000, "t1", [1, 2]), (1_500, "t2", [2, 3]), (16_000, "t1", [2, 1])]
    ]
    script = Script(
        world=WorldSpec(
            brokers=BrokersSpec(count=3, level="2.7"),
            settings={"session_timeout_ms": 3_000, "request_timeout_ms": 1_000.0, "lag_ms": 2_000.0},
        ),
        duration_ms=20_000,
        actions=[
            *topics,
            Action("kill", at_ms=5_000, args={"node": "broker 1", "restart_after_ms": 8_000}),
            Action("delete", at_ms=deleted_at_ms, args={"topic": "t1", "to": "active controller"}),
            Action("kill", at_ms=10_000, args={"node": "broker 2", "restart_after_ms": 500, "ends_session": True}),
            Action("drain", at_ms=15_000, args={"broker": "broker 2", "to": "active controller"}),
            Action("reassign", at_ms=17_000, args={"targets": {"t1-0": [3, 1]}, "to": "active controller"}),
        ],
    )

    assert run_script(script).signature == "pass"
    assert registered[-1] == older
