"""The garbage collector runs between events, while the controller is idle."""

import gc
import weakref
from collections.abc import Iterator

import anyio
import pytest

from kactl.telemetry.gc import AGED_MAX, CALM_MS, FULL_AFTER, INTERVAL_MS, OLDER_AFTER, YOUNG_WORTH, Collector
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio


# Slow tests unfreeze all objects. The collection that follows visits all tests and modules of the process, which takes
# two seconds at the end of a run.


class Knot:
    """Reference cycle, which reference counting does not free."""

    def __init__(self) -> None:
        self.itself = self


def knot() -> weakref.ref[Knot]:
    return weakref.ref(Knot())


def many_objects() -> list[list[int]]:
    """Returns enough new objects for a collection."""
    return [[] for _ in range(YOUNG_WORTH)]


def is_frozen(each: object) -> bool:
    """Returns whether collections skip a container. Python 3.12 adds immortal objects to `gc.get_freeze_count()`."""
    return not any(collected is each for collected in gc.get_objects())


class CollectorHarness:
    """Collector with controllable events."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.busy = False
        self.epoch = 0
        self.collector = Collector(self.clock, busy=lambda: self.busy, epoch=lambda: self.epoch)

    async def calm(self) -> None:
        """Advance by an idle time, and run the collector at its end."""
        await self.clock.advance(CALM_MS)
        self.collector.rest()


@pytest.fixture
def harness() -> Iterator[CollectorHarness]:
    """Collector with automatic collection disabled, as in `run`, and all counts at zero.

    Everything that exists before the test is frozen: a collection through all tests and modules takes half a second.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    yield CollectorHarness()
    gc.enable()


def test_garbage_is_collected_while_idle(harness: CollectorHarness) -> None:
    garbage, live = knot(), many_objects()

    harness.collector.rest()

    assert garbage() is None
    assert live


def test_nothing_is_collected_while_an_event_is_handled(harness: CollectorHarness) -> None:
    garbage, live = knot(), many_objects()
    harness.busy = True

    harness.collector.rest()

    assert garbage() is not None
    assert live


def test_much_garbage_is_collected_in_spite_of_events(
    harness: CollectorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kactl.telemetry.gc.YOUNG_MAX", YOUNG_WORTH)
    garbage, live = knot(), many_objects()
    harness.busy = True

    harness.collector.rest()

    assert garbage() is None
    assert live


def test_few_objects_are_not_collected(harness: CollectorHarness) -> None:
    garbage = knot()

    harness.collector.rest()

    assert garbage() is not None


def test_many_survivors_are_followed_by_an_older_collection(harness: CollectorHarness) -> None:
    """However many survive, an older collection has not many more to look through."""
    living = Knot()
    garbage = weakref.ref(living)
    gc.collect(0)  # move it into the middle generation
    del living
    survivors = []
    for _ in range(AGED_MAX // YOUNG_WORTH):
        survivors.append(many_objects())
        harness.collector.rest()
    assert garbage() is not None

    survivors.append(many_objects())
    harness.collector.rest()
    assert garbage() is None

    living = Knot()
    garbage = weakref.ref(living)
    gc.collect(0)
    del living
    survivors.append(many_objects())
    harness.collector.rest()

    assert garbage() is not None


def test_old_garbage_is_collected_without_an_idle_time_in_the_end(harness: CollectorHarness) -> None:
    living = Knot()
    garbage = weakref.ref(living)
    for _ in range(FULL_AFTER - 1):
        gc.collect(1)
    del living
    harness.collector.rest()
    assert garbage() is not None

    gc.collect(1)
    harness.collector.rest()

    assert garbage() is None


async def test_old_garbage_is_collected_after_an_idle_time(harness: CollectorHarness) -> None:
    living = Knot()
    garbage = weakref.ref(living)
    for _ in range(OLDER_AFTER):
        gc.collect(1)  # move it into the oldest generation
    del living

    harness.collector.rest()
    assert garbage() is not None

    await harness.calm()
    assert garbage() is None


@pytest.mark.slow
async def test_event_restarts_the_idle_time(harness: CollectorHarness) -> None:
    loaded = many_objects()
    harness.epoch = 1
    harness.collector.rest()
    harness.busy = True
    await harness.clock.advance(CALM_MS)
    harness.collector.rest()
    harness.busy = False

    harness.collector.rest()
    assert not is_frozen(loaded)

    await harness.calm()
    assert is_frozen(loaded)


@pytest.mark.slow
async def test_objects_loaded_by_a_takeover_are_frozen_when_idle(harness: CollectorHarness) -> None:
    harness.collector.rest()
    loaded = many_objects()
    harness.epoch = 1

    harness.collector.rest()
    assert not is_frozen(loaded)

    await harness.calm()
    later = many_objects()
    await harness.calm()

    assert is_frozen(loaded)
    assert is_frozen(loaded[-1])
    assert not is_frozen(later)


@pytest.mark.slow
async def test_objects_of_the_previous_term_are_collected(harness: CollectorHarness) -> None:
    living = Knot()
    garbage = weakref.ref(living)
    harness.collector.rest()
    harness.epoch = 1
    await harness.calm()
    del living
    gc.collect()
    assert garbage() is not None  # it is frozen

    harness.epoch = 2
    await harness.calm()

    assert garbage() is None


async def test_automatic_collection_is_restored() -> None:
    clock = ManualClock()
    collector = Collector(clock, busy=lambda: False, epoch=lambda: 0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collector.run)
        await settle()
        assert not gc.isenabled()
        garbage, live = knot(), many_objects()
        await clock.advance(INTERVAL_MS)
        assert garbage() is None
        assert live
        tasks.cancel_scope.cancel()

    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
