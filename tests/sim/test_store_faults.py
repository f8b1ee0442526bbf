"""Faults of one kind of store take effect, end by themselves, and leave clusters that come to rest."""

from collections import Counter
from typing import Any

import pytest

from tests.sim.engine.actions.stores import VERBS
from tests.sim.engine.generator import script_of_seed
from tests.sim.engine.generator.stores import KINDS
from tests.sim.engine.generator.worlds import LARGE_BROKERS, STORES
from tests.sim.engine.run import Outcome, run_script
from tests.sim.engine.script import Action, BrokersSpec, LatencySpec, Script, WorldSpec

FAULTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "sqlite": [
        ("disk", {"state": "full", "for_ms": 3_000.0}),
        ("disk", {"state": "read-only", "for_ms": 3_000.0}),
        ("fail statement", {"node": "active controller", "after": 3}),
        ("fail commits", {"node": "broker 1", "count": 2, "done": True}),
        ("fail commits", {"node": "active controller", "count": 2, "done": False}),
        ("die in transaction", {"node": "active controller", "statements": 2, "restart_after_ms": 8_000.0}),
        ("slow jobs", {"node": "broker 2", "job_ms": 500.0, "for_ms": 5_000.0}),
        ("restart machine", {"restart_after_ms": [1_000.0, 2_000.0]}),
    ],
    "zookeeper": [
        ("lag server", {"server": 1, "lag_ms": 3_000.0}),
        ("lag server", {"server": 2, "lag_ms": 3_000.0}),
        ("elect server", {}),
        ("reset", {"node": "active controller"}),
        ("cut server", {"server": 0, "for_ms": 8_000.0}),
        ("crash server", {"server": 1, "for_ms": 8_000.0}),
        ("lose quorum", {"for_ms": 8_000.0}),
    ],
}


def script(store: str, faults: list[tuple[str, dict[str, Any]]], **brokers: Any) -> Script:
    """One fault each ten seconds, and a creation of a topic soon after it."""
    actions = [Action("create", at_ms=1_000, args={"topic": "t", "replicas": [[1, 2, 3], [2, 3, 1]]})]
    for number, (do, args) in enumerate(faults, start=1):
        topic = {"topic": f"t{number}", "replicas": [[1, 2], [3, 1]], "to": "active controller"}
        actions += [
            Action(do, at_ms=number * 12_000.0, args=args),
            Action("create", at_ms=number * 12_000.0 + 50, args=topic),
        ]
    return Script(
        world=WorldSpec(store=store, brokers=BrokersSpec(count=3, **brokers)),  # type: ignore[arg-type]
        latency=LatencySpec(store_ms=(0.5, 4.0), network_ms=(0.5, 2.0)),
        duration_ms=len(faults) * 12_000.0 + 20_000,
        actions=actions,
    )


def begun(outcome: Outcome) -> Counter[str]:
    return Counter(event.fields["fault"] for event in outcome.history.events if event.kind == "fault.begin")


@pytest.mark.parametrize("store", FAULTS)
def test_cluster_survives_each_fault_of_its_store(store: str) -> None:
    outcome = run_script(script(store, FAULTS[store]))

    assert outcome.passed, outcome.error
    assert begun(outcome).keys() == set(KINDS[store])  # type: ignore[index]
    crashed = [event.node for event in outcome.history.events if event.kind == "node.crash"]
    if store == "sqlite":
        assert {"controller 100", "controller 101"} & {*crashed[: len(crashed) - 5]}, "none died in a transaction"


def test_faults_of_another_store_are_skipped() -> None:
    outcome = run_script(script("memory", [*FAULTS["sqlite"][:2], *FAULTS["zookeeper"][2:4]]))

    assert outcome.passed, outcome.error
    assert outcome.skipped.keys() == {1, 3, 5, 7}


def test_every_verb_of_a_store_is_tested() -> None:
    assert {do for faults in FAULTS.values() for do, _ in faults} == VERBS.keys()


def test_second_process_with_an_id_registers_when_the_first_has_lost_its_session() -> None:
    faults: list[tuple[str, dict[str, Any]]] = [
        ("start twice", {"broker": "broker 1", "for_ms": 30_000.0}),
        ("pause", {"node": "broker 1", "for_ms": 30_000.0}),
    ]

    outcome = run_script(script("memory", faults))

    assert outcome.passed, outcome.error
    registered = [
        event.fields["client"]
        for event in outcome.history.events
        if event.kind == "store.commit" and any(op.key == "brokers/1" and op.value for op in event.fields["ops"])
    ]
    assert registered == ["broker 1", "twin 1", "broker 1"]
    applied = [event for event in outcome.history.events if event.kind == "role.apply" and event.node == "twin 1"]
    assert applied, "no request has reached the second process"


@pytest.mark.slow
def test_seeds_draw_every_store_and_large_clusters() -> None:
    scripts = [script_of_seed(seed) for seed in range(300)]

    stores = Counter(each.world.store for each in scripts)
    assert all(abs(stores[store] / 300 - share / 100) < 0.1 for store, share in STORES.items()), stores
    large = [each for each in scripts if each.world.brokers.count == LARGE_BROKERS]
    assert 1 <= len(large) <= 10
    created = [sum(len(action.args["replicas"]) for action in each.actions if action.do == "create") for each in large]
    assert min(created) >= 400


def test_slow_jobs_end_with_the_faults_of_the_run() -> None:
    """The file of a store is as quick as before in the second phase, whatever time the fault had left."""
    slow = Action("slow jobs", at_ms=0.0, args={"node": "controller 100", "job_ms": 2_000.0, "for_ms": 60_000.0})
    world = WorldSpec(store="sqlite", brokers=BrokersSpec(count=1), controllers=1)
    outcome = run_script(Script(world=world, duration_ms=5_000.0, actions=[slow]))

    assert outcome.passed, outcome.error
    assert begun(outcome) == {"slow jobs": 1}


def test_delays_of_the_store_end_with_all_faults() -> None:
    """A controller that starts afterwards has its session at once, although earlier events were delayed by a minute."""
    actions = [
        Action("create", at_ms=1_000, args={"topic": "t1", "replicas": [[1, 2]]}),
        Action(
            "fail store", at_ms=5_000, args={"for_ms": 10_000.0, "rates": {"late_events": 1.0, "late_ms": 60_000.0}}
        ),
        Action("kill", at_ms=10_000, args={"node": "broker 1", "ends_session": True, "restart_after_ms": 100.0}),
        Action("create", at_ms=10_500, args={"topic": "t2", "replicas": [[1]]}),
        Action("kill", at_ms=11_900, args={"node": "active controller", "restart_after_ms": 100.0}),
    ]
    world = WorldSpec(controllers=1, settings={"session_timeout_ms": 3_000})

    outcome = run_script(Script(world=world, duration_ms=12_000, actions=actions, latency=LatencySpec((5.0, 5.0))))

    assert outcome.passed, outcome.error
