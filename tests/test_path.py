"""The path of a broker's failure stays short, and leads downward; see `tests.support.path`."""

import asyncio

import pytest

from tests.support import path


def test_a_controller_loads_few_modules() -> None:
    assert path.loaded() <= 160


def test_the_failure_of_a_broker_takes_a_short_way_down() -> None:
    course = asyncio.run(path.failure())

    assert not course.upward
    assert len(course.functions) <= 355
    assert len(course.files) <= 58


@pytest.mark.parametrize(
    ("caller", "called", "expected"),
    [
        ("kactl.actors.machines.partitions", "kactl.actors.controller", True),
        ("kactl.actors.machines.replicas", "kactl.actors.handlers.base", True),
        ("kactl.actors.machines.machine", "kactl.actors.priority_inbox", False),
        ("kactl.actors.handlers.base", "kactl.actors.controller", False),
        ("kactl.stores.memory.store", "kactl.actors.watcher", True),
        ("kactl.actors.channel", "kactl.transports.memory", False),
    ],
)
def test_calls_from_lower_layers_point_upward(caller: str, called: str, expected: bool) -> None:
    assert path.points_upward(caller, called) is expected
