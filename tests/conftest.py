"""What all tests share: the event loop's backend, how random stories are told, and which tests run side by side."""

import gc
from typing import Any, Final

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests.support import scenarios, storm_seeds

# The same stories on every run, so that a red test is red for everyone; a failure prints what reproduces it.
# No deadline: two busy cores make honest code slow, and time is measured in bench/, not here.
settings.register_profile("default", derandomize=True, deadline=None, print_blob=True)
# For hunting: other stories each time, and many of them. `pytest --hypothesis-profile=wide`
settings.register_profile("wide", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile("default")


def pytest_configure(config: pytest.Config) -> None:
    """Before workers are started, which take the first seed over."""
    storm_seeds.draw()


def pytest_report_header(config: pytest.Config) -> str:
    return storm_seeds.seed_headline()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Repeat the first seed at the end of a run that failed: its head may be out of sight, and `-q` prints none."""
    if exitstatus:
        terminalreporter.write_line(storm_seeds.seed_headline())


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """asyncio is what kactl runs on; uvloop is a faster form of it."""
    return "asyncio"


# What is dear to make and asked by several files: real brokers, and what all jobs say of an incident.
TOGETHER: Final = ("tests/interop/", "tests/forensics/answers/")


# What starts a Java; whatever asks for one of them is marked `java`.
JAVA_FIXTURES: Final = frozenset({"jars", "spark"})


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note the stories that are told, before tests are left out by their names or marks."""
    config.stash[scenarios.COLLECTED] = scenarios.told_by(items), {item.path for item in items}
    for item in items:
        if not JAVA_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.java)


_FROZEN: Final = pytest.StashKey[int]()


def _freeze(config: pytest.Config) -> None:
    """Take what exists out of garbage collections: thousands of tests and their modules stay until the run ends, and a
    full collection that goes through them takes longer than most tests."""
    gc.collect()
    gc.freeze()
    config.stash[_FROZEN] = gc.get_freeze_count()


def pytest_collection_finish(session: pytest.Session) -> None:
    _freeze(session.config)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Freeze again between two files, once a test has called `gc.unfreeze`, as a server does when it ends."""
    if nextitem is not None and nextitem.path != item.path and gc.get_freeze_count() < item.config.stash[_FROZEN] // 2:
        _freeze(item.config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """With several workers: a file's tests stay together, and so do those that share what is dear to make.

    Those of real brokers mostly wait, for sessions to end above all; everything else gets done meanwhile.
    """
    return _ByFile(config, log)


class _ByFile(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return next((each for each in TOGETHER if nodeid.startswith(each)), nodeid.partition("::")[0])
