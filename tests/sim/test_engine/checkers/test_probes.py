"""Counters of rare moments over hand-written histories."""

from pathlib import Path
from typing import Any

import pytest

from kactl.testing.history import History
from tests.sim.engine.checkers import PROBES, Probes
from tests.sim.engine.checkers.probes import minima, missed, table
from tests.sim.engine.points import POINTS

from .stories import A, B, Story


def story() -> Story:
    one = Story(Probes(session_timeout_ms=1000))
    one.topic({0: [1, 2]}, operation="create_topic")
    one.lead(1, 0, [1, 2])
    return one


def hits(one: Story) -> dict[str, int]:
    assert isinstance(one.checker, Probes)
    return {number: count for number, count in one.checker.hits.items() if number in PROBES}


def message(**fields: Any) -> dict[str, Any]:
    known = {"message": 1, "broker": 1, "broker_epoch": 11, "asked_epoch": 10, "what": "LeaderAndIsr"}
    return known | {"controller": 100, "controller_epoch": 1} | fields


def role(outcome: str, broker: int = 1, kind: str = "leader") -> dict[str, Any]:
    name = {"message": 1, "broker": broker, "broker_epoch": 11, "topic": "t1", "topic_id": "0a", "partition": 0}
    state = {"role": kind, "leader": broker, "leader_epoch": 1, "partition_epoch": 1, "isr": [1], "outcome": outcome}
    return name | state


def move(before: str, after: str) -> dict[str, Any]:
    name = {"controller_epoch": 1, "topic": "t1", "partition": 0, "from_state": before, "to_state": after}
    return name | {"leader": 1, "leader_epoch": 0, "isr": [1], "partition_epoch": 0, "refused": ""}


def decision(error: str, version: int) -> dict[str, Any]:
    name = {"controller_epoch": 1, "broker": 1, "broker_epoch": 11, "topic": "t1", "partition": 0, "leader_epoch": 0}
    proposed = {"partition_epoch": 3, "isr": [1], "member_epochs": [], "recovering": False, "error": error}
    return name | proposed | {"leadership": (1, 0, [1], version, False) if error == "NONE" else None}


# One event that hits each probe, and one like it that does not.
SINGLE: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "PRB-02": ("req.reject", message(reason="controller epoch"), message(reason="another")),
    "PRB-03": ("req.reject", message(reason="broker epoch"), message(reason="another")),
    "PRB-04": ("role.apply", role("leader epoch"), role("same")),
    "PRB-05": ("role.apply", role("topic id"), role("same")),
    "PRB-06": ("isr.decide", decision("INVALID_REQUEST", 4), decision("NONE", 4)),
    "PRB-07": ("isr.decide", decision("NONE", 3), decision("NONE", 4)),
    "PRB-13": ("fsm.partition", move("offline", "online"), move("new", "online")),
    "PRB-14": (
        "fsm.broker",
        {"controller_epoch": 1, "broker": 1, "what": "bounced"},
        {"controller_epoch": 1, "broker": 1, "what": "started"},
    ),
    "PRB-21": (
        "req.replace",
        {"channel": 1, "before": [1, 2], "after": [(3, "UpdateMetadata", [])]},
        {"channel": 1, "before": [1], "after": [(3, "UpdateMetadata", [])]},
    ),
    "PRB-22": (
        "store.unknown",
        {"txn": 1, "client": A, "done": True},
        {"txn": 1, "client": A, "done": False},
    ),
    "PRB-23": (
        "store.unknown",
        {"txn": 1, "client": A, "done": False},
        {"txn": 1, "client": A, "done": True},
    ),
}


@pytest.mark.parametrize("number", sorted(SINGLE))
def test_events_hit_their_probe(number: str) -> None:
    kind, hit, miss = SINGLE[number]
    one = story()
    one.record(kind, A, **miss)
    assert number not in hits(one)
    one.record(kind, A, **hit)

    assert hits(one)[number] == 1


def test_refused_commits_and_registrations_are_counted() -> None:
    one = story()
    one.commit({}, fence=1, outcome="fenced")
    one.commit({}, operation="register", client="broker 1", outcome="conflict")

    assert hits(one) == {"PRB-01": 1, "PRB-24": 1}


def test_elections_are_counted() -> None:
    one = story()
    one.lead(1, 0, [1])
    one.lead(-1, 1, [1])
    one.lead(1, 2, [1])
    one.lead(2, 3, [2], recovering=True)
    one.lead(2, 3, [2])

    assert hits(one) == {"PRB-08": 1, "PRB-12": 1}


def test_a_recovery_that_a_later_controller_confirms_is_counted() -> None:
    one = story()
    value = {"leader": 2, "leader_epoch": 1, "isr": [2], "controller_epoch": 1}
    one.commit({"leadership/t1/0": value | {"recovering": True}}, fence=1)
    one.commit({"leadership/t1/0": value | {"recovering": False, "controller_epoch": 2}}, fence=2)

    assert hits(one)["PRB-09"] == 1


def test_replaced_and_cancelled_reassignments_are_counted() -> None:
    one = story()
    one.topic({0: ([3, 1, 2], [3], [1, 2])})
    one.topic({0: ([4, 1, 2], [4], [1, 2])})
    one.topic({0: [1, 2]})

    assert hits(one) == {"PRB-18": 1, "PRB-19": 1}


def test_interrupted_events_and_waiting_calls_are_counted_at_a_resignation() -> None:
    one = story()
    one.elected(1)
    one.record("admin.call", call=1, controller=A, operation="elect preferred", target="", limit_ms=0.0)
    one.resigned(1, handler="BrokerChange")
    one.record("admin.reply", call=1, outcome="NotController")
    one.elected(2)
    one.resigned(2, handler="Reelect")

    assert hits(one) == {"PRB-15": 1, "PRB-16": 1}
    assert isinstance(one.checker, Probes)
    assert one.checker.hits["resigned in BrokerChange"] == 1


def test_a_halted_deletion_that_completes_is_counted() -> None:
    one = story()
    for what in ("deletion halted", "deletion started", "deleted", "deleted"):
        one.record("fsm.topic", A, controller_epoch=1, topic="t1", what=what)

    assert hits(one) == {"PRB-17": 1}


def test_a_request_that_is_sent_again_is_counted() -> None:
    one = story()
    for request, outcome in ((1, "begin"), (1, "failed"), (1, "begin"), (1, "answered"), (2, "begin")):
        one.record("req.attempt", A, channel=1, request=request, outcome=outcome)

    assert hits(one) == {"PRB-20": 1}


@pytest.mark.parametrize("gap_ms", [400, 600])
def test_three_elections_within_a_session_timeout_are_counted(gap_ms: int) -> None:
    one = story()
    for epoch, client in enumerate((A, B, A), 1):
        one.elected(epoch, client)
        one.resigned(epoch, client)
        one.now_ms += gap_ms

    assert hits(one) == ({"PRB-26": 1} if gap_ms == 400 else {})


def test_two_leaders_at_once_are_counted() -> None:
    one = story()
    one.record("role.apply", **role("applied", 1))
    one.record("role.apply", **role("applied", 1, "follower"))
    one.record("role.apply", **role("applied", 2))
    assert hits(one) == {}
    one.record("role.apply", **role("applied", 1))

    assert hits(one) == {"PRB-28": 1}


def beat(one: Story, verdict: str, *, epoch: int = 2) -> None:
    one.record(
        "session.heartbeat", A, controller_epoch=epoch, broker=1, life=7, verdict=verdict, received_ns=0, at_ns=0,
        timeout_ms=0,
    )  # fmt: skip


def test_heartbeats_that_are_not_confirmed_are_counted() -> None:
    one = story()
    for verdict in ("granted", "unconfirmed", "refused"):
        beat(one, verdict)

    assert hits(one) == {"PRB-34": 1}


@pytest.mark.parametrize("case", ["silent", "own", "heard", "goodbye"])
def test_end_of_a_grace_without_a_heartbeat_is_counted(case: str) -> None:
    one = story()
    one.commit({"brokers/1": {"epoch": 7}}, operation="register_remote", fence=2 if case == "own" else 1)
    beat(one, "granted", epoch=1)
    if case == "heard":
        beat(one, "granted")
    cause = "goodbye" if case == "goodbye" else "expired"
    one.record("session.end", A, controller_epoch=2, broker=1, life=7, cause=cause, at_ns=0, timeout_ms=1)

    assert hits(one) == ({"PRB-35": 1} if case == "silent" else {})


LIFE = {"broker": 1, "life": 7}


def test_leases_that_are_resumed_are_counted_once() -> None:
    one = story()
    began = LIFE | {
        "topic": "t1",
        "topic_id": "0a",
        "partition": 0,
        "controller_epoch": 1,
        "leader_epoch": 1,
        "present_epoch": 1,
    }
    one.record("lease.begin", "broker 1", **began, valid=[])
    one.record("lease.lapse", "broker 1", **LIFE)
    one.record("lease.begin", "broker 1", **began | {"life": 8}, valid=[])
    assert hits(one) == {}
    one.record("lease.begin", "broker 1", **began, valid=[])
    one.record("lease.begin", "broker 1", **began, valid=[])

    assert hits(one) == {"PRB-31": 1}


def test_released_partitions_are_counted() -> None:
    one = story()
    same = {"channel": 1, "broker": 1, "broker_epoch": 7, "request": 1, "controller_epoch": 1}
    for what in ("LeaderAndIsr", "LeaseRelease"):
        lists = {"partitions": ["t1-0", "t1-1"], "leader_epochs": [1, 1], "topic_ids": ["0a", "0a"]}
        one.record("req.enqueue", A, **same, what=what, **lists)

    assert hits(one) == {"PRB-32": 2}


@pytest.mark.parametrize("answered", [True, False])
def test_evictions_are_counted(answered: bool) -> None:
    one = story()
    if answered:
        accepted = message(what="StateSent", broker_epoch=7, controller_epoch=2) | {"led": [], "stopped": []}
        one.record("req.accept", "broker 1", **accepted)
    one.commit({"brokers/1": {"epoch": 7, "evicted": True}}, operation="evict", fence=2)

    assert hits(one) == {"PRB-41": 1} | ({} if answered else {"PRB-33": 1})


def test_late_answers_and_stuck_handlers_are_counted() -> None:
    one = story()
    one.record("lease.late_answer", "broker 1", **LIFE)
    for status in ("STUCK", "READY"):
        one.record("handler.report", "broker 1", broker=1, topic="t1", partition=0, status=status)

    assert hits(one) == {"PRB-36": 1, "PRB-37": 1}


def test_two_controllers_at_once_are_sampled_each_second() -> None:
    one = story()
    one.elected(1, A)
    one.elected(2, B)
    for _ in range(5):
        one.now_ms += 500
        one.commit({"config": {}})
    one.record("node.crash", A, incarnation=1, clean=False)
    one.now_ms += 2000
    one.commit({"config": {}})

    assert hits(one) == {"PRB-30": 2}


def test_each_probe_that_can_be_reached_is_hit_by_a_test() -> None:
    text = Path(__file__).read_text()

    assert [number for number, probe in PROBES.items() if probe.minimum and f'"{number}"' not in text] == []


def test_minimums_are_proportional_to_the_hours() -> None:
    assert missed({"PRB-30": 9, "PRB-01": 30}, cluster_hours=1)["PRB-30"] == (9, 10.0)
    assert "PRB-01" not in missed({"PRB-30": 9, "PRB-01": 30}, cluster_hours=1)
    assert "PRB-04" not in missed({}, cluster_hours=99)
    assert "PRB-10" not in missed({}, cluster_hours=1000)


def test_the_table_lists_all_probes_and_other_counters() -> None:
    text = table({"PRB-01": 8, "partition new>online": 3}, cluster_hours=4)

    assert "PRB-01         8      2.00/h  commit refused by the fence" in text
    assert "3              partition new>online" in text
    assert all(number in text for number in PROBES)


def test_probes_read_only_their_kinds() -> None:
    probes, history = Probes(), History(lambda: 0.0)
    history.subscribe(probes.kinds, lambda event: probes.check(event))
    history.record("req.drop", channel=1)

    assert not probes.hits


def test_minima_cover_points_transitions_and_handlers() -> None:
    required = minima()

    assert required["PRB-01"] == PROBES["PRB-01"].minimum
    assert required.keys() >= {f"point {point}" for point in POINTS}
    assert (required["partition offline>online"], required["replica absent>new"]) == (1, 1)
    assert required["resigned in BrokerChange"] == 5
    assert "PRB-25" not in required  # not reachable yet
