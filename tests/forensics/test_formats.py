"""Formats of lines: each known line of each version matches exactly one, and has its golden event."""

import re
from collections import Counter
from typing import Any

import pytest

from kactl.forensics.event_types import EventType, Kind
from kactl.forensics.events import COLUMNS
from kactl.forensics.text import broker_id
from kactl.forensics.text.dispatch import BY_HEAD, FORMATS
from kactl.forensics.text.format import line

from .golden import GOLDEN as BY_HAND
from .golden import Golden
from .golden_kraft import KRAFT, OLDER
from .reading import events_of, log_line

GOLDEN = (*BY_HAND, *KRAFT, *OLDER)
EACH = pytest.mark.parametrize("golden", GOLDEN, ids=[f"{at}-{each.format}" for at, each in enumerate(GOLDEN)])


@EACH
def test_line_has_its_golden_event(golden: Golden) -> None:
    (event,) = events_of(log_line(golden))

    assert event["format"] == golden.format
    assert {name: event[name] for name in golden.says} == golden.says


@EACH
def test_each_line_matches_exactly_one_format(golden: Golden) -> None:
    prefix, message = re.fullmatch(r"(?:\[([^\]]*)\][:,]? )?(.*)", golden.message, re.DOTALL).groups()  # type: ignore[union-attr]
    said = broker_id.read((prefix or "").encode())

    matching = [
        each
        for each in FORMATS
        if each.pattern.fullmatch(message.encode()) and (said.topic is not None or not each.by_prefix)
    ]

    assert [each.id for each in matching] == [golden.format]
    assert matching[0] in BY_HEAD.get(message.encode().split(b" ")[0], BY_HEAD[None])


def test_lines_of_all_versions_are_parsed_in_any_order() -> None:
    text = "".join(log_line(golden) for golden in (*GOLDEN, *reversed(GOLDEN), *GOLDEN))

    assert [event["format"] for event in events_of(text)] == [
        golden.format for golden in (*GOLDEN, *reversed(GOLDEN), *GOLDEN)
    ]


def test_every_format_has_a_golden_line() -> None:
    assert {each.format for each in GOLDEN} == {each.id for each in FORMATS}
    assert max(Counter(each.id for each in FORMATS).values()) == 1


def test_every_column_is_filled_by_a_golden_line() -> None:
    filled: set[str] = set()
    for golden in GOLDEN:
        (event,) = events_of(log_line(golden))
        filled |= {name for name, value in event.items() if value is not None}

    assert all(each.description for each in COLUMNS)
    assert len({each.name for each in COLUMNS}) == len(COLUMNS)
    assert {each.name for each in COLUMNS} <= filled


def test_every_event_type_has_a_source() -> None:
    told = {each.type for each in FORMATS}
    elsewhere = {
        EventType.CLOCK_BACK,
        EventType.CONFIGURED,
        EventType.HARMLESS,
        EventType.BROKEN,
        EventType.OTHER,
        EventType.SILENT,
        EventType.UNPARSED,
    }

    assert told | elsewhere == set(EventType)
    assert not told & elsewhere


def test_format_with_an_unknown_column_is_rejected() -> None:
    with pytest.raises(ValueError, match="format X1 fills columns that do not exist: leaderepoch"):
        line("X1", EventType.PARTITION, r"Changed {leaderepoch:int}", role=FORMATS[0].role)


@pytest.mark.parametrize(
    ("message", "logger", "kind", "expected"),
    [
        (
            "[Controller id=1] Something that no version has written yet",
            "kafka.controller.KafkaController",
            Kind.SERVER,
            True,
        ),
        ("Something that no version has written yet", "state.change.logger", Kind.SERVER, True),
        ("Completed load of log t-0", "kafka.log.LogManager", Kind.SERVER, False),
    ],
)
def test_text_of_unknown_lines_is_kept_for_kafkas_own_loggers(
    message: str, logger: str, kind: Kind, expected: bool
) -> None:
    (event,) = events_of(f"[2024-05-01 10:00:00,123] WARN {message} ({logger})\n", kind=kind)

    assert event["type"] == ("unparsed" if expected else "other")
    assert event["text"] == (message if expected else None)
    assert event["level"] == "WARN"
    assert event["lines"] == 1


def test_others_of_one_level_and_hour_become_one_row() -> None:
    text = "".join(
        f"[2024-05-01 {hour}:00:0{at},123] {level} Nothing of interest (kafka.log.LogManager)\n"
        for hour in (10, 11)
        for at in range(5)
        for level in ("INFO", "WARN")
    )

    events = events_of(text, kind=Kind.SERVER)

    counted = Counter[tuple[str, str]]()
    for each in events:
        counted[str(each["ts"])[11:13], each["level"]] += each["lines"]
    assert counted == {("10", "INFO"): 5, ("10", "WARN"): 5, ("11", "INFO"): 5, ("11", "WARN"): 5}
    assert len(events) < 10


@pytest.mark.parametrize(
    ("prefix", "expected"),
    {
        b"Controller id=1 epoch=5": {"speaker": b"1", "role": "controller", "controller_epoch": b"5"},
        b"Controller id=1": {"speaker": b"1", "role": "controller", "controller_epoch": None},
        b"Controller 1": {"speaker": b"1", "role": "controller"},
        b"Broker id=2": {"speaker": b"2", "role": "broker", "controller": None},
        b"PartitionStateMachine controllerId=1": {"speaker": b"1", "role": "controller"},
        b"ReplicaStateMachine controllerId=1": {"speaker": b"1"},
        b"Topic Deletion Manager 1": {"speaker": b"1", "role": "controller"},
        b"Channel manager on controller 1": {"speaker": b"1", "role": "controller"},
        b"RequestSendThread controllerId=1": {"speaker": b"1"},
        b"Partition state machine on Controller 1": {"speaker": b"1"},
        b"Partition a-b-0-3 broker=2": {"speaker": b"2", "topic": b"a-b-0", "partition": b"3"},
        b"UnifiedLog partition=a-b-0-3, dir=/x": {"speaker": None, "topic": b"a-b-0", "partition": b"3"},
        b"QuorumController id=3000": {"speaker": b"3000", "role": "controller"},
        b"BrokerLifecycleManager id=2": {"speaker": b"2", "role": "broker"},
        b"RaftManager id=3000": {"speaker": b"3000", "role": "broker"},
        b"RaftManager nodeId=12": {"speaker": b"12", "role": "broker"},
        b"KafkaRaftServer nodeId=12": {"speaker": b"12", "role": "broker"},
        b"KafkaServer id=2": {"speaker": b"2", "role": "broker"},
        b"Kafka Server 2": {"speaker": b"2", "role": "broker"},
        b"SessionExpirationListener on 1": {"speaker": b"1", "role": "controller", "controller": b"1"},
        b"BrokerChangeListener on Controller 1": {"speaker": b"1", "role": "controller"},
        b"delete-topics-thread-1": {"speaker": b"1", "role": "controller"},
        b"Controller-1-to-broker-4-send-thread": {"speaker": b"1", "role": "controller"},
        b"main": {"speaker": None, "role": None, "topic": None},
    }.items(),
    ids=lambda value: value.decode() if isinstance(value, bytes) else "",
)
def test_writer_is_read_from_the_prefix(prefix: bytes, expected: dict[str, Any]) -> None:
    writer = broker_id.read(prefix)._asdict()

    assert {name: writer[name] for name in expected} == expected


def test_cache_of_prefixes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_id, "MEMORY_LIMIT", 3)
    prefixes = broker_id.Prefixes()

    partitions = [prefixes[b"Partition t-%d broker=2" % number].partition for number in range(10)]

    assert partitions == [b"%d" % number for number in range(10)]
    assert len(prefixes) <= 3
