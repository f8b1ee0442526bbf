"""Events of the log in JSON: every kind is decoded as it was encoded, and incomplete lines are rejected."""

import msgspec
import pytest

from kactl.admin.routes.events import event_view
from kactl.messages.log import (
    KINDS,
    AnyEvent,
    BrokerEvent,
    ControllerEvent,
    PartitionEvent,
    ReplicaEvent,
    RequestEvent,
    Reset,
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
    RequestEvent(seq=6, action="delete topic", target="orders", outcome="done", reason="späte Ernte"),
    Reset(seq=7),
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
        b'"recovering":false,"refused":""}'
    )


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
