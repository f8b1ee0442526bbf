"""Named points: every entry of the table exists, and actions happen there."""

import inspect
from typing import Any

import pytest

from kactl.decide.messages import admin, broker, events
from kactl.model.errors import InternalError
from kactl.stores.base import Store
from tests.sim.engine.points import EVENTS, FUNCTIONS, POINTS, STORE_CALLS, Points, resolve
from tests.sim.engine.run import run_script
from tests.sim.engine.script import Action, BrokersSpec, Script, WorldSpec


@pytest.mark.parametrize("path", FUNCTIONS.values(), ids=FUNCTIONS)
def test_function_of_the_table_exists(path: str) -> None:
    owner, name = resolve(path)

    assert inspect.iscoroutinefunction(getattr(owner, name))


def test_store_calls_of_the_table_exist() -> None:
    assert {name for name in STORE_CALLS if not inspect.iscoroutinefunction(getattr(Store, name, None))} == set()


def test_renamed_function_is_an_error() -> None:
    with pytest.raises(AttributeError):
        resolve("kactl.actors.machines.commit:Committer.no_such_function")


def test_table_has_at_least_forty_points() -> None:
    assert len(set(POINTS)) == len(POINTS) >= 40


def test_events_before_points_exist() -> None:
    known = {name for module in (events, admin, broker) for name in vars(module)}

    assert set(EVENTS) <= known


def script(*actions: Action) -> Script:
    topic = Action("create", at_ms=1_000, args={"topic": "t1", "replicas": [[1, 2, 3]]})
    return Script(
        world=WorldSpec(brokers=BrokersSpec(count=3)), duration_ms=30_000, actions=[topic, *actions]
    )  # fmt: skip


def test_unknown_point_is_an_error() -> None:
    with pytest.raises(ValueError, match="there is no point"):
        run_script(script(Action("pause", at_point="store.nothing before")))


def test_controller_is_killed_exactly_at_a_point() -> None:
    kill = Action("kill", at_ms=500, at_point="store.commit before", args={"node": "node at point"})

    outcome = run_script(script(kill))

    assert outcome.passed, outcome.error
    crashed = next(event for event in outcome.history.events if event.kind == "node.crash")
    commits = [
        event
        for event in outcome.history.events
        if event.kind == "store.commit" and event.fields["operation"] == "commit"
    ]
    assert commits[0].seq > crashed.seq
    assert commits[0].fields["client"] != crashed.node


def test_hits_are_counted_only_during_the_named_event() -> None:
    fail = Action("fail", at_ms=500, at_point="TopicChange: store.assignments after")

    outcome = run_script(script(fail))

    assert outcome.passed, outcome.error
    assert outcome.probes["point store.assignments after"] >= 2  # failed once, and repeated


@pytest.mark.parametrize("point", ["store.write_producer_ids after", "AllocateProducerIds: handler after"])
@pytest.mark.parametrize("kind", ["model", "participant"])
def test_request_of_a_broker_that_fails_at_a_point_ends_no_task(kind: Any, point: str) -> None:
    fail = Action("fail", at_ms=5_000, at_point=point)
    ask = Action("producer ids", at_ms=6_000, args={"broker": "broker 1"})
    failing = script(fail, ask)
    failing.world = WorldSpec(brokers=BrokersSpec(kind=kind, count=3))

    outcome = run_script(failing)

    assert outcome.passed, outcome.error
    assert [event.fields["request"] for event in outcome.history.events if event.kind == "broker.failed"] == [
        "producer ids"
    ]


def test_creation_that_fails_at_a_point_may_have_been_carried_out() -> None:
    """The topic is not removed by hand, because the creation may come later."""
    fail = Action("fail", at_ms=5_000, at_point="CreateTopic: handler after")
    create = Action("create", at_ms=6_000, args={"topic": "t2", "replicas": [[1, 2]], "to": "active controller"})
    vanish = Action("vanish", at_ms=12_000, args={"topic": "t2"})

    outcome = run_script(script(fail, create, vanish))

    assert outcome.passed, outcome.error
    replies = [event.fields["outcome"] for event in outcome.history.events if event.kind == "admin.reply"]
    assert replies == [InternalError.__name__]
    assert "remove topic by hand" not in [event.fields.get("operation") for event in outcome.history.events]


def test_functions_are_restored_after_the_run() -> None:
    before = {path: vars(resolve(path)[0])[resolve(path)[1]] for path in FUNCTIONS.values()}

    with Points(lambda: 0.0, lambda number, action: None).installed():
        pass

    assert {path: vars(resolve(path)[0])[resolve(path)[1]] for path in FUNCTIONS.values()} == before
