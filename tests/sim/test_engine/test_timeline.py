"""Timelines: which rows and columns they have, as text and as a page."""

import logging
import re

from kactl.testing.history import Event, History
from kactl.testing.violations import Violation
from tests.sim.engine.log_records import LogRecord
from tests.sim.engine.timeline import Link, columns, concerned, links, rows, text
from tests.sim.engine.timeline_html import page


def a_history() -> list[Event]:
    """A controller is paused, another one is elected, and a broker rejects the request of the first."""
    now = [0.0]
    history = History(lambda: now[0])

    def at(time_ms: float, kind: str, node: str, **fields: object) -> None:
        now[0] = time_ms
        history.record(kind, node=node, **fields)

    request = {"broker": 1, "broker_epoch": 4, "what": "LeaderAndIsr"}
    at(1_000, "ctl.elected", "controller 100", controller=100, incarnation=1, controller_epoch=1)
    at(2_000, "fault.begin", "", fault="pause", target="controller 100")
    at(9_000, "store.session", "store", session=1, client="controller 100", what="expired")
    at(9_500, "ctl.elected", "controller 101", controller=101, incarnation=1, controller_epoch=2)
    at(9_600, "req.send", "controller 101", message=7, controller=101, controller_epoch=2, **request)
    at(9_604, "req.accept", "broker 1", message=7, controller=101, controller_epoch=2, asked_epoch=4, **request)
    at(
        9_604,
        "role.apply",
        "broker 1",
        broker=1,
        topic="t1",
        partition=0,
        role="leader",
        leader_epoch=3,
        outcome="same",
    )
    at(9_700, "req.attempt", "controller 101", channel=1, request=2, outcome="begin")
    at(9_800, "req.send", "controller 100", message=8, controller=100, controller_epoch=1, **request)
    at(
        9_900,
        "req.reject",
        "broker 1",
        message=8,
        controller=100,
        controller_epoch=1,
        reason="controller epoch",
        **request,
    )
    at(9_950, "node.crash", "broker 2", incarnation=1, clean=False)
    return history.events


def test_columns_are_the_nodes_in_a_fixed_order() -> None:
    assert columns(rows(a_history())) == ["store", "controller 100", "controller 101", "broker 1", "broker 2"]


def test_roles_show_zombies_paused_and_dead_nodes() -> None:
    roles = [(row.node, row.role) for row in rows(a_history()) if row.role]

    assert roles == [
        ("controller 100", "ACTIVE"),
        ("controller 100", "PAUSED"),
        ("controller 101", "ACTIVE"),
        ("controller 100", "ZOMBIE"),
        ("broker 2", "DEAD"),
    ]


def test_received_requests_show_when_they_were_sent() -> None:
    texts = [row.text for row in rows(a_history())]

    assert "accepts LeaderAndIsr #7 epoch 2, sent 9.600" in texts
    assert "rejects LeaderAndIsr #8 epoch 1: controller epoch, sent 9.800" in texts


def test_events_that_repeat_others_are_left_out() -> None:
    assert not [row for row in rows(a_history()) if row.kind == "req.attempt"]


def test_unknown_kinds_and_fields_are_shown_plainly() -> None:
    events = [Event(0, 5.0, "n", "job.done", {"id": 3}), Event(1, 6.0, "n", "role.apply", {"topic": "t1"})]

    assert [row.text for row in rows(events)] == ["job.done: id 3", "role.apply: topic t1"]


def test_log_records_and_the_violation_are_part_of_it() -> None:
    events = a_history()
    record = LogRecord(9_700.0, "controller 101", logging.WARNING, "kactl.actors", "3 partitions cannot become ONLINE")
    violation = Violation("INV-06", "an older controller was accepted", event=events[-2])

    shown = rows(events, [record], violation=violation)

    assert [(row.time_ms, row.node, row.text) for row in shown if row.kind in ("log", "violation")] == [
        (9_700.0, "controller 101", "WARNING 3 partitions cannot become ONLINE"),
        (9_900.0, "broker 1", "INV-06: an older controller was accepted"),
    ]


def test_text_has_one_column_per_node_and_wraps_cells() -> None:
    lines = text(rows(a_history()), width=120)

    assert lines[0].split() == [
        "time,",
        "s",
        "store",
        "controller",
        "100",
        "controller",
        "101",
        "broker",
        "1",
        "broker",
        "2",
    ]
    begin = lines[0].index("broker 1")
    cells = [line[begin : begin + 21].rstrip() for line in lines[2:]]
    assert "accepts LeaderAndIsr" in cells
    assert "#7 epoch 2, sent" in cells
    assert all(len(line) <= 120 for line in lines)
    assert re.search(r"^ +9\.604 ", "\n".join(lines), re.MULTILINE)


def test_empty_run_has_a_text() -> None:
    assert text([]) == ["The run has no events."]


def test_links_connect_sending_and_receiving() -> None:
    assert links(a_history()) == [
        Link(9_600.0, "controller 101", 9_604.0, "broker 1", "LeaderAndIsr #7", "accepted"),
        Link(9_800.0, "controller 100", 9_900.0, "broker 1", "LeaderAndIsr #8", "rejected"),
    ]


def test_concerned_events_are_those_of_the_nodes_and_partitions() -> None:
    events = a_history()
    violation = Violation("INV-19", "two leaders", event=events[6])

    shown = concerned(events, violation, limit=200)

    assert {event.node for event in shown} == {"broker 1"}
    assert concerned(events, violation, limit=1) == shown[-1:]
    assert concerned(events, None, limit=200) == [event for event in events if event.kind != "req.attempt"]


def test_page_is_one_file_without_external_resources() -> None:
    events = a_history()
    events.append(Event(len(events), 9_990.0, "store", "note", {"text": "<script>alert(1)</script>"}))
    shown = rows(events)

    whole = page("INV-06", ["seed 3 < 4"], shown, links(events))

    assert whole.startswith("<!doctype html>")
    assert not re.search(r"(src|href|@import|url\()", whole)
    assert "<script" not in whole
    assert "seed 3 &lt; 4" in whole
    assert whole.count("<line ") == 2
    assert '<line class="rejected"' in whole
    assert whole.count('<div class="cell') == len(shown)
