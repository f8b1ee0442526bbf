"""The collector runs between events: garbage goes when nothing is in hand, and not before."""

import gc
import weakref
from collections.abc import Iterator

import anyio
import pytest

from kactl.telemetry.gc import CALM_MS, INTERVAL_MS, OLDER_AFTER, YOUNG_WORTH, Collector
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio


class Knot:
    """Garbage that counting references does not find."""

    def __init__(self) -> None:
        self.itself = self


def knot() -> weakref.ref[Knot]:
    return weakref.ref(Knot())


def many() -> list[list[int]]:
    """Enough new objects for a collection to be worth it."""
    return [[] for _ in range(YOUNG_WORTH)]


def is_frozen(each: object) -> bool:
    """Whether collections pass over a container. Python 3.12 adds immortal objects to `gc.get_freeze_count()`."""
    return not any(collected is each for collected in gc.get_objects())


class Bench:
    """A collector, and what it is told of events."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.busy = False
        self.epoch = 0
        self.collector = Collector(self.clock, busy=lambda: self.busy, epoch=lambda: self.epoch)

    async def calm(self) -> None:
        """A while in which nothing happens, and a look at its end."""
        await self.clock.advance(CALM_MS)
        self.collector.rest()


@pytest.fixture
def bench() -> Iterator[Bench]:
    """With Python's own collector switched off, as `run` does it, and all counts at zero."""
    gc.collect()
    gc.disable()
    yield Bench()
    gc.unfreeze()
    gc.enable()


def test_garbage_goes_while_nothing_is_in_hand(bench: Bench) -> None:
    garbage, kept = knot(), many()

    bench.collector.rest()

    assert garbage() is None
    assert kept


def test_nothing_is_collected_while_an_event_is_in_hand(bench: Bench) -> None:
    garbage, kept = knot(), many()
    bench.busy = True

    bench.collector.rest()

    assert garbage() is not None
    assert kept


def test_a_flood_of_garbage_does_not_wait_for_events(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kactl.telemetry.gc.YOUNG_MAX", YOUNG_WORTH)
    garbage, kept = knot(), many()
    bench.busy = True

    bench.collector.rest()

    assert garbage() is None
    assert kept


def test_a_few_objects_are_not_worth_it(bench: Bench) -> None:
    garbage = knot()

    bench.collector.rest()

    assert garbage() is not None


async def test_what_grew_old_goes_after_a_while_of_calm(bench: Bench) -> None:
    living = Knot()
    garbage = weakref.ref(living)
    for _ in range(OLDER_AFTER):
        gc.collect(1)  # into the oldest generation with it
    del living

    bench.collector.rest()
    assert garbage() is not None

    await bench.calm()
    assert garbage() is None


async def test_an_event_in_between_is_no_calm(bench: Bench) -> None:
    loaded = many()
    bench.epoch = 1
    bench.collector.rest()
    bench.busy = True
    await bench.clock.advance(CALM_MS)
    bench.collector.rest()
    bench.busy = False

    bench.collector.rest()
    assert not is_frozen(loaded)

    await bench.calm()
    assert is_frozen(loaded)


async def test_what_a_takeover_loaded_is_put_aside_once_there_is_time(bench: Bench) -> None:
    bench.collector.rest()
    loaded = many()
    bench.epoch = 1

    bench.collector.rest()
    assert not is_frozen(loaded)

    await bench.calm()
    later = many()
    await bench.calm()

    assert is_frozen(loaded)
    assert is_frozen(loaded[-1])
    assert not is_frozen(later)


async def test_what_the_controllership_before_left_goes_with_the_next(bench: Bench) -> None:
    living = Knot()
    garbage = weakref.ref(living)
    bench.collector.rest()
    bench.epoch = 1
    await bench.calm()
    del living
    gc.collect()
    assert garbage() is not None  # it was put aside

    bench.epoch = 2
    await bench.calm()

    assert garbage() is None


async def test_python_collects_by_itself_again_afterwards() -> None:
    clock = ManualClock()
    collector = Collector(clock, busy=lambda: False, epoch=lambda: 0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collector.run)
        await settle()
        assert not gc.isenabled()
        garbage, kept = knot(), many()
        await clock.advance(INTERVAL_MS)
        assert garbage() is None
        assert kept
        tasks.cancel_scope.cancel()

    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
