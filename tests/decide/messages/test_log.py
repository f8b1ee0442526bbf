"""Events of the log in JSON: every kind is decoded as it was encoded, and incomplete lines are rejected."""

import msgspec
import pytest

from kactl.admin.schema import event_view
from kactl.decide.messages.log import (
    KINDS,
    AnyEvent,
    BrokerEvent,
    Cause,
    ControllerEvent,
    ElectionEvent,
    HandlerEvent,
    Outage,
    PartitionEvent,
    Recipient,
    ReplicaEvent,
    RequestEvent,
    Reset,
    Stages,
    TopicEvent,
    decode,
    encode,
)
from kactl.model import PartitionState, ReplicaState

MOVED = PartitionEvent(
    seq=4,
    time_ms=1_000,
    controller_epoch=2,
    topic="orders",
    partition=1,
    from_state=PartitionState.OFFLINE,
    to_state=PartitionState.ONLINE,
    leader=2,
    leader_epoch=3,
    isr=(2, 3),
    partition_epoch=5,
    replicas=(2, 3),
    because=Cause(40, "BrokerChange", strategy="offline"),
)
EVENTS: list[AnyEvent] = [
    ControllerEvent(seq=1, what="elected", controller_id=5),
    BrokerEvent(seq=2, what="failed", broker=2, broker_epoch=7),
    TopicEvent(seq=3, what="created", topic="orders"),
    MOVED,
    ReplicaEvent(
        seq=5,
        topic="orders",
        partition=1,
        broker=2,
        from_state=ReplicaState.ONLINE,
        to_state=ReplicaState.DELETION_INELIGIBLE,
    ),
    HandlerEvent(
        seq=10, topic="orders", partition=1, broker=2, leader_epoch=4, status="failed", detail="OSError: full"
    ),
    RequestEvent(seq=6, action="delete topic", target="orders", outcome="done", reason="späte Ernte"),
    ElectionEvent(
        seq=8,
        because=Cause(40, "BrokerChange", strategy="offline"),
        detected_ms=1_000,
        handled_us=900,
        complete=True,
        failed=False,
        planned=3,
        committed=2,
        rejected=1,
        moved=2,
        stages=Stages((0, 10, 10), plan=(12, 20, 8)),
        brokers=(Recipient(1, 2, 500, 800), Recipient(2, 1, 500, dropped=1)),
        first_ack_us=800,
        last_ack_us=800,
        outage=Outage(2, 0, 700, 700),
    ),
    Reset(seq=9),
]


def test_every_kind_of_event_has_an_example() -> None:
    assert {event.__struct_config__.tag for event in EVENTS} == {*KINDS, "reset"}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__struct_config__.tag)
def test_decoded_event_equals_the_encoded_one(event: AnyEvent) -> None:
    assert decode(encode(event)) == event


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__struct_config__.tag)
def test_api_returns_an_event_as_the_log_writes_it(event: AnyEvent) -> None:
    assert msgspec.json.encode(event_view(event)) == encode(event)


def test_states_are_written_by_name() -> None:
    assert encode(MOVED) == (
        b'{"kind":"partition","seq":4,"time_ms":1000,"controller_epoch":2,"topic":"orders","partition":1,'
        b'"from_state":"offline","to_state":"online","leader":2,"leader_epoch":3,"isr":[2,3],"partition_epoch":5,'
        b'"recovering":false,"refused":"","replicas":[2,3],'
        b'"because":{"event":40,"trigger":"BrokerChange","strategy":"offline"}}'
    )


def test_event_of_an_earlier_version_has_no_cause() -> None:
    line = b'{"kind":"topic","seq":1,"time_ms":0,"controller_epoch":1,"what":"created","topic":"t","cause":""}'

    assert decode(line) == TopicEvent(seq=1, controller_epoch=1, what="created", topic="t")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b'{"kind":"reset","seq":1',
        b'{"kind":"unknown","seq":1,"time_ms":0,"controller_epoch":0}',
        b'{"kind":"reset","seq":1,"time_ms":0}',
        encode(MOVED).replace(b'"offline"', b'"deletion_started"'),
    ],
    ids=["empty", "cut off", "unknown kind", "missing field", "state of a replica"],
)
def test_invalid_line_is_rejected(line: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(line)
