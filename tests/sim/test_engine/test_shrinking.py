"""Reduction of scripts, on runs that are functions of the script: remaining actions, order of attempts, and limits."""

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest

from kactl.testing.shrinking import Limits, NotReproduced, ddmin
from tests.sim.engine import simplifying
from tests.sim.engine.script import (
    PASS,
    Action,
    BrokersSpec,
    LatencySpec,
    LivenessSpec,
    ScheduleSpec,
    Script,
    WorldSpec,
    dumps,
)
from tests.sim.engine.shrinking import shrink
from tests.sim.engine.simplifying import replace


class Ended(NamedTuple):
    signature: str = PASS
    virtual_ms: float = 60_000.0
    held: Sequence[int] = ()


PASSED = Ended()
FAILED = Ended("INV-19 role.apply role.apply")


def a_script(count: int = 57, **fields: Any) -> Script:
    """A script of many actions, none at a round time, in a world that differs from the default everywhere."""
    rng = random.Random(7)
    actions = [
        Action(
            rng.choice(("kill", "pause", "cut", "elect")),
            at_ms=1_000.0 * index + rng.random() * 999,
            args={"node": f"broker {index % 5}", "number": index},
        )
        for index in range(count)
    ]
    world = WorldSpec("zookeeper", BrokersSpec("participant", 7, "2.7", 3), 3, {"chunk_partitions": 1, "inbox": 2})
    return Script(
        **{
            "world": world,
            "schedule": ScheduleSpec("shuffle", 0.25, 0, 5.0, 8842),
            "latency": LatencySpec((0.5, 4.0), (0.5, 2.0)),
            "actions": actions,
            "liveness": LivenessSpec(["broker 1", "broker 2"]),
            "swarm": {"kill": "high"},
            **fields,
        }
    )


def failing_if(condition: Callable[[Script], bool], ended: Ended = FAILED) -> Callable[[Script], Ended]:
    return lambda script: ended if condition(script) else PASSED


def numbers(script: Script) -> list[int]:
    return [action.args.get("number", -1) for action in script.actions]


@pytest.mark.parametrize("needed", [set(), {0}, {56}, {3, 4}, {0, 31, 56}, {1, 9, 17, 25, 33, 41, 49}])
def test_only_the_needed_items_remain(needed: set[int]) -> None:
    assert ddmin(range(57), lambda items: needed <= set(items)) == sorted(needed)


@pytest.mark.parametrize(("violated_ms", "is_used"), [(59_000.0, True), (61_000.0, False)])
def test_second_phase_is_left_out_if_the_script_fails_before_it(violated_ms: float, is_used: bool) -> None:
    runs: list[Script] = []
    first_runs: list[Script] = []

    def run(script: Script, ran: list[Script]) -> Ended:
        ran.append(script)
        return (
            FAILED._replace(virtual_ms=min(violated_ms, script.duration_ms + 1_000)) if 7 in numbers(script) else PASSED
        )

    shrunk = shrink(a_script(), lambda script: run(script, runs), run_first=lambda script: run(script, first_runs))

    assert numbers(shrunk.script) == [7]
    assert (len(runs) == 1) == bool(first_runs) == is_used


def test_actions_about_other_topics_are_dropped_together() -> None:
    actions = [
        *(Action("create", at_ms=1.0 * number, args={"topic": f"t{number % 5}"}) for number in range(50)),
        Action("reassign", at_ms=60.0, args={"targets": {"t1-0": [1], "t3-2": [2]}}),
        Action("reassign", at_ms=61.0, args={"targets": {"any partition ~3": [1], "t3-2": [2]}}),
        Action("delete", at_ms=62.0, args={"topic": "any topic ~1"}),
        Action("resign", at_ms=63.0),
    ]
    script = Script(actions=actions)

    assert simplifying.topics(script) == ["t0", "t1", "t2", "t3", "t4"]
    kept = simplifying.with_topics(script, ["t1"]).actions
    assert [action.at_ms for action in kept] == [*range(1, 50, 5), 60.0, 62.0, 63.0]


def test_reduced_list_passes_without_any_single_item() -> None:
    def fails(items: list[int]) -> bool:
        # Not monotone: a larger list may pass although a smaller one fails.
        return sum(items) % 7 == 3 and len(items) >= 2

    kept = ddmin([1, 2, 3, 4, 5, 9, 14, 28, 8], fails)

    assert fails(kept)
    assert not any(fails(kept[:index] + kept[index + 1 :]) for index in range(len(kept)))


@pytest.mark.parametrize(("count", "most"), [(2, 50), (10, 180), (40, 500)])
def test_reduction_of_a_list_tries_few_sublists(count: int, most: int) -> None:
    needed = sorted(random.Random(7).sample(range(1000), count))
    tried: list[list[int]] = []

    def fails(items: list[int]) -> bool:
        tried.append(items)
        return set(needed) <= set(items)

    assert ddmin(range(1000), fails) == needed
    assert len(tried) < most


def test_everything_that_the_failure_does_not_need_is_removed() -> None:
    def needs(script: Script) -> bool:
        found = numbers(script)
        return {11, 40} <= set(found) and script.world.brokers.count >= 3

    shrunk = shrink(a_script(), failing_if(needs))

    script = shrunk.script
    assert shrunk.is_minimal
    assert (shrunk.actions_before, len(script.actions)) == (57, 2)
    assert script.world == WorldSpec("memory", BrokersSpec("model", 3, "3.9", 1), 1, {})
    assert script.schedule.strategy == "fifo"
    assert script.schedule.grid_ms == 0
    assert script.latency == LatencySpec()
    assert script.liveness.core_down == []
    assert [(action.at_ms, action.args) for action in script.actions] == [(0.0, {"number": 11}), (0.0, {"number": 40})]
    assert script.duration_ms == 0.0
    assert script.expect == FAILED.signature


def test_what_the_failure_needs_is_kept() -> None:
    original = a_script()

    def needs(script: Script) -> bool:
        return (
            script.world == original.world
            and script.latency == original.latency
            and script.liveness == original.liveness
            and script.schedule.strategy == "shuffle"
            and script.schedule.grid_ms == 5.0
            and max((action.at_ms for action in script.actions), default=0) > 50_000
        )

    script = shrink(original, failing_if(needs)).script

    assert needs(script)
    assert len(script.actions) == 1


def test_settings_and_nodes_that_stay_down_are_removed_one_by_one() -> None:
    def needs(script: Script) -> bool:
        return "inbox" in script.world.settings and "broker 2" in script.liveness.core_down

    script = shrink(a_script(), failing_if(needs)).script

    assert script.world.settings == {"inbox": 2}
    assert script.liveness.core_down == ["broker 2"]


def test_another_failure_is_not_followed() -> None:
    def run(script: Script) -> Ended:
        if {3, 4, 5} <= set(numbers(script)):
            return FAILED
        return Ended("INV-50 admin.call") if 3 in numbers(script) else PASSED

    assert numbers(shrink(a_script(), run).script) == [3, 4, 5]


def test_actions_after_the_violation_are_dropped_first() -> None:
    seen: list[Script] = []

    def run(script: Script) -> Ended:
        seen.append(script)
        return Ended(FAILED.signature, virtual_ms=12_000.0) if 5 in numbers(script) else PASSED

    shrink(a_script(), run)

    assert len(seen[1].actions) == 12
    assert all(action.at_ms <= 12_000 for action in seen[1].actions)


def test_other_schedule_seeds_are_tried() -> None:
    """A failure that each smaller script shows with one schedule seed in three only."""

    def run(script: Script) -> Ended:
        fails = 20 in numbers(script) and (len(script.actions) == 57 or script.schedule.seed % 3 == 2)
        return FAILED if fails else PASSED

    shrunk = shrink(a_script(), run)

    assert numbers(shrunk.script) == [20]
    assert shrunk.script.schedule.seed % 3 == 2


def test_held_back_steps_are_minimized() -> None:
    def run(script: Script) -> Ended:
        only = script.schedule.only
        every = range(0, 4_000, 40) if script.schedule.strategy == "shuffle" and script.schedule.hold_back else ()
        held = [step for step in every if only is None or step in only]
        needed = {400, 2_000} <= set(held)
        return Ended(FAILED.signature, held=held) if needed else PASSED

    assert shrink(a_script(), run).script.schedule.only == [400, 2_000]


def test_changes_of_priority_are_reduced() -> None:
    script = a_script(schedule=ScheduleSpec("priority", changes=3))

    shrunk = shrink(script, failing_if(lambda script: script.schedule.changes >= 2)).script

    assert shrunk.schedule.changes == 2


def test_latencies_become_constant_where_zero_does_not_fail() -> None:
    shrunk = shrink(a_script(), failing_if(lambda script: script.latency.store_ms[0] >= 0.5)).script

    assert shrunk.latency == LatencySpec((2.2, 2.2), (0.0, 0.0))


def test_pauses_get_shorter_and_times_rounder() -> None:
    def needs(script: Script) -> bool:
        times = {action.args.get("number"): action.at_ms for action in script.actions}
        return 11 in times and 40 in times and times[11] >= 8_123.4 and times[40] - times[11] >= 1_050

    shrunk = shrink(a_script(), failing_if(needs)).script

    first_ms, second_ms = (action.at_ms for action in shrunk.actions)
    assert 8_123.4 <= first_ms <= 2 * 8_123.4
    assert 1_050 <= second_ms - first_ms <= 2 * 1_050
    assert (first_ms % 1_000, second_ms % 1_000) == (0, 0)


def test_arguments_get_smaller_and_optional_ones_vanish() -> None:
    actions = [
        Action(
            "create", at_ms=10.5, args={"topic": "t1", "replicas": [[1, 2, 3], [2, 3, 1], [3, 1, 2]], "wait_ms": 950}
        )
    ]

    def needs(script: Script) -> bool:
        return any(
            len(action.args.get("replicas", ())) >= 2
            and all(len(replicas) >= 2 for replicas in action.args["replicas"])
            and action.args.get("wait_ms", 0) >= 90
            for action in script.actions
        )

    shrunk = shrink(a_script(actions=actions), failing_if(needs)).script

    assert shrunk.actions == [Action("create", at_ms=0.0, args={"replicas": [[1, 2], [2, 1]], "wait_ms": 100})]


def test_neighbours_that_differ_in_lists_are_merged() -> None:
    actions = [Action("elect", at_ms=5.0, args={"partitions": [f"t1-{number}"]}) for number in range(3)]

    def needs(script: Script) -> bool:
        listed = [name for action in script.actions for name in action.args.get("partitions", ())]
        return {"t1-0", "t1-1", "t1-2"} <= set(listed)

    shrunk = shrink(a_script(actions=actions), failing_if(needs)).script

    assert shrunk.actions == [Action("elect", at_ms=0.0, args={"partitions": ["t1-0", "t1-1", "t1-2"]})]


def test_action_at_a_point_stays_at_its_point() -> None:
    actions = [*a_script().actions, Action("kill", at_point="commit.after", hit=4, args={"node": "controller"})]

    def needs(script: Script) -> bool:
        return any(action.at_point == "commit.after" and action.hit >= 1 for action in script.actions)

    shrunk = shrink(a_script(actions=actions), failing_if(needs)).script

    assert shrunk.actions == [Action("kill", at_point="commit.after", hit=1)]


def test_script_that_cannot_be_executed_is_dropped() -> None:
    def run(script: Script) -> Ended:
        if len(script.actions) == 1:
            raise ValueError("one action alone is nonsense")
        return FAILED if 7 in numbers(script) else PASSED

    shrunk = shrink(a_script(), run)

    assert len(shrunk.script.actions) == 2
    assert 7 in numbers(shrunk.script)


@pytest.mark.parametrize("seen", [PASSED, Ended("LIV-05")])
def test_script_that_does_not_fail_as_stated_is_rejected(seen: Ended) -> None:
    with pytest.raises(NotReproduced, match=r"script X ends with (pass|LIV-05) and not with INV-19: replay it"):
        shrink(a_script(name="X"), lambda script: seen, signature="INV-19")


def test_limit_of_runs_ends_with_the_shortest_script_so_far() -> None:
    calls = itertools.count(1)

    def run(script: Script) -> Ended:
        next(calls)
        return FAILED if {11, 40} <= set(numbers(script)) else PASSED

    shrunk = shrink(a_script(), run, limits=Limits(runs=20))

    assert not shrunk.is_minimal
    assert shrunk.runs == next(calls) - 1 == 20
    assert {11, 40} <= set(numbers(shrunk.script))
    assert len(shrunk.script.actions) < 57


def test_limit_of_processor_time_ends_the_reduction() -> None:
    clock = itertools.count(0.0, 0.25)

    shrunk = shrink(
        a_script(),
        failing_if(lambda script: {11, 40} <= set(numbers(script))),
        limits=Limits(cpu_s=5.0),
        cpu_s=lambda: next(clock),
    )

    assert not shrunk.is_minimal
    assert shrunk.runs <= 21
    assert {11, 40} <= set(numbers(shrunk.script))


def test_no_script_is_run_twice() -> None:
    seen: list[str] = []

    def run(script: Script) -> Ended:
        seen.append(dumps(script))
        return FAILED if {11, 40} <= set(numbers(script)) else PASSED

    shrink(a_script(), run)

    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("seed", range(20))
def test_random_failures_are_reduced_equally_each_time(seed: int) -> None:
    rng = random.Random(seed)
    needed = {index for index in range(57) if rng.random() < 0.08}
    pause_ms = rng.uniform(0, 9_000)

    def needs(script: Script) -> bool:
        last_ms = max((action.at_ms for action in script.actions), default=0.0)
        return needed <= set(numbers(script)) and last_ms >= pause_ms

    first = shrink(a_script(), failing_if(needs))
    second = shrink(msgspec.json.decode(dumps(a_script()), type=Script), failing_if(needs))

    assert first.is_minimal
    assert dumps(first.script) == dumps(second.script)
    assert first.runs == second.runs
    assert len(first.script.actions) == max(len(needed), 1)
    assert first.runs < 2_000


def test_early_actions_are_left_out_and_later_ones_moved() -> None:
    original = a_script(57, duration_ms=65_000.0)

    half = simplifying.without_early_actions(original, 0.5)

    assert half is not None
    assert numbers(half) == [*range(5), *range(35, 57)]
    assert half.duration_ms == 35_000.0
    moved = original.actions[35].at_ms - half.actions[5].at_ms
    assert moved == pytest.approx(30_000.0)
    assert simplifying.without_early_actions(replace(original, duration_ms=12_000.0), 0.5) is None


def test_last_actions_follow_the_creation_of_the_topics() -> None:
    topic = {"topic": "t1", "replicas": [[1, 2]]}
    again = Action("recreate", at_ms=30_500.0, args=topic | {"removal": "mark", "after_ms": 5.0})
    actions = sorted([*a_script(57).actions, again], key=lambda action: action.at_ms)
    original = a_script(actions=actions, duration_ms=65_000.0)

    latest = simplifying.with_latest_actions(original, 4)

    assert latest is not None
    assert [(action.do, action.args) for action in latest.actions[:-4]] == [("create", topic)]
    assert numbers(latest)[1:] == [53, 54, 55, 56]
    assert latest.actions[1].at_ms == simplifying.SETUP_MS
    assert original.duration_ms - latest.duration_ms == pytest.approx(original.actions[-4].at_ms - simplifying.SETUP_MS)
    assert simplifying.with_latest_actions(original, 58) is None


def test_failure_of_the_last_actions_takes_few_runs() -> None:
    original = a_script(200, duration_ms=205_000.0)

    shrunk = shrink(original, failing_if(lambda script: {198, 199} <= set(numbers(script))), limits=Limits(runs=3))

    assert numbers(shrunk.script) == [198, 199]


def test_verbs_that_the_failure_does_not_need_take_few_runs() -> None:
    original = a_script(57)
    needed = {action.args["number"] for action in original.actions if action.do == "cut"}

    shrunk = shrink(original, failing_if(lambda script: needed <= set(numbers(script))), limits=Limits(runs=12))

    assert {action.do for action in shrunk.script.actions} == {"cut"}
