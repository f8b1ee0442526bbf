"""Events are written to files in JSON and in Kafka's format, and are read from both as the same events."""

import io
import logging
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.messages.log import AnyEvent, BrokerEvent, ControllerEvent, PartitionEvent, ReplicaEvent, TopicEvent
from kactl.forensics.event_types import Kind
from kactl.forensics.text import json_parser, probe
from kactl.forensics.text.columns import WRITTEN
from kactl.model import PartitionState, ReplicaState
from kactl.runtime.clock import SystemClock
from kactl.telemetry.event_log import EventLog
from kactl.telemetry.state_change_log.keeper import as_json, as_kafka, kept
from kactl.telemetry.state_change_log.segments import NAME, open_segments
from tests.forensics.reading import events_of

pytestmark = pytest.mark.anyio

CONTROLLER = 7
NEVER = 10**9
TOPICS = st.from_regex(r"[a-z][a-z0-9._-]{0,8}", fullmatch=True)
EPOCHS = st.integers(0, 2**31 - 1)
BROKERS = st.integers(0, 9)
HAPPENED: st.SearchStrategy[AnyEvent] = st.one_of(
    st.builds(
        PartitionEvent,
        topic=TOPICS,
        partition=st.integers(0, 99),
        from_state=st.sampled_from(PartitionState),
        to_state=st.sampled_from(PartitionState),
        leader=st.integers(-1, 9),
        leader_epoch=EPOCHS,
        isr=st.lists(BROKERS, unique=True, max_size=4).map(tuple),
        partition_epoch=EPOCHS,
        recovering=st.booleans(),
        refused=st.sampled_from(["", "", "no replica of its ISR is alive"]),
        controller_epoch=EPOCHS,
    ),
    st.builds(
        ReplicaEvent,
        topic=TOPICS,
        partition=st.integers(0, 99),
        broker=BROKERS,
        from_state=st.sampled_from(ReplicaState),
        to_state=st.sampled_from(ReplicaState),
        controller_epoch=EPOCHS,
    ),
    st.builds(
        ControllerEvent,
        what=st.sampled_from(["elected", "resigned"]),
        controller_id=st.just(CONTROLLER),
        controller_epoch=EPOCHS,
    ),
    st.builds(
        BrokerEvent,
        what=st.sampled_from(["started", "failed", "shutting-down", "restored", "bounced"]),
        broker=BROKERS,
        broker_epoch=EPOCHS,
    ),
    st.builds(TopicEvent, what=st.sampled_from(["created", "deletion started", "deleted"]), topic=TOPICS),
    st.builds(
        TopicEvent, what=st.just("deletion halted"), topic=TOPICS, cause=st.sampled_from(["", "broker 3 is dead"])
    ),
)


def ring(events: list[AnyEvent]) -> list[AnyEvent]:
    """The same events with numbers and times, as in the controller's history."""
    history = EventLog(SystemClock())
    for event in events:
        history.add(event)
    return history.read(0, limit=len(events) + 1)[0]


def read_json(content: bytes) -> list[dict[str, Any]]:
    report = list(
        json_parser.events(
            io.BytesIO(content), "kactl", file_id=1, kind=Kind.KACTL, broker=CONTROLLER, start=0, end=None
        )
    )
    rows: list[dict[str, Any]] = pa.Table.from_batches(report, WRITTEN).to_pylist()
    return rows


@pytest.mark.slow
@given(st.lists(HAPPENED, min_size=1, max_size=20))
def test_both_formats_are_read_as_the_same_events(happened: list[AnyEvent]) -> None:
    events = ring(happened)

    in_json = read_json(b"".join(as_json(events)))
    in_text = events_of(b"".join(as_kafka(CONTROLLER)(events)), kind=Kind.CONTROLLER)

    assert len(in_json) == len(in_text) == len(events)
    for event, own, kafka in zip(events, in_json, in_text, strict=True):
        assert own["ts"] == kafka["ts"]
        assert own["speaker"] == kafka["speaker"] == CONTROLLER
        if isinstance(event, PartitionEvent):
            columns = ["type", "topic", "partition", "from_state", "to_state", "controller_epoch", "reason"]
            if event.to_state is PartitionState.ONLINE and not event.refused:
                columns += ["leader", "leader_epoch", "isr", "partition_epoch", "recovery"]
        elif isinstance(event, ReplicaEvent):
            columns = ["type", "topic", "partition", "broker", "from_state", "to_state", "controller_epoch"]
        elif isinstance(event, ControllerEvent):
            columns = ["type"] + (["controller", "controller_epoch"] if event.what == "elected" else [])
        elif isinstance(event, TopicEvent):
            columns = [] if event.what == "created" else ["type", "topic", "reason"]
        else:
            assert isinstance(event, BrokerEvent)
            columns = ["type", "brokers_added", "brokers_removed"] if event.what in ("started", "failed") else ["type"]
            if event.what == "bounced":
                columns = ["type", "brokers_bounced"]
                assert kafka["brokers"] == []  # the event does not list live brokers, so others must not count as dead
        assert {name: own[name] for name in columns} == {name: kafka[name] for name in columns}


@pytest.mark.parametrize("what", ["modified", "directory-failed"])
def test_kafka_format_omits_events_without_a_kafka_line(what: str) -> None:
    assert as_kafka(CONTROLLER)(ring([BrokerEvent(what=what, broker=3, broker_epoch=1)])) == []


async def test_all_events_are_written_when_the_block_ends(tmp_path: Path) -> None:
    history = EventLog(SystemClock())
    segments = open_segments(tmp_path / "log", bytes_max=NEVER, count_max=3)
    history.add(BrokerEvent(what="started", broker=1, broker_epoch=2))

    async with kept(history, segments, as_json, clock=SystemClock()):
        for number in range(1000):
            history.add(ReplicaEvent(topic="t", partition=number, broker=1, from_state=ReplicaState.ONLINE,
                                     to_state=ReplicaState.OFFLINE))  # fmt: skip

    content = (tmp_path / "log" / NAME).read_bytes()
    assert [event["partition"] for event in read_json(content)[1:]] == list(range(1000))
    assert read_json(content)[0]["type"] == "broker-started"
    report = probe.probe(str(tmp_path / "log" / NAME))
    assert (report.kind, report.layout) == (Kind.KACTL, "kactl")


async def test_nothing_is_written_while_the_controller_is_busy(tmp_path: Path) -> None:
    history = EventLog(SystemClock())
    rest = anyio.Event()
    asked = anyio.Event()

    class Patient(SystemClock):
        """Clock that waits until the controller is idle."""

        async def sleep_ms(self, delay_ms: float) -> None:
            asked.set()
            await rest.wait()

    segments = open_segments(tmp_path, bytes_max=NEVER, count_max=1)
    async with kept(history, segments, as_json, clock=Patient(), busy=lambda: not rest.is_set()):
        history.add(TopicEvent(what="created", topic="t"))
        await asked.wait()
        before = (tmp_path / NAME).read_bytes()
        rest.set()

    assert before == b""
    assert read_json((tmp_path / NAME).read_bytes())[0]["topic"] == "t"


async def test_events_overwritten_in_the_ring_leave_a_reset(tmp_path: Path) -> None:
    history = EventLog(SystemClock(), limit=5)
    for number in range(20):
        history.add(TopicEvent(what="created", topic=f"t{number}"))

    async with kept(history, open_segments(tmp_path, bytes_max=NEVER, count_max=1), as_json, clock=SystemClock()):
        pass

    assert [event["topic"] for event in read_json((tmp_path / NAME).read_bytes())] == [f"t{at}" for at in range(15, 20)]


async def test_full_disk_is_logged_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = EventLog(SystemClock())
    segments = open_segments(tmp_path, bytes_max=NEVER, count_max=1)

    def full(lines: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segments, "write", full)
    with caplog.at_level(logging.WARNING, logger="kactl"):
        async with kept(history, segments, as_json, clock=SystemClock()):
            for number in range(500):
                history.add(TopicEvent(what="created", topic=f"t{number}"))

    (columns,) = [record.message for record in caplog.records]
    assert "the state-change log cannot be written ([Errno 28] No space left on device)" in columns


# -- files -------------------------------------------------------------------------------------------------------------


def file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_number_of_files_is_limited_and_the_oldest_is_deleted(tmp_path: Path) -> None:
    segments = open_segments(tmp_path, bytes_max=100, count_max=3)

    for number in range(50):
        segments.write(b"%049d\n" % number)
        segments.rotate_if_full()
    segments.close()

    assert file_names(tmp_path) == [NAME, f"{NAME}.1", f"{NAME}.2"]
    kept_lines = [
        int(line) for name in reversed(file_names(tmp_path)) for line in (tmp_path / name).read_bytes().split()
    ]
    assert kept_lines == list(range(50 - len(kept_lines), 50))
    assert len(kept_lines) >= 6


def test_limit_of_one_file(tmp_path: Path) -> None:
    segments = open_segments(tmp_path, bytes_max=100, count_max=1)

    for number in range(50):
        segments.write(b"%049d\n" % number)
        segments.rotate_if_full()
    segments.close()

    assert file_names(tmp_path) == [NAME]
    assert (tmp_path / NAME).stat().st_size <= 150


def test_new_process_continues_after_an_incomplete_line(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"whole\nbroken o")

    segments = open_segments(tmp_path, bytes_max=NEVER, count_max=2)
    segments.write(b"next\n")
    segments.close()
    segments.close()

    assert (tmp_path / NAME).read_bytes() == b"whole\nbroken o\nnext\n"


def test_writing_is_retried_after_a_failure(tmp_path: Path) -> None:
    segments = open_segments(tmp_path, bytes_max=NEVER, count_max=2)
    segments.close()

    segments.write(b"one\n")
    segments.close()

    assert (tmp_path / NAME).read_bytes() == b"one\n"
