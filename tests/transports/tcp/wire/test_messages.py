"""Messages as bytes: they arrive unchanged, and any other bytes raise MalformedMessage."""

import dataclasses
import random
import tracemalloc
from collections.abc import Iterator
from typing import Any, Final, get_args

import msgspec
import numpy as np
import pytest

from kactl.decide.messages import admin, broker, leases
from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.control import (
    Acknowledged,
    LeaderAndIsr,
    LeaderAndIsrResponse,
    OrderReason,
    PartitionErrors,
    ReplicaReset,
    Request,
    StateSent,
    StopReplica,
    UpdateMetadata,
)
from kactl.decide.messages.following import FollowerReports, FollowerReportsRequested
from kactl.decide.messages.routes import LeaderColumns
from kactl.decide.state.records import Names
from kactl.decide.state.replica_reports import ReplicaReport
from kactl.model import Assignment, Leadership, ProducerIdBlock, ReplicaStatus, TopicPartition, TopicRef
from kactl.model.errors import (
    BadRequest,
    BrokerIdTaken,
    BrokerUnreachable,
    ErrorCode,
    KactlError,
    MalformedMessage,
    NotController,
    NotFound,
    StaleBrokerEpoch,
)
from kactl.testing.contracts.network import EXCHANGES, LEAD, NOTHING, STOP, UPDATE, plain_message
from kactl.transports.tcp import wire
from kactl.transports.tcp.wire.requests import every_request
from tests.support.control_requests import StateRow, leader_and_isr, lease_release

ORDERS_0, BILLS_1 = TopicPartition("orders", 0), TopicPartition("bills", 1)
LEADERSHIP = Leadership(1, 2, (1, 2), 3, 4)
REPORTS: Final = FollowerReports(
    follower=1,
    broker_epoch=2**40,
    leader=2,
    generation=5,
    base=4,
    names=Names.of([BILLS_1, ORDERS_0]),
    leader_epoch=np.array([1, -1], np.int32),
    position=np.array([2**40, -1], np.int64),
    caught_up=np.array([True, False]),
)
ENDED: Final = leases.LeaderEpochs.of(Names.of([BILLS_1, ORDERS_0]), np.array([4, 2**31 - 1], np.int32))
# One request of each type, with an answer.
REQUESTS: Final[list[tuple[ControllerRequest, Any]]] = [
    (admin.ResignController(stop=True, expected_epoch=7), None),
    (admin.ReleaseController(100, dry_run=True), True),
    (leases.ReportLeaderships(1, 2**40, 7, ended=ENDED, waiting=leases.LeaderEpochs(), complete=3), None),
    (admin.EnableUncleanElections(False), None),
    (admin.AwaitEvents(), None),
    (admin.UndrainBroker(3, dry_run=True), True),
    (admin.AllocateBrokerId(40_000, "worker-a", bytes(12)), 40_000),
    (admin.ResetReplica(ORDERS_0, 3), ReplicaReport(ReplicaStatus.ERROR, "prepare: no disk", 1.5, 2**40)),
    (
        admin.ReplicaLeaderElection(admin.ElectionKind.PREFERRED, (ORDERS_0,)),
        [admin.ElectionResult("orders", 0, "failed", ErrorCode.NOT_CONTROLLER, "no", 1, 2)],
    ),
    (admin.CreateTopic("a", 2, 3, {0: Assignment((1, 2), (2,))}, {"k": "v"}), TopicRef("a", bytes(16))),
    (admin.DeleteTopic("a"), TopicRef("a", bytes(range(16)))),
    (
        admin.EnsureTopic("a", 1, None, {0: Assignment((1, 2))}, {"k": "v"}),
        admin.TopicProgress(True, 2, ("a-0: no leader",)),
    ),
    (admin.AddPartitions("a", 3, ((1, 2), (2, 3))), None),
    (
        admin.ApiPartitionReassignment({ORDERS_0: (1, 2), BILLS_1: None}),
        [admin.ReassignmentResult("orders", 0, ErrorCode.NONE, "", Assignment((1,)))],
    ),
    (admin.ListPartitionReassignments((BILLS_1,)), {BILLS_1: Assignment((1, 2), (), (2,))}),
    (
        admin.UpdateFeatures((admin.FeatureUpdate("f", 2, admin.UpgradeType.SAFE_DOWNGRADE),)),
        [admin.FeatureResult("f", ErrorCode.FEATURE_UPDATE_FAILED, "no")],
    ),
    (broker.ControlledShutdown(1, 2**40), [ORDERS_0, BILLS_1]),
    (
        broker.AlterPartitionReceived(1, 2, (broker.IsrProposal(TopicRef("", bytes(16)), 0, 1, (1, 2), 3),)),
        [broker.IsrResult(TopicRef("a"), 0, ErrorCode.NONE, LEADERSHIP)],
    ),
    (broker.AllocateProducerIds(1, 2), ProducerIdBlock(1, 2**40, 1000)),
    (
        broker.ReportPartitions(1, 2, (broker.PartitionReport(ORDERS_0, 3, ReplicaStatus.STUCK, "x"),)),
        None,
    ),
    (broker.ReportLeaders(1, 2, LeaderColumns(("a",), bytes(4), bytes(4), bytes(4), b"\x01")), None),
]


# -- round trips -------------------------------------------------------------------------------------------------------


TRACE: Final = f"00-{1:032x}-{2:016x}-01"
EXPLAINED: Final = dataclasses.replace(
    leader_and_isr(StateRow(ORDERS_0, previous=2), StateRow(BILLS_1, reason=1)),
    reasons=(OrderReason("BrokerChange", "offline", 2**50, 2**49, TRACE), OrderReason("TopicChange", "first", 3)),
)
OF_PARTICIPANTS: Final[list[tuple[Any, Any]]] = [
    (lease_release(ORDERS_0, BILLS_1, leader_epoch=7), Acknowledged(0)),
    (StateSent(1, 2, 2**40), Acknowledged(0)),
    (EXPLAINED, LeaderAndIsrResponse(0, PartitionErrors.none())),
    (EXPLAINED, LeaderAndIsrResponse(0, PartitionErrors.none(), leads_later=True)),
    (ReplicaReset(1, 2, 2**40, TopicRef("orders", bytes(range(16))), 3), Acknowledged(31)),
]


def test_each_request_to_participants_has_an_encoding() -> None:
    assert {type(order) for order, _ in EXCHANGES + NOTHING + OF_PARTICIPANTS} == set(get_args(Request))


@pytest.mark.parametrize(("order", "response"), EXCHANGES + NOTHING + OF_PARTICIPANTS)
def test_orders_and_responses_arrive_unchanged(order: Any, response: Any) -> None:
    arrived = wire.decode(wire.encode(order), wire.ORDERS)
    answered = wire.decode(wire.encode(response), wire.RESPONSES)

    assert plain_message(arrived) == plain_message(order)
    assert plain_message(answered) == plain_message(response)


def test_reason_that_is_not_listed_is_malformed() -> None:
    encoded = wire.encode(dataclasses.replace(EXPLAINED, reasons=EXPLAINED.reasons[:1]))

    with pytest.raises(MalformedMessage, match="names a reason"):
        wire.decode(encoded, wire.ORDERS)


def test_columns_arrive_with_their_types_and_cannot_be_written() -> None:
    states = wire.decode(wire.encode(LEAD), wire.ORDERS).states

    assert (states.leader.dtype, states.isr.dtype, states.recovering.dtype) == (np.int32, np.int32, np.bool_)
    for column in (states.leader, states.isr, states.recovering):
        with pytest.raises(ValueError, match="read-only"):
            column[..., 0] = 1


def test_columns_that_are_not_contiguous_arrive_in_order() -> None:
    every = np.arange(12, dtype=np.int32).reshape(2, 6)
    reports = dataclasses.replace(REPORTS, position=np.arange(4, dtype=np.int64)[::2], leader_epoch=every[:, ::3][0])

    arrived = wire.decode(wire.encode(reports), wire.PEER_MESSAGES)

    assert arrived.position.tolist() == [0, 2]
    assert arrived.leader_epoch.tolist() == [0, 3]


def test_states_of_several_recipients_are_encoded_once() -> None:
    assert wire.control.states_pieces(LEAD.states) is wire.control.states_pieces(LEAD.states)
    encoded = b"".join(wire.control.states_pieces(LEAD.states))
    assert encoded in wire.encode(LEAD)
    assert encoded in wire.encode(LeaderAndIsr(1, 2, 3, LEAD.states))


def test_encoded_states_end_with_their_object() -> None:
    before = len(wire.control._kept)
    states = dataclasses.replace(LEAD.states)
    wire.encode(LeaderAndIsr(1, 2, 3, states))
    assert len(wire.control._kept) == before + 1

    del states

    assert len(wire.control._kept) == before


def test_reports_of_followers_arrive_unchanged() -> None:
    arrived = wire.decode(wire.encode(REPORTS), wire.PEER_MESSAGES)

    assert list(arrived.names) == [BILLS_1, ORDERS_0]
    for name in ("follower", "broker_epoch", "leader", "generation", "base"):
        assert getattr(arrived, name) == getattr(REPORTS, name)
    for name in ("leader_epoch", "position", "caught_up"):
        assert getattr(arrived, name).tolist() == getattr(REPORTS, name).tolist()
    request = FollowerReportsRequested(1, 2, 3, 4)
    assert wire.decode(wire.encode(request), wire.PEER_MESSAGES) == request


@pytest.mark.parametrize(("request_", "answer"), REQUESTS, ids=lambda value: type(value).__name__)
def test_requests_and_answers_arrive_unchanged(request_: ControllerRequest, answer: Any) -> None:
    assert wire.decode(wire.encode(request_), wire.REQUESTS) == request_
    assert wire.decode_answer(wire.encode_answer(answer), type(request_)) == answer


def test_every_request_has_an_encoding() -> None:
    defined = {
        found
        for module in (admin, broker, leases)
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, ControllerRequest) and found is not ControllerRequest
    }

    assert set(every_request()) == defined == {type(request) for request, _ in REQUESTS}


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        NotController(7),
        StaleBrokerEpoch(1, 2, None),
        BadRequest("topic", "it is empty"),
        BrokerIdTaken(3),
        BrokerUnreachable(3, "gone"),
        KactlError("something"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_arrives_as_its_class_with_its_attributes(error: KactlError) -> None:
    arrived = wire.decode(wire.encode(error), wire.ERRORS)

    assert (type(arrived), str(arrived), vars(arrived)) == (type(error), str(error), vars(error))


def test_error_of_an_unknown_class_arrives_as_its_base() -> None:
    class Special(NotFound):
        pass

    arrived = wire.decode(wire.encode(Special("topic", ORDERS_0)), wire.ERRORS)

    assert type(arrived) is NotFound
    assert arrived.name == "orders-0"


def test_error_cannot_replace_methods_or_private_attributes() -> None:
    data = msgspec.msgpack.encode(["Error", ["NotController"], "x", {"with_traceback": 1, "_a": 1, "code": 3, "b-": 1}])

    arrived = wire.decode(data, wire.ERRORS)

    assert vars(arrived) == {}
    assert arrived.code is ErrorCode.NOT_CONTROLLER


# -- versions ----------------------------------------------------------------------------------------------------------


def test_appended_fields_are_ignored_and_missing_ones_filled_in() -> None:
    later = msgspec.msgpack.encode(["UndrainRequested", 3, True, "ann", "a field of a later version"])
    earlier = msgspec.msgpack.encode(["UndrainRequested", 3])

    assert wire.decode(later, wire.REQUESTS) == admin.UndrainBroker(3, dry_run=True, by="ann")
    assert wire.decode(earlier, wire.REQUESTS) == admin.UndrainBroker(3)


def test_appended_columns_are_ignored() -> None:
    head = msgspec.msgpack.decode(wire.encode(UPDATE))
    head[4].append([4, b"...."])

    assert plain_message(wire.decode(msgspec.msgpack.encode(head), wire.ORDERS)) == plain_message(UPDATE)


def test_narrower_columns_are_accepted() -> None:
    head = msgspec.msgpack.decode(wire.encode(UPDATE))
    leader = np.frombuffer(head[4][5][1], "<i4").astype("<i1")
    head[4][5] = [1, leader.tobytes()]

    arrived = wire.decode(msgspec.msgpack.encode(head), wire.ORDERS)

    assert arrived.states.leader.tolist() == UPDATE.states.leader.tolist()
    assert arrived.states.leader.dtype == np.int32


# -- malformed ---------------------------------------------------------------------------------------------------------


def changed(message: Any, *path: int, to: Any) -> bytes:
    """Returns an encoded message with another value at one place."""
    head = msgspec.msgpack.decode(wire.encode(message))
    at = head
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return msgspec.msgpack.encode(head)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91" * 5_000,
        b"\xdd\xff\xff\xff\xff",
        msgspec.msgpack.encode(["Unknown", 1]),
        wire.encode(admin.UndrainBroker(1)),  # a message of another family
        changed(UPDATE, 4, 5, to=[4, b"12"]),  # no whole number of values
        changed(UPDATE, 4, 5, to=[8, bytes(24)]),  # wider than the type
        changed(UPDATE, 4, 5, to=[4, bytes(4)]),  # fewer rows
        changed(UPDATE, 4, 5, to=[0, b""]),
        changed(UPDATE, 4, 7, to=[4, bytes(16)]),  # slots that are no multiple of the rows
        changed(UPDATE, 4, 2, to=[4, np.array([0, 0, 2], "<i4").tobytes()]),  # no such topic
        changed(UPDATE, 4, 2, to=[4, np.array([0, 0, -1], "<i4").tobytes()]),
        changed(UPDATE, 4, 2, to=[4, np.array([1, 0, 1], "<i4").tobytes()]),  # not grouped
        changed(UPDATE, 4, 1, to=bytes(31)),  # ids
        changed(UPDATE, 2, to=2**31),  # a controller epoch
    ],
)
def test_malformed_order_is_rejected(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        wire.decode(data, wire.ORDERS)


def test_boolean_columns_contain_only_true_and_false() -> None:
    arrived = wire.decode(changed(LEAD, 4, 14, to=[1, b"\x00\x07\xff"]), wire.ORDERS)

    assert arrived.states.recovering.view(np.uint8).tolist() == [0, 1, 1]


def mutations(data: bytes, rng: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(changed)) if changed else 0
            match rng.randrange(4):
                case 0 if changed:
                    changed[at] = rng.randrange(256)
                case 1:
                    changed[at:at] = rng.randbytes(rng.randint(1, 8))
                case 2:
                    del changed[at : at + rng.randint(1, 8)]
                case _:
                    changed = changed[: rng.randrange(len(changed) + 1)]
        yield bytes(changed)


FAMILIES: Final = [
    (wire.ORDERS, [wire.encode(order) for order, _ in EXCHANGES + NOTHING]),
    (wire.RESPONSES, [wire.encode(response) for _, response in EXCHANGES + NOTHING]),
    (wire.PEER_MESSAGES, [wire.encode(REPORTS), wire.encode(FollowerReportsRequested(1, 2, 3, 4))]),
    (wire.REQUESTS, [wire.encode(request) for request, _ in REQUESTS]),
    (wire.ERRORS, [wire.encode(NotController(7))]),
]


@pytest.mark.parametrize("family", range(len(FAMILIES)))
def test_mutated_bytes_are_a_message_or_malformed(family: int) -> None:
    """Also: decoding allocates at most a multiple of the data, also if the data claims greater lengths."""
    decoder, seeds = FAMILIES[family]
    rng = random.Random(family)
    accepted = rejected = peak = 0
    tracemalloc.start()
    try:
        for seed in seeds:
            for data in mutations(seed, rng, 3_000 // len(seeds)):
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                try:
                    wire.decode(data, decoder)
                    accepted += 1
                except MalformedMessage:
                    rejected += 1
                peak = max(peak, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()

    assert accepted
    assert rejected
    assert peak < 200_000


def test_mutated_answers_are_answers_or_malformed() -> None:
    rng = random.Random(5)
    for request, answer in REQUESTS:
        for data in mutations(wire.encode_answer(answer), rng, 200):
            try:
                wire.decode_answer(data, type(request))
            except MalformedMessage:
                continue


def test_recipient_of_its_own_epoch_keeps_the_states() -> None:
    arrived = wire.decode(wire.encode(UpdateMetadata(1, 2, 3, UPDATE.states, UPDATE.live_brokers, 7)), wire.ORDERS)

    assert (arrived.controller_id, arrived.controller_epoch, arrived.broker_epoch, arrived.number) == (1, 2, 3, 7)


@pytest.mark.parametrize("order", [LEAD, STOP, UPDATE], ids=["lead", "stop", "update"])
def test_number_of_an_order_arrives(order: LeaderAndIsr | StopReplica | UpdateMetadata) -> None:
    arrived = wire.decode(wire.encode(dataclasses.replace(order, number=2**40)), wire.ORDERS)

    assert isinstance(arrived, type(order))
    assert arrived.number == 2**40
