"""Fixtures around a real ZooKeeper, imported by name into a conftest or a test module."""

import itertools
from collections.abc import Iterator

import pytest

from .jars import require_jars, require_jars_4
from .zookeeper_server import ZooKeeperServer

_chroots = itertools.count(1)


@pytest.fixture(scope="session")
def jars() -> str:
    """Returns the class path of the servers. Dependent tests are skipped with a reason without Java or Maven."""
    return require_jars()


@pytest.fixture(scope="session")
def jars_4() -> str:
    """Returns the class path of Kafka 4. Skips like `jars`, and also with a Java older than 17."""
    return require_jars_4()


@pytest.fixture(scope="session")
def zookeeper(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A running server shared by several tests, which must leave it running and use `chroot`."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def fresh_zookeeper(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A running server for one test, which may stop, kill or pause it."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def chroot() -> str:
    """A path that no other test of this run uses, for `ZooKeeperServer.connect`. It does not exist yet."""
    return f"/test-{next(_chroots)}"
