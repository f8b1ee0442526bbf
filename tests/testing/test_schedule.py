"""Strategies for the order of task steps."""

import itertools
import random
from collections import Counter

import pytest

from kactl.testing import Schedule


def test_strategies_are_drawn_with_their_weights() -> None:
    rng = random.Random(1)
    drawn = [Schedule.drawn(rng) for _ in range(4000)]
    strategies = Counter(schedule.strategy for schedule in drawn)

    assert strategies["fifo"] == pytest.approx(400, rel=0.2)
    assert strategies["shuffle"] == pytest.approx(2400, rel=0.1)
    assert strategies["priority"] == pytest.approx(1200, rel=0.1)
    assert sum(schedule.grid_ms > 0 for schedule in drawn) == pytest.approx(2000, rel=0.1)
    assert {schedule.hold_back for schedule in drawn} == {0.0, 0.1, 0.25, 0.5}


def test_at_least_one_step_of_each_wave_runs() -> None:
    choose = Schedule("shuffle", hold_back=0.99).choice(random.Random(2))

    assert all(choose([1, 2, 3], [0, 0, 0]) for _ in range(500))


@pytest.mark.parametrize("schedule", [Schedule("shuffle", hold_back=0.99), Schedule("priority", changes=1)])
def test_steps_held_back_for_50_waves_run(schedule: Schedule) -> None:
    choose = schedule.choice(random.Random(3))

    assert all({0, 2} <= set(choose([5, 6, 7], [50, 0, 51])) for _ in range(100))


def test_priority_runs_one_task_until_its_priority_changes() -> None:
    choose = Schedule("priority", changes=1, steps_expected=10).choice(random.Random(4))
    chosen = [choose([1, 2], [0, 0])[0] for _ in range(20)]

    # One change: the task that ran first is the lowest afterwards.
    assert sum(before != after for before, after in itertools.pairwise(chosen)) == 1


def test_unknown_strategy_is_rejected_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="use fifo, shuffle or priority"):
        Schedule("random").choice(random.Random(5))


@pytest.mark.parametrize("schedule", [Schedule("shuffle", hold_back=0.5), Schedule("priority", changes=1)])
def test_only_the_named_hold_backs_remain(schedule: Schedule) -> None:
    free = schedule.choice(random.Random(6))
    waves = [free([1, 2, 3, 4], [0, 0, 0, 0]) for _ in range(50)]
    left_out = [index for wave in waves for index in sorted({0, 1, 2, 3} - set(wave))]
    kept = {0, 7, len(left_out) - 1}

    limited = schedule._replace(only=frozenset(kept)).choice(random.Random(6))
    limited_waves = [limited([1, 2, 3, 4], [0, 0, 0, 0]) for _ in range(50)]

    assert limited.count == free.count == len(left_out)
    assert all(wave == chosen[: len(wave)] for wave, chosen in zip(waves, limited_waves, strict=True))
    still_left_out = [index for wave in limited_waves for index in sorted({0, 1, 2, 3} - set(wave))]
    assert still_left_out == [left_out[number] for number in sorted(kept)]


def test_no_hold_back_remains_if_none_is_named() -> None:
    choose = Schedule("shuffle", hold_back=0.5, only=frozenset()).choice(random.Random(7))

    assert all(sorted(choose([1, 2, 3], [0, 0, 0])) == [0, 1, 2] for _ in range(50))
    assert choose.count > 0
