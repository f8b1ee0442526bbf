"""Participants as brokers of simulated clusters: their records, and the effect of cuts of the network."""

from typing import Any

import pytest

from kactl.decide.state.replica_reports import ReplicaReports
from kactl.participant.incarnation import Incarnation
from tests.sim.engine.brokers.participant_recorder import WRAPPED
from tests.sim.engine.generator import script_of_seed
from tests.sim.engine.run import Outcome, run_script
from tests.sim.engine.script import Action, BrokersSpec, LatencySpec, Script, WorldSpec
from tests.support.marks import fast_and_slow

# A short run with faults of many kinds.
SEED = 0
LAG_MS = 3_000.0
HANG = {"broker": "broker 1", "phase": "prepare", "what": "hang", "for_ms": 8_000.0}


def small(
    *actions: Action, level: str = "3.9", sessions: Any = "store", handlers: bool = False, **settings: Any
) -> Outcome:
    """Runs three participants with two partitions, and the actions."""
    topic = Action("create", at_ms=1_000, args={"topic": "t1", "replicas": [[1, 2, 3], [2, 3, 1]]})
    world = WorldSpec(
        brokers=BrokersSpec(
            kind="participant",
            count=3,
            level=level,
            sessions=sessions,
            links=sessions != "store",
            handlers=handlers,
        ),
        settings={"lag_ms": LAG_MS, "shutdown_limit_ms": 10_000} | settings,
    )
    script = Script(
        world=world, duration_ms=60_000, actions=[topic, *actions], latency=LatencySpec((0.5, 4.0), (0.5, 2.0))
    )
    return run_script(script)


def isrs(outcome: Outcome, partition: int = 0) -> list[list[int]]:
    """Returns the stored ISRs of a partition of t1, one after the other."""
    return [
        op[3]["isr"]
        for event in outcome.history.events
        if event.kind == "store.commit" and event.fields["outcome"] == "ok"
        for op in event.fields["ops"]
        if op[0] == f"leadership/t1/{partition}" and op[3] is not None
    ]


def stored_leader(outcome: Outcome, key: str) -> int:
    """Returns the last leader that was stored under a key."""
    commits = (event for event in outcome.history.events if event.kind == "store.commit")
    ops = [op for commit in commits if commit.fields["outcome"] == "ok" for op in commit.fields["ops"]]
    return int([op[3]["leader"] for op in ops if op[0] == key][-1])


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_function_exists(name: str) -> None:
    assert callable(getattr(Incarnation, name))


@pytest.mark.parametrize("level", [pytest.param("2.6", marks=pytest.mark.slow), "3.9"])
def test_cluster_of_participants_is_well(level: str) -> None:
    outcome = small(level=level)

    assert outcome.passed, outcome.error
    roles = [event.fields for event in outcome.history.events if event.kind == "role.apply"]
    assert {(role["broker"], role["partition"], role["role"], role["outcome"]) for role in roles} >= {
        (1, 0, "leader", "applied"),
        (2, 0, "follower", "applied"),
        (2, 1, "leader", "applied"),
        (1, 1, "follower", "applied"),
    }
    accepted = {event.fields["what"] for event in outcome.history.events if event.kind == "req.accept"}
    assert accepted == {"LeaderAndIsr", "StateSent", "UpdateMetadata"}


@pytest.mark.slow
def test_generated_run_with_participants_passes_and_is_deterministic() -> None:
    script = script_of_seed(SEED, brokers="participant")
    script.duration_ms = 60_000
    script.actions = [action for action in script.actions if action.at_ms < script.duration_ms]

    first, second = run_script(script), run_script(script)

    assert first.passed, first.error
    assert (first.digest, first.steps) == (second.digest, second.steps)


@pytest.mark.parametrize("direction", fast_and_slow(["both", "out"], fast=1))
def test_follower_whose_reports_are_cut_off_leaves_the_isr(direction: str) -> None:
    args = {"node": "broker 3", "to": "broker 1", "direction": direction, "for_ms": 4 * LAG_MS}

    outcome = small(Action("cut", at_ms=10_000, args=args))

    assert outcome.passed, outcome.error
    assert [sorted(isr) for isr in isrs(outcome)] == [[1, 2, 3], [1, 2], [1, 2, 3]]


@pytest.mark.slow
def test_follower_that_does_not_hear_its_leader_stays_in_the_isr() -> None:
    args = {"node": "broker 3", "to": "broker 1", "direction": "in", "for_ms": 4 * LAG_MS}

    outcome = small(Action("cut", at_ms=10_000, args=args))

    assert outcome.passed, outcome.error
    assert isrs(outcome) == [[1, 2, 3]]


@pytest.mark.slow
def test_failing_call_of_the_application_is_a_storage_error() -> None:
    fail = Action("fail calls", at_ms=10_000, args={"broker": "broker 1", "count": 1})
    kill = Action("kill", at_ms=11_000, args={"node": "broker 2", "restart_after_ms": 20_000})

    outcome = small(fail, kill)

    assert outcome.passed, outcome.error
    failed = [event.fields for event in outcome.history.events if event.fields.get("outcome") == "storage"]
    assert {(each["broker"], each["topic"]) for each in failed} == {(1, "t1")}


def test_replica_whose_stuck_call_ends_without_a_controller_leads_later() -> None:
    """The next controller orders it to lead before it has a report."""
    kill = {"restart_after_ms": 12_000, "ends_session": True}
    outcome = small(
        Action("fail handler", at_ms=5_000, args=HANG),
        Action("create", at_ms=5_500, args={"topic": "t2", "replicas": [[1]]}),
        Action("kill", at_ms=7_000, args=kill | {"node": "controller 100"}),
        Action("kill", at_ms=7_000, args=kill | {"node": "controller 101"}),
        handlers=True,
        session_timeout_ms=3_000,
    )

    assert outcome.passed, outcome.error
    assert reported(outcome)[:4] == ["BUSY", "STUCK", "FAILED", "READY"]
    assert stored_leader(outcome, "leadership/t2/0") == 1


def test_replica_whose_application_fails_under_the_next_lease_needs_no_leader() -> None:
    """The failure comes after the answer to the order to lead, as a report."""
    topic = Action("create", at_ms=1_500, args={"topic": "t2", "replicas": [[1]]})
    fail = Action("fail calls", at_ms=9_000, args={"broker": "broker 1", "count": 2})
    pause = Action("pause", at_ms=10_000, args={"node": "broker 1", "for_ms": 4_900})

    outcome = small(topic, fail, pause, session_timeout_ms=6_000)

    assert outcome.passed, outcome.error
    reports = [event.fields for event in outcome.history.events if event.kind == "handler.report"]
    assert {(each["topic"], each["status"]) for each in reports} == {("t1", "FAILED"), ("t2", "FAILED")}


@pytest.mark.slow
def test_call_that_fails_once_succeeds_when_it_is_repeated() -> None:
    """The replica is stopped for the first response, and serves again after the second."""
    fail = Action("fail calls", at_ms=10_000, args={"broker": "broker 1", "count": 1, "stays": False})
    kill = Action("kill", at_ms=11_000, args={"node": "broker 2", "restart_after_ms": 20_000})

    outcome = small(fail, kill)

    assert outcome.passed, outcome.error
    applied = [event.fields for event in outcome.history.events if event.kind == "role.apply"]
    assert {each["broker"] for each in applied if each["outcome"] == "storage"} == {1}
    assert [each["outcome"] for each in applied if each["broker"] == 1][-1] != "storage"


@pytest.mark.parametrize("do", fast_and_slow(["fail directory", "undeletable", "leave", "producer ids"], fast=1))
def test_requests_and_failures_of_participants(do: str) -> None:
    args = {"broker": "broker 1", "replica": 0, "to": "active controller"}
    restart = Action("stop", at_ms=40_000, args={"node": "broker 1", "restart_after_ms": 1_000})
    delete = Action("delete", at_ms=20_000, args={"topic": "t1", "to": "active controller"})

    outcome = small(Action(do, at_ms=10_000, args=args), *([delete] if do == "undeletable" else []), restart)

    assert outcome.passed, outcome.error
    assert outcome.skipped == {}


@pytest.mark.parametrize("do", fast_and_slow(["vanish", "nonsense"], fast=1))
def test_actions_of_operators_that_participants_lack_are_skipped(do: str) -> None:
    args = {"topic": "t1", "broker": "broker 1", "replica": 0, "isr": [1], "to": "active controller"}

    outcome = small(Action(do, at_ms=10_000, args=args))

    assert outcome.passed, outcome.error
    assert list(outcome.skipped) == [1]


@pytest.mark.slow
def test_restarted_participant_serves_its_replicas_again() -> None:
    kills = [
        Action("kill", at_ms=10_000 + 400 * number, args={"node": "broker 1", "restart_after_ms": 100})
        for number in range(3)
    ]

    outcome = small(*kills)

    assert outcome.passed, outcome.error
    registered = [
        event.fields["broker_epoch"]
        for event in outcome.history.events
        if event.kind == "role.apply" and event.fields["broker"] == 1 and event.fields["outcome"] == "applied"
    ]
    assert len(set(registered)) > 1


@pytest.mark.parametrize("sessions", fast_and_slow(["controller", "mixed"], fast=1))
def test_sessions_with_the_controller_survive_it_and_end_with_the_process(sessions: str) -> None:
    """The next controller ends the session of the lost participant after its grace, and no other one."""
    kill = Action("kill", at_ms=10_000, args={"node": "active controller", "restart_after_ms": 40_000})
    lose = Action("kill", at_ms=10_000, args={"node": "broker 1", "restart_after_ms": 40_000})

    outcome = small(kill, lose, sessions=sessions)

    assert outcome.passed, outcome.error
    ends = [event.fields for event in outcome.history.events if event.kind == "session.end"]
    assert [(each["broker"], each["cause"]) for each in ends] == [(1, "expired")]
    assert [sorted(isr) for isr in isrs(outcome, 1)] == [[1, 2, 3], [2, 3], [1, 2, 3]]


@pytest.mark.slow
def test_participant_without_a_link_is_fenced_until_it_has_one() -> None:
    """Its session with the store lives on while it cannot reach the controller."""
    cut = Action("cut", at_ms=9_000, args={"node": "broker 1", "direction": "out", "for_ms": 20_000})
    kill = Action("kill", at_ms=10_000, args={"node": "broker 1", "restart_after_ms": 100, "ends_session": True})
    world = WorldSpec(brokers=BrokersSpec(kind="participant", count=3, links=True), settings={"lag_ms": LAG_MS})
    topic = Action("create", at_ms=1_000, args={"topic": "t1", "replicas": [[1, 2, 3]]})
    late = Action("create", at_ms=20_000, args={"topic": "t2", "replicas": [[1, 2]]})
    latency = LatencySpec((0.5, 4.0), (0.5, 2.0))

    outcome = run_script(Script(world=world, duration_ms=60_000, actions=[topic, cut, kill, late], latency=latency))

    assert outcome.passed, outcome.error
    first = next(
        op[3]
        for event in outcome.history.events
        if event.kind == "store.commit"
        for op in event.fields["ops"]
        if op[0] == "leadership/t2/0"
    )
    assert (first["leader"], first["isr"]) == (2, [2])


def phases(outcome: Outcome, broker: int, partition: int) -> list[str]:
    """Returns the calls of the handler of a partition of t1 that have begun on a broker."""
    return [
        event.fields["phase"]
        for event in outcome.history.events
        if event.kind == "phase.begin"
        and (event.fields["broker"], event.fields["partition"]) == (broker, partition)
    ]  # fmt: skip


def test_handlers_are_called_and_resume_after_a_lapse() -> None:
    """Broker 1 is paused for less than its session, whose lease is shorter."""
    pause = Action("pause", at_ms=10_000, args={"node": "broker 1", "for_ms": 4_900})

    outcome = small(pause, handlers=True, session_timeout_ms=6_000)

    assert outcome.passed, outcome.error
    lapses = [event for event in outcome.history.events if event.kind == "lease.lapse" and event.node == "broker 1"]
    assert len(lapses) == 1
    assert phases(outcome, 1, 0) == ["prepare", "lead", "prepare", "lead"]
    assert phases(outcome, 2, 0) == ["follow"]


def reported(outcome: Outcome) -> list[str]:
    """Returns the states of handlers in the order of their reports."""
    return [event.fields["status"] for event in outcome.history.events if event.kind == "handler.report"]


def test_handler_that_hangs_is_stuck_and_used_again_when_it_has_ended() -> None:
    fail = {"broker": "broker 1", "phase": "prepare", "what": "hang", "for_ms": 20_000}
    hang = Action("fail handler", at_ms=500, args=fail)

    outcome = small(hang, handlers=True)

    assert outcome.passed, outcome.error
    assert reported(outcome) == ["BUSY", "STUCK", "FAILED", "READY"]
    assert "lead" in phases(outcome, 2, 0)
    assert phases(outcome, 1, 0)[-1] in ("follow", "lead")


def test_operator_ends_the_pause_of_a_handler_that_has_failed() -> None:
    fail = {"broker": "broker 1", "phase": "prepare", "what": "raise", "for_ms": 0.0}
    failures = [Action("fail handler", at_ms=500, args=fail) for _ in range(3)]
    resets = [
        Action("reset replica", at_ms=at_ms, args={"replica": 3, "to": "active controller"})
        for at_ms in (1_500, 2_000, 2_500)
    ]

    outcome = small(*failures, *resets, handlers=True)

    assert outcome.passed, outcome.error
    assert reported(outcome) == ["RETRYING", "RETRYING", "FAILED", "READY"]
    ready = [event.time_ms for event in outcome.history.events if event.kind == "handler.report"][-1]
    assert ready < 3_000
    assert phases(outcome, 1, 0)[-1] in ("follow", "lead")


def test_failure_that_the_controller_does_not_know_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    fail = {"broker": "broker 1", "phase": "prepare", "what": "hang", "for_ms": 200_000}
    monkeypatch.setattr(ReplicaReports, "put", lambda *args: None)

    outcome = small(Action("fail handler", at_ms=500, args=fail), handlers=True)

    assert outcome.signature == "LIV-03"
    assert outcome.violation is not None
    assert "the handler of t1-0 on broker 1 is stuck, and the controller knows nothing" in outcome.violation.text


def test_handler_that_ends_after_it_has_hung_is_not_late() -> None:
    """The call notices its cancellation shortly before the end of the margin, and still cleans up."""
    hang = {"broker": "broker 1", "phase": "lead", "what": "hang", "for_ms": 9_500}
    fail = Action("fail handler", at_ms=500, args=hang)
    drain = Action("drain", at_ms=10_000, args={"broker": "broker 1", "to": "active controller"})

    outcome = small(fail, drain, handlers=True)

    assert outcome.passed, outcome.error
    events = [event for event in outcome.history.events if event.node == "broker 1"]
    end = next(event for event in events if event.kind == "lease.end")
    call = next(event for event in events if event.kind == "phase.end" and event.fields["phase"] == "lead")
    assert call.time_ms > end.time_ms + 600


def test_spectator_follows_the_routes_over_a_change_of_controllers() -> None:
    """Its routes are as old as the last response until the next controller answers."""
    topic = Action("create", at_ms=1_000, args={"topic": "t1", "replicas": [[1, 2, 3]]})
    pause = Action("pause", at_ms=10_000, args={"node": "active controller", "for_ms": 20_000})
    world = WorldSpec(brokers=BrokersSpec(kind="participant", count=3, links=True), spectators=1)

    outcome = run_script(
        Script(world=world, duration_ms=30_000, actions=[topic, pause], latency=LatencySpec((0.5, 4.0), (0.5, 2.0)))
    )

    assert outcome.passed, outcome.error
    seen = [event.fields for event in outcome.history.events if event.kind == "routes.seen"]
    assert {each["controller_epoch"] for each in seen} == {1, 2}
    assert max(each["age_ms"] for each in seen) > 5_000 > 2_000 > seen[-1]["age_ms"]
