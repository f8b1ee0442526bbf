"""Reading earlier runs from the state-change log: continuation, limits and damaged lines."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from kactl.actors.system import Controller
from kactl.decide.messages.log import (
    AnyEvent,
    BrokerEvent,
    Cause,
    ControllerEvent,
    ElectionEvent,
    PartitionEvent,
    Recipient,
    ReplicaEvent,
    RequestEvent,
    Reset,
    Stages,
    TopicEvent,
)
from kactl.model import PartitionState, ReplicaState
from kactl.participant.group import Participants
from kactl.telemetry.state_change_log.keeper import as_json, as_kafka
from kactl.telemetry.state_change_log.past import Past, read_back
from kactl.telemetry.state_change_log.segments import NAME, open_segments
from kactl.telemetry.terms import ENDED_UNSEEN, TERMS_MAX, Term
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio


def stamped(event: AnyEvent, seq: int, *, time_ms: int = 0, epoch: int = 1) -> AnyEvent:
    return msgspec.structs.replace(event, seq=seq, time_ms=time_ms or seq, controller_epoch=epoch)


def election_event(seq: int, epoch: int) -> AnyEvent:
    return stamped(ControllerEvent(what="elected", controller_id=5), seq, epoch=epoch)


def resigned(seq: int, epoch: int, cause: str = "asked to resign") -> AnyEvent:
    return stamped(ControllerEvent(what="resigned", controller_id=5, cause=cause), seq, epoch=epoch)


def topic_event(seq: int, name: str = "orders") -> AnyEvent:
    return stamped(TopicEvent(what="created", topic=name), seq)


def write_lines(folder: Path, events: Sequence[AnyEvent], *, bytes_max: int = 1 << 30, count_max: int = 16) -> None:
    segments = open_segments(folder, bytes_max=bytes_max, count_max=count_max)
    for line in as_json(events):
        segments.write(line)
        segments.rotate_if_full()
    segments.close()


def read_past(folder: Path, **bounds: int) -> Past:
    return read_back(folder, **bounds)


def test_every_kind_of_event_is_read_back_unchanged(tmp_path: Path) -> None:
    kinds: list[AnyEvent] = [
        ControllerEvent(what="elected", controller_id=5),
        BrokerEvent(what="failed", broker=2, broker_epoch=7),
        TopicEvent(what="deletion halted", topic="a", cause="broker 2 is dead"),
        PartitionEvent(
            topic="a",
            partition=1,
            from_state=PartitionState.NEW,
            to_state=PartitionState.ONLINE,
            leader=1,
            leader_epoch=2,
            isr=(1, 2),
            partition_epoch=3,
            recovering=True,
            refused="no",
        ),
        ReplicaEvent(
            topic="a", partition=1, broker=2, from_state=ReplicaState.NEW, to_state=ReplicaState.DELETION_SUCCESSFUL
        ),
        RequestEvent(action="drain broker", target="2", outcome="partly", detail="two left", reason="rack 7"),
        Reset(),
        ControllerEvent(what="resigned", controller_id=5, cause="asked to resign"),
    ]
    events = [stamped(event, seq) for seq, event in enumerate(kinds, start=100)]
    write_lines(tmp_path, events)

    assert read_past(tmp_path) == Past(events, [Term(1, 5, 100, 107, "asked to resign", ours=True)], True, 0)


@pytest.mark.parametrize("exists", [True, False])
def test_log_without_events_is_an_empty_past(tmp_path: Path, exists: bool) -> None:
    if exists:
        (tmp_path / NAME).touch()

    assert read_past(tmp_path) == Past([], [], True, 0)


def test_events_continue_over_the_files_of_the_log(tmp_path: Path) -> None:
    events = [topic_event(seq) for seq in range(1, 101)]
    write_lines(tmp_path, events, bytes_max=1_000)
    assert len(list(tmp_path.iterdir())) > 3

    assert read_past(tmp_path).events == events


def test_the_newest_events_are_read_within_their_count_and_bytes(tmp_path: Path) -> None:
    events = [topic_event(seq) for seq in range(1, 101)]
    write_lines(tmp_path, events, bytes_max=1_000)
    (line,) = as_json(events[-1:])

    assert read_past(tmp_path, events_max=7).events == events[-7:]
    assert read_past(tmp_path, event_bytes_max=7 * len(line) + 5).events == events[-7:]
    assert read_past(tmp_path, event_bytes_max=0).events == []


def test_large_log_is_read_from_its_end_only(tmp_path: Path) -> None:
    """The file is sparse, one terabyte: reading all of it would take minutes."""
    write_lines(tmp_path, [election_event(1, 1)])
    os.truncate(tmp_path / NAME, 1 << 40)
    with (tmp_path / NAME).open("ab") as file:
        file.write(b"\n" + b"".join(as_json([election_event(2, 2), topic_event(3)])))

    past = read_past(tmp_path)

    assert past.events == [election_event(2, 2), topic_event(3)]
    assert [term.epoch for term in past.terms] == [2]


def test_unreadable_lines_are_skipped_and_leave_a_reset(tmp_path: Path) -> None:
    lines = as_json([topic_event(seq) for seq in range(1, 7)])
    lines[2] = b"\xff\x00 no line at all\n"
    lines[3] = lines[3][:40] + b"\n"
    (tmp_path / NAME).write_bytes(b"".join(lines)[:-20])  # a crash truncated the last line

    past = read_past(tmp_path)

    assert past.events == [topic_event(1), topic_event(2), Reset(seq=4, time_ms=5), topic_event(5)]
    assert (past.skipped, past.orderly) == (3, False)


def test_orderly_run_leaves_no_reset(tmp_path: Path) -> None:
    events = [election_event(1, 1), resigned(2, 1), election_event(50, 2), topic_event(51)]
    write_lines(tmp_path, events)

    assert read_past(tmp_path).events == events


def test_decreasing_numbers_are_skipped(tmp_path: Path) -> None:
    """Earlier versions numbered events by the wall clock, which may have been set back."""
    write_lines(tmp_path, [topic_event(900), topic_event(901), topic_event(5), topic_event(6)])

    past = read_past(tmp_path)

    assert past.events == [topic_event(5), topic_event(6)]
    assert past.skipped == 2


def test_kafka_lines_are_skipped(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"".join(as_kafka(5)([election_event(1, 1)])))

    assert read_past(tmp_path) == Past([], [], True, 1)


def test_terms_are_found_before_many_other_events(tmp_path: Path) -> None:
    write_lines(
        tmp_path, [election_event(1, 1), resigned(9, 1, "a later controller was elected"), election_event(20, 4)]
    )
    write_lines(tmp_path, [topic_event(seq) for seq in range(21, 500)], bytes_max=2_000, count_max=100)

    past = read_past(tmp_path, events_max=10)

    assert len(past.events) == 10
    assert past.terms == [
        Term(1, 5, 1, 9, "a later controller was elected", ours=True),
        Term(4, 5, 20, ours=True),
    ]


def test_term_without_an_end_ends_with_the_next(tmp_path: Path) -> None:
    write_lines(tmp_path, [election_event(1, 1), election_event(50, 2), resigned(60, 2)])

    assert [(term.epoch, term.ended_ms, term.cause) for term in read_past(tmp_path).terms] == [
        (1, 50, ENDED_UNSEEN),
        (2, 60, "asked to resign"),
    ]


def test_terms_have_the_times_of_their_elections(tmp_path: Path) -> None:
    won = stamped(ControllerEvent(what="elected", controller_id=5, began_ms=3), 50)
    failed = stamped(ControllerEvent(what="resigned", controller_id=5, cause="failed", began_ms=70), 75, epoch=2)
    next_won = stamped(ControllerEvent(what="elected", controller_id=5, began_ms=90), 95, epoch=3)
    write_lines(tmp_path, [won, failed, next_won, stamped(next_won, 130, epoch=4)])

    assert [(term.epoch, term.began_ms, term.ended_ms) for term in read_past(tmp_path).terms] == [
        (1, 3, 70),
        (2, 70, 75),
        (3, 90, 90),
        (4, 90, None),
    ]


def test_number_of_terms_is_limited(tmp_path: Path) -> None:
    write_lines(tmp_path, [election_event(seq, seq) for seq in range(1, 3 * TERMS_MAX)])

    terms = read_past(tmp_path).terms

    assert len(terms) == TERMS_MAX
    assert terms[-1].epoch == 3 * TERMS_MAX - 1
    assert read_past(tmp_path, term_bytes_max=0).terms == []


def test_topic_name_that_looks_like_an_election_is_not_one(tmp_path: Path) -> None:
    write_lines(tmp_path, [stamped(RequestEvent(action="a", target='{"kind":"controller",', outcome="done"), 1)])

    assert read_past(tmp_path).terms == []


def record(seq: int, event: int) -> ElectionEvent:
    return ElectionEvent(
        seq=seq,
        time_ms=seq,
        because=Cause(event, "BrokerChange", strategy="offline"),
        detected_ms=seq,
        handled_us=1,
        complete=True,
        failed=False,
        planned=1,
        committed=1,
        rejected=0,
        moved=1,
        stages=Stages((0, 1, 1)),
        brokers=(Recipient(1, 1, 1, 2),),
        first_ack_us=2,
        last_ack_us=2,
    )


def test_elections_are_found_before_many_other_events(tmp_path: Path) -> None:
    elections = [record(2, 71), record(3, 72)]
    others = [topic_event(seq) for seq in range(4, 60)]
    write_lines(tmp_path, [election_event(1, 1), *elections, *others], bytes_max=2000)

    past = read_past(tmp_path, events_max=10)

    assert list(past.elections) == elections
    assert len([event for event in past.events if isinstance(event, TopicEvent)]) == 10


def test_election_that_is_recorded_after_the_resignation_leaves_no_reset(tmp_path: Path) -> None:
    write_lines(tmp_path, [election_event(1, 1), resigned(2, 1), record(3, 71), election_event(100, 2)])

    past = read_past(tmp_path)

    assert not any(isinstance(event, Reset) for event in past.events)


async def test_records_of_earlier_processes_come_before_those_of_this_one(tmp_path: Path) -> None:
    clock = ManualClock()
    later_id = clock.now_ms() * 1000 + 5_000
    write_lines(tmp_path, [record(1, 71), record(2, later_id)])
    past = read_past(tmp_path)
    controller = Controller(9, clock=clock)
    controller.recall(past.events, past.terms, orderly=past.orderly, elections=past.elections)

    async with controller, Participants(1, store=controller.store, hub=controller.hub, clock=clock):
        await settle()
        await controller.create_topic("t", replication_factor=1)
        await settle()

        assert [event.because.event for event in controller.elections()[-2:]] == [later_id, 71]
        # Ids rise although the clock was set back.
        assert controller.elections()[0].because.event > later_id
