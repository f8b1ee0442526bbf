"""Configuration of all tests: event loop backend, random examples, markers, and distribution over workers."""

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from xdist.scheduler import LoadScopeScheduling

from tests.support import api_access, killed_runs, run_order, scenarios, selection
from tests.support.clocks import ManualClock

# The same examples on every run, so that a failure is reproducible everywhere; a failure prints how.
settings.register_profile("default", derandomize=True, deadline=None, print_blob=True)
# For the fast tests, `make check`: the first of these examples. `make test` runs all of them.
settings.register_profile("check", settings.get_profile("default"), max_examples=10)
# For searches: new examples on each run, and many. `pytest --hypothesis-profile=wide`
settings.register_profile("wide", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile("default")


# Files in memory: SQLite forces each commit to the disk, and tests wait for that longer than they compute. No test can
# notice what a disk has kept after a loss of power; `tests/sim/sqlite` simulates such losses.
SHARED_MEMORY: Final = Path("/dev/shm")
# Files of a run with real brokers take 5 GiB at most, and its processes 6.
AVAILABLE_BYTES_MIN: Final = 12 << 30


def pytest_configure(config: pytest.Config) -> None:
    """Choose the place of temporary files before the workers start, which inherit it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # programs under test inherit what is ignored
    if SHARED_MEMORY.is_dir() and not hasattr(config, "workerinput"):
        killed_runs.remove_files(SHARED_MEMORY)
        if killed_runs.available_bytes(SHARED_MEMORY) >= AVAILABLE_BYTES_MIN:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(SHARED_MEMORY))
    api_access.use_own_state_folder()
    _draw_no_constants_of_modules(config)
    config.pluginmanager.register(_MarkGuard())
    _record_unfreezing(config)


def _draw_no_constants_of_modules(config: pytest.Config) -> None:
    """Keep hypothesis from drawing constants that it finds in the modules under test, except in a search.

    Examples would depend on which modules a process has imported, and change with each of them; and each process would
    parse all modules, which takes seconds in a new tree.
    """
    if config.getoption("--hypothesis-profile") != "wide":
        patch = pytest.MonkeyPatch()
        patch.setattr(providers, "_get_local_constants", lambda: providers._local_constants)
        config.add_cleanup(patch.undo)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure when it happens: a run that is killed later prints no summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        print(f"\nfailed in {report.when}: {report.nodeid}: {str(getattr(crash, 'message', ''))[:500]}", flush=True)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """kactl runs on asyncio; uvloop is a faster implementation of it."""
    return "asyncio"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


# Fixtures that start Java. A test that uses one of them is marked `java`.
JAVA_FIXTURES: Final = frozenset({"jars", "jars_4", "spark"})
# Fixtures that start a cluster in a process of its own for one test, which is marked `slow`.
OWN_CLUSTER_FIXTURES: Final = frozenset({"own_up", "patient_up"})


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let each worker begin its collection of all tests elsewhere; collect no garbage meanwhile.

    Modules and tests live until the run ends: each pass over them would free nothing.
    """
    config, tests = session.config, Path(__file__).parent
    if hasattr(config, "workerinput") and [config.rootpath / path for path in config.args] == [tests]:
        worker = int(config.workerinput["workerid"].removeprefix("gw"))
        config.args = run_order.collection_order(tests, worker, config.workerinput["workercount"])
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Record the scenarios before tests are deselected by name or mark; on a worker, sort the slowest tests first."""
    config.stash[scenarios.COLLECTED] = scenarios.told_by(items), {item.path for item in items}
    selection.mark(config, items)
    for item in items:
        if not JAVA_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.java)
        if not OWN_CLUSTER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):
        positions = run_order.slowest_first(item.nodeid for item in items)
        items.sort(key=lambda item: positions[run_order.unit_of(item.nodeid)])


class _MarkGuard:
    """Plugin that rejects an expensive fixture in a test without its mark.

    `getfixturevalue` requests a fixture after the marks are set. A hook of this file would not see fixtures of the
    session.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
        name = fixturedef.argname
        needed = {"java", "interop"} if name in JAVA_FIXTURES else {"slow"} if name in OWN_CLUSTER_FIXTURES else None
        if needed and needed.isdisjoint(mark.name for mark in request._pyfuncitem.iter_markers()):
            marks = " or ".join(sorted(needed))
            pytest.fail(f"fixture {name} is requested by a test without the mark {marks}: add it to the arguments")


_UNFROZEN: Final = pytest.StashKey[bool]()


def _record_unfreezing(config: pytest.Config) -> None:
    """Record calls of `gc.unfreeze`. `gc.get_freeze_count` visits all frozen objects, millions of them."""
    unfreeze, patch = gc.unfreeze, pytest.MonkeyPatch()

    def recorded() -> None:
        config.stash[_UNFROZEN] = True
        unfreeze()

    patch.setattr(gc, "unfreeze", recorded)
    config.add_cleanup(patch.undo)


def _freeze(config: pytest.Config) -> None:
    """Exclude existing objects from garbage collection: thousands of tests and their modules live until the run
    ends, and a full collection through them takes longer than most tests."""
    gc.freeze()
    config.stash[_UNFROZEN] = False


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.collect()
    _freeze(session.config)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Freeze again after a test that has called `gc.unfreeze`, as a stopping server does.

    Only young objects are collected before, since all that were frozen are in the oldest generation now.
    """
    if item.config.stash[_UNFROZEN]:
        gc.collect(1)
        _freeze(item.config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Distribute units as `run_order` says, in the order in which the workers have collected them."""
    config.option.loadscopereorder = False
    return _ByUnit(config, log)


class _ByUnit(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return run_order.unit_of(nodeid)
