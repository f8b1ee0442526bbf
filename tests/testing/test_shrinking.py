"""Reduction of the faults of a failing test, on runs that are functions of the script."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from kactl.testing.script import Action, Script
from kactl.testing.shrinking import PASS, Limits, NotReproduced, shrink

LIMITS = Limits(runs=300)


class Ended(NamedTuple):
    signature: str = PASS
    virtual_ms: float = 60_000.0


FAILED = Ended("AssertionError at test_jobs.py:21")


def a_script(count: int = 40) -> Script:
    return Script(
        name="test_jobs",
        actions=[Action("kill", at_ms=1_000.0 * number, args={"n": number}) for number in range(count)],
    )


def numbers(script: Script) -> set[int]:
    return {action.args["n"] for action in script.actions}


def failing_if(condition: Callable[[Script], bool], ended: Ended = FAILED) -> Callable[[Script], Ended]:
    return lambda script: ended if condition(script) else Ended()


def test_only_the_needed_faults_remain_with_their_times() -> None:
    script, runs = shrink(
        a_script(), failing_if(lambda script: {3, 30} <= numbers(script)), signature=FAILED.signature, limits=LIMITS
    )

    assert script.actions == [a_script().actions[3], a_script().actions[30]]
    assert runs < 60


def test_faults_after_the_failure_are_dropped_without_a_run() -> None:
    seen: list[int] = []

    def run(script: Script) -> Ended:
        seen.append(len(script.actions))
        return FAILED._replace(virtual_ms=12_500.0) if 5 in numbers(script) else Ended()

    shrink(a_script(), run, signature=FAILED.signature, limits=LIMITS)

    assert seen[0] == 40
    assert max(seen[1:]) < 13


def test_fault_is_dropped_that_another_seed_of_the_schedule_does_not_need() -> None:
    def needs(script: Script) -> bool:
        return 20 in numbers(script) and (len(script.actions) == 40 or script.schedule.seed % 3 == 2)

    script, _ = shrink(a_script(), failing_if(needs), signature=FAILED.signature, limits=LIMITS)

    assert numbers(script) == {20}
    assert script.schedule.seed % 3 == 2


def test_failure_without_faults_needs_none() -> None:
    script, runs = shrink(a_script(), failing_if(lambda script: True), signature=FAILED.signature, limits=LIMITS)

    assert (script.actions, runs) == ([], 2)


def test_another_failure_is_not_followed() -> None:
    def run(script: Script) -> Ended:
        if {3, 4} <= numbers(script):
            return FAILED
        if len(script.actions) == 1:
            raise ValueError("one fault alone is nonsense")
        return Ended("TimeoutError at test_jobs.py:9")

    script, _ = shrink(a_script(), run, signature=FAILED.signature, limits=LIMITS)

    assert numbers(script) == {3, 4}


def test_limit_ends_with_the_fewest_faults_so_far() -> None:
    script, runs = shrink(
        a_script(),
        failing_if(lambda script: {3, 30} <= numbers(script)),
        signature=FAILED.signature,
        limits=Limits(runs=4),
    )

    assert runs == 4
    assert {3, 30} <= numbers(script)


def test_run_that_ends_otherwise_is_reported() -> None:
    with pytest.raises(NotReproduced, match="script test_jobs ends with pass and not with AssertionError"):
        shrink(a_script(), failing_if(lambda script: False), signature=FAILED.signature, limits=LIMITS)
