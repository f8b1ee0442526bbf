"""Runs of whole clusters: generated seeds pass, runs are deterministic, and planted bugs are found."""

import gc
from typing import Any

import msgspec
import pytest

from kactl.actors.controller import ControllerLoop
from kactl.model import Fence
from kactl.stores.memory import MemoryState
from kactl.testing.nodes import Node
from tests.sim.engine.actions import VERBS
from tests.sim.engine.brokers.receiver import Receiver
from tests.sim.engine.generator import script_of_seed
from tests.sim.engine.run import run_script
from tests.sim.engine.script import Action, BrokersSpec, LatencySpec, Script, WorldSpec, dumps, loads
from tests.support.marks import fast_and_slow

# Short runs with faults of many kinds.
SEEDS = fast_and_slow((0, 1, 3), fast=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_run_passes_and_is_deterministic(seed: int) -> None:
    script = script_of_seed(seed, "memory")

    first, second = run_script(script), run_script(loads(dumps(script), name="copy"))

    assert first.passed, first.error
    assert (first.digest, first.steps) == (second.digest, second.steps)


def test_equal_seeds_make_equal_scripts() -> None:
    assert dumps(script_of_seed(5)) == dumps(script_of_seed(5)) != dumps(script_of_seed(6))


@pytest.mark.slow
def test_generated_actions_are_known_verbs_with_json_arguments() -> None:
    verbs = set()
    for seed in range(200):
        script = script_of_seed(seed)
        assert loads(dumps(script), name="copy") == script
        verbs |= {action.do for action in script.actions}

    assert verbs - {"fail"} == VERBS.keys()


@pytest.mark.slow
def test_any_subset_of_a_script_is_a_valid_script() -> None:
    script = script_of_seed(1, "memory")
    script = msgspec.structs.replace(script, actions=script.actions[::3], duration_ms=60_000)

    outcome = run_script(script)

    assert outcome.passed, outcome.error


def small(*actions: Action, **settings: Any) -> Script:
    topic = Action("create", at_ms=1_000, args={"topic": "t1", "replicas": [[1, 2, 3], [2, 3, 1]]})
    world = WorldSpec(brokers=BrokersSpec(count=3), settings=settings)
    return Script(world=world, duration_ms=60_000, actions=[topic, *actions])


def test_cluster_without_faults_is_well() -> None:
    outcome = run_script(small())

    assert outcome.passed, outcome.error
    assert outcome.probes.get("PRB-30", 0) == 0


@pytest.mark.parametrize(
    ("isr", "lags", "proposes"),
    [
        ([1], {}, False),
        ([1], {"epoch_lag": -1, "version_lag": -1}, False),  # the next leader epoch may be stored by then
        ([1], {"version_lag": 1}, True),
        ([-1, 1], {}, True),
        ([2], {}, True),
    ],
)
def test_nonsense_is_proposed_unless_a_leader_could_propose_it(
    isr: list[int], lags: dict[str, int], proposes: bool
) -> None:
    # No leader would know of its acceptance, nor propose the next ISR with the right version.
    args = {"broker": "broker 1", "replica": 0, "isr": isr, "to": "active controller", **lags}

    outcome = run_script(small(Action("nonsense", at_ms=10_000, args=args)))

    assert outcome.passed, outcome.error
    proposed = [event for event in outcome.history.events if event.fields.get("operation") == "alter partition"]
    assert bool(proposed) == proposes


def test_paused_controller_believes_to_be_active_until_it_is_fenced() -> None:
    # Past its session, and back while its successor is active.
    pause = Action("pause", at_ms=10_000, args={"node": "active controller", "for_ms": 15_000})

    outcome = run_script(small(pause))

    assert outcome.passed, outcome.error
    assert outcome.probes["PRB-30"] > 0


def test_action_without_target_is_skipped_and_recorded() -> None:
    outcome = run_script(small(Action("kill", at_ms=5_000, args={"node": "deposed controller"})))

    assert outcome.passed
    assert list(outcome.skipped) == [1]


@pytest.mark.parametrize(("level", "to"), [("2.6", {"to": "active controller"}), ("2.6", {}), ("2.8", {})])
def test_topic_is_not_removed_by_hand_during_a_creation(level: str, to: dict[str, str]) -> None:
    # Brokers would take the topic of the creation for the removed one.
    script = small(
        Action("create", at_ms=10_000, args={"topic": "t1", "replicas": [[3]], **to}),
        Action("vanish", at_ms=10_001, args={"topic": "t1"}),
        Action("vanish", at_ms=20_000, args={"topic": "t1"}),
    )
    script.world.brokers.level = level
    script.latency = LatencySpec(store_ms=(5.0, 5.0), network_ms=(5.0, 5.0))

    outcome = run_script(script)

    assert outcome.passed, outcome.error
    assert list(outcome.skipped) == [2]


@pytest.mark.parametrize("at_point", ["", "store.commit before"])
def test_any_topic_may_be_removed_by_hand_and_created_again_under_its_name(at_point: str) -> None:
    args = {"topic": "any topic ~1", "removal": "vanish", "after_ms": 50.0, "replicas": [[3], [2, 3], [1]]}
    script = small(
        Action("recreate", at_ms=10_000, at_point=at_point, args=args),
        Action("kill", at_ms=10_000, args={"node": "broker 2", "restart_after_ms": 500, "ends_session": True}),
    )

    outcome = run_script(script)

    assert outcome.passed, outcome.error
    written = [
        key for event in outcome.history.events if event.kind == "store.commit" for key, *_ in event.fields["ops"]
    ]
    assert written.count("topics/t1") == 3
    assert "leadership/t1/2" in written


def test_tools_add_partitions_to_a_topic_one_after_the_other() -> None:
    # Each would write its own partition 2, and the controller takes only the first one.
    script = small(
        Action("grow stored", at_ms=10_000, args={"topic": "t1", "replicas": [1, 2]}),
        Action("grow stored", at_ms=10_001, args={"topic": "t1", "replicas": [3]}),
        Action("grow stored", at_ms=20_000, args={"topic": "t1", "replicas": [2]}),
    )
    script.latency = LatencySpec(store_ms=(5.0, 5.0), network_ms=(5.0, 5.0))

    outcome = run_script(script)

    assert outcome.passed, outcome.error
    assert list(outcome.skipped) == [2]


def test_request_from_before_a_deletion_may_start_the_replica_again() -> None:
    # The copy that is held arrives after its repetition, and after the request to delete.
    script = small(
        Action("kill", at_ms=5_000, args={"node": "broker 2", "restart_after_ms": 20_000}),
        Action("delete", at_ms=15_000, args={"topic": "t1", "to": "active controller"}),
        Action("hold", at_ms=24_000, args={"node": "active controller", "kind": "LeaderAndIsr", "for_ms": 20_000}),
    )

    outcome = run_script(script)

    assert outcome.passed, outcome.error
    roles = [event.kind for event in outcome.history.events if event.kind in ("role.apply", "role.stop")]
    assert roles[-1] == "role.apply"


def test_member_of_the_core_stays_down() -> None:
    script = small()
    script.liveness.core_down = ["broker 3"]

    outcome = run_script(script)

    assert outcome.passed, outcome.error
    assert any(event.kind == "node.crash" and event.node == "broker 3" for event in outcome.history.events)


@pytest.mark.slow
def test_missing_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(self: MemoryState, fence: Fence) -> None: ...

    monkeypatch.setattr(MemoryState, "check", check)
    # A change of the generator moves it to another seed; it is enough that one of several seeds finds it.
    signatures = (run_script(script_of_seed(seed, "memory")).signature for seed in range(42, 62))

    assert any(signature.startswith(("INV-03", "INV-05")) for signature in signatures)


def test_call_that_a_resignation_leaves_without_an_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def preempt(self: ControllerLoop) -> None:
        self.inbox.drain()

    monkeypatch.setattr(ControllerLoop, "_preempt", preempt)
    # The read of the configuration takes time, so that the election waits in the inbox when the session ends.
    create = Action("create", at_ms=10_000, args={"topic": "t2", "replicas": [[1]], "to": "active controller"})
    elect = Action("elect", at_ms=10_000, args={"kind": "preferred", "to": "active controller"})
    expire = Action("expire", at_ms=10_005, args={"node": "active controller"})
    script = msgspec.structs.replace(small(create, elect, expire), latency=LatencySpec(store_ms=(5.0, 5.0)))

    assert run_script(script).signature == "INV-50"


def test_leader_that_never_fetches_violates_liveness(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(self: Receiver, entry: Any) -> int:
        return 0

    monkeypatch.setattr(Receiver, "_serve", serve)

    assert run_script(small()).signature.startswith("LIV-03")


def test_second_phase_may_end_before_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a run whose first phase only is of interest; the whole one is a violation, long after."""
    monkeypatch.setattr(Receiver, "_serve", lambda *args: 0)

    outcome = run_script(small(), second_ms=5_000.0)

    assert outcome.passed
    assert outcome.virtual_ms == small().duration_ms + 5_000.0


@pytest.mark.parametrize("stays_down", [True, False])
def test_partition_that_never_had_a_leader_waits_for_a_broker_of_its_origin(stays_down: bool) -> None:
    """In Kafka as well: nothing can be copied, and a reassignment elects no first leader."""
    script = small(
        Action("kill", at_ms=500, args={"node": "broker 3", "restart_after_ms": 1_000_000}),
        Action("create", at_ms=20_000, args={"topic": "t2", "replicas": [[3]]}),
        Action("reassign", at_ms=30_000, args={"targets": {"t2-0": [1]}, "to": "active controller"}),
    )
    script.liveness.core_down = ["broker 3"] if stays_down else []

    outcome = run_script(script)

    led = [event for event in outcome.history.events if "leadership/t2/0" in str(event.fields.get("ops"))]
    assert outcome.passed, outcome.error
    assert bool(led) != stays_down


@pytest.mark.slow
def test_runs_of_one_process_leave_no_memory() -> None:
    """A long search runs thousands of scripts in one process."""
    kill = Action("kill", at_ms=15_000, args={"node": "active controller", "restart_after_ms": 100})
    stop = Action("stop", at_ms=20_000, args={"node": "broker 1", "restart_after_ms": 100})
    known = _nodes()  # that other tests of this process have left

    for _ in range(2):
        run_script(small(kill, stop))
        gc.collect()

    assert [node for node in _nodes() if not any(node is other for other in known)] == []


def _nodes() -> list[Node]:
    return [each for each in gc.get_objects() if isinstance(each, Node)]
