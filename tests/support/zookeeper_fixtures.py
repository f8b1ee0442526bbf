"""Fixtures around a real ZooKeeper. A conftest anywhere under tests/ imports the ones it wants by name."""

import itertools
from collections.abc import Iterator

import pytest

from .jars import require_jars, require_jars_4
from .zookeeper_server import ZooKeeperServer

_chroots = itertools.count(1)


@pytest.fixture(scope="session")
def jars() -> str:
    """The class path of the servers; what depends on it is skipped, loudly, where Java or Maven is missing."""
    return require_jars()


@pytest.fixture(scope="session")
def jars_4() -> str:
    """The class path of Kafka 4; skipped as `jars` is, and also where Java is older than 17."""
    return require_jars_4()


@pytest.fixture(scope="session")
def zookeeper(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A running server, shared by the files of a folder; leave it running. Tests keep apart by `chroot`."""
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
