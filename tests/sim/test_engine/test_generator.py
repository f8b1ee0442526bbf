"""Scripts of random seeds: their lengths, and how dense they are."""

import random
from typing import Final

from tests.sim.engine.actions import VERBS
from tests.sim.engine.exploring import FAULT_MS_MAX
from tests.sim.engine.generator import script_of_seed
from tests.sim.engine.generator.faults import KINDS
from tests.sim.engine.generator.operations import _Sequences, operations
from tests.sim.engine.generator.pace import CALM, drawn_pace
from tests.sim.engine.generator.stores import KINDS as STORE_KINDS
from tests.sim.engine.generator.workload import TOPICS, created_again
from tests.sim.engine.generator.worlds import drawn_world
from tests.sim.engine.points import EVENTS, POINTS
from tests.sim.engine.run import run_script
from tests.sim.engine.script import Action, BrokersSpec, Script, WorldSpec

SCRIPTS: Final = [script_of_seed(seed) for seed in range(120)]
_LONG_MS: Final = 120_000.0
# Actions that the swarm of faults consists of; requests are others.
_FAULTS: Final = {*KINDS, *(kind for kinds in STORE_KINDS.values() for kind in kinds)}


def faults_of(script: Script) -> int:
    return sum(action.do in _FAULTS for action in script.actions)


def test_calm_runs_are_long_and_a_third_of_all() -> None:
    paces = [drawn_pace(random.Random(f"pace {seed}"), random.Random(seed), large=False) for seed in range(1_000)]

    calm = [pace for pace in paces if pace.is_calm]
    assert abs(len(calm) / len(paces) - CALM) < 0.05
    assert {pace.minutes for pace in calm} == {2, 5, 10, 20}
    assert max(max(pace.rates) for pace in calm) <= min(min(pace.rates) for pace in paces if not pace.is_calm)


def test_brokers_of_large_clusters_wait_for_their_turn() -> None:
    """Brokers that repeat each request after 100 ms overload the controller of a large cluster."""
    drawn = {
        large: {
            drawn_world(random.Random(seed), "memory", large=large).settings["request_timeout_ms"] for seed in range(50)
        }
        for large in (True, False)
    }

    assert drawn == {True: {1_000.0, 5_000.0}, False: {100.0, 1_000.0, 5_000.0}}


def test_large_clusters_are_never_calm() -> None:
    assert not any(drawn_pace(random.Random(seed), random.Random(seed), large=True).is_calm for seed in range(100))


def test_length_of_dense_runs_does_not_depend_on_the_pace() -> None:
    """Otherwise a change of the paces would change every run."""
    script = random.Random(1)
    drawn_pace(random.Random(1), script, large=True)
    after = script.random()

    for seed in range(10):
        script = random.Random(1)
        drawn_pace(random.Random(seed), script, large=False)
        assert script.random() == after


def test_long_runs_have_enough_faults_for_cluster_hours() -> None:
    long = [script for script in SCRIPTS if script.duration_ms >= _LONG_MS and script.swarm]

    enough = [script for script in long if faults_of(script) * FAULT_MS_MAX >= script.duration_ms]

    assert len(long) > 30
    assert len(enough) >= 0.9 * len(long)


def test_scripts_of_ownership_create_such_topics_for_handlers() -> None:
    scripts = [script_of_seed(seed, "memory", brokers="ownership") for seed in range(20)]

    assert all(script.world.brokers.kind == "participant" and script.world.brokers.handlers for script in scripts)
    assert all(script.world.brokers.level not in ("2.6", "2.7") for script in scripts)
    assert all(any("partitions" in action.args for action in script.actions) for script in scripts)


def test_scripts_name_known_verbs_and_points() -> None:
    scripts = [*SCRIPTS, *(script_of_seed(seed, "memory", brokers="ownership") for seed in range(20))]
    for action in (action for script in scripts for action in script.actions):
        event, _, point = action.at_point.rpartition(": ")
        assert action.do in (*VERBS, "fail")  # a failure belongs to the point itself
        assert point in ("", *POINTS)
        assert event in ("", *EVENTS)


def test_topics_that_were_removed_by_hand_are_often_created_again() -> None:
    world = WorldSpec(brokers=BrokersSpec(count=3))
    removals = [Action("vanish", at_ms=number, args={"topic": f"any topic ~{number}"}) for number in range(200)]
    others = [Action("mark", at_ms=1.5, args={"topic": "t1"})]

    drawn = created_again(random.Random(1), world, [*others, *removals])

    again = [action for action in drawn if action.do == "recreate"]
    assert 0.5 * len(removals) < len(again) < len(removals)
    assert {(action.do, action.at_ms, action.args["topic"]) for action in drawn if action not in again} < {
        (action.do, action.at_ms, action.args["topic"]) for action in (*others, *removals)
    }
    assert {action.args["removal"] for action in again} == {"vanish"}
    assert {action.args.get("has_id", True) for action in again} == {True, False}
    assert all(action.args["topic"] == f"any topic ~{action.at_ms:.0f}" for action in again)


def test_controller_is_deposed_in_the_handlers_of_short_events() -> None:
    """Random faults interrupt them too rarely for the minima of the probes."""
    events = {
        "LeaderAndIsrResponseReceived",
        "LogDirEventNotification",
        "ZkReplicaLeaderElection",
        "IsrChangeNotification",
    }
    world = WorldSpec(brokers=BrokersSpec(count=3, level="2.6"), settings={"session_timeout_ms": 3_000})
    topics = [Action("create", args={"topic": topic, "replicas": [[1, 2, 3]]}) for topic in TOPICS]
    resigned: set[str] = set()

    for seed in range(40):
        actions = _Sequences(random.Random(seed), world).deposed(5_000.0)
        outcome = run_script(Script(world=world, duration_ms=30_000.0, actions=[*topics, *actions]))
        resigned |= {event for event in events if outcome.probes.get(f"resigned in {event}")}
        if resigned == events:
            break

    assert resigned == events


def test_sequences_stay_in_the_first_phase_and_name_existing_brokers() -> None:
    world = WorldSpec(brokers=BrokersSpec(count=3))
    drawn = [operations(random.Random(seed), world, 60_000.0) for seed in range(200)]

    actions = [action for sequence in drawn for action in sequence]
    assert {0 < action.at_ms < 60_000 for action in actions} == {True}
    assert max(max(sum(action.args.get("targets", {}).values(), [1])) for action in actions) == 3


def test_a_share_of_the_dense_runs_consists_of_sequences_alone() -> None:
    scripts = [script_of_seed(seed, calm=False) for seed in range(200)]

    alone = [script for script in scripts if not script.swarm and script.duration_ms <= 48_000]
    # A twentieth of the other runs has no swarm either.
    assert 0.15 < len(alone) / len(scripts) < 0.35


def test_one_of_the_brokers_that_fail_last_often_stays_down() -> None:
    pairs: list[tuple[set[str], str]] = []
    for script in (script_of_seed(seed, calm=False) for seed in range(300)):
        last = [action for action in script.actions if action.at_ms > script.duration_ms - 15_000]
        failed = {action.args["node"] for action in last if action.do == "kill" and "ends_session" in action.args}
        failed = {node for node in failed if node.startswith("broker ")}
        pairs += [(failed, node) for node in script.liveness.core_down if failed]

    assert sum(node in failed for failed, node in pairs) > 0.5 * len(pairs)
