"""Absences computed from a sequence of lines about brokers."""

from typing import Any

import pytest

from kactl.forensics.event_types import EventType
from kactl.forensics.jobs.membership import BrokerLine, absences

S = 1_000_000
CHANGED, FAILED, STARTED = EventType.BROKERS_CHANGED, EventType.BROKER_FAILED, EventType.BROKER_STARTED
STOPPING, NO_LONGER = EventType.BROKER_STOPPING, EventType.BROKER_STOPPED_COUNTING
FENCED, UNFENCED, ELECTED = EventType.BROKER_FENCED, EventType.BROKER_UNFENCED, EventType.CONTROLLER_ELECTED


def said(seconds: float, type: EventType, **what: Any) -> BrokerLine:
    return BrokerLine(at_us=round(seconds * S), type=type, **{"controller": 1, **what})


def told(*lines: BrokerLine) -> list[tuple[int, Any, Any, str]]:
    """Returns for each absence: broker, seconds of loss and of return, and kind."""

    def seconds(at_us: int | None) -> float | None:
        return None if at_us is None else at_us / S

    return [(each.broker, seconds(each.detected_us), seconds(each.back_us), each.how) for each in absences(lines)]


def live(seconds: float, *brokers: int, **what: Any) -> BrokerLine:
    return said(seconds, CHANGED, brokers=brokers, **what)


def test_broker_is_absent_until_it_returns() -> None:
    assert told(live(0, 1, 2), live(5, 1, removed=(2,)), live(9, 1, 2, added=(2,))) == [(2, 5, 9, "failed")]


def test_broker_without_return_is_absent_to_the_end() -> None:
    assert told(live(0, 1, 2), live(5, 1, removed=(2,))) == [(2, 5, None, "failed")]


def test_failure_in_two_lines_is_one_absence() -> None:
    lines = (live(5, 1, removed=(2,)), said(5.001, FAILED, removed=(2,)), said(9, STARTED, added=(2,)))

    assert told(live(0, 1, 2), *lines) == [(2, 5, 9, "failed")]


def test_callbacks_alone_are_an_absence() -> None:
    assert told(said(5, FAILED, removed=(2, 3)), said(9, STARTED, added=(2,))) == [
        (2, 5, 9, "failed"),
        (3, 5, None, "failed"),
    ]


def test_added_unknown_broker_was_absent_before() -> None:
    assert told(live(4, 1, 2, added=(2,)), said(4.001, STARTED, added=(2,))) == [(2, None, 4, "failed")]


def test_listed_unknown_broker_was_never_absent() -> None:
    assert told(live(4, 1, 2)) == []


def test_empty_broker_list_means_no_absence() -> None:
    assert told(live(0, 1, 2, 3), live(5, bounced=(2,))) == [(2, 5, 5, "bounced")]


def test_requested_shutdown_is_a_stop() -> None:
    lines = [live(0, 1, 2), said(3, STOPPING, broker=2), said(5, FAILED, removed=(2,)), said(5, NO_LONGER, broker=2)]
    lines += [said(9, STARTED, added=(2,)), said(20, FAILED, removed=(2,))]

    assert told(*lines) == [(2, 5, 9, "stopped"), (2, 20, None, "failed")]
    assert [each.shutdown_us for each in absences(lines)] == [3 * S, None]


def test_cancelled_shutdown_is_a_failure() -> None:
    lines = [said(3, STOPPING, broker=2), said(4, NO_LONGER, broker=2), said(5, FAILED, removed=(2,))]

    assert told(*lines) == told(live(0, 1, 2), *lines) == [(2, 5, None, "failed")]


def test_shutdowns_of_several_brokers_are_cancelled_together() -> None:
    lines = [said(3, STOPPING, broker=2), said(3, STOPPING, broker=3), said(4, NO_LONGER, brokers=(2, 3))]

    assert told(*lines, said(5, FAILED, removed=(2, 3))) == [(2, 5, None, "failed"), (3, 5, None, "failed")]


def test_broker_back_before_detection_bounced() -> None:
    assert told(live(0, 1, 2), live(6, 1, 2, bounced=(2,))) == [(2, 6, 6, "bounced")]


def test_bounce_is_a_single_absence() -> None:
    lines = [live(0, 1, 2), said(4, STOPPING, broker=2), live(6, 1, 2, bounced=(2,))]
    lines += [said(6.001, FAILED, removed=(2,)), said(6.002, STARTED, added=(2,))]

    assert told(*lines, said(9, FAILED, removed=(2,))) == [(2, 6, 6, "bounced"), (2, 9, None, "failed")]
    assert [each.shutdown_us for each in absences(lines)] == [4 * S]


def test_bounce_does_not_hide_a_later_failure() -> None:
    bounced = live(6, 1, 2, bounced=(2,))

    assert told(bounced, said(66, FAILED, removed=(2,)))[1:] == []
    assert told(bounced, said(66.001, FAILED, removed=(2,)))[1:] == [(2, 66.001, None, "failed")]
    assert told(bounced, live(7, 1, removed=(2,)))[1:] == [(2, 7, None, "failed")]


def test_fenced_broker_is_absent_until_unfenced() -> None:
    assert told(said(5, FENCED, broker=2), said(8, UNFENCED, broker=2)) == [(2, 5, 8, "fenced")]
    assert told(said(4, STOPPING, broker=2), said(5, FENCED, broker=2)) == [(2, 5, None, "stopped")]


def test_next_controller_finds_the_previous_one_absent() -> None:
    lines = [said(0, ELECTED), live(0.1, 1, 2, 3), said(20, ELECTED, controller=2), live(20.2, 2, 3, controller=2)]

    assert told(*lines) == [(1, 20.2, None, "controller")]


def test_controller_missed_after_election_counts_as_predecessor() -> None:
    lines = [said(0, ELECTED), live(0.1, 1, 2, 3), said(20, ELECTED, controller=2)]
    lines += [live(20.2, 1, 2, 3, controller=2)]

    assert told(*lines, live(80, 2, 3, removed=(1,), controller=2)) == [(1, 80, None, "controller")]
    assert told(*lines, live(80.001, 2, 3, removed=(1,), controller=2)) == [(1, 80.001, None, "failed")]


def test_fenced_or_returned_controller_is_not_found_absent() -> None:
    lines = [said(0, ELECTED), said(20, ELECTED, controller=2)]

    assert told(*lines, said(21, FENCED, broker=1)) == [(1, 21, None, "fenced")]
    assert told(*lines, live(21, 1, 2, bounced=(1,))) == [(1, 21, 21, "bounced")]


def test_resigned_controller_is_not_absent() -> None:
    lines = [said(0, ELECTED), live(0.1, 1, 2, 3), said(20, ELECTED, controller=2), live(20.2, 1, 2, 3, controller=2)]
    later = live(500, 2, 3, removed=(1,), controller=2)

    assert told(*lines) == []
    assert told(*lines, later) == [(1, 500, None, "failed")]


def test_returned_former_controller_fails_normally() -> None:
    lines = [said(0, ELECTED), live(0.1, 1, 2, 3), said(20, ELECTED, controller=2), live(20.2, 2, 3, controller=2)]
    lines += [live(30, 1, 2, 3, added=(1,), controller=2), live(50, 2, 3, removed=(1,), controller=2)]

    assert told(*lines) == [(1, 20.2, 30, "controller"), (1, 50, None, "failed")]


def test_loss_without_controller_is_detected_by_the_next() -> None:
    lines = [live(0, 1, 2, 3), live(3, 1, 2, removed=(3,)), said(20, ELECTED, controller=2), live(20.1, 1, 3)]

    assert told(*lines) == [(3, 3, 20.1, "failed"), (2, 20.1, None, "failed")]


@pytest.mark.parametrize("type", [STOPPING, NO_LONGER, FENCED, UNFENCED])
def test_line_without_brokers_has_no_effect(type: EventType) -> None:
    assert told(said(1, type)) == []
